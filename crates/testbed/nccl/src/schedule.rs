//! Which channels an operation uses, and in which order transfers go: NCCL's `enqueue.cc` and `init.cc`.

use crate::abi::{Func, Proto};

/// Traffic that a channel gets at least, in bytes (`scheduleCollTasksToPlan`).
const CHANNEL_TRAFFIC_MIN: usize = 16 << 10;
/// Transfers that one batch of a kernel holds (`NCCL_MAX_DEV_WORK_P2P_PER_BATCH`).
pub const P2P_BATCH: usize = 8;
/// Bytes of a step of a transfer over the network (`NCCL_P2P_NET_CHUNKSIZE`), inside a host of NVLink
/// (`NCCL_P2P_NVL_CHUNKSIZE`).
const P2P_STEP: (usize, usize) = (128 << 10, 512 << 10);
/// Parts of a transfer begin at multiples of so many bytes (`ncclP2pPartBounds`).
const P2P_ALIGN: usize = 4 << 10;
/// Data of a step of LL: half of 8 lines x 512 threads x 16 bytes (`include/device.h`).
const LL_STEP: usize = 32 << 10;
/// Data of a step of LL128: 15 of 16 words of 120 x 640 x 8 bytes.
const LL128_STEP: usize = 614_400 / 16 * 15;

/// Data bytes of a step, in slots of `slot` bytes.
#[must_use]
pub fn step_bytes(proto: Proto, slot: usize) -> usize {
    match proto {
        Proto::Ll => LL_STEP.min(slot),
        Proto::Ll128 => LL128_STEP.min(slot),
        Proto::Simple => slot,
    }
}

/// Bytes that a link carries for each byte of the operation (`ncclFuncTrafficPerByte`).
#[must_use]
pub fn traffic_per_byte(func: Func, ranks: usize) -> usize {
    match func {
        Func::AllReduce => 2,
        Func::AllGather | Func::ReduceScatter => ranks,
        _ => 1,
    }
}

/// A collective as the spreader sees it.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Bytes of the operation's count.
    pub bytes: usize,
    /// Traffic for each of them.
    pub per_byte: usize,
    /// Channels that it may use.
    pub channels: usize,
    /// Its protocol.
    pub proto: Proto,
}

/// Spreads the collectives of one kernel over the channels, as much to each.
#[derive(Debug)]
pub struct Spreader {
    channels: usize,
    each: usize,
    channel: usize,
    current: usize,
}

/// A part of a collective: channel, first byte, bytes.
pub type Part = (usize, usize, usize);

impl Spreader {
    /// For a communicator of `channels` and all collectives of a kernel.
    #[must_use]
    pub fn new(channels: usize, loads: &[Load]) -> Spreader {
        let traffic: usize = loads.iter().map(|l| CHANNEL_TRAFFIC_MIN.max(l.bytes * l.per_byte)).sum();
        let used = loads.iter().map(|l| l.channels).sum::<usize>().clamp(1, channels);
        Spreader { channels, each: CHANNEL_TRAFFIC_MIN.max(traffic / used), channel: 0, current: 0 }
    }

    /// The parts of the next collective. Work is dealt in cells of [`CHANNEL_TRAFFIC_MIN`]; the first channel takes what is
    /// left of its share, the last what remains.
    pub fn next(&mut self, load: Load) -> Vec<Part> {
        let per_byte = load.per_byte * if load.proto == Proto::Ll { 4 } else { 1 };
        let cell = CHANNEL_TRAFFIC_MIN.div_ceil(per_byte).next_multiple_of(16);
        let cells = load.bytes.div_ceil(cell);
        let cell_traffic = cell * per_byte;
        let mut per_channel = cells.min(self.each.div_ceil(cell_traffic)).max(1);
        let mut low = match self.channel + 1 == self.channels {
            true => cells,
            false => cells.min(self.each.saturating_sub(self.current).div_ceil(cell_traffic)),
        };
        let mut middle = (cells - low) / per_channel;
        let mut high = (cells - low) % per_channel;
        if self.channels < self.channel + usize::from(low > 0) + middle + usize::from(high > 0) {
            middle = (self.channels - self.channel).saturating_sub(2);
            per_channel = (cells - low) / (middle + 1);
            high = per_channel + (cells - low) % (middle + 1);
        }
        if high == 0 && middle > 0 {
            (high, middle) = (per_channel, middle - 1);
        }
        if low == 0 {
            self.channel += 1;
            if middle == 0 {
                (low, high) = (high, 0);
            } else {
                (low, middle) = (per_channel, middle - 1);
            }
        }
        let mut parts = Vec::new();
        let mut from = 0;
        let sizes =
            std::iter::once(low).chain(std::iter::repeat_n(per_channel, middle)).chain((high > 0).then_some(high));
        for (i, size) in sizes.enumerate() {
            let bytes = (size * cell).min(load.bytes - from);
            parts.push((self.channel + i, from, bytes));
            from += bytes;
        }
        if high > 0 {
            self.channel += parts.len() - 1;
            self.current = high * cell_traffic;
        } else {
            self.current += low * cell_traffic;
        }
        if self.current >= self.each && self.channel + 1 != self.channels {
            self.channel += 1;
            self.current = 0;
        }
        parts
    }
}

/// The order in which a rank exchanges with the others: in round `k` it sends to `to[k]` and receives from `from[k]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rounds {
    /// Whom it sends to.
    pub to: Vec<usize>,
    /// Whom it receives from.
    pub from: Vec<usize>,
    locals: usize,
    nodes: usize,
}

/// The distances of an exchange of `n`: each once, growing by one more each time, modulo a power of two.
fn deltas(n: usize) -> Vec<usize> {
    let wrap = n.next_power_of_two();
    let mut delta = 0;
    (0..wrap)
        .map(|round| {
            delta = (delta + round) % wrap;
            delta
        })
        .filter(|delta| *delta < n)
        .collect()
}

impl Rounds {
    /// The rounds of `rank`, whose host is `hosts[rank]`.
    #[must_use]
    pub fn new(hosts: &[usize], rank: usize) -> Rounds {
        let nodes = hosts.iter().max().map_or(1, |h| h + 1);
        let of_host = |host: usize| -> Vec<usize> { (0..hosts.len()).filter(|r| hosts[*r] == host).collect() };
        let mut groups: Vec<Vec<usize>> = (0..nodes).map(of_host).collect();
        let most = groups.iter().map(Vec::len).max().unwrap_or(1);
        // Hosts of different sizes are treated as one.
        if groups.iter().any(|g| g.len() != groups[0].len()) {
            groups = vec![(0..hosts.len()).collect()];
        }
        let node = groups.iter().position(|g| g.contains(&rank)).unwrap_or(0);
        let local = groups[node].iter().position(|r| *r == rank).unwrap_or(0);
        let (n, l) = (groups.len(), groups[0].len());
        let mut rounds = Rounds { to: Vec::new(), from: Vec::new(), locals: most, nodes };
        for d in deltas(n) {
            for e in deltas(l) {
                rounds.to.push(groups[(node + d) % n][(local + e) % l]);
                rounds.from.push(groups[(node + n - d) % n][(local + l - e) % l]);
            }
        }
        rounds
    }

    /// The round in which this rank sends to `peer`, or receives from it.
    #[must_use]
    pub fn of(&self, peer: usize, sends: bool) -> usize {
        let list = if sends { &self.to } else { &self.from };
        list.iter().position(|p| *p == peer).unwrap_or(0)
    }

    /// The first channel of a round (`ncclP2pChannelBaseForRound`).
    fn base(&self, round: usize) -> usize {
        if self.nodes == 1 {
            return round;
        }
        let (node, local) = (round / self.locals, round % self.locals);
        node * self.locals.div_ceil(P2P_BATCH) + local / P2P_BATCH
    }
}

/// How a transfer is cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// Channels, with first byte and bytes of each.
    pub parts: Vec<Part>,
    /// Bytes of a step.
    pub step: usize,
}

/// What transfers of a communicator have in common.
#[derive(Debug, Clone, Copy)]
pub struct P2pGround {
    /// Ranks.
    pub ranks: usize,
    /// Hosts.
    pub nodes: usize,
    /// Channels of the communicator.
    pub channels: usize,
    /// Bytes of a slot.
    pub slot: usize,
    /// At most two channels a peer, less with many ranks.
    pub few: bool,
}

/// Cuts a transfer of `bytes` in `round` (`addP2pToPlan`); `crosses`: over the network.
#[must_use]
pub fn cut(bytes: usize, round: usize, crosses: bool, rounds: &Rounds, ground: &P2pGround) -> Cut {
    // NCCL makes more channels up to a power of two; this library has no more than the communicator's.
    let all = 1usize << ground.channels.max(1).ilog2();
    let mut most = if ground.few && ground.nodes > 1 { all.min(2) } else { all };
    while ground.few && ground.nodes > 1 && most > 1 && most * ground.ranks > all {
        most /= 2;
    }
    let mut least = most;
    while least > 1 && least * ground.ranks > all {
        least /= 2;
    }
    let step = if ground.nodes > 1 { P2P_STEP.0 } else { P2P_STEP.1 };
    let (part_min, part_max) = if ground.nodes > 1 { (step / 2, step) } else { (step / 8, step * 32) };
    let mut count = if bytes == 0 { 1 } else { least.min(bytes.div_ceil(part_min)) };
    let mut part = part_min.max(bytes.div_ceil(count));
    while part > part_max && count <= most / 2 {
        count *= 2;
        part = bytes.div_ceil(count);
    }
    let tuned = match crosses {
        true if bytes < step => step / 4,
        true if bytes < 8 * step => step / 2,
        _ => step,
    };
    let each = bytes.div_ceil(count).next_multiple_of(P2P_ALIGN);
    let base = rounds.base(round);
    let parts = (0..count)
        .map(|i| {
            // The bits of the part's number reversed, so that few parts lie far apart.
            let far = if all == 1 { 0 } else { i.reverse_bits() >> (usize::BITS - all.ilog2()) };
            let from = (each * i).min(bytes);
            ((base + far) % all, from, each.min(bytes - from))
        })
        .collect();
    Cut { parts, step: tuned.min(ground.slot) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rounds_of_four_hosts_are_those_of_the_records() {
        let rounds = Rounds::new(&[0, 1, 2, 3], 0);
        assert_eq!((rounds.to.as_slice(), rounds.from.as_slice()), (&[0, 1, 3, 2][..], &[0, 3, 1, 2][..]));
        assert_eq!(Rounds::new(&[0, 0, 1, 1], 1).to, [1, 0, 3, 2]);
    }

    #[test]
    fn transfers_of_the_records_have_their_channels_and_steps() {
        let cut_of = |bytes, round, ranks: usize, few| {
            let rounds = Rounds::new(&(0..ranks).collect::<Vec<_>>(), 0);
            let ground = P2pGround { ranks, nodes: ranks, channels: 2, slot: 512 << 10, few };
            let cut = cut(bytes, round, true, &rounds, &ground);
            (cut.parts.iter().map(|p| p.0).collect::<Vec<_>>(), cut.step)
        };
        assert_eq!(cut_of(240_000, 1, 3, false), (vec![1, 0], 65_536));
        assert_eq!(cut_of(240_000, 1, 3, true), (vec![1], 65_536));
        assert_eq!(cut_of(120_000, 2, 4, false), (vec![0], 32_768));
    }

    proptest! {
        /// Both ends of a transfer say the same of it, and rounds reach everybody once.
        #[test]
        fn both_ends_agree(hosts in proptest::collection::vec(0usize..4, 1..12), few: bool, bytes in 0usize..3_000_000) {
            let mut seen: Vec<usize> = Vec::new();
            let hosts: Vec<usize> = hosts
                .iter()
                .map(|h| seen.iter().position(|s| s == h).unwrap_or_else(|| { seen.push(*h); seen.len() - 1 }))
                .collect();
            let ground = P2pGround { ranks: hosts.len(), nodes: seen.len(), channels: 4, slot: 65_536, few };
            for a in 0..hosts.len() {
                let mine = Rounds::new(&hosts, a);
                for b in 0..hosts.len() {
                    let theirs = Rounds::new(&hosts, b);
                    let crosses = hosts[a] != hosts[b];
                    prop_assert_eq!(mine.to.iter().filter(|p| **p == b).count(), 1);
                    let sent = cut(bytes, mine.of(b, true), crosses, &mine, &ground);
                    let received = cut(bytes, theirs.of(a, false), crosses, &theirs, &ground);
                    prop_assert_eq!(&sent, &received);
                    prop_assert_eq!(sent.parts.iter().map(|p| p.2).sum::<usize>(), bytes);
                    let mut channels: Vec<usize> = sent.parts.iter().map(|p| p.0).collect();
                    channels.sort_unstable();
                    channels.dedup();
                    prop_assert_eq!(channels.len(), sent.parts.len());
                }
            }
        }

        /// The parts of a collective follow each other, lie on channels of their own, and are all of it.
        #[test]
        fn parts_are_the_whole(
            sizes in proptest::collection::vec((1usize..5_000_000, 1usize..9), 1..6),
            channels in 1usize..9,
            per_byte in 1usize..9,
        ) {
            let loads: Vec<Load> = sizes
                .iter()
                .map(|(bytes, c)| Load { bytes: *bytes, per_byte, channels: (*c).min(channels), proto: Proto::Simple })
                .collect();
            let mut spreader = Spreader::new(channels, &loads);
            for load in loads {
                let parts = spreader.next(load);
                let mut at = 0;
                for (i, (channel, from, bytes)) in parts.iter().enumerate() {
                    prop_assert!(*channel < channels && *bytes > 0, "{:?}", parts);
                    prop_assert_eq!((*channel, *from), (parts[0].0 + i, at));
                    prop_assert!(i + 1 == parts.len() || bytes % 16 == 0);
                    at += bytes;
                }
                prop_assert_eq!(at, load.bytes);
            }
        }
    }
}
