//! Cases that ask for a test: open slowdowns that cost enough and are not sure enough.
use crate::api::{Api, ServerArgs, escaped};
use crate::exit::EXIT_OK;
use crate::stop::Stop;
use anyhow::Result;
use mycroft_serve::api::{CaseJson, ReportJson};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often the server is asked.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often a signal is looked for.
const SIGNAL_POLL: Duration = Duration::from_millis(100);

/// Which cases are tested.
pub(super) struct Wanted<'a> {
    pub(super) server: &'a ServerArgs,
    pub(super) job: &'a str,
    /// Less sure than this, 0 to 1.
    pub(super) below: f64,
    /// Iterations are longer than usual by this share.
    pub(super) above: f64,
    /// Least time between two tests.
    pub(super) every: Duration,
}

/// Tests each case that asks for it, until interrupted. What cannot be tested or asked is said, and tried again.
pub(super) fn watch(args: &Wanted<'_>, stop: &Stop, mut test: impl FnMut(u64) -> Result<u8>) -> Result<u8> {
    let api = Api::new(args.server)?;
    let mut tested: BTreeMap<u64, u64> = BTreeMap::new();
    let mut last: Option<Instant> = None;
    let mut said = String::new();
    while !stop.asked() {
        let asked = match api.get::<ReportJson>(&format!("/api/v1/report?job={}", escaped(args.job))) {
            Ok(report) => wanted(args, &report, &tested),
            Err(error) => {
                let text = error.to_string();
                if text != said {
                    eprintln!("mycroft: {text}");
                }
                said = text;
                None
            }
        };
        let is_time = last.is_none_or(|at| at.elapsed() >= args.every);
        if let Some((id, revisions)) = asked.filter(|_| is_time) {
            eprintln!("mycroft: case {id} asks for a test");
            if let Err(error) = test(id) {
                eprintln!("mycroft: case {id} was not tested: {error:#}");
            }
            tested.insert(id, revisions);
            last = Some(Instant::now());
        }
        let until = Instant::now() + LOOK_EVERY;
        while Instant::now() < until && !stop.asked() {
            std::thread::sleep(SIGNAL_POLL);
        }
    }
    Ok(EXIT_OK)
}

/// The first case that asks for a test, with its revisions.
fn wanted(args: &Wanted<'_>, report: &ReportJson, tested: &BTreeMap<u64, u64>) -> Option<(u64, u64)> {
    let usual_ms = report.iteration_ms_median?;
    let now_ms = report.ranks.iter().filter_map(|rank| rank.iteration_ms).fold(usual_ms, f64::max);
    let asks = |case: &&CaseJson| {
        let sure = case.suspects.first().map_or(0.0, |first| first.confidence);
        case.state == "open"
            && case.what == "slowdown"
            && case.settled
            && sure < args.below
            && case.validation.is_none()
            && tested.get(&case.id) != Some(&case.revisions)
    };
    if now_ms < usual_ms * (1.0 + args.above) {
        return None;
    }
    report.cases.iter().find(asks).map(|case| (case.id, case.revisions))
}
