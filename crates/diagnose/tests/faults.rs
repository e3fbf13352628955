//! Every fault of the paper and three more, at several places, seeds and shapes: named at once and rightly.
mod cluster;

use cluster::{Fault, MS, Plan, T0, run};
use mycroft_record::{Category, NANOS_PER_SEC, Place, Rank, What};

fn shapes() -> Vec<Plan> {
    vec![Plan::new(4, 8, 8, 2, 2), Plan::new(4, 4, 4, 1, 4), Plan::new(4, 4, 2, 2, 4), Plan::new(2, 2, 2, 1, 2)]
}

fn rank_place(rank: u32, plan: &Plan) -> Place {
    Place::Rank { rank: Rank(rank), host: format!("host{}", plan.host_of(rank)).into() }
}

fn host_place(host: u32) -> Place {
    Place::Host { host: format!("host{host}").into() }
}

/// Iterations of the synthetic job are shorter than this.
const ITERATION: u64 = 800 * MS;

fn check(plan: Plan, what: What, category: Category, place: &Place) {
    let (fault, at) = (plan.fault, plan.fault_at);
    let about = format!("{fault:?} seed {} tp {} pp {} dp {}", plan.seed, plan.tp, plan.pp, plan.dp);
    let outcome = run(plan);
    let text = outcome.text();
    let cases = outcome.engine.cases();
    assert_eq!(cases.len(), 1, "{about}: one fault, one case\n{text}");
    let finding = &cases[0].finding;
    assert_eq!((finding.what, finding.category), (what, category), "{about}\n{text}");
    assert_eq!(finding.suspects.first().map(|s| &s.place), Some(place), "{about}\n{text}");
    assert!(finding.diagnosed_at.is_some(), "{about}: settled\n{text}");
    let detected = finding.detected_at.since_ns(mycroft_record::HostTime(T0 + at));
    let diagnosed = finding.diagnosed_at.since_ns(finding.detected_at);
    if matches!(what, What::Hang | What::Crash | What::Desync) {
        // Until the iteration in flight comes to the broken operation, then two seconds.
        assert!(detected <= ITERATION + 2 * NANOS_PER_SEC, "{about}: detected after {} ms\n{text}", detected / MS);
        assert!(diagnosed <= NANOS_PER_SEC, "{about}: diagnosed {} ms later\n{text}", diagnosed / MS);
    }
}

fn each(fault: fn(u32) -> Fault, pick: &[u32], what: What, category: Category, place: fn(u32, &Plan) -> Place) {
    for shape in shapes() {
        for (i, which) in pick.iter().enumerate() {
            let plan = shape.clone().seed(i as u64 + 1).fault(fault(*which));
            let limit = match fault(*which) {
                Fault::NicDown(_) | Fault::NicBandwidth(_) | Fault::BackgroundCompute(_) => plan.hosts,
                _ => plan.world(),
            };
            if *which < limit {
                check(plan.clone(), what, category, &place(*which, &plan));
            }
        }
    }
}

const RANKS: [u32; 4] = [0, 3, 9, 15];
const HOSTS: [u32; 3] = [0, 1, 3];

#[test]
fn a_rank_that_never_issues_is_named() {
    each(Fault::Stuck, &RANKS, What::Hang, Category::NotStarted, rank_place);
}

#[test]
fn a_device_that_stops_between_operations_is_named() {
    each(Fault::GpuHang, &RANKS, What::Hang, Category::Gpu, rank_place);
}

#[test]
fn a_device_that_stops_inside_an_operation_is_named() {
    for (shape, rank) in [(Plan::new(4, 8, 8, 2, 2), 9), (Plan::new(4, 4, 4, 1, 4), 6), (Plan::new(2, 2, 2, 1, 2), 3)] {
        let plan = shape.fault(Fault::GpuHangInside(rank));
        check(plan.clone(), What::Hang, Category::Gpu, &rank_place(rank, &plan));
    }
}

#[test]
fn a_process_that_dies_is_named() {
    each(Fault::Crash, &RANKS, What::Crash, Category::ProcessExit, rank_place);
}

#[test]
fn a_process_that_is_stopped_is_named() {
    each(Fault::Frozen, &RANKS, What::Hang, Category::HostThread, rank_place);
}

#[test]
fn a_link_that_goes_down_is_named() {
    each(Fault::NicDown, &HOSTS, What::Hang, Category::NetworkSend, |host, _| host_place(host));
}

#[test]
fn a_slow_nic_is_named() {
    for shape in [Plan::new(4, 4, 4, 1, 4), Plan::new(4, 4, 2, 2, 4)] {
        for host in [0, 2] {
            let plan = shape.clone().fault(Fault::NicBandwidth(host));
            check(plan, What::Slowdown, Category::NetworkSend, &host_place(host));
        }
    }
}

#[test]
fn other_traffic_is_named_at_both_hosts() {
    for shape in [Plan::new(4, 4, 4, 1, 4), Plan::new(4, 8, 8, 2, 2)] {
        let plan = shape.fault(Fault::BackgroundTraffic(0, 2));
        let outcome = run(plan);
        let case = outcome.case();
        assert_eq!(case.finding.category, Category::NetworkCongestion, "{}", outcome.text());
        let mut places: Vec<Place> = case.finding.suspects.iter().take(2).map(|s| s.place.clone()).collect();
        places.sort();
        assert_eq!(places, vec![host_place(0), host_place(2)], "{}", outcome.text());
    }
}

#[test]
fn a_slow_copy_engine_is_named() {
    each(Fault::Pcie, &RANKS, What::Slowdown, Category::GpuCopy, rank_place);
}

#[test]
fn a_slow_device_is_named() {
    each(Fault::GpuPower, &RANKS, What::Slowdown, Category::Gpu, rank_place);
}

#[test]
fn other_work_on_a_host_is_named() {
    each(Fault::BackgroundCompute, &HOSTS, What::Slowdown, Category::Gpu, |host, _| host_place(host));
}

#[test]
fn a_proxy_that_sleeps_now_and_then_is_named() {
    for (shape, rank) in [(Plan::new(4, 8, 8, 2, 2), 9), (Plan::new(4, 4, 4, 1, 4), 6), (Plan::new(4, 4, 2, 2, 4), 12)]
    {
        let mut plan = shape.fault(Fault::ProxyDelay(rank));
        plan.until = 30_000 * MS;
        check(plan.clone(), What::Slowdown, Category::HostThread, &rank_place(rank, &plan));
    }
}

/// Each wait is a stall that goes away by itself; the iterations that it makes long are seen in the same look.
#[test]
fn a_rank_that_waits_for_input_again_and_again_is_named() {
    for (shape, rank) in [(Plan::new(4, 4, 4, 1, 4), 6), (Plan::new(4, 4, 2, 2, 4), 3)] {
        let mut plan = shape.fault(Fault::DataWait(rank));
        plan.until = 25_000 * MS;
        check(plan.clone(), What::Slowdown, Category::NotStarted, &rank_place(rank, &plan));
    }
}

#[test]
fn another_operation_is_a_desync_of_the_one() {
    let plan = Plan::new(4, 4, 4, 1, 4).fault(Fault::Desync(6));
    check(plan.clone(), What::Desync, Category::CodeDivergence, &rank_place(6, &plan));
    let plan = Plan::new(4, 4, 4, 1, 4).fault(Fault::OtherCount(6));
    check(plan.clone(), What::Desync, Category::ArgumentMismatch, &rank_place(6, &plan));
}

/// No majority says which of two is right, but one of them does what it has always done.
#[test]
fn of_two_the_one_that_does_what_it_never_did_is_named() {
    for rank in [2, 6] {
        let plan = Plan::new(2, 4, 4, 1, 2).fault(Fault::OtherCount(rank));
        check(plan.clone(), What::Desync, Category::ArgumentMismatch, &rank_place(rank, &plan));
    }
}

/// A busy machine: tens of milliseconds of jitter, now and then hundreds.
#[test]
fn faults_are_named_on_a_restless_machine_too() {
    for seed in 1..6 {
        let restless = |fault| {
            let mut plan = Plan::new(4, 4, 2, 2, 4).seed(seed).fault(fault);
            plan.noise = 20 * MS;
            plan.fault_at = 12_000 * MS;
            plan.until = 30_000 * MS;
            plan
        };
        let rank = (seed * 5 % 16) as u32;
        let host = (seed % 4) as u32;
        let of_rank = rank_place(rank, &restless(Fault::None));
        check(restless(Fault::Stuck(rank)), What::Hang, Category::NotStarted, &of_rank);
        check(restless(Fault::GpuHang(rank)), What::Hang, Category::Gpu, &of_rank);
        check(restless(Fault::Crash(rank)), What::Crash, Category::ProcessExit, &of_rank);
        check(restless(Fault::GpuPower(rank)), What::Slowdown, Category::Gpu, &of_rank);
        check(restless(Fault::Pcie(rank)), What::Slowdown, Category::GpuCopy, &of_rank);
        check(restless(Fault::ProxyDelay(rank)), What::Slowdown, Category::HostThread, &of_rank);
        check(restless(Fault::NicDown(host)), What::Hang, Category::NetworkSend, &host_place(host));
        check(restless(Fault::BackgroundCompute(host)), What::Slowdown, Category::Gpu, &host_place(host));
    }
}

/// A server asks with every batch when to look again, and batches come more often than looks are due.
#[test]
fn asking_again_does_not_put_a_look_off() {
    let mut plan = Plan::new(4, 4, 4, 1, 4).fault(Fault::GpuPower(6));
    plan.until = plan.fault_at + 1_500 * MS;
    let outcome = run(plan);
    assert!(outcome.engine.cases().is_empty(), "too early for a case\n{}", outcome.text());
    let due = outcome.engine.next_check(outcome.end).unwrap();
    assert!(due <= outcome.end + 200 * MS, "an iteration was long: the next look is soon");
    assert_eq!(outcome.engine.next_check(due), Some(due), "at its time it is due");
}

/// However the stall lies to the regular looks.
#[test]
fn a_stall_is_looked_at_when_it_is_due() {
    for offset in 0..10 {
        let mut plan = Plan::new(4, 4, 4, 1, 4).fault(Fault::Stuck(6));
        plan.fault_at += offset * 100 * MS;
        let outcome = run(plan);
        let (finding, report) = (&outcome.case().finding, outcome.engine.report(outcome.end));
        let threshold = report.thresholds.iter().find(|threshold| threshold.name == "stall").unwrap();
        let waited = finding.detected_at.since_ns(finding.since) / MS;
        assert!(
            waited as f64 <= threshold.value + 350.0,
            "{waited} ms, due after {}\n{}",
            threshold.value,
            outcome.text()
        );
    }
}
