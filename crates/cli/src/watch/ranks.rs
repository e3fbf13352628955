//! The ranks of a job, one a line: those that are blamed first, then those that made no progress for longest.
use crate::told;
use mycroft_record::HostTime;
use mycroft_record::text::printable;
use mycroft_serve::api::{RankJson, ReportJson};
use std::cmp::Reverse;

/// The head of the table.
pub(super) const HEAD: &str = " rank    host              state     last progress  iteration   lost  in";

/// A line for each rank, and whether it is blamed.
pub(super) fn lines(report: &ReportJson, is_blamed: impl Fn(&RankJson) -> bool) -> Vec<(String, bool)> {
    let now = HostTime(report.as_of.ns);
    let mut ranks: Vec<(&RankJson, bool)> = report.ranks.iter().map(|rank| (rank, is_blamed(rank))).collect();
    let quiet_ns = |rank: &RankJson| rank.last_progress_at.as_ref().map(|at| now.since_ns(HostTime(at.ns)));
    ranks.sort_by_key(|(rank, is_blamed)| (Reverse(*is_blamed), Reverse(quiet_ns(rank)), rank.rank));
    ranks.into_iter().map(|(rank, is_blamed)| (line(rank, is_blamed, now), is_blamed)).collect()
}

fn line(rank: &RankJson, is_blamed: bool, now: HostTime) -> String {
    let number = rank.rank.map_or("?".to_owned(), |number| number.to_string());
    let progress = rank
        .last_progress_at
        .as_ref()
        .map_or("-".to_owned(), |at| format!("{} ago", told::age(now.since_ns(HostTime(at.ns)))));
    let iteration = rank.iteration_ms.map_or("-".to_owned(), |ms| format!("{ms:.0} ms"));
    let mark = if is_blamed { "!" } else { " " };
    let (host, state, doing) = (printable(&rank.host), printable(&rank.state), printable(&rank.doing));
    format!("{mark}{number:<7} {host:<17} {state:<9} {progress:>13}  {iteration:>9}  {:>5}  {doing}", rank.lost)
}
