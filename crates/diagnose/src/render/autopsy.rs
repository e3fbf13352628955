//! An autopsy as text for a terminal, in the order in which a person asks: what, since, who, what kind, why, who waits,
//! what to do, what is not known. The same autopsy gives the same text.
use super::page::{Ink, Page, Style, moment, place_text, suspect_text};
use crate::fact::{ranks_within, these};
use crate::report::Caveat;
use crate::stacks::{Autopsy, Outcome, cited};
use mycroft_record::Rank;
use mycroft_record::dump::Frame;

/// Width of the first column: the longest label is `suspect`.
const LABEL: usize = 9;
/// Suspects shown; more than that many are a group, and the group has a name.
const SUSPECTS_SHOWN: usize = 8;
/// Lines of a list shown; the rest is counted, `--json` has all.
const LINES_SHOWN: usize = 12;
/// Longest list of ranks written out in the headline, in ranges.
const RANGES_SHOWN: usize = 16;

/// The autopsy as text.
pub fn render(autopsy: &Autopsy, style: Style) -> String {
    let mut page = Page::new(style, 0, LABEL);
    headline(&mut page, autopsy);
    finding(&mut page, autopsy);
    for reason in &autopsy.because {
        page.row("because", &format!("{} [{}]", reason.text, reason.rule));
    }
    page.list("lines", &cited(&autopsy.lines), LINES_SHOWN);
    let waits: Vec<String> = autopsy.blast_radius.iter().map(|entry| entry.text.clone()).collect();
    page.list("waiting", &waits, LINES_SHOWN);
    for (at, step) in autopsy.do_next.iter().enumerate() {
        page.row("do next", &format!("{}. {step}", at + 1));
    }
    let missing: Vec<String> = autopsy.lost().map(|(rank, why)| format!("rank {rank}: {why}")).collect();
    page.list("no dump", &missing, LINES_SHOWN);
    let unread: Vec<String> = autopsy
        .unread
        .iter()
        .map(|file| {
            let whose = file.rank.map_or_else(String::new, |rank| format!("rank {rank}: "));
            format!("{whose}{}: {}", file.source, file.why)
        })
        .collect();
    page.list("not read", &unread, LINES_SHOWN);
    let caveats: Vec<String> = autopsy.caveats.iter().map(Caveat::sentence).collect();
    page.list("not known", &caveats, LINES_SHOWN);
    page.finish()
}

fn headline(page: &mut Page, autopsy: &Autopsy) {
    let (ink, word) = match autopsy.outcome {
        Outcome::Healthy => (Ink::Green, "HEALTHY".to_owned()),
        Outcome::HealthyAsFar => (Ink::Yellow, as_far(autopsy).to_uppercase()),
        Outcome::Unknown => (Ink::Yellow, "UNKNOWN".to_owned()),
        Outcome::Fault(_) => (Ink::Red, autopsy.outcome.as_str().to_uppercase()),
    };
    let dumps = autopsy.told();
    let told = match autopsy.printed {
        0 if autopsy.traced > 0 && dumps == autopsy.traced => format!("{} ranks, {dumps} traces", autopsy.ranks.len()),
        0 => format!("{} ranks, {dumps} dumps", autopsy.ranks.len()),
        lines => format!("{} ranks, {} dumps, {lines} told by logs", autopsy.ranks.len(), dumps.saturating_sub(lines)),
    };
    let mut ranks: Vec<Rank> = autopsy.blamed().map(|(rank, ..)| rank).collect();
    ranks.sort_unstable();
    let text = match (autopsy.outcome, ranks.as_slice()) {
        (Outcome::Healthy, _) => format!("nothing is wrong ({told})"),
        (Outcome::HealthyAsFar, _) => {
            let (count, word) = (autopsy.unread.len(), if autopsy.unread.len() == 1 { "file" } else { "files" });
            format!("nothing is wrong there; {count} {word} could not be read ({told})")
        }
        (_, []) => match autopsy.others().next() {
            Some((suspect, _)) => format!("{} ({told})", place_text(&suspect.place)),
            None => format!("nobody is blamed ({told})"),
        },
        (_, [only]) => format!("{} ({told})", these(&[*only])),
        (_, ranks) => format!("ranks {} ({told})", ranks_within(ranks, RANGES_SHOWN)),
    };
    page.headline(ink, &word, &text);
}

/// `healthy as far as 5 of 6 ranks tell`.
fn as_far(autopsy: &Autopsy) -> String {
    format!("healthy as far as {} of {} ranks tell", autopsy.told(), autopsy.ranks.len())
}

fn finding(page: &mut Page, autopsy: &Autopsy) {
    let mut kind = vec![match autopsy.outcome {
        Outcome::HealthyAsFar => as_far(autopsy),
        other => other.as_str().to_owned(),
    }];
    if !autopsy.collective.is_empty() || autopsy.seq.is_some() {
        let op = if autopsy.collective.is_empty() { "operation" } else { &autopsy.collective };
        let number = autopsy.seq.map_or(String::new(), |seq| format!(" #{seq}"));
        kind.push(format!("in {op}{number}"));
    }
    if !autopsy.group.is_empty() {
        kind.push(format!("of {}", autopsy.group));
    }
    page.row("what", &kind.join(" "));
    if let Some(since) = autopsy.since() {
        page.row("since", &moment(since));
    }
    for (suspect, conduct) in autopsy.others() {
        page.each("suspect", &suspect_text(suspect, conduct));
    }
    for (_, suspect, conduct) in autopsy.blamed().take(SUSPECTS_SHOWN) {
        page.each("suspect", &suspect_text(suspect, Some(conduct)));
        if let Some(frame) = &conduct.at {
            page.row("", &format!("at {}", frame_text(frame)));
        }
    }
    if let Some(more) = autopsy.suspects.len().checked_sub(SUSPECTS_SHOWN).filter(|more| *more > 0) {
        page.row("", &format!("and {more} more"));
    }
    let words = [
        autopsy.category.map(|category| category.as_str()),
        autopsy.cause.map(|cause| cause.family().as_str()),
        autopsy.cause.map(|cause| cause.as_str()),
    ];
    let words: Vec<&str> = words.into_iter().flatten().collect();
    if !words.is_empty() {
        page.row("category", &words.join(" / "));
    }
}

fn frame_text(frame: &Frame) -> String {
    match (frame.file.is_empty(), frame.line) {
        (true, _) => frame.name.to_string(),
        (false, 0) => format!("{} ({})", frame.name, frame.file),
        (false, line) => format!("{} ({}:{line})", frame.name, frame.file),
    }
}
