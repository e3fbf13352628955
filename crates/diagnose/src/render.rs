//! Verdicts as text for a terminal, of live and of dead jobs alike: stable, so that golden files can hold it.
mod autopsy;
mod page;

use crate::case::{BlastEntry, Case};
use crate::fact::{these, these_do};
use crate::report::{RankSummary, Report};
use mycroft_record::{HostTime, NANOS_PER_MS, OpKind, Rank};
use page::{Page, place_text, suspect_text};
use std::collections::BTreeMap;

pub use autopsy::render as render_autopsy;
pub use page::{Style, moment};

/// Lines of ranks shown; a job of 10,000 ranks has 1,250 hosts.
const RANK_LINES_MAX: usize = 64;
/// Lives shown, the newest.
const LIVES_SHOWN: usize = 8;
/// Characters before the labels of a case.
const INDENT: usize = 2;
/// Width of the first column of a case.
const LABEL: usize = 10;

/// The report as text; the same report gives the same text.
pub fn render(report: &Report) -> String {
    // Not broken: who reads a report of a running job pipes it, or has it in a window of their own.
    let mut page = Page::new(Style { width: usize::MAX, is_coloured: false }, INDENT, LABEL);
    let pace = report.iteration_ms_median.map_or_else(|| "not known yet".to_owned(), |ms| format!("{ms:.0} ms"));
    page.line(&format!("job {} at {}", report.job, moment(report.as_of)));
    page.line(&format!("{} ranks, {} iterations, usual iteration {pace}", report.ranks.len(), report.iterations));
    render_lives(&mut page, report);
    if report.cases.is_empty() {
        page.line("no case");
    }
    for case in &report.cases {
        page.line("");
        render_case(&mut page, case, report.as_of);
    }
    for case in &report.transients {
        // To a tenth of a second: when it is noticed to be over depends on the next look.
        let tenths = case.closed_at.since_ns(case.finding.since) / (100 * NANOS_PER_MS);
        let (seconds, tenths) = (tenths / 10, tenths % 10);
        page.line(&format!(
            "pause at {} for about {seconds}.{tenths} s, went away by itself",
            moment(case.finding.since)
        ));
    }
    page.line("");
    render_ranks(&mut page, &report.ranks);
    for caveat in &report.caveats {
        page.line(&format!("caveat {}: {}", caveat.rule, caveat.sentence()));
    }
    for threshold in &report.thresholds {
        let (name, value, unit, why) = (threshold.name, threshold.value, threshold.unit, &threshold.why);
        page.line(&format!("threshold {name}: {value:.2} {unit} ({why})"));
    }
    page.finish()
}

/// How the job ended, if it did, and that it was started again, if it was.
fn render_lives(page: &mut Page, report: &Report) {
    for life in report.lives.iter().rev().take(LIVES_SHOWN).rev() {
        let number = if report.lives.len() > 1 { format!("life {}, ", life.number) } else { String::new() };
        match &life.ended {
            Some(ending) => {
                let (how, at) = (ending.how.as_str(), moment(ending.at));
                page.line(&format!("{number}{how} at {at}: {}", ending.because));
            }
            None if number.is_empty() => {}
            None => page.line(&format!("{number}since {}", moment(life.began))),
        }
    }
}

/// Who is the suspect of a settled case that names nobody.
pub const NOBODY: &str = "nobody: it is not one rank, host or path";

fn render_case(page: &mut Page, case: &Case, now: HostTime) {
    let finding = &case.finding;
    page.line(&format!("CASE {} {}: {} / {}", case.id, case.state.as_str(), finding.what, finding.category));
    let seconds = |ns: u64| format!("{}.{} s", ns / NANOS_PER_MS / 1000, ns / NANOS_PER_MS % 1000 / 100);
    if finding.suspects.is_empty() {
        page.row("suspect", if finding.diagnosed_at.is_some() { NOBODY } else { "not known yet" });
    }
    for suspect in &finding.suspects {
        page.each("suspect", &suspect_text(suspect, None));
    }
    let age = seconds(now.since_ns(finding.since));
    let opened = seconds(case.opened_at.since_ns(finding.since));
    page.row("since", &format!("{}, {age} ago; case after {opened}", moment(finding.since)));
    for reason in &case.because {
        page.row("because", &format!("{} [{}]", reason.text, reason.rule));
    }
    for line in affected(&case.blast_radius) {
        page.row("affected", &line);
    }
    for (number, step) in case.do_next.iter().enumerate() {
        page.row("do next", &format!("{}. {step}", number + 1));
    }
    if let Some(said) = case.said_before.last() {
        let times = if case.revisions == 1 { String::new() } else { format!("{} times, last ", case.revisions) };
        let who = said.suspects.first().map_or_else(|| "nobody".to_owned(), |first| place_text(&first.place));
        let (at, what, category) = (moment(said.until), said.what, said.category);
        page.row("revised", &format!("{times}at {at}; before it said {what} / {category}, {who}"));
    }
    if !case.closed_because.is_empty() {
        page.row("closed", &case.closed_because);
    }
}

/// The blast radius with the arrows of one kind of operation drawn together, in the order in which they first appear.
fn affected(entries: &[BlastEntry]) -> Vec<String> {
    let mut groups: Vec<(Option<OpKind>, bool, Vec<&BlastEntry>)> = Vec::new();
    for entry in entries {
        let waits = !entry.waits_for.is_empty();
        match groups.iter_mut().find(|group| group.0 == entry.kind && group.1 == waits) {
            Some(group) => group.2.push(entry),
            None => groups.push((entry.kind, waits, vec![entry])),
        }
    }
    groups
        .into_iter()
        .map(|(kind, waits, members)| match (members.as_slice(), kind) {
            ([only], _) => only.text.clone(),
            (_, kind) => {
                let name = kind.map_or("operations", OpKind::as_str);
                let union = |side: &dyn Fn(&BlastEntry) -> &Vec<Rank>| {
                    let mut ranks: Vec<Rank> = members.iter().flat_map(|entry| side(entry)).copied().collect();
                    ranks.sort_unstable();
                    ranks.dedup();
                    ranks
                };
                let waiting = union(&|entry| &entry.waiting);
                let n = members.len();
                if waits {
                    let waits_for = these(&union(&|entry| &entry.waits_for));
                    format!("{} in {n} {name} for {waits_for}", these_do(&waiting, "waits", "wait"))
                } else {
                    format!("{} in {n} {name}", these_do(&waiting, "is", "are"))
                }
            }
        })
        .collect()
}

/// Ranks of a host that do the same stand in one line.
fn render_ranks(page: &mut Page, ranks: &[RankSummary]) {
    let mut lines: BTreeMap<(Rank, &str), (&str, String, Vec<Rank>)> = BTreeMap::new();
    let mut first_of: BTreeMap<(&str, &str, String), Rank> = BTreeMap::new();
    for rank in ranks {
        // "in AllReduce TP_1 #288" -> "in AllReduce": the group differs from rank to rank, the kind says enough.
        let doing: Vec<&str> = rank.doing.split(' ').take(2).collect();
        let doing = doing.join(" ");
        let first = *first_of.entry((&rank.host, rank.state, doing.clone())).or_insert(rank.rank);
        let line = lines.entry((first, &rank.host)).or_insert_with(|| (rank.state, doing, Vec::new()));
        line.2.push(rank.rank);
    }
    for ((_, host), (state, doing, ranks)) in lines.iter().take(RANK_LINES_MAX) {
        page.line(&format!("{host:<12} {state:<8} {:<20} {doing}", these(ranks)));
    }
    if lines.len() > RANK_LINES_MAX {
        page.line(&format!("and {} more lines of ranks", lines.len() - RANK_LINES_MAX));
    }
}
