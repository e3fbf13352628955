//! Clocks of hosts: what is too far off, and what that costs.
use super::finding::Finding;
use crate::check::Grade;
use mycroft_record::text::printable;
use mycroft_serve::api::{ClocksJson, HostClockJson, HostJson};
use serde::Serialize;

/// A clock that is off by more is told of, as in reports, seconds.
const OFF_S: f64 = 0.1;
/// Captures of a host whose clock is off by more begin by their lead and not at one time, seconds.
const CAPTURE_S: f64 = 2.0;
/// What compares hosts allows for so much, seconds: a clock that is known less well makes it less sharp.
const BOUND_S: f64 = 0.005;
/// More than an oscillator is off by: something slews the clock. Millionths.
const DRIFT_PPM: f64 = 200.0;

/// How far the clocks of hosts lie apart.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub(super) struct Spread {
    /// Hosts whose clocks are known.
    pub(super) hosts: usize,
    /// Seconds from the one that is most behind to the one that is most ahead.
    pub(super) apart_s: f64,
    /// The truth differs by at most so many seconds.
    pub(super) bound_s: f64,
    /// Which is most ahead.
    pub(super) ahead: String,
    /// Which is most behind.
    pub(super) behind: String,
}

/// How far the clocks that are known lie apart; `None`: fewer than two are.
pub(super) fn spread(hosts: &[HostJson]) -> Option<Spread> {
    let mut known: Vec<(f64, f64, &str)> = hosts
        .iter()
        .filter_map(|host| host.clock.and_then(|clock| Some((clock.offset_s, clock.bound_s?, &*host.host))))
        .collect();
    known.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.2.cmp(b.2)));
    let (first, last) = known.first().zip(known.last()).filter(|_| known.len() > 1)?;
    Some(Spread {
        hosts: known.len(),
        apart_s: last.0 - first.0,
        bound_s: first.1 + last.1,
        ahead: last.2.to_owned(),
        behind: first.2.to_owned(),
    })
}

/// What is wrong with a host's clock.
pub(super) fn of_host(clock: &HostClockJson) -> Option<Finding> {
    let word = if clock.offset_s < 0.0 { "behind" } else { "ahead of" };
    let off = format!("{:.3} s {word} the server's", clock.offset_s.abs());
    let Some(bound_s) = clock.bound_s else {
        let found = format!(
            "the clock is not known (about {off}): nobody there is accused by comparing times, and its silence is believed \
             after a minute only"
        );
        let fix =
            "there: chronyc tracking; journalctl -u chronyd (what sets it again and again?), or upgrade its agent";
        return Some(Finding::new(Grade::Warn, "clock", found, fix));
    };
    if clock.offset_s.abs() > OFF_S {
        let captures = if clock.offset_s.abs() > CAPTURE_S { ", and its captures begin at another time" } else { "" };
        let found = format!(
            "the clock is {off} (within {bound_s:.4} s): times of its own logs, stacks and dumps are off{captures}; cases and \
             reports are corrected"
        );
        return Some(Finding::new(Grade::Warn, "clock", found, "there: chronyc makestep, then chronyc tracking"));
    }
    if bound_s > BOUND_S {
        let found = format!(
            "the clock is known to within {bound_s:.4} s only: who was {BOUND_S} s late there is not seen (a slow network, \
             or a server that is busy)"
        );
        return Some(Finding::new(
            Grade::Warn,
            "clock",
            found,
            "from there: ping the server; its mycroft_ingest_lag_seconds",
        ));
    }
    if clock.drift_ppm.abs() > DRIFT_PPM {
        let found = format!("the clock gains {:.0} us a second on the server's: it is being slewed", clock.drift_ppm);
        return Some(Finding::new(Grade::Warn, "clock", found, "there: chronyc tracking"));
    }
    None
}

/// What a server that tells of its hosts' clocks alone says of those that are off.
pub(super) fn of_an_old_server(clocks: &ClocksJson) -> Vec<Finding> {
    let told = clocks.told.iter().filter_map(|clock| {
        let one = HostClockJson { offset_s: clock.offset_s, bound_s: clock.bound_s, drift_ppm: 0.0 };
        of_host(&one).map(|finding| finding.on(&printable(&clock.host)))
    });
    told.collect()
}
