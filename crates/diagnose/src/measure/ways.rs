//! What the ways between hosts, and the links of each rank, took in a row.
use super::{Role, Slept};
use crate::median::low_median;
use crate::timeline::{Link, LinkSample, Timeline};
use mycroft_record::{HostName, HostTime};
use std::collections::BTreeMap;

/// Links that carry less than one part in so many of what the busiest between the same hosts does are not counted.
const CARRY_ALIKE: u64 = 4;

/// A rank whose messages take so many times as long as those of others does all that it sends more slowly: small ones are mostly
/// latency, and differ by a half by chance.
const SLOW_SENDER: f64 = 2.0;

/// What went from one host to another in a row.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Way {
    /// For how long data was on its way, milliseconds per iteration: the mean of the links that carry most.
    pub(crate) sent_ms: f64,
    /// Megabytes per iteration.
    pub(crate) mb: f64,
    /// Messages per iteration.
    pub(crate) messages: f64,
    /// Pairs of ranks.
    pub(crate) links: u32,
    /// For how long data was on its way, however many chunks of a message are side by side, milliseconds per iteration: the mean of the
    /// links that carry most.
    pub(crate) alone_ms: f64,
    /// The same of a megabyte of the fastest message; 0 or infinite: not known.
    pub(crate) fastest_ms: f64,
}

impl Way {
    /// How long a megabyte was on its way.
    pub(crate) fn ms_per_mb(&self) -> f64 {
        self.sent_ms / self.mb
    }

    /// Whether it carries enough to say how fast it is, where the busiest way carries `most` megabytes an iteration.
    pub(crate) fn counts(&self, most: f64) -> bool {
        self.mb > 0.0 && self.mb * CARRY_ALIKE as f64 >= most
    }

    /// Ways that carry as much, within a fifth, are of one role: others carry something else by design (activations beside
    /// gradients), in messages of another size.
    pub(crate) fn role(&self) -> Role {
        Role::of_load(load(self.mb.max(1e-6)))
    }

    /// How many links it has, and in half octaves what it carries and the size of its messages: the fastest messages of ways that have as
    /// many links, and about as much of both, take as long. Latencies are as much of them, and as many share a line.
    pub(crate) fn carries(&self) -> Carries {
        let size = self.mb / self.messages.max(1e-6);
        Carries { links: self.links, mb: load(self.mb.max(1e-6)), size: load(size.max(1e-6)) }
    }
}

/// What a way carries, in steps.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Carries {
    links: u32,
    mb: i32,
    size: i32,
}

impl Carries {
    /// What is about as much: a step more or less.
    pub(crate) fn near(self) -> impl Iterator<Item = Carries> {
        (-1..=1).flat_map(move |mb| {
            (-1..=1).map(move |size| Carries { links: self.links, mb: self.mb + mb, size: self.size + size })
        })
    }
}

/// What carries as much, within a fifth, is as much: half octaves.
fn load(much: f64) -> i32 {
    (2.0 * much.log2()).round() as i32
}

/// By sending and receiving host.
pub(crate) type Ways = BTreeMap<(HostName, HostName), Way>;

/// What one link took in a row.
#[derive(Clone, Copy, Debug)]
struct Sum {
    bytes: u64,
    messages: u32,
    sent_us: f64,
    held_us: f64,
    awaited_us: f64,
    /// For how long data was on its way, however many steps are side by side.
    alone_us: f64,
    /// The same of a byte of the fastest message.
    fastest_us: f64,
}

impl Default for Sum {
    fn default() -> Sum {
        Sum {
            bytes: 0,
            messages: 0,
            sent_us: 0.0,
            held_us: 0.0,
            awaited_us: 0.0,
            alone_us: 0.0,
            fastest_us: f64::INFINITY,
        }
    }
}

impl Sum {
    /// For how long a byte was on its way while it was awaited.
    fn us_per_byte(&self) -> f64 {
        self.awaited_us.min(self.sent_us) / self.bytes as f64
    }
}

/// What the links of a rank to other hosts took in a row, milliseconds per iteration.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Sent {
    /// They were held: data lay ready and was not handed over.
    pub(crate) held_ms: f64,
    /// Data was on its way, on the link where it was longest.
    pub(crate) sent_ms: f64,
    /// .. and the receiver waited for it, on the link where it was longest.
    pub(crate) awaited_ms: f64,
    /// It was longer on its way than as much of other ranks that goes the same way.
    pub(crate) slower_ms: f64,
}

/// The ways that carried something, and by slot of the rank what its links took. What stood still because a proxy thread
/// `slept` says nothing of a way, nor of what other threads held. A receiver whose thread passes on late, `proxy_ms` by slot, asks for
/// the next data as late: that long its sender holds nothing.
pub(super) fn of(
    timeline: &Timeline,
    (start, end): (HostTime, HostTime),
    iterations: usize,
    slept: &[Slept],
    proxy_ms: impl Fn(u32) -> f64,
) -> (Ways, Vec<Sent>) {
    let mut links: BTreeMap<(HostName, HostName), Vec<(usize, Sum)>> = BTreeMap::new();
    let mut sent = vec![Sent::default(); timeline.ranks.len()];
    let per_iteration = iterations.max(1) as f64;
    for link in timeline.links.all(&timeline.ranks) {
        let (Some(from), Some(to)) = (timeline.ranks.slot(link.from), timeline.ranks.slot(link.to)) else { continue };
        let hosts = (&timeline.ranks.at(from).host, &timeline.ranks.at(to).host);
        let sum = sum(link, start, end);
        let stood_still = slept.iter().any(|of| of.slot == from || of.slot == to);
        if sum.bytes == 0 || hosts.0 == hosts.1 || stood_still {
            continue;
        }
        let (rank, ms) = (&mut sent[from as usize], |us: f64| us / 1e3 / per_iteration);
        rank.held_ms += (ms(sum.held_us) - proxy_ms(to)).max(0.0);
        rank.sent_ms = rank.sent_ms.max(ms(sum.sent_us));
        rank.awaited_ms = rank.awaited_ms.max(ms(sum.awaited_us.min(sum.sent_us)));
        links.entry((hosts.0.clone(), hosts.1.clone())).or_default().push((from as usize, sum));
    }
    let mut own = vec![Own::default(); sent.len()];
    for of_way in links.values() {
        compare(of_way, &mut own);
    }
    for (sent, own) in sent.iter_mut().zip(&own) {
        sent.slower_ms = own.slower_us() / 1e3 / per_iteration;
    }
    (links.into_iter().map(|(hosts, links)| (hosts, way(&links, per_iteration))).collect(), sent)
}

fn sum(link: &Link, start: HostTime, end: HostTime) -> Sum {
    let inside = link.samples().rev().skip_while(|sample| sample.at > end).take_while(|sample| sample.at > start);
    inside.fold(Sum::default(), |sum, sample| Sum {
        bytes: sum.bytes + sample.bytes,
        messages: sum.messages + u32::from(sample.bytes > 0),
        sent_us: sum.sent_us + sample.took.sent_us,
        held_us: sum.held_us + sample.took.held_us,
        awaited_us: sum.awaited_us + sample.took.awaited_us,
        alone_us: sum.alone_us + sample.took.alone_us,
        fastest_us: sum.fastest_us.min(fastest_us(&sample)),
    })
}

/// What a rank sends to other hosts: for how long it was on its way while it was awaited, microseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Own {
    /// Where other ranks send as much the same way ..
    shared_us: f64,
    /// .. for how long as much of others was ..
    usual_us: f64,
    /// .. and by how much longer it was, on the links where it was.
    longer_us: f64,
    /// Where none does.
    alone_us: f64,
}

impl Own {
    /// By how much all of it was longer: what goes alone is as many times slower as what others can be compared with.
    fn slower_us(&self) -> f64 {
        let times = self.shared_us / self.usual_us;
        let is_slow = times.is_finite() && times >= SLOW_SENDER;
        self.longer_us + if is_slow { self.alone_us * (1.0 - 1.0 / times) } else { 0.0 }
    }
}

/// Compares the links of one way that carry as much as each other.
fn compare(links: &[(usize, Sum)], own: &mut [Own]) {
    let mut alike: BTreeMap<i32, Vec<&(usize, Sum)>> = BTreeMap::new();
    for link in links {
        alike.entry(load(link.1.bytes as f64)).or_default().push(link);
    }
    for links in alike.values() {
        let is_alone = links.iter().all(|(slot, _)| *slot == links[0].0);
        let Some(usual) = low_median(links.iter().map(|(_, sum)| sum.us_per_byte()).collect()) else { continue };
        for (slot, sum) in links {
            let (of, took_us) = (&mut own[*slot], sum.us_per_byte() * sum.bytes as f64);
            if is_alone {
                of.alone_us += took_us;
                continue;
            }
            let usual_us = usual * sum.bytes as f64;
            of.shared_us += took_us;
            of.usual_us += usual_us;
            of.longer_us += (took_us - usual_us).max(0.0);
        }
    }
}

fn way(links: &[(usize, Sum)], per_iteration: f64) -> Way {
    let most = links.iter().map(|(_, link)| link.bytes).max().unwrap_or(0);
    let counted = || links.iter().map(|(_, link)| link).filter(|link| link.bytes * CARRY_ALIKE >= most);
    let mean_ms =
        |us: fn(&Sum) -> f64| counted().map(us).sum::<f64>() / counted().count().max(1) as f64 / 1e3 / per_iteration;
    let sum = |of: fn(&Sum) -> f64| links.iter().map(|(_, link)| of(link)).sum::<f64>() / per_iteration;
    Way {
        sent_ms: mean_ms(|link| link.sent_us),
        mb: sum(|link| link.bytes as f64 / 1e6),
        messages: sum(|link| f64::from(link.messages)),
        links: u32::try_from(links.len()).unwrap_or(u32::MAX),
        alone_ms: mean_ms(|link| link.alone_us),
        fastest_ms: links.iter().map(|(_, link)| link.fastest_us).fold(f64::INFINITY, f64::min) * 1e3,
    }
}

/// For how long a byte of a message was on its way.
fn fastest_us(sample: &LinkSample) -> f64 {
    match sample.took.alone_us > 0.0 && sample.bytes > 0 {
        true => sample.took.alone_us / sample.bytes as f64,
        false => f64::INFINITY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::*;

    const S: u64 = NANOS_PER_SEC;

    /// Rank 0 of one host sends to rank 1 of another, whose receive waits; it hands over late what is ready.
    fn late_sender() -> Timeline {
        let mut timeline = Timeline::default();
        for rank in 0..2u32 {
            let is_sender = rank == 0;
            let (at, comm, peer) = (HostTime(1_000 * S), CommId(7), CommRank(1 - rank));
            let process = ProcessKey { rank: Rank(rank), pid: rank, nonce: 1 };
            let source = Source { job: "job".into(), host: format!("host{rank}").into(), process: Some(process) };
            let name = "P2P".into();
            let init = CommInit { at, comm, n_ranks: 2, n_nodes: 2, comm_rank: CommRank(rank), name };
            let (class, direction) = match is_sender {
                true => (OpClass::Send, Direction::Send),
                false => (OpClass::Recv, Direction::Recv),
            };
            let op = OpId { comm, class, peer, seq: OpSeq(1) };
            let stage_us = if is_sender { [10, 80_000, 20_000] } else { [100_000, 0, 0] };
            let done = FlowDone {
                flow: FlowKey { op, channel: ChannelId(0), peer, direction },
                counters: FlowCounters { total_chunks: 8, posted: 8, ready: 8, transmitted: 8, done: 8 },
                bytes: 8 << 20,
                times: FlowTimes { stage_us, stage_max_us: stage_us, ..FlowTimes::default() },
                ended_at: at + S / 2,
                peer_wait_polls: 0,
                proxied_for_pid: 0,
            };
            let records = vec![Record::CommInit(init), Record::FlowDone(done)];
            timeline.observe(&Batch { source, collected_at: at + S, records }, 500_000);
        }
        timeline
    }

    /// The receiver has given credit and waits: that data lies ready is the sender's thread's.
    #[test]
    fn a_late_handover_is_the_senders() {
        let timeline = late_sender();
        let (ways, sent) = of(&timeline, (HostTime(1_000 * S), HostTime(1_001 * S)), 1, &[], |_| 0.0);
        assert_eq!(ways.len(), 1, "{ways:?}");
        assert!(sent[0].held_ms > 1.0 && sent[1] == Sent::default(), "{sent:?}");
        assert!(sent[0].awaited_ms <= sent[0].sent_ms, "{sent:?}");
        let held_ms = sent[0].held_ms;
        let held_beside = |of_receiver_ms: f64| {
            let proxy_ms = |slot| if slot == 1 { of_receiver_ms } else { 0.0 };
            of(&timeline, (HostTime(1_000 * S), HostTime(1_001 * S)), 1, &[], proxy_ms).1[0].held_ms
        };
        assert_eq!(held_beside(0.5), held_ms - 0.5, "a receiver that passes on late asks for the next as late");
        assert_eq!(held_beside(1e6), 0.0);
    }

    /// Three ranks send as much the same way, one of them three times as slowly; a fourth sends less, alone, and what the slow one
    /// sends besides, alone, is as slow.
    #[test]
    fn what_a_rank_sends_is_compared_with_as_much_on_the_same_way() {
        let sum = |mb: u64, sent_us: f64| Sum { bytes: mb << 20, sent_us, awaited_us: 1e9, ..Sum::default() };
        let links = [(0, sum(8, 1_000.0)), (1, sum(8, 3_000.0)), (2, sum(8, 1_000.0)), (3, sum(1, 9_000.0))];
        let slower = |ways: &[&[(usize, Sum)]]| {
            let mut own = [Own::default(); 4];
            ways.iter().for_each(|links| compare(links, &mut own));
            own.map(|own| own.slower_us().round())
        };
        assert_eq!(slower(&[&links]), [0.0, 2_000.0, 0.0, 0.0]);
        assert_eq!(slower(&[&links, &[(1, sum(64, 9_000.0))]]), [0.0, 8_000.0, 0.0, 0.0]);
        // What nobody waits for is not slow.
        let links = links.map(|(slot, sum)| (slot, Sum { awaited_us: 500.0, ..sum }));
        assert_eq!(slower(&[&links])[1], 0.0);
    }
}
