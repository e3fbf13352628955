//! The report as text for a terminal: stable, so that golden files can hold it.
use crate::case::{BlastEntry, Case};
use crate::fact::{these, these_do};
use crate::report::{RankSummary, Report};
use mycroft_record::time::rfc3339;
use mycroft_record::{HostTime, NANOS_PER_MS, OpKind, Place, Rank};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Lines of ranks shown; a job of 10,000 ranks has 1,250 hosts.
const RANK_LINES_MAX: usize = 64;
/// Width of the first column of a case.
const LABEL: usize = 10;

/// The report as text; the same report gives the same text.
pub fn render(report: &Report) -> String {
    let mut out = String::new();
    let pace = report.iteration_ms_median.map_or_else(|| "not known yet".to_owned(), |ms| format!("{ms:.0} ms"));
    let _ = writeln!(out, "job {} at {}", report.job, moment(report.as_of));
    let _ = writeln!(out, "{} ranks, {} iterations, usual iteration {pace}", report.ranks.len(), report.iterations);
    if report.cases.is_empty() {
        let _ = writeln!(out, "no case");
    }
    for case in &report.cases {
        out.push('\n');
        render_case(&mut out, case, report.as_of);
    }
    for case in &report.transients {
        let ms = case.closed_at.since_ns(case.finding.since) / NANOS_PER_MS;
        let _ = writeln!(out, "pause at {} for about {ms} ms, went away by itself", moment(case.finding.since));
    }
    out.push('\n');
    render_ranks(&mut out, &report.ranks);
    for caveat in &report.caveats {
        let _ = writeln!(out, "caveat {}: {}", caveat.rule, caveat.text);
    }
    for threshold in &report.thresholds {
        let (name, value, unit, why) = (threshold.name, threshold.value, threshold.unit, &threshold.why);
        let _ = writeln!(out, "threshold {name}: {value:.2} {unit} ({why})");
    }
    out
}

/// Date and time to the millisecond, UTC.
fn moment(time: HostTime) -> String {
    if !time.is_some() {
        return "an unknown time".to_owned();
    }
    let text = rfc3339(time);
    let (seconds, _) = text.split_once('.').unwrap_or((&text, ""));
    format!("{}.{:03} UTC", seconds.replace('T', " "), time.0 / NANOS_PER_MS % 1000)
}

fn place_text(place: &Place) -> String {
    match place {
        Place::Rank { rank, host } => format!("rank {rank} on {host}"),
        Place::Host { host } => host.to_string(),
        Place::Link { from, to } => format!("link {from} -> {to}"),
    }
}

fn render_case(out: &mut String, case: &Case, now: HostTime) {
    let finding = &case.finding;
    let _ = writeln!(out, "CASE {} {}: {} / {}", case.id, case.state.as_str(), finding.what, finding.category);
    let mut row = |label: &str, text: &str| {
        let _ = writeln!(out, "  {label:<LABEL$} {text}");
    };
    let seconds = |ns: u64| format!("{}.{} s", ns / NANOS_PER_MS / 1000, ns / NANOS_PER_MS % 1000 / 100);
    if finding.suspects.is_empty() {
        row("suspect", "not known yet");
    }
    for suspect in &finding.suspects {
        row("suspect", &format!("{} ({:.0} %)", place_text(&suspect.place), suspect.confidence * 100.0));
    }
    let age = seconds(now.since_ns(finding.since));
    let opened = seconds(case.opened_at.since_ns(finding.since));
    row("since", &format!("{}, {age} ago; case after {opened}", moment(finding.since)));
    let mut label = "because";
    for reason in &case.because {
        row(label, &format!("{} [{}]", reason.text, reason.rule));
        label = "";
    }
    label = "affected";
    for line in affected(&case.blast_radius) {
        row(label, &line);
        label = "";
    }
    label = "do next";
    for (number, step) in case.do_next.iter().enumerate() {
        row(label, &format!("{}. {step}", number + 1));
        label = "";
    }
    if !case.closed_because.is_empty() {
        row("closed", &case.closed_because);
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
fn render_ranks(out: &mut String, ranks: &[RankSummary]) {
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
        let text = format!("{host:<12} {state:<8} {:<20} {doing}", these(ranks));
        let _ = writeln!(out, "{}", text.trim_end());
    }
    if lines.len() > RANK_LINES_MAX {
        let _ = writeln!(out, "and {} more lines of ranks", lines.len() - RANK_LINES_MAX);
    }
}
