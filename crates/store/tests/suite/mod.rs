//! What any database of cases must answer, whichever it is.
#![allow(dead_code, reason = "each test binary uses some of it")]
use mycroft_record::HostTime;
use mycroft_store::meta::{ActionRow, CaseRow, Lease, Leased, Meta, PolicyRow};
use mycroft_store::series::{PieceRow, SeriesRows, StoredSeries};
use std::time::{Duration, Instant};

/// One that is over soon.
const SOON: Duration = Duration::from_millis(300);
const LONG: Duration = Duration::from_secs(3_600);
const SECOND: u64 = 1_000_000_000;
/// Names whose order is another one by language, and what only some databases take.
const JOBS: [&str; 8] = ["train", "Train", "train-7", "Zebra", "apple", "\u{e4}rger", "a\0b", ""];

pub(crate) fn case(id: u64, job: &str, opened_at: u64) -> CaseRow {
    CaseRow {
        id,
        job: job.to_owned(),
        state: "open".to_owned(),
        opened_at: HostTime(opened_at),
        updated_at: HostTime(opened_at + 1),
        json: format!("{{\"id\": {id}, \"nul\": \"\\u0000\", \"text\": \"\u{1}0 \u{20ac}\"}}"),
    }
}

fn piece(what: &'static str, width_s: u64, start_s: u64) -> PieceRow {
    let (start, end) = (HostTime(start_s * SECOND), HostTime((start_s + width_s) * SECOND));
    PieceRow { what, width_s, kept_ns: 3_600 * SECOND, start, end, iterations: 7, sum_ms: 700.5, body: vec![0, 1, 255] }
}

fn rows(job: &str, pieces: Vec<PieceRow>) -> SeriesRows {
    SeriesRows { job: job.to_owned(), pieces, states: vec![("ranks", format!("[{job:?}]"))] }
}

/// Cases that move with their job, of one store: all are its own.
pub(crate) fn shared(meta: &Meta) {
    for (id, job) in [(7, "moves"), (1_000_001, "moves"), (1_000_002, "moves"), (1_000_003, "stays")] {
        meta.put_case(&case(id, job, id)).expect("written");
    }
    let changed = CaseRow { state: "closed".to_owned(), ..case(1_000_001, "moves", 5) };
    meta.put_case(&changed).expect("written");
    let claimed = meta.claim_cases(&|job| job == "moves", 9).expect("claimed");
    assert_eq!(claimed, [case(1_000_002, "moves", 1_000_002), changed], "newest first, without what does not move");
    assert_eq!(meta.claim_cases(&|job| job == "moves", 1).expect("claimed").len(), 1);
    assert_eq!(meta.highest_case(1_000_000, 2_000_000).expect("asked"), 1_000_003);
    assert_eq!(meta.highest_case(2_000_000, 3_000_000).expect("asked"), 0);
}

/// `open` gives the same database each time.
pub(crate) fn all(open: &dyn Fn() -> Meta) {
    cases(&open());
    actions(&open());
    policies(&open());
    series(&open());
    // All is there after a restart.
    let meta = open();
    assert_eq!(meta.list_cases(Some("a"), 1).expect("cases")[0].id, 2);
    assert_eq!(meta.list_actions(10).expect("actions").len(), 3);
    assert_eq!(meta.list_policies().expect("policies").len(), JOBS.len());
    assert_eq!(meta.series("a").expect("series").pieces.len(), 1);
}

fn cases(meta: &Meta) {
    for case in
        [case(1, "a", 5), case(2, "a", 9), case(1, "b", 7), case(u64::MAX, "a", 1), case(3, "b", 9), case(2, "c", 9)]
    {
        meta.put_case(&case).expect("kept");
    }
    let closed = CaseRow { state: "closed".to_owned(), json: "[]".to_owned(), ..case(1, "a", 5) };
    meta.put_case(&closed).expect("replaced");
    let list = |job, limit| meta.list_cases(job, limit).expect("cases");
    // Newest first, of the same time the highest number, of the same number by name.
    let by = |case: &CaseRow| (case.id, case.job.clone());
    let order: Vec<_> = list(None, 100).iter().map(by).collect();
    let told = [(3, "b"), (2, "a"), (2, "c"), (1, "b"), (1, "a"), (u64::MAX, "a")];
    assert_eq!(order, told.map(|(id, job)| (id, job.to_owned())));
    assert_eq!(list(Some("a"), 2), [case(2, "a", 9), closed]);
    assert_eq!(list(Some("none"), 2), []);
    assert_eq!(list(None, 0), []);
    assert_eq!(list(None, usize::MAX).len(), 6);
}

fn actions(meta: &Meta) {
    let action = |id: u64, state: &str| ActionRow {
        id,
        job: "a\0b".to_owned(),
        state: state.to_owned(),
        at: HostTime(u64::MAX / 4 + id),
        json: "{}".to_owned(),
    };
    for id in [1, 3, 2] {
        meta.put_action(&action(id, "planned")).expect("kept");
    }
    meta.put_action(&action(3, "applied")).expect("replaced");
    assert_eq!(meta.list_actions(2).expect("actions"), [action(3, "applied"), action(2, "planned")]);
    assert_eq!(meta.list_actions(0).expect("actions"), []);
}

fn policies(meta: &Meta) {
    for (at, job) in JOBS.iter().enumerate() {
        let policy = PolicyRow { job: (*job).to_owned(), json: format!("[{at}]") };
        meta.put_policy(&PolicyRow { json: "old".to_owned(), ..policy.clone() }).expect("kept");
        meta.put_policy(&policy).expect("replaced");
    }
    let mut sorted = JOBS;
    sorted.sort_unstable();
    let policies = meta.list_policies().expect("policies");
    assert_eq!(policies.iter().map(|policy| policy.job.as_str()).collect::<Vec<_>>(), sorted, "by their bytes");
    assert!(policies.iter().all(|policy| policy.json != "old"));
}

/// Pieces come back and old ones go.
fn series(meta: &Meta) {
    let never = HostTime::NONE;
    meta.put_series(
        &rows("a", vec![piece("ranks", 900, 100), piece("ranks", 60, 100), piece("paths", 60, 100)]),
        never,
    )
    .expect("kept");
    meta.put_series(&rows("b", vec![piece("ranks", 60, 100)]), never).expect("kept");
    meta.put_series(&rows("b", vec![PieceRow { iterations: 8, ..piece("ranks", 60, 100) }]), never).expect("replaced");
    let stored = meta.series("a").expect("read");
    assert_eq!(stored.states, [("ranks".to_owned(), "[\"a\"]".to_owned())]);
    let first = &stored.pieces[1];
    assert_eq!((first.iterations, first.sum_ms, &*first.body), (7, 700.5, &[0u8, 1, 255][..]));
    assert_eq!(first.start, HostTime(100 * SECOND));
    let told = |job| {
        let pieces = meta.series(job).expect("read").pieces;
        pieces.into_iter().map(|one| (one.what, one.width_s, one.start.0 / SECOND)).collect::<Vec<_>>()
    };
    let of = |what: &str, width_s, start_s| (what.to_owned(), width_s, start_s);
    assert_eq!(told("a"), [of("paths", 60, 100), of("ranks", 60, 100), of("ranks", 900, 100)]);
    assert_eq!(meta.series("b").expect("read").pieces[0].iterations, 8);
    // An hour later the minute is forgotten; what else there is, and what another job has, is not.
    meta.put_series(&rows("a", vec![piece("ranks", 60, 3_800)]), never).expect("kept");
    assert_eq!(told("a"), [of("paths", 60, 100), of("ranks", 900, 100), of("ranks", 60, 3_800)]);
    assert_eq!(told("b"), [of("ranks", 60, 100)]);
    // What is older than the store keeps anything goes with its job.
    meta.put_series(&rows("a", Vec::new()), HostTime(2_000 * SECOND)).expect("kept");
    assert_eq!((told("a"), told("b")), (vec![of("ranks", 60, 3_800)], vec![]));
    assert_eq!(meta.series("b").expect("read"), StoredSeries::default());
    assert_eq!(meta.series("none").expect("read"), StoredSeries::default());
}

/// Does the same, drawn from a seed, to both, and asks both everything.
pub(crate) fn same_answers(one: &Meta, other: &Meta, seed: u64) {
    let mut state = seed;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for step in 0..120 {
        let job = JOBS[draw(JOBS.len() as u64) as usize];
        let (id, at, width) = (draw(5), draw(20), [60, 900][draw(2) as usize]);
        let what = ["ranks", "paths"][draw(2) as usize];
        let kind = draw(4);
        for meta in [one, other] {
            match kind {
                0 => meta.put_case(&CaseRow { json: step.to_string(), ..case(id, job, at) }),
                1 => meta.put_action(&ActionRow {
                    id,
                    job: job.to_owned(),
                    state: step.to_string(),
                    at: HostTime(at),
                    json: String::new(),
                }),
                2 => meta.put_policy(&PolicyRow { job: job.to_owned(), json: step.to_string() }),
                _ => {
                    let pieces = vec![piece(what, width, at * 600), piece(what, 60, at * 600 + id)];
                    meta.put_series(&rows(job, pieces), HostTime(id * 600 * SECOND))
                }
            }
            .expect("kept");
        }
    }
    assert_eq!(one.list_cases(None, 1_000).expect("cases"), other.list_cases(None, 1_000).expect("cases"));
    assert_eq!(one.list_cases(None, 7).expect("cases"), other.list_cases(None, 7).expect("cases"));
    assert_eq!(one.list_actions(1_000).expect("actions"), other.list_actions(1_000).expect("actions"));
    assert_eq!(one.list_policies().expect("policies"), other.list_policies().expect("policies"));
    for job in JOBS {
        assert_eq!(one.series(job).expect("series"), other.series(job).expect("series"), "{job:?}");
        assert_eq!(one.list_cases(Some(job), 3).expect("cases"), other.list_cases(Some(job), 3).expect("cases"));
    }
}

fn ours(leased: Leased) -> Lease {
    match leased {
        Leased::Ours(lease) => lease,
        other => panic!("{other:?}"),
    }
}

/// `open` gives another connection to the same database each time, and may be asked for eight.
pub(crate) fn leases(open: &(dyn Fn(usize) -> Meta + Sync)) {
    let (one, other) = (open(0), open(1));
    let taken = ours(one.take_lease("train", "a", LONG).expect("asked"));
    assert_eq!((&*taken.job, &*taken.holder), ("train", "a"));
    assert_eq!(
        other.take_lease("train", "b", LONG).expect("asked"),
        Leased::Held(taken.clone()),
        "and it says whose it is"
    );
    assert_eq!(other.renew_lease("train", "b", LONG).expect("asked"), Leased::Held(taken.clone()));
    assert!(!other.release_lease("train", "b").expect("asked"), "it is another's");
    let renewed = ours(one.renew_lease("train", "a", 2 * LONG).expect("asked"));
    let longer_s = (renewed.until.0 - taken.until.0) / SECOND;
    assert!((3_599..3_700).contains(&longer_s), "{longer_s} s longer");
    assert!(ours(one.take_lease("train", "a", LONG).expect("one's own")).until < renewed.until);
    ours(other.take_lease("another\0", "b", LONG).expect("another job"));
    assert!(one.release_lease("train", "a").expect("asked"));
    assert!(!one.release_lease("train", "a").expect("asked"), "it is given up");
    assert_eq!(one.renew_lease("train", "a", LONG).expect("asked"), Leased::Over);
    let taken = ours(other.take_lease("train", "b", LONG).expect("asked"));
    assert_eq!(one.take_lease("train", "a", LONG).expect("asked"), Leased::Held(taken));
    over(&one, &other);
    listed(&one, &other);
    race(open);
}

/// Who has what is told of those whose names begin so, and are not over.
fn listed(one: &Meta, other: &Meta) {
    let first = ours(one.take_lease("bus t 1", "a", LONG).expect("asked"));
    let second = ours(other.take_lease("bus t 2", "b", LONG).expect("asked"));
    ours(one.take_lease("bus t 3", "a", Duration::ZERO).expect("asked"));
    ours(one.take_lease("bus u 1", "a", LONG).expect("asked"));
    assert_eq!(other.leases("bus t ").expect("listed"), [first, second]);
    assert_eq!(one.leases("bus%").expect("listed"), []);
}

/// A lease that is over is anybody's, and not renewed.
fn over(one: &Meta, other: &Meta) {
    ours(one.take_lease("short", "a", Duration::ZERO).expect("asked"));
    assert_eq!(one.renew_lease("short", "a", LONG).expect("asked"), Leased::Over);
    let taken = ours(other.take_lease("short", "b", LONG).expect("taken over"));
    assert_eq!(one.renew_lease("short", "a", LONG).expect("asked"), Leased::Held(taken.clone()));
    assert_eq!(one.take_lease("short", "a", LONG).expect("asked"), Leased::Held(taken));
    assert!(!one.release_lease("short", "a").expect("asked"));
    // By the clock.
    let begun = Instant::now();
    ours(one.take_lease("soon", "a", SOON).expect("asked"));
    while let Leased::Held(lease) = other.take_lease("soon", "b", LONG).expect("asked") {
        assert_eq!(lease.holder, "a");
        assert!(begun.elapsed() < Duration::from_secs(60), "it is never over");
    }
    // A clock may have whole milliseconds.
    assert!(begun.elapsed() + Duration::from_millis(2) >= SOON, "it holds until then");
    assert!(matches!(one.renew_lease("soon", "a", LONG).expect("asked"), Leased::Held(lease) if lease.holder == "b"));
}

/// Of several that ask at once one has it, and the others are told so.
fn race(open: &(dyn Fn(usize) -> Meta + Sync)) {
    const ROUNDS: usize = 40;
    let start = std::sync::Barrier::new(4);
    let told: Vec<Vec<Leased>> = std::thread::scope(|scope| {
        let racers: Vec<_> = (0..4)
            .map(|racer| {
                let start = &start;
                scope.spawn(move || {
                    let meta = open(2 + racer);
                    let take = |round: usize| {
                        start.wait();
                        meta.take_lease(&format!("race-{round}"), &format!("racer-{racer}"), LONG).expect("asked")
                    };
                    (0..ROUNDS).map(take).collect()
                })
            })
            .collect();
        racers.into_iter().map(|racer| racer.join().expect("it ended")).collect()
    });
    for round in 0..ROUNDS {
        let winners: Vec<&Leased> =
            told.iter().map(|of| &of[round]).filter(|told| matches!(told, Leased::Ours(_))).collect();
        assert_eq!(winners.len(), 1, "round {round}");
        let Leased::Ours(lease) = winners[0] else { panic!("{winners:?}") };
        let held = told.iter().filter(|of| of[round] == Leased::Held(lease.clone())).count();
        assert_eq!(held, 3, "round {round}: {told:?}");
    }
}
