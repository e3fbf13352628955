//! Rounds of collectives whose parts differ from call to call, as of experts.
use super::members::{communicators, is_mesh};
use super::round::{Active, Round, Sent, Share, beside, together, together_in_time};
use super::{Operation, Rule, segment};
use std::collections::{BTreeMap, BTreeSet};

/// Rounds of flows whose volumes do not recur, by communicator: where each member sends to all others an exchange lasts until each
/// has sent, however long it waits for one that is late. Elsewhere it is what each sender sent to anybody without a silence of `gap_ns`.
pub(super) fn of_senders(sent: &[&Sent<'_>], epoch_ns: u64, gap_ns: u64) -> Vec<Round> {
    let of = communicators(sent.iter().map(|flow| (flow.from, flow.to)));
    let mut communicators: BTreeMap<u32, Vec<&Sent<'_>>> = BTreeMap::new();
    sent.iter().for_each(|flow| communicators.entry(of[&flow.from]).or_default().push(flow));
    let mut parts = Vec::new();
    for (communicator, flows) in communicators {
        let ways: BTreeSet<(u32, u32)> = flows.iter().map(|flow| (flow.from, flow.to)).collect();
        let mut senders: BTreeMap<u32, BTreeMap<u64, u64>> = BTreeMap::new();
        for (from, _) in &ways {
            let of_sender = flows.iter().filter(|flow| flow.from == *from).flat_map(|flow| flow.epochs);
            senders.insert(*from, together(of_sender.map(|(epoch, bytes)| (*epoch, u64::from(*bytes)))));
        }
        let shares = if is_mesh(&ways) {
            exchanges(&senders, gap_ns / epoch_ns)
        } else {
            let rule = Rule { gap_ns, volumes: Vec::new() };
            let cut = |(from, epochs): (&u32, &BTreeMap<u64, u64>)| {
                let operations = segment(epochs.iter().map(|(epoch, bytes)| (*epoch, *bytes)), epoch_ns, &rule);
                let span = |one: Operation| (*from, one.start_ns / epoch_ns, one.end_ns / epoch_ns);
                operations.into_iter().map(span).collect::<Vec<_>>()
            };
            let all: Vec<(u32, u64, u64)> = senders.iter().flat_map(cut).collect();
            beside(all, |(_, start, end)| (*start, *end), |(from, ..)| *from as usize)
        };
        let way = |from: u32, to: u32, start: u64, end: u64| {
            let of_way = flows.iter().filter(|flow| (flow.from, flow.to) == (from, to));
            let epochs = of_way.flat_map(|flow| flow.epochs).filter(|(epoch, _)| (start..end).contains(epoch));
            (to, Active::of(epochs.map(|(_, bytes)| u64::from(*bytes))))
        };
        let to = |from: u32| ways.range((from, 0)..=(from, u32::MAX)).map(|(_, to)| *to);
        let share = |(from, start, end): (u32, u64, u64)| Share {
            from,
            group: communicator,
            to: to(from).collect(),
            ways: to(from).map(|to| way(from, to, start, end)).collect(),
            start_ns: start * epoch_ns,
            end_ns: end * epoch_ns,
            bytes: senders[&from].range(start..end).map(|(_, bytes)| *bytes).sum(),
            pauses_ns: 0,
            active: Active::of(senders[&from].range(start..end).map(|(_, bytes)| *bytes)),
            whole_bytes: 0,
        };
        parts.extend(shares.into_iter().map(|of| (communicator, of.into_iter().map(share).collect())));
    }
    together_in_time(usize::MAX, parts)
}

/// Exchanges of a mesh: sender, first epoch and the one after the last, of each that sent. One ends with a silence of all after each has
/// sent.
fn exchanges(senders: &BTreeMap<u32, BTreeMap<u64, u64>>, gap: u64) -> Vec<Vec<(u32, u64, u64)>> {
    let of_sender =
        |(from, epochs): (&u32, &BTreeMap<u64, u64>)| epochs.keys().map(|epoch| (*epoch, *from)).collect::<Vec<_>>();
    let mut all: Vec<(u64, u32)> = senders.iter().flat_map(of_sender).collect();
    all.sort_unstable();
    let mut found = Vec::new();
    let (mut open, mut end): (BTreeMap<u32, (u64, u64)>, u64) = (BTreeMap::new(), 0);
    let closed = |open: BTreeMap<u32, (u64, u64)>| {
        open.into_iter().map(|(from, (start, end))| (from, start, end)).collect::<Vec<_>>()
    };
    for (epoch, from) in all {
        if open.len() == senders.len() && epoch >= end + gap {
            found.push(closed(std::mem::take(&mut open)));
        }
        open.entry(from).and_modify(|span| span.1 = epoch + 1).or_insert((epoch, epoch + 1));
        end = epoch + 1;
    }
    found.push(closed(open));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const EPOCH_NS: u64 = 1_000;
    const GAP_NS: u64 = 10_000;

    /// Each of three sends to both others, twice. The last one comes late by more than a gap: until then the others send what its
    /// buffers take. Shares of each round: sender, beginning and end.
    fn rounds_of(ways: &[(u32, u32)]) -> Vec<Vec<(u32, u64, u64)>> {
        let (begins, late, again) = (100..110, 150..160, 300..310);
        let epochs = |from: u32| -> Vec<(u64, u32)> {
            let first = if from == 2 { late.clone() } else { begins.clone() };
            let rest = if from == 2 { 0..0 } else { late.clone() };
            first.chain(rest).chain(again.clone()).map(|epoch| (epoch, 100)).collect()
        };
        let curves: Vec<_> = ways.iter().map(|(from, to)| (*from, *to, epochs(*from))).collect();
        let sent: Vec<Sent<'_>> = curves
            .iter()
            .map(|(from, to, epochs)| Sent { from: *from, to: *to, epochs, operations: Vec::new() })
            .collect();
        let span = |share: &Share| (share.from, share.start_ns / EPOCH_NS, share.end_ns / EPOCH_NS);
        let rounds = of_senders(&sent.iter().collect::<Vec<_>>(), EPOCH_NS, GAP_NS);
        rounds.iter().map(|round| round.shares.iter().map(span).collect()).collect()
    }

    #[test]
    fn an_exchange_of_all_with_all_waits_for_the_last_of_them() {
        let mesh = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)];
        let first = vec![(0, 100, 160), (1, 100, 160), (2, 150, 160)];
        assert_eq!(rounds_of(&mesh), [first, vec![(0, 300, 310), (1, 300, 310), (2, 300, 310)]]);
    }

    #[test]
    fn what_is_no_exchange_of_all_with_all_ends_with_a_silence() {
        let chain = [(0, 1), (1, 0), (1, 2), (2, 1)];
        let before = vec![(0, 100, 110), (1, 100, 110)];
        let late = vec![(0, 150, 160), (1, 150, 160), (2, 150, 160)];
        assert_eq!(rounds_of(&chain), [before, late, vec![(0, 300, 310), (1, 300, 310), (2, 300, 310)]]);
    }
}
