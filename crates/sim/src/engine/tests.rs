//! The mechanics of one operation: what holds for every shape, size and fault.
use super::sizes::{SLOT_BYTES, STEPS, Sizes, sizes};
use crate::collective::{Cut, Hop, Moments, Parts, Seat, Wire, pair, ring, tree};
use crate::profile::{NEVER, Profile};
use crate::scenario::Scenario;
use mycroft_record::OpKind;
use proptest::prelude::*;

/// What a part of a healthy member does per second, bytes.
const COPY_BYTES_PER_SEC: u64 = 2_000_000_000;
const WIRE_NS_PER_BYTE: f64 = 20.0;
const LATENCY_NS: u64 = 20_000;
/// Everybody's kernel starts within this.
const SKEW_NS: u64 = 2_000_000;

/// How the members are joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum How {
    Ring(OpKind),
    Tree,
    Pair,
}

/// One operation on one of its channels.
#[derive(Clone, Debug)]
struct Setup {
    how: How,
    sizes: Sizes,
    channel: usize,
    parts: Vec<Parts>,
    starts: Vec<u64>,
    posted: Vec<u64>,
    /// What is wrong with the wires that leave a member.
    wires: Vec<Option<Profile>>,
    /// Members per host.
    per_host: usize,
}

/// A connection: lanes of its ends, members at its ends, whether it crosses hosts.
#[derive(Clone, Copy, Debug)]
struct Link {
    out: usize,
    into: usize,
    from: usize,
    to: usize,
    network: bool,
}

struct Played {
    moments: Moments,
    /// When each member's kernel ends.
    ends: Vec<u64>,
}

impl Setup {
    fn new(how: How, n: usize, bytes: u64, channels: u32, per_host: usize) -> Setup {
        let count = bytes.div_ceil(4).max(1);
        let sizes = |kind, is_tree| sizes(kind, count, n, &Scenario { channels, ..Scenario::default() }, is_tree);
        let sizes = match how {
            How::Ring(kind) => sizes(kind, false),
            How::Tree => sizes(OpKind::AllReduce, true),
            How::Pair => {
                let steps = bytes.div_ceil(SLOT_BYTES).clamp(1, 16);
                let slice_bytes = bytes.div_ceil(steps).max(1);
                Sizes { channels: 1, loops: steps, slices: 1, window: STEPS, slice_bytes, steps }
            }
        };
        Setup {
            how,
            sizes,
            channel: (sizes.channels - 1) as usize,
            parts: vec![Parts::default(); n],
            starts: vec![SKEW_NS; n],
            posted: vec![SKEW_NS / 2; n],
            wires: vec![None; n],
            per_host,
        }
    }

    fn members(&self) -> usize {
        self.parts.len()
    }

    fn cut(&self) -> Cut {
        let copy_ns = self.sizes.slice_bytes as f64 * 1e9 / COPY_BYTES_PER_SEC as f64;
        Cut { window: self.sizes.window as usize, slice_bytes: self.sizes.slice_bytes, copy_ns: copy_ns as u64 }
    }

    fn wire(&self, from: usize, to: usize) -> Wire {
        let network = from / self.per_host != to / self.per_host;
        let profile = if network { self.wires[from].clone() } else { None };
        let (ns_per_byte, latency_ns) = if network { (WIRE_NS_PER_BYTE, LATENCY_NS) } else { (0.5, 0) };
        Wire { network, ns_per_byte, latency_ns, profile }
    }

    fn links(&self) -> Vec<Link> {
        let link = |out, into, from: usize, to: usize| Link {
            out,
            into,
            from,
            to,
            network: from / self.per_host != to / self.per_host,
        };
        let n = self.members();
        match self.how {
            How::Ring(_) => {
                (0..n).map(|m| link(ring::send_lane(m), ring::send_lane((m + 1) % n) + 1, m, (m + 1) % n)).collect()
            }
            How::Pair => vec![link(pair::SEND, pair::RECV, 0, 1)],
            How::Tree => {
                let shape = tree::Shape::new(n, self.channel);
                let ends = |node: usize| tree::ends(shape, node).into_iter().map(move |end| (shape.member(node), end));
                let all: Vec<(usize, tree::End)> = (0..n).flat_map(ends).collect();
                let receives = |from: usize, to: usize| {
                    all.iter().find(|(at, end)| *at == to && end.peer == from && !end.sends).unwrap().1.lane
                };
                let sends = all.iter().filter(|(_, end)| end.sends);
                sends.map(|(at, end)| link(end.lane, receives(*at, end.peer), *at, end.peer)).collect()
            }
        }
    }

    fn play(&self) -> Played {
        let n = self.members();
        let mut seats: Vec<Seat<'_>> = (0..n)
            .map(|m| Seat { start: self.starts[m], parts: &self.parts[m], chance: m as u64, asleep: (0, 0) })
            .collect();
        let mut moments = Moments::default();
        let mut posted = vec![NEVER; n * tree::LANES];
        for link in self.links() {
            (posted[link.out], posted[link.into]) = (self.posted[link.from], self.posted[link.to]);
        }
        moments.post(posted.into_iter());
        let ends = match self.how {
            How::Ring(_) => {
                let Sizes { loops, slices, steps, .. } = self.sizes;
                let [sends, loops, slices] = [steps / loops / slices, loops, slices].map(|count| count as usize);
                let plan = ring::Plan { sends, loops, slices };
                let wires: Vec<Wire> = (0..n).map(|m| self.wire(m, (m + 1) % n)).collect();
                let hop = |wire| Hop::new(self.cut(), wire, 1.0);
                ring::run(&mut moments, plan, &mut seats, &Vec::from_iter(wires.iter().map(hop)))
            }
            How::Tree => {
                let shape = tree::Shape::new(n, self.channel);
                let branch = |node: usize| {
                    let (me, parent) = (shape.member(node), shape.member(node.saturating_sub(1) / 2));
                    tree::Branch { up: self.wire(me, parent), down: self.wire(parent, me), factor: 1.0 }
                };
                let branches: Vec<tree::Branch> = (0..n).map(branch).collect();
                tree::run(&mut moments, shape, self.sizes.steps as usize, self.cut(), &mut seats, &branches)
            }
            How::Pair => {
                let (from, to) = seats.split_at_mut(1);
                let (wire, steps) = (self.wire(0, 1), self.sizes.steps as usize);
                let hop = Hop::new(self.cut(), &wire, 1.0);
                <[u64; 2]>::from(pair::run(&mut moments, steps, &hop, (&mut from[0], &mut to[0]))).to_vec()
            }
        };
        Played { moments, ends }
    }
}

impl Played {
    fn step(&self, lane: usize, step: usize) -> [u64; 4] {
        self.moments.lane(lane)[step * 4..step * 4 + 4].try_into().unwrap()
    }

    fn steps(&self, lane: usize) -> usize {
        self.moments.lane(lane).len() / 4
    }

    /// Nanoseconds that all slices of a lane spent between two moments.
    fn stage(&self, lane: usize, stage: usize) -> u64 {
        (0..self.steps(lane)).map(|step| self.step(lane, step)).map(|at| at[stage + 1] - at[stage]).sum()
    }

    fn all(&self, links: &[Link]) -> Vec<u64> {
        links.iter().flat_map(|link| [link.out, link.into]).flat_map(|lane| self.moments.lane(lane).to_vec()).collect()
    }
}

/// Within a slice, and from slice to slice, no moment comes before the one before it; what never comes is followed by
/// nothing.
fn no_moment_goes_back(played: &Played, links: &[Link]) -> Result<(), TestCaseError> {
    for lane in links.iter().flat_map(|link| [link.out, link.into]) {
        for step in 0..played.steps(lane) {
            let at = played.step(lane, step);
            prop_assert!(at.is_sorted(), "lane {lane} slice {step}: {at:?}");
            if step > 0 {
                let before = played.step(lane, step - 1);
                prop_assert!((0..4).all(|k| before[k] <= at[k]), "lane {lane} slice {step}: {before:?} then {at:?}");
            }
        }
    }
    Ok(())
}

/// At most a FIFO's worth of slices is offered (or posted) and not done, on both sides.
fn credits_hold(setup: &Setup, played: &Played, links: &[Link]) -> Result<(), TestCaseError> {
    let window = setup.sizes.window as usize;
    for lane in links.iter().flat_map(|link| [link.out, link.into]) {
        for step in window..played.steps(lane) {
            let (offered, freed) = (played.step(lane, step)[0], played.step(lane, step - window)[3]);
            prop_assert!(offered >= freed, "lane {lane} slice {step} is offered at {offered}, before {freed}");
        }
    }
    Ok(())
}

/// Nothing arrives before it was sent, and is acknowledged before it arrived.
fn causes_come_first(played: &Played, links: &[Link]) -> Result<(), TestCaseError> {
    for link in links {
        for step in 0..played.steps(link.out) {
            let (out, into) = (played.step(link.out, step), played.step(link.into, step));
            prop_assert!(into[1] >= out[2], "{link:?} slice {step}: {out:?} {into:?}");
            let there_and_back = out[2].saturating_add(2 * LATENCY_NS);
            prop_assert!(!link.network || out[3] >= there_and_back, "{link:?} slice {step}: {out:?}");
            prop_assert!(out[2] == NEVER || out[2] >= into[0], "{link:?} slice {step}: sent without credit");
        }
    }
    Ok(())
}

/// A part of a member, to be broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Broken {
    Device,
    Proxy,
    Wire,
    All,
}

impl Broken {
    fn stop(self, setup: &mut Setup, member: usize, at: u64) {
        let parts = &mut setup.parts[member];
        match self {
            Broken::Device => parts.copy.stop(at),
            Broken::Proxy => parts.proxy.stop(at),
            Broken::Wire => {
                let mut profile = Profile::default();
                profile.stop(at);
                setup.wires[member] = Some(profile);
            }
            Broken::All => {
                parts.copy.stop(at);
                parts.proxy.stop(at);
            }
        }
    }

    /// What the part does: when it could begin or was done in a healthy run, and what came of it in this one.
    fn work(self, healthy: &Played, played: &Played, links: &[Link], member: usize) -> Vec<(u64, u64)> {
        let device = matches!(self, Broken::Device | Broken::All);
        let proxy = matches!(self, Broken::Proxy | Broken::All);
        let mut work = Vec::new();
        for link in links {
            for step in 0..played.steps(link.out) {
                let (out, into) = (healthy.step(link.out, step), healthy.step(link.into, step));
                let (out_now, into_now) = (played.step(link.out, step), played.step(link.into, step));
                if link.from == member {
                    work.extend(device.then_some((out[0], out_now[1])));
                    work.extend((proxy && link.network).then_some((out[2], out_now[2])));
                    work.extend((proxy && link.network).then_some((out[3], out_now[3])));
                    work.extend((self == Broken::Wire && link.network).then_some((out[2], into_now[1])));
                }
                if link.to == member {
                    work.extend(device.then_some((into[3], into_now[3])));
                    work.extend((proxy && link.network).then_some((into[2], into_now[2])));
                }
            }
        }
        work
    }
}

fn hows() -> impl Strategy<Value = How> {
    prop_oneof![
        Just(How::Ring(OpKind::AllReduce)),
        Just(How::Ring(OpKind::AllGather)),
        Just(How::Ring(OpKind::ReduceScatter)),
        Just(How::Tree),
        Just(How::Pair),
    ]
}

prop_compose! {
    /// An operation of 2 to 16 members on 1 to 4 channels, of 1 byte to 64 MB, whose members start at different times.
    fn setups()(
        how in hows(),
        n in 2usize..=16,
        magnitude in 0u32..=26,
        below in 0.5f64..=1.0,
        channels in 1u32..=4,
        per_host in 1usize..=3,
        skews in prop::collection::vec((0..=SKEW_NS, 0..=SKEW_NS), 16),
    ) -> Setup {
        let n = if how == How::Pair { 2 } else { n };
        let bytes = ((f64::from(1u32 << magnitude) * below) as u64).max(1);
        let mut setup = Setup::new(how, n, bytes, channels, per_host);
        (setup.starts, setup.posted) = skews.into_iter().take(n).unzip();
        setup
    }
}

fn broken() -> impl Strategy<Value = Broken> {
    prop_oneof![Just(Broken::Device), Just(Broken::Proxy), Just(Broken::Wire), Just(Broken::All)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn everything_ends_when_nobody_is_broken(setup in setups()) {
        let (played, links) = (setup.play(), setup.links());
        no_moment_goes_back(&played, &links)?;
        credits_hold(&setup, &played, &links)?;
        causes_come_first(&played, &links)?;
        prop_assert!(played.all(&links).iter().all(|at| *at < NEVER));
        let last = *setup.starts.iter().max().unwrap();
        for (m, end) in played.ends.iter().enumerate() {
            prop_assert!(*end < NEVER && *end >= setup.starts[m]);
            // Nobody has a result before the last member has given its part (a sender whose message fits the FIFO has
            // none to wait for).
            let waits = matches!(setup.how, How::Ring(OpKind::AllReduce) | How::Tree) || (setup.how == How::Pair && m == 1);
            let last = if setup.how == How::Pair { setup.starts[0] } else { last };
            prop_assert!(!waits || *end > last, "member {m} ends at {end}, the last begins at {last}");
        }
    }

    #[test]
    fn slow_and_sleepy_parts_keep_the_order(
        setup in setups(),
        who in 0usize..16,
        rate in 0.01f64..1.0,
        share in 0.0f64..0.5,
        from in 0u64..4 * SKEW_NS,
    ) {
        let mut setup = setup;
        let who = who % setup.members();
        setup.parts[who].sleeps.push((from, NEVER, share, 50_000_000));
        setup.parts[who].copy.scale(from, NEVER, rate);
        let (played, links) = (setup.play(), setup.links());
        no_moment_goes_back(&played, &links)?;
        credits_hold(&setup, &played, &links)?;
        causes_come_first(&played, &links)?;
        prop_assert!(played.ends.iter().all(|end| *end < NEVER), "slow is not stopped");
    }

    /// Nobody decrees who stops: each moment is as it was, or never comes, and it is the broken part's work that ends.
    #[test]
    fn what_does_not_need_a_stopped_part_ends_as_before(
        setup in setups(),
        who in 0usize..16,
        part in broken(),
        share in 0.0f64..1.1,
    ) {
        let who = who % setup.members();
        let (healthy, links) = (setup.play(), setup.links());
        let last = healthy.all(&links).into_iter().max().unwrap();
        let at = (last as f64 * share) as u64;
        let mut stopped = setup.clone();
        part.stop(&mut stopped, who, at);
        let played = stopped.play();
        for (before, after) in healthy.all(&links).into_iter().zip(played.all(&links)) {
            prop_assert!(after == before || after == NEVER, "{before} became {after}");
            prop_assert!(after == before || before >= at, "{before} was before the stop at {at}");
        }
        for (before, after) in healthy.ends.iter().zip(&played.ends) {
            prop_assert!(after == before || (*after == NEVER && *before >= at));
        }
        no_moment_goes_back(&played, &links)?;
        credits_hold(&setup, &played, &links)?;
        for (moment, came) in part.work(&healthy, &played, &links, who) {
            prop_assert!(moment <= at || came == NEVER, "the stopped part did at {came} what it did at {moment} before");
        }
        if at >= last.max(*healthy.ends.iter().max().unwrap()) {
            prop_assert_eq!(healthy.all(&links), played.all(&links));
        } else if matches!(setup.how, How::Ring(OpKind::AllReduce)) && part == Broken::All && at < setup.starts[who] {
            prop_assert!(played.ends.iter().all(|end| *end == NEVER), "nobody ends without what it never gave");
        }
    }
}

/// Pulse Figure 1: a slow NIC shows at its sender, and everybody else's sends wait, for data or for credits.
#[test]
fn a_slow_nic_makes_everybody_late_by_the_same_and_shows_at_its_sender() {
    const SLOW: usize = 2;
    let healthy = Setup::new(How::Ring(OpKind::AllReduce), 6, 4 << 20, 1, 1);
    let mut slow = healthy.clone();
    let mut profile = Profile::default();
    profile.scale(0, NEVER, 0.1);
    slow.wires[SLOW] = Some(profile);
    let (before, after, links) = (healthy.play(), slow.play(), healthy.links());
    let late: Vec<u64> = before.ends.iter().zip(&after.ends).map(|(before, after)| after - before).collect();
    let (least, most) = (*late.iter().min().unwrap(), *late.iter().max().unwrap());
    assert!(least > 5 * before.ends[0], "ten times slower: {late:?} against {}", before.ends[0]);
    assert!((most - least) * 4 < most, "late by nearly the same: {late:?}");
    let grown = |stage: usize| -> Vec<i64> {
        links.iter().map(|l| after.stage(l.out, stage) as i64 - before.stage(l.out, stage) as i64).collect()
    };
    let (gpu, peer, wire) = (grown(0), grown(1), grown(2));
    let longest = wire.iter().max().unwrap();
    assert_eq!(wire[SLOW], *longest, "stage 2 of the sender grows: {wire:?}");
    for m in (0..links.len()).filter(|m| *m != SLOW) {
        assert!(wire[m] * 20 < *longest, "{m}: data is in flight no longer than before: {wire:?}");
        assert!((gpu[m] + peer[m]) * 4 > *longest, "{m} waits for data or credit: {gpu:?} {peer:?}");
    }
    let behind = (SLOW + 5) % 6;
    let waiting: Vec<usize> = (0..links.len()).filter(|m| peer[*m] > 0).collect();
    assert_eq!(waiting, [behind], "whoever sends to the slow one, and nobody else, has no credit: {peer:?}");
}
