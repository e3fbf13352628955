//! A job that stopped, or should have: whose process is gone, where the waiting ends, who left its place in line.
use crate::blame::hang::{self, Held};
use crate::blame::{load, nic, pace, turns};
use crate::case::BlastEntry;
use crate::case::docket::Bench;
use crate::case::weigh::{self, Verdict};
use crate::fact::{Fact, these, these_do};
use crate::timeline::RankState;
use crate::timeline::ending::{Exits, SPREAD_NS};
use crate::watch::{Slow, Stall};
use mycroft_record::{Category, HostTime, NANOS_PER_SEC, Place, Rank, Suspect, What};

/// Arrows of the blast radius kept.
const BLAST_MAX: usize = 32;
/// A rank that is gone this long while most others stay did not end with them.
const ALONE_NS: u64 = NANOS_PER_SEC;
/// How sure it is that who issued one collective less than all its peers left it out.
const LEFT_OUT: f64 = 0.95;

/// A process is gone that had operations in flight, or that others wait for.
pub(super) fn crash(bench: &Bench<'_>) -> Option<(Verdict, Vec<Fact>, Vec<BlastEntry>)> {
    let waited_for = |rank: Rank| {
        bench.timeline.graph().nodes.values().any(|waits| {
            let concerns = waits.inside.contains(&rank) || waits.missing.iter().any(|(missing, _)| *missing == rank);
            concerns
                && waits.inside.iter().any(|other| bench.timeline.ranks.get(other).is_some_and(|state| state.alive))
        })
    };
    let Exits::First(own) = bench.exits else { return None };
    // Programs that end without finalizing leave together; one that leaves alone leaves the others in the lurch.
    let all = bench.timeline.ranks.by_slot();
    let others_stay = all.iter().filter(|state| state.alive).count() * 2 > all.len();
    let alone = |since: HostTime| others_stay && bench.timeline.newest_sample.since_ns(since) >= ALONE_NS;
    let mut gone: Vec<&RankState> = bench.timeline.leaving().filter(|state| state.dead()).collect();
    // Where one of them leaves others in the lurch, those that went with it did not end well either.
    let felt = |state: &&RankState| !state.live.is_empty() || waited_for(state.rank) || alone(state.dead_since);
    if !gone.iter().any(felt) {
        return None;
    }
    // A launcher ends the others some time later.
    let (first, error_ns) = gone.iter().map(|state| (state.dead_since, state.clock_error_ns)).min()?;
    let apart_ns = |state: &RankState| SPREAD_NS + state.clock_error_ns + error_ns;
    gone.retain(|state| state.dead_since.since_ns(first) <= apart_ns(state));
    if !own.is_empty() {
        gone.retain(|state| own.contains(&state.rank));
    }
    let facts: Vec<Fact> = gone
        .iter()
        .map(|state| Fact::Dead {
            rank: state.rank,
            host: state.host.clone(),
            at: state.dead_since,
            in_flight: state.live.len() as u32,
            status: state.status,
        })
        .collect();
    let verdict = weigh::hang(bench.timeline, &facts, first);
    let gone: Vec<Rank> = gone.iter().map(|state| state.rank).collect();
    let blast = blast_radius(hang::behind(bench.timeline, &gone));
    Some((verdict, facts, blast))
}

//= mycroft 5.2
/// Why the job does not move. It was as usual until `usual_until`, or until it stopped.
pub(super) fn stalled(
    bench: &Bench<'_>,
    stall: &Stall,
    usual_until: Option<HostTime>,
) -> (Verdict, Vec<Fact>, Vec<BlastEntry>) {
    let found = hang::blame(bench.timeline, bench.timeline.graph(), bench.config, &stall.waiting);
    let mut facts = vec![bench.watch.stall_fact(bench.timeline, bench.config, stall)];
    facts.extend(found.facts);
    facts.extend(nic::down(bench.timeline));
    facts.extend(load::at_stall(bench.timeline, usual_until.unwrap_or(stall.since), stall.since));
    facts.extend(pace::facts(bench.timeline, &facts));
    let verdict = weigh::hang(bench.timeline, &facts, stall.since);
    (verdict, facts, blast_radius(found.path))
}

/// A job that goes on slowly because one rank left a collective out: it is one operation ahead of its peers, and stays so.
pub(super) fn left_out(bench: &Bench<'_>, slow: &Slow) -> Option<(Verdict, Vec<Fact>)> {
    let fact = turns::left_out(bench.timeline)?;
    let Fact::LeftOut { rank, host, at, .. } = &fact else { return None };
    let suspects = vec![Suspect { place: Place::Rank { rank: *rank, host: host.clone() }, confidence: LEFT_OUT }];
    let verdict = Verdict { category: Category::CodeDivergence, suspects, ..Verdict::unknown(What::Desync, *at) };
    Some((verdict, vec![slow.fact(), fact]))
}

/// Operations that are waited in, as entries of a case.
pub(super) fn blast_radius(path: Vec<Held>) -> Vec<BlastEntry> {
    path.into_iter()
        .take(BLAST_MAX)
        .map(|Held { op, waiting, waits_for }| {
            let text = if waits_for.is_empty() {
                format!("{} in {}", these_do(&waiting, "is", "are"), op.label)
            } else {
                format!("{} in {} for {}", these_do(&waiting, "waits", "wait"), op.label, these(&waits_for))
            };
            BlastEntry { waiting, waits_for, op: Some(op.meta.id), kind: Some(op.meta.kind), text }
        })
        .collect()
}
