//! Jobs that have ended cost nothing more until something comes of them.
use super::*;
use crate::book::CaseBook;
use crate::core::{Core, Parts};
use mycroft_diagnose::operations::{Operations, Wanted};

/// The engine of a job that has ended, which counts looks.
struct Ended {
    looks: Arc<AtomicU64>,
    lives: Vec<Life>,
    cases: Vec<Case>,
}

impl Brain for Ended {
    fn observe(&mut self, _: &Batch) {}
    fn tick(&mut self, _: HostTime) -> Vec<CaseEvent> {
        self.looks.fetch_add(1, Ordering::SeqCst);
        Vec::new()
    }
    fn next_check(&self, _: HostTime) -> Option<HostTime> {
        None
    }
    fn report(&self, now: HostTime) -> Report {
        example_report("train".into(), now)
    }
    fn cases(&self) -> &[Case] {
        &self.cases
    }
    fn lives(&self) -> &[Life] {
        &self.lives
    }
    fn take_measured(&mut self) -> Measured {
        Measured::default()
    }
    fn operations(&self, wanted: &Wanted) -> Operations {
        example_operations(wanted)
    }
}

/// Looks in a second of ten ticks, after a batch and after a second one.
fn looks(ended: bool, cases: &[Case]) -> [u64; 2] {
    let (looks, cases, at) = (Arc::new(AtomicU64::new(0)), cases.to_vec(), HostTime(NEW_YEAR));
    let counted = Arc::clone(&looks);
    let ended = ended.then(|| Ending { at, how: How::Outside, because: String::new() });
    let lives = vec![Life { number: 1, began: at, ended }];
    let mut core = Core::new(Parts {
        make: Arc::new(move |_| {
            Box::new(Ended { looks: Arc::clone(&counted), lives: lives.clone(), cases: cases.clone() })
        }),
        tick_ns: NANOS_PER_SEC / 10,
        book: Arc::new(CaseBook::reopen(Vec::new(), 0)),
        named: Arc::default(),
        series: Arc::new(|_| crate::series::JobSeries::default()),
        stopwatch: None,
        is_live: false,
    });
    core.start(at, &[]);
    [1, 2].map(|second| {
        core.deliver(at + (second - 1) * NANOS_PER_SEC, &batch("train", &[NOTHING]));
        core.advance(at + second * NANOS_PER_SEC);
        looks.swap(0, Ordering::SeqCst)
    })
}

#[test]
fn a_job_that_has_ended_is_looked_at_when_something_comes_of_it() {
    assert_eq!(looks(false, &[]), [10, 10], "it goes on");
    assert_eq!(looks(true, &[]), [1, 1], "once after each batch");
    let open = example_case(CaseId(1), HostTime(NEW_YEAR));
    assert_eq!(looks(true, &[open]), [10, 10], "its case is still to be closed");
}
