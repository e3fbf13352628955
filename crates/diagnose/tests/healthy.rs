//! Silence on healthy jobs of many shapes, and on lost data.
mod cluster;

use cluster::{Cluster, Fault, MS, Outcome, Plan, Prng, T0, drive, run};
use mycroft_record::{Batch, Gap, GapCause, HostTime, Place, Rank, Record};

fn silent(plan: Plan) {
    let about = format!("{:?} seed {} tp {} pp {} dp {}", plan.fault, plan.seed, plan.tp, plan.pp, plan.dp);
    let outcome = run(plan);
    assert!(outcome.engine.cases().is_empty(), "{about}\n{}", outcome.text());
    assert!(outcome.engine.report(outcome.end).iterations > 5, "{about}: it ran\n{}", outcome.text());
}

#[test]
fn healthy_shapes_open_no_case() {
    for (i, (h, r, t, p, d)) in
        [(4, 8, 8, 2, 2), (4, 8, 4, 2, 4), (4, 4, 4, 1, 4), (4, 4, 1, 4, 4), (2, 2, 1, 1, 4), (1, 4, 2, 1, 2)]
            .into_iter()
            .enumerate()
    {
        for seed in 0..3 {
            let mut plan = Plan::new(h, r, t, p, d).seed(seed * 7 + i as u64 + 1);
            plan.tree = seed == 1;
            plan.moe = seed == 2;
            silent(plan);
        }
    }
}

/// A busy machine: tens of milliseconds of jitter, now and then hundreds.
#[test]
fn restless_healthy_jobs_open_no_case() {
    for seed in 1..13 {
        let mut plan = Plan::new(4, 4, 2, 2, 4).seed(seed);
        plan.noise = if seed % 2 == 0 { 20 * MS } else { 40 * MS };
        plan.until = 30_000 * MS;
        silent(plan);
    }
}

#[test]
fn a_skewed_start_and_slow_first_iterations_open_no_case() {
    let mut plan = Plan::new(4, 4, 4, 1, 4);
    plan.start_skew = 4_000 * MS;
    plan.until = 25_000 * MS;
    silent(plan.clone());
    plan.slow_first = 3;
    silent(plan);
}

#[test]
fn checkpoint_pauses_open_no_case() {
    for every in [6, 10] {
        let mut plan = Plan::new(4, 4, 2, 2, 4).fault(Fault::Checkpoint(every));
        plan.until = 40_000 * MS;
        silent(plan);
    }
}

/// What a job came back from twice by itself it may do again, somewhat longer.
#[test]
fn stops_that_belong_to_the_job_open_no_case() {
    let mut plan = Plan::new(4, 4, 2, 2, 4).fault(Fault::Generation(20));
    plan.until = 60_000 * MS;
    let outcome = run(plan.clone());
    assert!(outcome.text().matches("went away by itself").count() >= 4, "{}", outcome.text());
    silent(plan);
}

#[test]
fn one_pause_that_goes_away_is_no_case() {
    let plan = Plan::new(4, 4, 4, 1, 4).fault(Fault::OnePause(6));
    silent(plan);
}

/// Garbage is collected for two seconds: where iterations take longer than that, one such pause is none.
#[test]
fn one_pause_that_is_shorter_than_an_iteration_is_no_case() {
    let mut plan = Plan::new(4, 4, 2, 4, 2).fault(Fault::LateFor(6));
    plan.slow_first = u64::MAX;
    plan.until = 80_000 * MS;
    let outcome = run(plan.clone());
    assert!(outcome.text().contains("went away by itself"), "{}", outcome.text());
    silent(plan);
}

#[test]
fn an_agent_that_falls_silent_is_unknown_not_a_stall() {
    let mut plan = Plan::new(4, 4, 4, 1, 4);
    plan.mute_host = Some(2);
    let outcome = run(plan);
    assert!(outcome.engine.cases().is_empty(), "{}", outcome.text());
    assert!(outcome.text().contains("caveat no-data: ranks 8-11"), "{}", outcome.text());
}

/// Of three completions of ranks 0 to 3, which stand first in their groups, two are lost: their iterations seem longer.
fn lossy(plan: &Plan) -> Vec<Batch> {
    let mut batches = Cluster::new(plan.clone()).batches();
    let mut ended = 0;
    for batch in &mut batches {
        let of_first_host = batch.source.process.is_some_and(|process| process.rank.0 < 4);
        if !of_first_host || batch.collected_at < HostTime(T0 + plan.fault_at) {
            continue;
        }
        for record in &mut batch.records {
            if let Record::OpDone(done) = record {
                ended += 1;
                if ended % 3 > 0 {
                    let noticed_at = done.ended_at;
                    *record = Record::Gap(Gap { noticed_at, lost: 1, cause: GapCause::RingLapped });
                }
            }
        }
    }
    batches
}

#[test]
fn lost_records_of_one_host_are_no_slow_iterations() {
    let mut plan = Plan::new(4, 4, 4, 1, 4);
    plan.until = 25_000 * MS;
    let outcome = drive(&lossy(&plan), plan.until, |_| 0);
    assert!(outcome.engine.cases().is_empty(), "{}", outcome.text());
    // Those whose records are whole are watched instead.
    let slow = plan.fault(Fault::GpuPower(9));
    let outcome = drive(&lossy(&slow), slow.until, |_| 0);
    let suspect = &outcome.case().finding.suspects[0];
    assert!(matches!(&suspect.place, Place::Rank { rank: Rank(9), .. }), "{}", outcome.text());
}

#[test]
fn the_same_input_gives_the_same_bytes_and_order_across_ranks_does_not_matter() {
    for fault in [Fault::Stuck(6), Fault::GpuPower(9), Fault::NicDown(1)] {
        let plan = Plan::new(4, 4, 4, 1, 4).fault(fault);
        let batches = Cluster::new(plan.clone()).batches();
        let verdict = |outcome: &Outcome| {
            let finding = &outcome.case().finding;
            (finding.what, finding.category, finding.suspects.first().map(|s| s.place.clone()))
        };
        let (one, two) = (drive(&batches, plan.until, |_| 0), drive(&batches, plan.until, |_| 0));
        assert_eq!(one.text(), two.text());
        assert_eq!(one.events, two.events);
        for seed in 1..4 {
            // Each source keeps its order; sources shift against each other by up to 200 ms.
            let lag = |i: usize| {
                let rank = batches[i].source.process.map_or(99, |p| p.rank.0);
                Prng::new(seed * 1000 + u64::from(rank)).below(200 * MS)
            };
            let shuffled = drive(&batches, plan.until, lag);
            assert_eq!(verdict(&one), verdict(&shuffled), "{}", shuffled.text());
        }
    }
}
