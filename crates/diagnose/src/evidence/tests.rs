//! Rows by hand: who gathers evidence, and who does not.
use super::*;
use crate::measure::{Cells, Slept};
use mycroft_record::NANOS_PER_SEC;
use proptest::prelude::*;

const RANKS: usize = 16;
const PER_HOST: usize = 4;

/// Sixteen ranks of four hosts that all do the same: 200 ms of computation in an iteration of 300 ms.
struct Job {
    evidence: Evidence,
    row: u64,
    random: u64,
    roles: Vec<Role>,
}

impl Job {
    fn new(seed: u64) -> Job {
        Job {
            evidence: Evidence::default(),
            row: 0,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            roles: vec![Role::default(); RANKS],
        }
    }

    /// Of a roughly normal spread around 0, a standard deviation of 1.
    fn noise(&mut self) -> f64 {
        let mut uniform = || {
            self.random ^= self.random >> 12;
            self.random ^= self.random << 25;
            self.random ^= self.random >> 27;
            (self.random.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40) as f64 / f64::from(1 << 24)
        };
        (0..12).map(|_| uniform()).sum::<f64>() - 6.0
    }

    /// A second in which each rank computes for so long, milliseconds; the iteration waits for the slowest.
    fn second(&mut self, compute_ms: impl Fn(usize) -> f64, noise: f64, ways: &[((&str, &str), f64)]) {
        let ms: Vec<f64> = (0..RANKS).map(|rank| compute_ms(rank) * (1.0 + noise * self.noise())).collect();
        let iteration_ms = 100.0 + ms.iter().copied().fold(0.0, f64::max);
        let cells = |ms: &f64| {
            let of = |component| match component {
                Component::Computation => *ms,
                Component::Rest => ms / 2.0,
                _ => 0.0,
            };
            Some(Cells::of(of))
        };
        let start = HostTime((1_000 + self.row) * NANOS_PER_SEC);
        let way = |((from, to), sent_ms): &((&str, &str), f64)| {
            ((HostName::from(*from), HostName::from(*to)), Way { sent_ms: *sent_ms, mb: 100.0, ..Way::default() })
        };
        let row = Row {
            start,
            end: start + NANOS_PER_SEC,
            iterations: 3,
            iteration_ms,
            ranks: ms.iter().map(cells).collect(),
            ways: ways.iter().map(way).collect(),
            ..Row::default()
        };
        let hosts: Vec<HostName> =
            (0..RANKS).map(|rank| HostName::from(format!("host{}", rank / PER_HOST).as_str())).collect();
        self.evidence.take(&hosts, &self.roles, &row);
        self.row += 1;
    }

    /// Who has gathered enough, with what counts.
    fn found(&self) -> Vec<(Component, Subject)> {
        let needed = self.evidence.needed(RANKS);
        let least = |component: Component| if component == Component::Wire { SLOWER } else { COST };
        let is_found = |((component, _), track): &(&(Component, Subject), &Track)| {
            *component != Component::Iteration && track.log_odds >= needed && track.mean() >= least(*component)
        };
        self.evidence.tracks.iter().filter(is_found).map(|(key, _)| key.clone()).collect()
    }
}

const COMPUTES: Component = Component::Computation;

/// That something takes longer, as a share and in milliseconds.
fn of(share: f64, more_ms: f64) -> Value {
    Value { share, more_ms, tells: f64::INFINITY, by_past: false }
}

#[test]
fn a_rank_that_is_slow_from_the_first_second_is_told_from_its_peers() {
    let mut job = Job::new(1);
    (0..12).for_each(|_| job.second(|rank| if rank == 5 { 236.0 } else { 200.0 }, 0.01, &[]));
    assert_eq!(job.found(), [(COMPUTES, Subject::Rank(5))]);
}

/// Of a pipeline of two stages each has the ranks of two hosts: half of a slow host's peers are its own ranks.
#[test]
fn a_slow_host_is_found_among_the_two_of_its_stage() {
    let mut job = Job::new(12);
    job.roles = (0..RANKS).map(|rank| Role::number((rank / PER_HOST % 2) as u32)).collect();
    (0..4).for_each(|_| job.second(|_| 200.0, 0.01, &[]));
    (0..4).for_each(|_| job.second(|rank| if rank / PER_HOST == 3 { 500.0 } else { 200.0 }, 0.01, &[]));
    let host = (COMPUTES, Subject::Host(HostName::from("host3")));
    assert!(!job.evidence.tracks[&host].by_past);
    assert_eq!(job.found(), [host]);
}

/// Each host has all ranks of a stage: a slow host's peers are as slow as it, and only its past tells.
#[test]
fn a_slow_host_is_found_that_has_a_stage_for_itself() {
    let mut job = Job::new(13);
    job.roles = (0..RANKS).map(|rank| Role::number((rank / PER_HOST) as u32)).collect();
    let usual = |rank: usize| if rank / PER_HOST == 3 { 240.0 } else { 200.0 };
    (0..12).for_each(|_| job.second(usual, 0.01, &[]));
    (0..12).for_each(|_| job.second(|rank| if rank / PER_HOST == 1 { 260.0 } else { usual(rank) }, 0.01, &[]));
    let host = (COMPUTES, Subject::Host(HostName::from("host1")));
    assert!(job.evidence.tracks[&host].by_past);
    assert_eq!(job.found(), [host]);
}

/// Now this rank, now that one is far beyond the others: that one is a few times in a row, as far as somebody always is, says little.
#[test]
fn who_is_furthest_by_turns_is_no_suspect() {
    let mut job = Job::new(14);
    for second in 0..120u64 {
        let who = (second.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as usize % RANKS;
        let who = if (60..64).contains(&second) { 5 } else { who };
        job.second(|rank| if rank == who { 240.0 } else { 200.0 }, 0.01, &[]);
        assert_eq!(job.found(), [], "second {second}");
    }
    (0..20).for_each(|_| job.second(|rank| if rank == 5 { 240.0 } else { 200.0 }, 0.01, &[]));
    assert_eq!(job.found(), [(COMPUTES, Subject::Rank(5))]);
}

#[test]
fn a_ramp_is_found_although_no_second_is_slower_than_the_one_before() {
    let mut job = Job::new(2);
    for second in 0..160 {
        let slow_ms = 200.0 + f64::from(second.min(120)) * 0.4;
        job.second(|rank| if rank == 9 { slow_ms } else { 200.0 }, 0.01, &[]);
    }
    assert_eq!(job.found(), [(COMPUTES, Subject::Rank(9))]);
    let since = job.evidence.tracks[&(COMPUTES, Subject::Rank(9))].since;
    assert!(since < HostTime(1_060 * NANOS_PER_SEC), "{since:?}");
}

#[test]
fn more_work_for_all_accuses_nobody_and_slow_devices_of_all_are_told_by_the_rest() {
    let mut job = Job::new(3);
    (0..30).for_each(|_| job.second(|_| 200.0, 0.01, &[]));
    (0..30).for_each(|_| job.second(|_| 400.0, 0.01, &[]));
    assert_eq!(job.found(), []);
    let common = job.evidence.common.of(COMPUTES).expect("rows were taken in");
    assert!((common - 2.0).abs() < 0.05, "{common}");
}

/// Pairs have no usual: each is judged by its own past, and knows how much it varies.
#[test]
fn a_rank_without_peers_that_varies_is_no_suspect_and_a_slow_one_is() {
    let mut job = Job::new(7);
    job.roles = (0..RANKS).map(|rank| Role::number(rank as u32 / 2)).collect();
    for second in 0..120 {
        // Forward in four rows, backward in the next four.
        let varies = move |rank: usize| if rank == 0 && second / 4 % 2 == 1 { 260.0 } else { 200.0 };
        job.second(varies, 0.01, &[]);
        assert_eq!(job.found(), [], "second {second}");
    }
    (0..20).for_each(|_| job.second(|rank| if rank == 6 { 300.0 } else { 200.0 }, 0.01, &[]));
    assert_eq!(job.found(), [(COMPUTES, Subject::Rank(6))]);
}

#[test]
fn a_slow_host_is_named_and_none_of_its_ranks() {
    let mut job = Job::new(4);
    (0..20).for_each(|_| job.second(|_| 200.0, 0.01, &[]));
    (0..20).for_each(|_| job.second(|rank| if rank / PER_HOST == 2 { 240.0 } else { 200.0 }, 0.01, &[]));
    assert_eq!(job.found(), [(COMPUTES, Subject::Host("host2".into()))]);
}

#[test]
fn a_fault_that_is_over_has_no_evidence() {
    let mut job = Job::new(5);
    (0..20).for_each(|_| job.second(|_| 200.0, 0.01, &[]));
    (0..20).for_each(|_| job.second(|rank| if rank == 1 { 260.0 } else { 200.0 }, 0.01, &[]));
    assert_eq!(job.found().len(), 1);
    (0..8).for_each(|_| job.second(|_| 200.0, 0.01, &[]));
    assert_eq!(job.found(), []);
}

/// A way is compared with what it took before, whatever others take: where all are slower all are slow.
#[test]
fn each_way_is_compared_with_its_own_past() {
    let ring = |slow: [f64; 4]| {
        let ways = [("host0", "host1"), ("host1", "host2"), ("host2", "host3"), ("host3", "host0")];
        ways.into_iter().zip(slow.map(|times| 20.0 * times)).collect::<Vec<_>>()
    };
    for slow in [[1.0, 1.9, 1.9, 1.0], [1.0, 1.0, 1.9, 1.0], [1.9; 4], [1.0; 4]] {
        let mut job = Job::new(6);
        (0..20).for_each(|_| job.second(|_| 200.0, 0.01, &ring([1.0; 4])));
        (0..20).for_each(|_| job.second(|_| 200.0, 0.01, &ring(slow)));
        let found = job.found();
        let told = found.iter().filter(|(component, _)| *component == Component::Wire).count();
        assert_eq!(told, slow.iter().filter(|times| **times > 1.0).count(), "{slow:?}: {found:?}");
    }
}

/// In a restless job some rows before the fault take longer by chance: they are not its beginning.
#[test]
fn a_cause_begins_where_it_exceeds_what_is_usual() {
    let mut track = Track::begin(of(0.04, 1.0), (COST, 0.3), (HostTime(0), HostTime(NANOS_PER_SEC)));
    for (row, share) in (1..).zip([0.08, -0.1, 0.12, 0.05, 0.9, 1.0, 0.2, 1.1]) {
        let at = |second: u64| HostTime(second * NANOS_PER_SEC);
        track.take(of(share, 100.0 * share), (COST, 0.3), (at(row), at(row + 1)));
    }
    assert_eq!((track.since, track.onset()), (HostTime(0), HostTime(5 * NANOS_PER_SEC)));
}

/// What was a little odd before, for however long, is not the beginning of what then costs far more.
#[test]
fn a_cause_begins_with_the_step_and_not_with_what_was_odd_before() {
    let at = |second: u64| HostTime(second * NANOS_PER_SEC);
    let mut track = Track::begin(of(0.08, 8.0), (COST, 0.01), (at(0), at(1)));
    for row in 1..60 {
        let share = if row < 40 { 0.08 } else { 0.6 };
        track.take(of(share, 100.0 * share), (COST, 0.01), (at(row), at(row + 1)));
    }
    assert_eq!((track.since, track.onset()), (at(0), at(40)));
}

/// What waits on a way through a host is inside it where no way of it is slower; of one that is not known nothing is said.
#[test]
fn ways_that_are_as_fast_as_before_are_told() {
    let ring = |slow_ms: f64| {
        [
            (("host0", "host1"), 20.0),
            (("host1", "host2"), 20.0),
            (("host2", "host3"), slow_ms),
            (("host3", "host0"), 20.0),
        ]
    };
    let mut job = Job::new(8);
    let denies =
        |job: &Job, hosts: &[&str]| job.evidence.denies_ways(&hosts.iter().map(|host| HostName::from(*host)).collect());
    assert!(!denies(&job, &["host1"]), "nothing is known");
    (0..20).for_each(|_| job.second(|_| 200.0, 0.01, &ring(20.0)));
    assert!(denies(&job, &["host1"]) && denies(&job, &["host1", "host2"]));
    assert!(!denies(&job, &["host0", "host2"]), "no way goes between these two");
    (0..5).for_each(|_| job.second(|_| 200.0, 0.01, &ring(60.0)));
    assert!(denies(&job, &["host1"]), "its ways are as before");
    assert!(!denies(&job, &["host2"]) && !denies(&job, &["host2", "host3"]));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

    /// Spreads of 0.5 to 5 %, and devices that always differ by up to 2 %: five minutes without a word.
    #[test]
    fn a_healthy_job_gathers_no_evidence(seed in 1u64..1_000_000, noise in 0.005f64..0.05, differ in 0.0f64..0.02) {
        let mut job = Job::new(seed);
        let own: Vec<f64> = (0..RANKS).map(|_| 1.0 + differ * (2.0 * (job.noise() / 6.0)).clamp(-1.0, 1.0)).collect();
        for _ in 0..300 {
            job.second(|rank| 200.0 * own[rank], noise, &[]);
            prop_assert_eq!(job.found(), []);
        }
    }
}

/// Rows since something came up tell nothing of how far healthy rows are off, nor do those that follow a first one that is odd: a
/// fault must not widen what it is judged by.
#[test]
fn what_is_in_doubt_widens_no_spread() {
    let mut pasts = [Past::default()];
    let mut take = |ms: f64, (is_raised, is_tested): (bool, bool)| {
        let expected = Expected::of(&[Some(ms)], &[Some(Role::default())], &pasts, Scale::Times(20.0), First::Past);
        expected.learn(&[Some(ms)], &mut pasts, (|_| is_raised, |_| is_tested), SLOWER);
        pasts[0].sigma_ms()
    };
    let healthy_ms = (0..20).map(|nth| take(if nth % 2 == 0 { 18.0 } else { 22.0 }, (false, false))).last();
    assert_eq!((0..40).map(|_| take(60.0, (true, false))).last(), healthy_ms);
    assert_eq!((0..40).map(|_| take(60.0, (false, true))).last(), healthy_ms);
    assert!(
        take(60.0, (false, false)) > healthy_ms.unwrap_or(0.0),
        "what nothing is known of may be the job's own spread"
    );
}

/// Who has always sent more slowly than its peers does so by design, on a link that fewer share.
#[test]
fn what_a_rank_sends_is_judged_by_its_own_past() {
    let mut evidence = Evidence::default();
    let hosts: Vec<HostName> =
        (0..RANKS).map(|rank| HostName::from(format!("host{}", rank / PER_HOST).as_str())).collect();
    for second in 0..40 {
        let slower_ms = |rank: usize| match rank {
            3 => 60.0,
            8 if second >= 20 => 50.0,
            _ => 0.0,
        };
        let cells =
            |rank| Some(Cells::of(|component| if component == Component::Sending { slower_ms(rank) } else { 0.0 }));
        let start = HostTime((1_000 + second) * NANOS_PER_SEC);
        let ranks = (0..RANKS).map(cells).collect();
        let row =
            Row { start, end: start + NANOS_PER_SEC, iterations: 3, iteration_ms: 300.0, ranks, ..Row::default() };
        evidence.take(&hosts, &[Role::default(); RANKS], &row);
    }
    let needed = evidence.needed(RANKS);
    let found = evidence
        .tracks
        .iter()
        .filter(|((component, _), track)| *component == Component::Sending && track.log_odds >= needed);
    let found: Vec<&Subject> = found.map(|((_, subject), _)| subject).collect();
    assert_eq!(found, [&Subject::Rank(8)]);
}

/// A way that varies by half takes four times as long: the least shift that counts is lost in how much it varies, what it does is not.
#[test]
fn a_large_shift_of_what_varies_much_is_told() {
    let at = |second: u64| HostTime(second * NANOS_PER_SEC);
    let odds = |shares: &[f64]| {
        let mut track = Track::begin(of(shares[0], 0.0), (SLOWER, 0.7), (at(0), at(1)));
        for (row, share) in (1..).zip(&shares[1..]) {
            track.take(of(*share, 0.0), (SLOWER, 0.7), (at(row), at(row + 1)));
        }
        track
    };
    assert!(odds(&[3.1, 2.8, 3.4, 3.0]).log_odds > 25.0);
    assert!(odds(&[0.3, 0.9, -0.2, 0.4, 0.8, 0.1]).log_odds < 5.0, "as much as it varies");
    let over = [&[3.1, 2.8, 3.4, 3.0][..], &[0.0, 0.1, -0.2, 0.0, 0.2, 0.0, -0.1, 0.0]].concat();
    assert!(odds(&over).is_over(), "and it is over as surely");
}

/// Rows, a second each, in some of which the proxy thread of a rank slept.
fn sleeps(rows: &[&[(u32, f64)]]) -> Evidence {
    let mut evidence = Evidence::default();
    for (second, slept) in (1_000..).zip(rows) {
        let (start, end) = (HostTime(second * NANOS_PER_SEC), HostTime((second + 1) * NANOS_PER_SEC));
        let slept = slept.iter().map(|(slot, ms)| Slept { slot: *slot, at: end, ms: *ms, chance: 1.0 }).collect();
        evidence.take_pauses(&Row { start, end, iterations: 3, iteration_ms: 300.0, slept, ..Row::default() });
    }
    evidence
}

/// Most rows show nothing: what counts is how often a healthy thread would sleep so often.
#[test]
fn a_proxy_thread_that_sleeps_again_and_again_is_told() {
    let key = |slot| (Component::Pause, Subject::Rank(slot));
    let once: &[&[(u32, f64)]] = &[&[(3, 700.0)], &[], &[], &[]];
    let odds = |evidence: &Evidence| evidence.tracks.get(&key(3)).map_or(0.0, |track| track.log_odds);
    let again = sleeps(&once.repeat(3));
    let needed = again.needed(RANKS);
    assert!(odds(&sleeps(once)) < needed / 2.0, "once is nobody's fault");
    assert!(odds(&again) >= needed && again.tracks.len() == 1, "three times within twelve seconds are");
    let track = again.tracks[&key(3)];
    assert!((0.1..0.3).contains(&track.mean()) && (track.more_ms - 300.0 * track.mean()).abs() < 1.0, "{track:?}");
    // A thread that slept every four seconds and has not for two minutes is well again.
    let over = sleeps(&[once.repeat(3), vec![&[][..]; 120]].concat());
    assert!(!over.tracks.contains_key(&key(3)));
}

/// A row of an iteration that runs shows what the next one shows again.
#[test]
fn a_pause_is_taken_in_once_however_many_rows_show_it() {
    let at = |second: u64| HostTime(second * NANOS_PER_SEC);
    let mut evidence = Evidence::default();
    for until in [3, 4, 5, 6] {
        let slept = vec![Slept { slot: 3, at: at(2), ms: 900.0, chance: 1.0 }];
        evidence.take_pauses(&Row { start: at(1), end: at(until), iteration_ms: 300.0, slept, ..Row::default() });
    }
    assert!(evidence.tracks[&(Component::Pause, Subject::Rank(3))].log_odds < 12.0);
}

/// Until its own past is known a way is compared with its peers: how far it is from them is not how much it varies.
#[test]
fn what_peers_take_says_nothing_of_how_much_one_varies() {
    let mut pasts = [Past::default(); 8];
    for row in 0..6 {
        let ms = |at: usize| if at == 0 { 3.0 + 0.1 * f64::from(row % 2) } else { 0.6 };
        let values: Vec<Option<f64>> = (0..8).map(|at| Some(ms(at))).collect();
        let expected = Expected::of(&values, &[Some(Role::default()); 8], &pasts, Scale::Times(0.6), First::Past);
        expected.learn(&values, &mut pasts, (|_| false, |_| false), SLOWER);
    }
    assert!(pasts[0].sigma_ms() / 0.6 < 0.1, "{}", pasts[0].sigma_ms() / 0.6);
}

/// A fault that begins with the fourth row is not what is usual.
#[test]
fn the_last_of_the_first_rows_may_be_slow_already() {
    let mut pasts = [Past::default()];
    for ms in [7.0, 4.8, 3.5, 310.0] {
        let expected = Expected::of(&[Some(ms)], &[Some(Role::default())], &pasts, Scale::Times(5.0), First::Past);
        expected.learn(&[Some(ms)], &mut pasts, (|_| false, |_| false), SLOWER);
    }
    assert!((pasts[0].level - 4.8).abs() < 0.1 && pasts[0].sigma_ms() / 5.0 < 2.0, "{pasts:?}");
}
