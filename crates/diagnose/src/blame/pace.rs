//! How fast the threads of a host issue operations one after the other, where one rank has not issued what others wait for:
//! a thread that does not come while those beside it are slow with every call is slow as well, and has not stopped.
use crate::fact::Fact;
use crate::median::median;
use crate::timeline::{RankState, Timeline};
use mycroft_record::{HostName, HostTime};
use std::collections::BTreeSet;

/// Fewer calls one after the other tell no pace.
const CALLS_MIN: usize = 4;
/// Calls that take so many times as long as before are slow: a busy core, or a cold cache, makes less of a difference.
const SLOWER: f64 = 4.0;
/// Calls one after the other from which on a rank's pace is compared with that of others.
const CALLS_OF_MANY: usize = 64;
/// Ranks of other hosts that are asked whether they are slow as well.
const OTHERS_MAX: usize = 32;

/// Hosts of `facts` with full cores and a rank that never issued an operation, whose other ranks issue slowly.
pub(crate) fn facts(timeline: &Timeline, facts: &[Fact]) -> Vec<Fact> {
    let absent =
        |host: &HostName| facts.iter().any(|fact| matches!(fact, Fact::NeverIssued { host: of, .. } if of == host));
    let full = facts.iter().filter_map(|fact| match fact {
        Fact::CpuFull { host, .. } if absent(host) => Some(host),
        _ => None,
    });
    let hosts: BTreeSet<&HostName> = full.collect();
    hosts.into_iter().filter_map(|host| of_host(timeline, host)).collect()
}

fn of_host(timeline: &Timeline, host: &HostName) -> Option<Fact> {
    let paces: Vec<(f64, f64)> = timeline.ranks.values().filter(|state| state.host == *host).filter_map(pace).collect();
    let is_slow = |(now_us, base_us): &(f64, f64)| *now_us >= SLOWER * base_us;
    let slow: Vec<(f64, f64)> = paces.iter().copied().filter(is_slow).collect();
    let others = || of_others(timeline, host);
    let (slow_others, fast_others): (Vec<(f64, f64)>, Vec<_>) = others().filter_map(pace).partition(is_slow);
    let is_its = 2 * slow.len() > paces.len() && slow_others.len() < fast_others.len();
    if !is_its {
        return beside_others(timeline, host);
    }
    let (now_us, base_us) =
        (median(slow.iter().map(|pace| pace.0).collect())?, median(slow.iter().map(|pace| pace.1).collect())?);
    Some(Fact::SlowCalls { host: host.clone(), ranks: slow.len(), now_us, base_us, beside: false })
}

/// Ranks of other hosts, spread over the job.
fn of_others<'a>(timeline: &'a Timeline, host: &'a HostName) -> impl Iterator<Item = &'a RankState> {
    let step = timeline.ranks.len().div_ceil(OTHERS_MAX).max(1);
    timeline.ranks.values().step_by(step).filter(move |state| state.host != *host)
}

/// A host may have been slow for so long that nobody remembers how fast it was, or have too few calls under way: but then all its
/// ranks are slower by far than any that is asked of other hosts, which run the same program.
fn beside_others(timeline: &Timeline, host: &HostName) -> Option<Fact> {
    let lately = |state: &RankState| {
        let calls: Vec<HostTime> = state.past.done().map(|op| op.enqueued_at).collect();
        between(calls[calls.len().saturating_sub(CALLS_OF_MANY)..].to_vec())
    };
    let all: Vec<&RankState> = timeline.ranks.values().filter(|state| state.host == *host).collect();
    let own: Vec<f64> = all.iter().filter_map(|state| lately(state)).collect();
    let others: Vec<f64> = of_others(timeline, host).filter_map(lately).collect();
    let slowest_us = others.iter().copied().fold(0.0, f64::max);
    let is_slow = own.len() == all.len() && own.iter().all(|us| *us >= SLOWER * slowest_us);
    let (now_us, base_us) = (median(own.clone())?, median(others)?);
    (is_slow && all.len() > 1).then(|| Fact::SlowCalls {
        host: host.clone(),
        ranks: own.len(),
        now_us,
        base_us,
        beside: true,
    })
}

/// How long it takes from one call to the next, microseconds: of those whose operations are in flight, and of those before.
fn pace(state: &RankState) -> Option<(f64, f64)> {
    let now = between(state.live.values().map(|op| op.meta.enqueued_at).collect())?;
    Some((now, between(state.past.done().map(|op| op.enqueued_at).collect())?))
}

/// The median time between moments; those of one group are one.
fn between(mut at: Vec<HostTime>) -> Option<f64> {
    at.retain(|at| at.is_some());
    at.sort_unstable();
    at.dedup();
    let us: Vec<f64> = at.windows(2).map(|two| two[1].since_ns(two[0]) as f64 / 1e3).collect();
    if us.len() >= CALLS_MIN { median(us) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blame::hang::NO_META;
    use crate::fact::OpRef;
    use mycroft_record::*;

    const AT: HostTime = HostTime(1_700_000_000_000_000_000);

    /// Two ranks on each of three hosts: how long each takes from one call to the next of what is in flight, and 8 us before.
    fn told(now_us: [u64; 6]) -> Vec<Fact> {
        told_of([8; 6], now_us, 20)
    }

    /// The same where as long as anybody remembers they took `past_us`, and `flying` calls are in flight.
    fn told_of(past_us: [u64; 6], now_us: [u64; 6], flying: u64) -> Vec<Fact> {
        let mut timeline = Timeline::default();
        for (rank, (now_us, past_us)) in (0u32..).zip(now_us.into_iter().zip(past_us)) {
            let comm_rank = CommRank(rank);
            let op = |seq: u64, enqueued_at: HostTime| {
                let id = OpId { comm: CommId(1), class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(seq) };
                OpMeta { id, kind: OpKind::AllReduce, comm_rank, enqueued_at, started_at: enqueued_at, ..NO_META }
            };
            let init = CommInit { at: AT, comm: CommId(1), n_ranks: 6, n_nodes: 3, comm_rank, name: "A".into() };
            let mut records = vec![Record::CommInit(init)];
            for seq in 0..20 {
                let op = op(seq, AT + 1_000 * past_us * seq);
                let ended_at = op.started_at + 1_000;
                let ended_first_at = ended_at;
                records.push(Record::OpDone(OpDone { op, ended_at, ended_first_at, flows: 0, observed: true }));
            }
            for seq in 20..20 + flying {
                let op = OpMeta { started_at: HostTime::NONE, ..op(seq, AT + NANOS_PER_SEC + 1_000 * now_us * seq) };
                let (kernels_started, kernels_stopped, flows_started, flows_done) = (0, 0, 0, 0);
                let sampled_at = AT + 2 * NANOS_PER_SEC;
                records.push(Record::OpState(OpState {
                    sampled_at,
                    op,
                    kernels_started,
                    kernels_stopped,
                    flows_started,
                    flows_done,
                }));
            }
            let process = ProcessKey { rank: Rank(rank), pid: rank + 1, nonce: 1 };
            let source =
                Source { job: "job".into(), host: format!("host{}", rank / 2).as_str().into(), process: Some(process) };
            timeline.observe(&Batch { source, collected_at: AT, records }, u32::MAX);
        }
        timeline.settle();
        let op = OpRef { meta: NO_META, label: "AllReduce A #40".to_owned() };
        let absent = Fact::NeverIssued {
            rank: Rank(2),
            host: "host1".into(),
            op,
            waiting: vec![Rank(0)],
            idle_since: AT,
            finalized: false,
        };
        let full = |host: &str| Fact::CpuFull { host: host.into(), now_milli: 1000.0, base_milli: 200.0 };
        facts(&timeline, &[absent, full("host1"), full("host2")])
    }

    #[test]
    fn a_host_whose_ranks_are_slow_with_every_call_is_told() {
        let slow = Fact::SlowCalls { host: "host1".into(), ranks: 2, now_us: 400.0, base_us: 8.0, beside: false };
        assert_eq!(told([8, 8, 400, 400, 8, 8]), [slow]);
        assert_eq!(told([8, 8, 8, 8, 8, 8]), [], "one is absent, the others are as fast as ever");
        assert_eq!(told([8, 8, 8, 400, 8, 8]), [], "so is one of them");
        assert_eq!(told([8, 8, 16, 16, 8, 8]), [], "twice as long is no sign");
        assert_eq!(told([400; 6]), [], "all are");
        assert_eq!(told([8, 8, 8, 8, 400, 400]), [], "nobody waits for those");
    }

    #[test]
    fn a_host_that_has_been_slow_for_as_long_as_anybody_knows_is_told_beside_others() {
        let beside = Fact::SlowCalls { host: "host1".into(), ranks: 2, now_us: 400.0, base_us: 8.0, beside: true };
        let told = |past_us: [u64; 6]| told_of(past_us, past_us, 2);
        assert_eq!(told([8, 8, 400, 400, 8, 8]), [beside]);
        assert_eq!(told([8, 8, 8, 400, 8, 8]), [], "one of its ranks is as fast as others");
        assert_eq!(told([8, 8, 400, 400, 8, 200]), [], "so is a rank elsewhere, nearly");
    }
}
