//! Links: what the wire between two ranks cost, from both ends of each flow; and the hosts' NIC counters.
use mycroft_record::{ChannelId, HostName, HostTime, NANOS_PER_SEC, NicState, OpId, Rank};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::halves::Half;
use super::iterations::{FIFO_SLOTS, make_room, wall_us};
use super::ranks::{Ranks, Slot};
use crate::median::median;

/// Samples kept of each link: 1,024 x 16 B = 16 KiB.
const SAMPLES_KEPT: usize = 1024;
/// Samples kept of all links that a rank sends on: 4,096 x 16 B = 64 KiB, 640 MiB at 10,240 ranks.
const SAMPLES_PER_RANK: usize = 4096;
/// Links kept that a rank sends on: an exchange among 256.
const LINKS_PER_RANK: usize = 256;
/// Pauses kept of a job, at least: 4,096 x 112 B = 450 KiB.
const PAUSES_MIN: usize = 4096;
/// Pauses kept per rank beyond that: one of a rank stops the flows of all that wait for it.
const PAUSES_PER_RANK: usize = 8;
/// A flow whose steps wait as long as so many of the longest do is slow all the time and did not pause: one pause is seen by
/// the eight steps at most that are under way.
const STEADY_STEPS: f64 = 10.0;
/// A flow of which a byte is on its way for at most so many times as long as in most of these last flows of its link is slow as they are:
/// a pause takes longer than the flow itself.
const AS_SLOW: f64 = 2.0;
/// See [`AS_SLOW`]; of fewer than half of them nobody knows.
const FLOWS_BEFORE: usize = 8;
/// NIC samples kept per interface: 600 x 40 B; a minute at ten a second.
const NIC_KEPT: usize = 600;
/// Times of a link's samples count from this long before the first, since records of others may be older.
const BEFORE_FIRST_NS: u64 = 60 * NANOS_PER_SEC;

/// A number as so many leading bits and a power of two: `DIGITS` bits of it are kept.
#[derive(Clone, Copy, Debug)]
struct Rounded<const DIGITS: u32>;

impl<const DIGITS: u32> Rounded<DIGITS> {
    fn pack(value: u64) -> u32 {
        let drop = (u64::BITS - value.leading_zeros()).saturating_sub(DIGITS);
        drop << DIGITS | (value >> drop) as u32
    }

    fn unpack(packed: u32) -> u64 {
        u64::from(packed & ((1 << DIGITS) - 1)) << (packed >> DIGITS)
    }
}

/// Bytes of a flow: exact up to 64 MiB, to one in 33 million beyond.
type Bytes = Rounded<26>;
/// Microseconds: exact up to 2 ms, to one in 1,024 beyond.
type Micros = Rounded<11>;

/// What the way from one proxy to the other cost a flow, in 16 bytes.
#[derive(Clone, Copy, Debug)]
struct Packed {
    /// Microseconds after the link's beginning.
    at_us: u32,
    /// [`Bytes`].
    bytes: u32,
    /// [`Micros`], as the three that follow.
    sent_us: u16,
    awaited_us: u16,
    held_us: u16,
    alone_us: u16,
}

/// What the way from one proxy to the other cost one flow, microseconds.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Took {
    /// For how long data was on its way, whether it was awaited or not, where as many steps are side by side as there are slots.
    pub sent_us: f64,
    /// The part of it for which it was awaited.
    pub awaited_us: f64,
    /// Ready data was awaited, and the sender's proxy had not handed it over although there was credit.
    pub held_us: f64,
    /// For how long data was on its way: the sum over steps where they are one after the other, and no longer than the flow lasted where
    /// they are side by side. Which of the two it is depends on how far ahead the receiver asks. 0: not known.
    pub alone_us: f64,
}

/// What one flow took, and when.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct LinkSample {
    /// To the microsecond.
    pub at: HostTime,
    pub took: Took,
    pub bytes: u64,
}

/// One direction between two ranks.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub from: Rank,
    pub to: Rank,
    begin: HostTime,
    samples: VecDeque<Packed>,
}

impl Link {
    fn new(from: Rank, to: Rank, first: HostTime) -> Link {
        Link { from, to, begin: first - BEFORE_FIRST_NS, samples: VecDeque::new() }
    }

    fn unpack(&self, packed: &Packed) -> LinkSample {
        let us = |packed: u16| Micros::unpack(u32::from(packed)) as f64;
        LinkSample {
            at: self.begin + u64::from(packed.at_us) * 1000,
            took: Took {
                sent_us: us(packed.sent_us),
                awaited_us: us(packed.awaited_us),
                held_us: us(packed.held_us),
                alone_us: us(packed.alone_us),
            },
            bytes: Bytes::unpack(packed.bytes),
        }
    }

    fn push(&mut self, at: HostTime, took: Took, bytes: u64) {
        let mut us = at.since_ns(self.begin) / 1000;
        if us > u64::from(u32::MAX) {
            // After 71 minutes the beginning moves on; samples of before it are at it.
            let later = us - u64::from(u32::MAX / 2);
            self.begin = self.begin + later * 1000;
            let earlier = |sample: &mut Packed| sample.at_us = u64::from(sample.at_us).saturating_sub(later) as u32;
            self.samples.iter_mut().for_each(earlier);
            us -= later;
        }
        make_room(&mut self.samples);
        let pack = |us: f64| Micros::pack(us.round() as u64) as u16;
        self.samples.push_back(Packed {
            at_us: us as u32,
            bytes: Bytes::pack(bytes),
            sent_us: pack(took.sent_us),
            awaited_us: pack(took.awaited_us),
            held_us: pack(took.held_us),
            alone_us: pack(took.alone_us),
        });
    }

    pub(crate) fn samples(&self) -> impl DoubleEndedIterator<Item = LinkSample> {
        self.samples.iter().map(|packed| self.unpack(packed))
    }

    pub(crate) fn newest(&self) -> Option<LinkSample> {
        self.samples.back().map(|packed| self.unpack(packed))
    }
}

/// The links that one rank sends on, ascending by receiver.
#[derive(Clone, Debug, Default)]
struct Outgoing {
    links: Vec<Link>,
    samples: usize,
}

impl Outgoing {
    /// Whether the data of a flow was on its way for about as long as that of most flows before it on its link.
    fn is_as_slow(&self, send: &Half, to: Rank) -> bool {
        let Ok(at) = self.links.binary_search_by(|link| link.to.cmp(&to)) else { return false };
        let samples = self.links[at].samples().rev().take(FLOWS_BEFORE).filter(|sample| sample.bytes > 0);
        let before: Vec<f64> = samples.map(|sample| sample.took.sent_us / sample.bytes as f64).collect();
        let sent_us = wall_us(f64::from(send.stage_us[2]), send.total_chunks, FIFO_SLOTS);
        2 * before.len() >= FLOWS_BEFORE
            && median(before).is_some_and(|usual| sent_us / send.bytes.max(1) as f64 <= AS_SLOW * usual)
    }

    fn add(&mut self, send: &Half, recv: &Half, took: Took) {
        let at = match self.links.binary_search_by(|link| link.to.cmp(&recv.rank)) {
            Ok(at) => at,
            Err(_) if self.links.len() >= LINKS_PER_RANK => return,
            Err(at) => {
                self.links.insert(at, Link::new(send.rank, recv.rank, send.ended_at));
                at
            }
        };
        if self.links[at].samples.len() >= SAMPLES_KEPT {
            self.links[at].samples.pop_front();
            self.samples -= 1;
        } else if self.samples >= SAMPLES_PER_RANK
            && let Some(longest) = self.links.iter_mut().max_by_key(|link| link.samples.len())
        {
            longest.samples.pop_front();
            self.samples -= 1;
        }
        self.links[at].push(send.ended_at, took, send.bytes);
        self.samples += 1;
    }
}

/// What the way between two ranks cost a flow.
///
/// Data that is ready waits in the sender's stages 1 and 2; a receiver that is ready waits in its stage 0. Only while both
/// wait is it the way between them: the smaller of the two needs no comparison of clocks.
///
/// What of it is not in stage 2 was not handed over. It may have waited for credit while other slices waited for data: there
/// is none while the receiver's slots are full of what its device has not taken, which is its stage 2. That is neither the
/// wire's nor anybody's between the two. Only what is longer than that is the sender's proxy's own.
fn took(send: &Half, recv: &Half) -> Took {
    let ready = u64::from(send.stage_us[1]) + u64::from(send.stage_us[2]);
    let both_wait_us = ready.min(u64::from(recv.stage_us[0])) as u32;
    let own_us = both_wait_us.saturating_sub(send.stage_us[2].saturating_add(recv.stage_us[2]));
    let wall = |sum_us: u32| wall_us(f64::from(sum_us), send.total_chunks, FIFO_SLOTS);
    let alone_us = send.stage_us[2].min(send.lasted_us).max(send.stage_max_us[2]);
    Took {
        sent_us: wall(send.stage_us[2]),
        awaited_us: wall(send.stage_us[2].min(both_wait_us)),
        held_us: wall(own_us),
        alone_us: if send.lasted_us > 0 { f64::from(alone_us) } else { 0.0 },
    }
}

/// A flow in which one step waited very long, from both ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Pause {
    pub at: HostTime,
    pub from: Rank,
    pub to: Rank,
    pub op: OpId,
    pub channel: ChannelId,
    pub send_max_us: [u32; 3],
    pub recv_max_us: [u32; 3],
}

/// An interface at one time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NicSample {
    pub at: HostTime,
    pub up: bool,
    pub speed_bytes_per_sec: u64,
    pub tx_bytes: u64,
    pub rx_bytes: u64,
}

/// The interfaces of a host by name.
pub(super) type Nics = BTreeMap<Arc<str>, VecDeque<NicSample>>;

/// Links and interfaces of a job.
#[derive(Debug, Default)]
pub(crate) struct Links {
    /// By the sender's slot.
    outgoing: Vec<Outgoing>,
    pub(crate) pauses: VecDeque<Pause>,
    /// By host and name.
    nics: BTreeMap<HostName, Nics>,
}

impl Links {
    /// Every link, ascending by sender and receiver.
    pub(crate) fn all<'a>(&'a self, ranks: &'a Ranks) -> impl Iterator<Item = &'a Link> {
        ranks.slots().filter_map(|slot| self.outgoing.get(slot as usize)).flat_map(|outgoing| &outgoing.links)
    }

    /// Takes in both ends of a flow. `sender` is the sending rank's slot, `op` and `channel` what the sender calls the flow.
    pub(super) fn join(&mut self, sender: Slot, (op, channel): (OpId, ChannelId), ends: (Half, Half), limits: Limits) {
        let (send, recv) = ends;
        let needed = sender as usize + 1;
        if self.outgoing.len() < needed {
            self.outgoing.resize_with(needed, Outgoing::default);
        }
        let outgoing = &mut self.outgoing[sender as usize];
        // What is on its way for long in all flows of a link is sent slowly, and nobody slept.
        let sent_slowly = send.stage_max_us[1] < limits.pause_us && outgoing.is_as_slow(&send, recv.rank);
        outgoing.add(&send, &recv, took(&send, &recv));
        let longest = send.stage_max_us.iter().chain(recv.stage_max_us.iter()).max().copied().unwrap_or(0);
        let steady = |stage: usize| {
            send.stage_max_us[stage] >= limits.pause_us
                && f64::from(send.stage_us[stage]) >= STEADY_STEPS * f64::from(send.stage_max_us[stage])
        };
        if longest >= limits.pause_us && !steady(1) && !steady(2) && !sent_slowly {
            self.pauses.push_back(Pause {
                at: send.ended_at,
                from: send.rank,
                to: recv.rank,
                op,
                channel,
                send_max_us: send.stage_max_us,
                recv_max_us: recv.stage_max_us,
            });
            if self.pauses.len() > PAUSES_MIN.max(PAUSES_PER_RANK * limits.ranks) {
                self.pauses.pop_front();
            }
        }
    }

    /// Every interface with its host and name, ascending.
    pub(crate) fn nics(&self) -> impl Iterator<Item = (&HostName, &Arc<str>, &VecDeque<NicSample>)> {
        self.nics.iter().flat_map(|(host, nics)| nics.iter().map(move |(name, seen)| (host, name, seen)))
    }

    /// Takes in what a host tells of its interfaces: all of them at a time, so that it is looked for once.
    pub(super) fn on_nics<'a>(&mut self, host: &HostName, told: impl Iterator<Item = &'a NicState>) {
        let mut told = told.peekable();
        if told.peek().is_none() {
            return;
        }
        if !self.nics.contains_key(host) {
            self.nics.insert(host.clone(), Nics::default());
        }
        let Some(nics) = self.nics.get_mut(host) else { return };
        told.for_each(|nic| on_nic(nics, nic));
    }
}

fn on_nic(nics: &mut Nics, nic: &NicState) {
    let seen = match nics.get_mut(&nic.nic) {
        Some(seen) => seen,
        None => nics.entry(nic.nic.clone()).or_default(),
    };
    if seen.back().is_some_and(|last| last.at > nic.at) {
        return;
    }
    if seen.len() >= NIC_KEPT {
        seen.pop_front();
    }
    make_room(seen);
    seen.push_back(NicSample {
        at: nic.at,
        up: nic.up,
        speed_bytes_per_sec: nic.speed_bytes_per_sec,
        tx_bytes: nic.tx_bytes,
        rx_bytes: nic.rx_bytes,
    });
}

/// What bounds the memory of links.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Longest stage of a step that shows a pause.
    pub pause_us: u32,
    /// Ranks of the job.
    pub ranks: usize,
}

#[cfg(test)]
mod tests;
