//! NCCL's mechanics at the level that records show: chunks cut into slices, an 8-step FIFO with credits per connection, a
//! device that fills and drains slots in order, a proxy thread that hands them to the network, one wire that carries one
//! slice after the other.
//!
//! Each slice has four moments on each side of its connection, and each moment is the latest of what it needs, plus the
//! time that its part takes. Within an operation these needs never go in a circle, so they are computed in one pass
//! without an event queue; what a part cannot do before it ends up in [`NEVER`], and everything that needs it as well.
//! That is all there is to a stall: nobody decrees who stops.
pub(crate) mod healthy;
pub(crate) mod pair;
pub(crate) mod ring;
pub(crate) mod trace;
pub(crate) mod tree;

use crate::effects::RankEffects;
use crate::profile::{NEVER, Profile};

/// What a proxy thread takes to find that a slot was filled, or that a request has ended.
const LOOK_NS: u64 = 1_000;
/// What it then takes to hand a slice to the NIC, or to the device.
const HAND_OVER_NS: u64 = 2_000;
/// Time between a kernel's launch and its first instruction.
pub(crate) const LAUNCH_NS: u64 = 4_000;
/// Handing a slot over inside a host.
const LOCAL_NS: u64 = 2_000;

/// The parts of one rank as the mechanics use them: effects with every way to stop folded into the rates.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parts {
    pub(crate) compute: Profile,
    pub(crate) copy: Profile,
    pub(crate) proxy: Profile,
    pub(crate) host: Profile,
    pub(crate) sleeps: Vec<(u64, u64, f64, u64)>,
    /// From then on its process is gone, and its connections with it.
    pub(crate) killed: Option<u64>,
}

impl Parts {
    pub(crate) fn of(effects: &RankEffects) -> Parts {
        let mut parts = Parts {
            compute: effects.compute.clone(),
            copy: effects.copy.clone(),
            proxy: effects.proxy.clone(),
            host: effects.host.clone(),
            sleeps: effects.proxy_sleeps.clone(),
            killed: effects.killed_at,
        };
        if let Some(at) = effects.hangs_at {
            parts.compute.stop(at);
            parts.copy.stop(at);
        }
        if let Some(at) = effects.killed_at {
            for part in [&mut parts.compute, &mut parts.copy, &mut parts.proxy, &mut parts.host] {
                part.stop(at);
            }
        }
        if let Some((from, until)) = effects.frozen {
            parts.proxy.scale(from, until, 0.0);
            parts.host.scale(from, until, 0.0);
        }
        if let Some(at) = effects.stuck_at {
            parts.host.stop(at);
        }
        parts
    }
}

/// What lies between two members of a communicator.
#[derive(Clone, Debug)]
pub(crate) struct Wire {
    /// It crosses hosts: a proxy on each side, and flows in the records.
    pub(crate) network: bool,
    /// What the wire takes per byte for one channel of one rank, its share of what it is shared with.
    pub(crate) ns_per_byte: f64,
    /// One way.
    pub(crate) latency_ns: u64,
    /// What is wrong with it.
    pub(crate) profile: Option<Profile>,
}

impl Wire {
    /// It crosses hosts, and nothing is wrong with it.
    pub(crate) fn is_healthy(&self) -> bool {
        self.network && self.profile.is_none()
    }

    pub(crate) fn finish(&self, start: u64, work: u64) -> u64 {
        match &self.profile {
            None => start.saturating_add(work),
            Some(profile) => profile.finish(start, work),
        }
    }
}

/// One member in an operation.
#[derive(Clone, Debug)]
pub(crate) struct Seat<'a> {
    /// When its kernel starts; [`NEVER`] if it does not.
    pub(crate) start: u64,
    /// Its parts.
    pub(crate) parts: &'a Parts,
    /// Seed of what chance does to it in this operation.
    pub(crate) chance: u64,
    /// Its proxy thread sleeps from .. until.
    pub(crate) asleep: (u64, u64),
}

impl Seat<'_> {
    /// The proxy gets to something that can be done at `at` and takes `ns`.
    fn proxy(&self, at: u64, ns: u64) -> u64 {
        if at == NEVER {
            return NEVER;
        }
        let at = if at >= self.asleep.0 && at < self.asleep.1 { self.asleep.1 } else { at };
        self.parts.proxy.finish(at, ns)
    }

    /// The proxy has found at `at` that slice `step` is filled; it may fall asleep over it.
    fn doze(&mut self, at: u64, step: u64) -> u64 {
        for (from, until, share, ns) in &self.parts.sleeps {
            if at >= *from && at < *until && unit(mix(self.chance, step)) < *share {
                // What could be done while it got to this slice is done after its sleep as well.
                self.asleep = (at.saturating_sub(LOOK_NS), at + ns);
                return at + ns;
            }
        }
        at
    }

    /// A NIC serves no process that is gone: nothing is delivered to it or acknowledged for it any more.
    fn gone(&self, at: u64) -> bool {
        self.parts.killed.is_some_and(|killed| at >= killed)
    }

    /// The device copies a slice that takes `ns` when healthy.
    fn copy(&self, at: u64, ns: u64) -> u64 {
        if self.parts.copy.is_healthy() { at.saturating_add(ns) } else { self.parts.copy.finish(at, ns) }
    }
}

/// Two numbers to one, every bit of each in every bit of the result (SplitMix64's finalizer).
pub(crate) fn mix(a: u64, b: u64) -> u64 {
    let mut z = a ^ b.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(0xD6E8_FEB8_6659_FD93);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// 0..1 from 64 random bits.
pub(crate) fn unit(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1u64 << 53) as f64
}

/// A factor around 1 with this coefficient of variation, nearly normal (the sum of four uniforms), never under 0.2.
pub(crate) fn spread(bits: u64, variation: f64) -> f64 {
    if variation <= 0.0 {
        return 1.0;
    }
    let quarter = |i: u32| f64::from((bits >> (16 * i)) as u16) / 65_536.0;
    let sum = quarter(0) + quarter(1) + quarter(2) + quarter(3) - 2.0;
    // Four uniforms have the variance 4/12.
    (1.0 + variation * sum * 1.732_050_807_568_877_2).max(0.2)
}

/// The moments of every slice of one operation on one channel, for each lane (a member's end of a connection).
///
/// | moment | send | receive |
/// |---|---|---|
/// | 0 | slot offered to the device | receive posted |
/// | 1 | proxy found it filled | proxy found it delivered |
/// | 2 | proxy gave it to the network | published to the device |
/// | 3 | delivered and acknowledged | device consumed it |
#[derive(Debug, Default)]
pub(crate) struct Moments {
    steps: usize,
    at: Vec<u64>,
    /// When the proxy begins with each lane; [`NEVER`] if it does not.
    posted: Vec<u64>,
}

impl Moments {
    /// Begins anew: when the proxy begins with each lane.
    pub(crate) fn post(&mut self, posted: impl Iterator<Item = u64>) {
        self.posted.clear();
        self.posted.extend(posted);
    }

    /// Makes room for `steps` on each lane; every moment is [`NEVER`].
    fn clear(&mut self, steps: usize) {
        self.steps = steps;
        self.at.clear();
        self.at.resize(self.posted.len() * steps * 4, NEVER);
    }

    fn get(&self, lane: usize, step: usize, moment: usize) -> u64 {
        self.at[(lane * self.steps + step) * 4 + moment]
    }

    fn set(&mut self, lane: usize, step: usize, moment: usize, at: u64) {
        self.at[(lane * self.steps + step) * 4 + moment] = at;
    }

    /// All moments of a lane, four by four.
    pub(crate) fn lane(&self, lane: usize) -> &[u64] {
        &self.at[lane * self.steps * 4..(lane + 1) * self.steps * 4]
    }
}

/// Sizes of an operation on one channel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Slices that may be in flight: the FIFO's 8 steps in slices.
    pub(crate) window: usize,
    /// Bytes of a slice.
    pub(crate) slice_bytes: u64,
    /// What the device takes to copy one.
    pub(crate) copy_ns: u64,
}

/// What moves slices over the connection between a send lane and a receive lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hop<'a> {
    pub(crate) cut: Cut,
    pub(crate) wire: &'a Wire,
    /// What the wire takes for a slice in this operation.
    pub(crate) slice_ns: u64,
}

impl<'a> Hop<'a> {
    pub(crate) fn new(cut: Cut, wire: &'a Wire, factor: f64) -> Hop<'a> {
        let slice_ns = (cut.slice_bytes as f64 * wire.ns_per_byte * factor) as u64;
        Hop { cut, wire, slice_ns }
    }

    /// When there is a slot for slice `step`: offered to the sending device, posted by the receiver.
    fn offered(&self, moments: &Moments, lane: usize, step: usize) -> u64 {
        if step < self.cut.window { moments.posted[lane] } else { moments.get(lane, step - self.cut.window, 3) }
    }

    /// Moves slice `step`, which the device has filled, from lane `out` of `from` to lane `into` of `to`.
    /// `busy` is when the wire is free again.
    fn carry(
        &self,
        moments: &mut Moments,
        (out, into): (usize, usize),
        step: usize,
        (from, to): (&mut Seat<'_>, &mut Seat<'_>),
        busy: &mut u64,
    ) {
        let credit = self.offered(moments, into, step);
        moments.set(into, step, 0, credit);
        let ready = moments.get(out, step, 1);
        if ready == NEVER {
            return;
        }
        if !self.wire.network {
            let at = if credit == NEVER { NEVER } else { ready.max(credit) + LOCAL_NS };
            moments.set(out, step, 2, at);
            moments.set(out, step, 3, at);
            moments.set(into, step, 1, at);
            moments.set(into, step, 2, at);
            return;
        }
        // A proxy serves a connection's slices in order, whatever else keeps it, and looks only at the next one to send:
        // that is when it finds it filled.
        let before = |moments: &Moments, lane, moment| if step == 0 { 0 } else { moments.get(lane, step - 1, moment) };
        let seen = from.proxy(ready.max(before(moments, out, 2)), LOOK_NS);
        moments.set(out, step, 1, seen);
        if seen == NEVER || credit == NEVER {
            return;
        }
        let awake = from.doze(seen, step as u64);
        let sent = from.proxy(awake.max(credit), HAND_OVER_NS);
        moments.set(out, step, 2, sent);
        if sent == NEVER {
            return;
        }
        let carried = self.wire.finish(sent.max(*busy), self.slice_ns);
        *busy = carried;
        let delivered = carried.saturating_add(self.wire.latency_ns);
        if from.gone(carried) || to.gone(delivered) {
            return;
        }
        // The receiver's proxy finds it delivered when it looks, and gives it to the device.
        let found = to.proxy(delivered, LOOK_NS).max(before(moments, into, 2));
        moments.set(into, step, 1, found);
        moments.set(into, step, 2, to.proxy(found, HAND_OVER_NS));
        let acknowledged = from.proxy(delivered.saturating_add(self.wire.latency_ns), LOOK_NS);
        moments.set(out, step, 3, acknowledged.max(before(moments, out, 3)));
    }
}
