//! From a report to a plan: what is taken from it, what is asked, and what is assumed.
use mycroft_diagnose::mitigate::known::{Asked, known};
use mycroft_diagnose::mitigate::lint::lint;
use mycroft_diagnose::mitigate::place::{HEALTHY, Waits};
use mycroft_diagnose::mitigate::plan::{Costs, plan};
use mycroft_diagnose::mitigate::rent::Strategy;
use mycroft_diagnose::{Case, CaseId, CaseState, RankSummary, Report};
use mycroft_record::{Category, Finding, HostName, HostTime, NANOS_PER_SEC, Place, Rank, Suspect, What};

const NOW: HostTime = HostTime(1_767_225_600 * NANOS_PER_SEC);

fn host(number: u32) -> HostName {
    format!("host{number}").as_str().into()
}

/// A job of so many hosts of eight ranks; an iteration takes 1,000 ms when healthy and `now_ms` lately.
fn report(hosts: u32, now_ms: f64, cases: Vec<Case>) -> Report {
    let rank = |rank: u32| RankSummary {
        rank: Rank(rank),
        host: host(rank / 8),
        pid: 4000 + rank,
        iterations: 500,
        iteration_ms: Some(now_ms),
        computation_ms: None,
        in_flight: 1,
        last_progress_at: NOW,
        last_seen_at: NOW,
        state: "running",
        doing: String::new(),
        lost: 0,
    };
    Report {
        job: "train".into(),
        as_of: NOW,
        lives: Vec::new(),
        cases,
        transients: Vec::new(),
        caveats: Vec::new(),
        ranks: (0..8 * hosts).map(rank).collect(),
        iteration_ms_median: Some(1000.0),
        layout: Vec::new(),
        iteration_ms_spread: None,
        iterations: 500,
        thresholds: Vec::new(),
    }
}

/// An open slowdown that began 100 s ago.
fn case(id: u64, category: Category, place: Option<Place>) -> Case {
    let since = HostTime(NOW.0 - 100 * NANOS_PER_SEC);
    let suspects = place.map(|place| Suspect { place, confidence: 0.9 }).into_iter().collect();
    Case {
        id: CaseId(id),
        state: CaseState::Open,
        finding: Finding { what: What::Slowdown, category, suspects, since, detected_at: since, diagnosed_at: since },
        group: None,
        op: None,
        because: Vec::new(),
        blast_radius: Vec::new(),
        do_next: Vec::new(),
        opened_at: since,
        updated_at: since,
        closed_at: HostTime::NONE,
        closed_because: String::new(),
        revisions: 0,
        said_before: Vec::new(),
    }
}

fn asked(tensor: u32, pipeline: u32, micro_batches: u32) -> Asked {
    Asked {
        tensor,
        pipeline,
        micro_batches,
        micro_batches_max: None,
        healthy_ms: None,
        gradients_ms: Some(100.0),
        activations_ms: 0.0,
        waits: Waits::EachIteration,
        costs: Costs::PAPER,
        done: Strategy::Ignore,
        divided: Vec::new(),
        answered: None,
        spares: None,
        history: Vec::new(),
    }
}

#[test]
fn a_slow_device_is_as_slow_as_the_jobs_loss_says() {
    let slow = Place::Rank { rank: Rank(13), host: host(1) };
    let report = report(4, 1400.0, vec![case(7, Category::Gpu, Some(slow))]);
    // Four replicas of one host each: nine micro-batches of 100 ms, and 100 ms for gradients.
    let known = known(&report, &asked(8, 1, 36)).expect("all is known");
    let situation = &known.situation;
    assert_eq!((situation.model.stages_ns[0], situation.model.micro_batches), (100_000_000, 9));
    // 400 ms over nine micro-batches.
    assert_eq!(situation.model.hosts[1].compute, HEALTHY + 444);
    assert_eq!(situation.model.hosts.iter().filter(|host| host.compute > HEALTHY).count(), 1);
    // Of 100 s two sevenths: 400 of 1,400 ms.
    assert_eq!(situation.lost_ns / NANOS_PER_SEC, 28);
    assert_eq!(known.cases, [7]);
    let plan = plan(situation).expect("fits");
    assert_eq!(lint(&plan, situation), Vec::<String>::new());
    assert_eq!((plan.strategy, plan.before_ns / 1_000_000), (Strategy::Split, 1399));
    assert_eq!(plan.to.micro_batches, [10, 6, 10, 10]);
}

/// Host 1 has been given less already, so its case is closed; host 3 is slow since. What each computes for a micro-batch tells both.
#[test]
fn a_batch_that_is_divided_unevenly_is_planned_for_from_there() {
    let division = vec![10, 6, 10, 10];
    let slow = Place::Host { host: host(3) };
    let mut report = report(4, 1600.0, vec![case(9, Category::Gpu, Some(slow))]);
    let asked = Asked { divided: division.clone(), ..asked(8, 1, 36) };
    let refused = known(&report, &asked).expect_err("nobody's computation is seen");
    assert!(refused.contains("what each rank computes is not seen"), "{refused}");
    for rank in &mut report.ranks {
        let host = (rank.rank.0 / 8) as usize;
        let each_ms = [100.0, 140.0, 100.0, 150.0][host];
        rank.computation_ms = Some(each_ms * f64::from(division[host]));
    }
    let whole = known(&report, &asked).expect("all is known");
    let situation = &whole.situation;
    let paces: Vec<u32> = situation.model.hosts.iter().map(|host| host.compute).collect();
    assert_eq!(paces, [HEALTHY, HEALTHY + 400, HEALTHY, HEALTHY + 500]);
    assert_eq!(situation.present.micro_batches, division);
    let explained = whole.assumed.join("; ");
    assert!(!explained.contains("is as far off"), "ten micro-batches of 150 ms and 100: {explained}");
    let plan = plan(situation).expect("fits");
    assert_eq!(lint(&plan, situation), Vec::<String>::new());
    assert_eq!((plan.strategy, plan.before_ns / 1_000_000), (Strategy::Split, 1600));
    assert_eq!(plan.to.micro_batches, [11, 7, 11, 7]);
    // What was lost before the first division was answered by it.
    let since = HostTime(NOW.0 - 40 * NANOS_PER_SEC);
    let answered = known(&report, &Asked { answered: Some(since), ..asked.clone() }).expect("all is known");
    assert_eq!((situation.lost_ns / NANOS_PER_SEC, answered.situation.lost_ns / NANOS_PER_SEC), (37, 15));
    let other = known(&report, &Asked { divided: vec![9, 9, 9], ..asked }).expect_err("another job");
    assert!(other.contains("that is not 36 among 4"), "{other}");
}

#[test]
fn a_congested_link_is_a_path_of_its_hosts() {
    let link = Place::Link { from: host(2), to: host(3) };
    let report = report(4, 1300.0, vec![case(1, Category::NetworkCongestion, Some(link))]);
    let known = known(&report, &asked(4, 2, 32)).expect("all is known");
    assert_eq!((known.situation.replicas_per_column, known.situation.present.micro_batches.len()), (2, 4));
    let path = known.situation.model.paths[0];
    assert_eq!((path.ends, path.network), ((2, 3), 4 * HEALTHY));
    let after_a_minute = plan(&known.situation).expect("fits");
    assert_eq!(after_a_minute.strategy, Strategy::Ignore, "23 s are lost, moving hosts costs 60");
    assert_eq!(after_a_minute.next.map(|(strategy, _)| strategy), Some(Strategy::Move));
}

#[test]
fn a_loss_that_the_model_does_not_explain_is_said() {
    let said = |from: u32, to: u32| {
        let link = Place::Link { from: host(from), to: host(to) };
        let report = report(4, 1300.0, vec![case(1, Category::NetworkCongestion, Some(link))]);
        known(&report, &asked(8, 2, 32)).expect("all is known").assumed.join("; ")
    };
    // Hosts 0 and 1 are one stage; 0 and 2 exchange activations only, which take no time as nobody said.
    assert!(!said(0, 1).contains("is as far off"), "{}", said(0, 1));
    assert!(
        said(0, 2).contains("the model makes an iteration 0 ms longer than a healthy one, and it is 300 ms"),
        "{}",
        said(0, 2)
    );
}

#[test]
fn several_faults_share_the_loss_and_what_helps_nobody_is_said() {
    let device = case(1, Category::Gpu, Some(Place::Host { host: host(0) }));
    let network = case(2, Category::NetworkSend, Some(Place::Host { host: host(1) }));
    let nobody = case(3, Category::Unknown, None);
    let report = report(4, 1400.0, vec![device, network, nobody]);
    let known = known(&report, &asked(8, 1, 36)).expect("all is known");
    let hosts = &known.situation.model.hosts;
    assert_eq!((hosts[0].compute, hosts[1].network), (HEALTHY + 222, HEALTHY + 2000));
    let assumed = known.assumed.join("; ");
    assert!(assumed.contains("2 faults share a loss of 400 ms"), "{assumed}");
    assert!(assumed.contains("case 3 names nobody"), "{assumed}");
}

#[test]
fn closed_cases_and_hangs_are_not_planned_for() {
    let place = || Some(Place::Host { host: host(0) });
    let closed = Case { state: CaseState::Closed, ..case(1, Category::Gpu, place()) };
    let mut hang = case(2, Category::Gpu, place());
    hang.finding.what = What::Hang;
    let known = known(&report(4, 1000.0, vec![closed, hang]), &asked(8, 1, 36)).expect("all is known");
    assert_eq!((known.cases.len(), known.situation.suspects.len()), (0, 0));
    assert_eq!(plan(&known.situation).expect("fits").strategy, Strategy::Ignore);
}

#[test]
fn what_is_not_known_or_does_not_fit_is_said() {
    let fine = report(4, 1000.0, Vec::new());
    let said = |report: &Report, asked: &Asked| known(report, asked).expect_err("it does not fit");
    assert!(said(&fine, &asked(3, 1, 36)).contains("no multiple of 3"));
    assert!(said(&fine, &asked(8, 3, 36)).contains("4 hosts do not make 3 pipeline stages"));
    assert!(said(&fine, &asked(8, 1, 3)).contains("3 micro-batches are fewer than 4 replicas"));
    assert!(said(&fine, &Asked { gradients_ms: Some(1000.0), ..asked(8, 1, 36) }).contains("longer than a healthy"));
    let young = Report { iteration_ms_median: None, ..fine.clone() };
    assert!(said(&young, &asked(8, 1, 36)).contains("no usual iteration time"));
    assert!(known(&young, &Asked { healthy_ms: Some(900.0), ..asked(8, 1, 36) }).is_ok());
    let mut some = fine.clone();
    some.ranks.remove(3);
    assert!(said(&some, &asked(8, 1, 36)).contains("are not all seen"));
    let mut odd = fine;
    odd.ranks[31].host = host(9);
    assert!(said(&odd, &asked(8, 1, 36)).contains("same number of consecutive ranks"));
}
