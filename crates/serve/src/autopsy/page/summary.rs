//! The verdict as the page shows it: what, who, since when, why, and what to do now. It is in the document as it stands,
//! so mail previews, browsers without JavaScript and paper say the same; the script draws the rest below it.
use super::markup::Markup;
use super::words::{self, capital, ranks_phrase};
use mycroft_diagnose::render::moment;
use mycroft_diagnose::stacks::{Autopsy, Conduct, Outcome};
use mycroft_diagnose::{Caveat, Reason};
use mycroft_record::dump::{Frame, Unusable};
use mycroft_record::{Rank, Suspect, What};
use std::collections::{BTreeMap, BTreeSet};

/// Suspects shown before the rest is folded away, and at most: with so many, the group has a name.
const SUSPECTS_OPEN: usize = 12;
const SUSPECTS_MAX: usize = 256;
/// The same of the lines of a list.
const LINES_OPEN: usize = 12;
const LINES_MAX: usize = 256;
/// Hosts named in the row of facts.
const HOSTS_NAMED: usize = 3;
/// Rules that keep the books (which records a sentence rests on) and tell nobody why: behind all others, folded.
const BOOKKEEPING: &[&str] = &["dump.records"];

/// Heading and summary.
pub(super) fn html(autopsy: &Autopsy, title: &str) -> String {
    let top = Markup::node(
        "header class=\"top\"",
        [
            Markup::told("span class=\"brand\"", "Mycroft autopsy"),
            Markup::told("span class=\"title\"", title),
            Markup::node("span class=\"spacer\"", []),
        ],
    );
    let pill = match tone(autopsy) {
        Tone::Ok => "span class=\"pill ok\" id=\"what\"",
        Tone::Warn => "span class=\"pill warn\" id=\"what\"",
        Tone::Bad => "span class=\"pill bad\" id=\"what\"",
    };
    let mut parts = vec![
        Markup::node("p class=\"verdict\"", [Markup::told(pill, words::outcome(autopsy))]),
        Markup::told("h1 id=\"verdict\"", &words::headline(autopsy)),
        facts(autopsy),
    ];
    parts.extend(suspects(autopsy));
    parts.push(Markup::node("div class=\"blocks\"", blocks(autopsy)));
    let summary = Markup::node("section class=\"card summary\" aria-labelledby=\"verdict\"", parts);
    top.into_html() + &summary.into_html()
}

enum Tone {
    Ok,
    Warn,
    Bad,
}

fn tone(autopsy: &Autopsy) -> Tone {
    match autopsy.outcome {
        Outcome::Healthy => Tone::Ok,
        Outcome::HealthyAsFar | Outcome::Unknown | Outcome::Fault(What::Slowdown) => Tone::Warn,
        Outcome::Fault(_) => Tone::Bad,
    }
}

/// What the headline does not say, as pairs.
fn facts(autopsy: &Autopsy) -> Markup {
    let place = words::place(autopsy);
    let is_said = words::headline(autopsy).contains(&place);
    let kind = [autopsy.category.map(|category| category.as_str().to_owned()), autopsy.cause.map(words::cause)];
    let pairs = [
        ("Since", autopsy.since().map(moment).unwrap_or_default()),
        ("Where", if is_said { String::new() } else { place }),
        ("Host", hosts(autopsy)),
        ("Kind", kind.into_iter().flatten().collect::<Vec<_>>().join(" \u{b7} ")),
        ("Looked at", words::of_ranks(autopsy.told(), autopsy.ranks.len())),
    ];
    let pair =
        |(name, value): &(&str, String)| Markup::node("div", [Markup::told("dt", name), Markup::told("dd", value)]);
    Markup::node("dl class=\"facts\"", pairs.iter().filter(|(_, value)| !value.is_empty()).map(pair))
}

/// Where the blamed ranks run: `node-a, node-b`, and how many more.
fn hosts(autopsy: &Autopsy) -> String {
    let places = autopsy.blamed().filter_map(|(_, suspect, _)| suspect.place.host());
    let hosts: BTreeSet<String> = places.map(ToString::to_string).filter(|host| !host.is_empty()).collect();
    let named: Vec<&str> = hosts.iter().take(HOSTS_NAMED).map(String::as_str).collect();
    let rest = hosts.len() - named.len();
    named.join(", ") + &if rest > 0 { format!(" and {rest} more") } else { String::new() }
}

fn suspects(autopsy: &Autopsy) -> Vec<Markup> {
    let others = autopsy.others();
    let blamed = autopsy.blamed().map(|(_, suspect, conduct)| (suspect, Some(conduct)));
    let mut rows: Vec<Markup> =
        blamed.chain(others).take(SUSPECTS_MAX).map(|(suspect, conduct)| suspect_row(suspect, conduct)).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let folded = rows.split_off(rows.len().min(SUSPECTS_OPEN));
    let mut out = vec![suspect_table(rows)];
    if !folded.is_empty() {
        let more = autopsy.suspects.len().saturating_sub(SUSPECTS_OPEN);
        out.push(fold(&more_text(more, folded.len()), [suspect_table(folded)]));
    }
    out
}

fn suspect_table(rows: Vec<Markup>) -> Markup {
    let head = ["Suspect", "What it did", "Sure", "Doing"].map(|text| Markup::told("th scope=\"col\"", text));
    let head = Markup::node("thead", [Markup::node("tr", head)]);
    Markup::node("table class=\"suspects\"", [head, Markup::node("tbody", rows)])
}

fn suspect_row(suspect: &Suspect, conduct: Option<&Conduct>) -> Markup {
    let mut who = vec![Markup::text(&words::named(&suspect.place))];
    let host = suspect.place.host().map_or_else(String::new, ToString::to_string);
    if suspect.place.rank().is_some() && !host.is_empty() {
        who.extend([Markup::text(" "), Markup::told("span class=\"muted host\"", &host)]);
    }
    let percent = (100.0 * suspect.confidence.clamp(0.0, 1.0)).round() as u8;
    let sure = [Markup::bar(percent), Markup::text(&format!("{percent}\u{2009}%"))];
    let did = conduct.map_or("the way between them", |conduct| words::role(conduct.role));
    Markup::node(
        "tr",
        [
            Markup::node("th scope=\"row\" class=\"rank\"", who),
            Markup::told("td class=\"did\"", did),
            Markup::node("td class=\"sure\"", [Markup::node("span class=\"confidence\"", sure)]),
            Markup::node("td class=\"doing\"", doing(conduct)),
        ],
    )
}

fn doing(conduct: Option<&Conduct>) -> Vec<Markup> {
    let mut out = Vec::new();
    let doing = conduct.map_or("", |conduct| &conduct.doing);
    if !doing.is_empty() {
        out.push(Markup::told("span", doing));
    }
    // What it does often names the line already.
    let is_told =
        |frame: &Frame| doing.contains(&format!("{} (", frame.name)) && doing.contains(&format!(":{})", frame.line));
    if let Some(frame) = conduct.and_then(|conduct| conduct.at.as_ref()).filter(|frame| !is_told(frame)) {
        let at = format!("{} \u{b7} {}", frame.name, line_of(frame));
        out.push(Markup::titled("code class=\"at\"", &frame.file, [Markup::text(&at)]));
    }
    if out.is_empty() {
        out.push(Markup::told("span class=\"muted\"", "no stack tells"));
    }
    out
}

/// `folder/file.py:12`.
fn line_of(frame: &Frame) -> String {
    let mut parts: Vec<&str> = frame.file.rsplit('/').take(2).collect();
    parts.reverse();
    let file = parts.join("/");
    if frame.line > 0 { format!("{file}:{}", frame.line) } else { file }
}

fn blocks(autopsy: &Autopsy) -> Vec<Markup> {
    let steps: Vec<Markup> = autopsy.do_next.iter().map(|text| Markup::told("li", text)).collect();
    let missing: Vec<Rank> = autopsy.lost().map(|(rank, _)| rank).collect();
    let lost =
        if missing.is_empty() { String::new() } else { format!("No usable dump ({})", ranks_phrase(&missing, 4)) };
    let unread = autopsy.unread.iter().map(unread).collect();
    let caveats = autopsy.caveats.iter().map(caveat).collect();
    [
        block("Do next", "ol class=\"next\"", steps),
        because(&autopsy.because),
        block(&lost, "ul", lost_by_reason(autopsy)),
        block("Not read", "ul", unread),
        block("What is missing", "ul", caveats),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A list below its heading; nothing where it is empty.
fn block(heading: &str, list: &'static str, lines: Vec<Markup>) -> Option<Markup> {
    if lines.is_empty() {
        return None;
    }
    let inner = std::iter::once(Markup::told("h3", heading)).chain(lines_within(list, lines));
    Some(Markup::node("section class=\"block\"", inner))
}

/// The first lines of a list, and the others folded below them.
fn lines_within(list: &'static str, mut lines: Vec<Markup>) -> Vec<Markup> {
    let mut folded = lines.split_off(lines.len().min(LINES_OPEN));
    let mut out = vec![Markup::node(list, lines)];
    if !folded.is_empty() {
        let more = folded.len();
        folded.truncate(LINES_MAX);
        out.push(fold(&more_text(more, folded.len()), [Markup::node(list, folded)]));
    }
    out
}

/// `49 more`, and how many of them are here.
fn more_text(more: usize, shown: usize) -> String {
    if shown < more { format!("{more} more, {shown} of them here") } else { format!("{more} more") }
}

fn fold(summary: &str, inner: impl IntoIterator<Item = Markup>) -> Markup {
    Markup::node("details", std::iter::once(Markup::told("summary", summary)).chain(inner))
}

fn because(reasons: &[Reason]) -> Option<Markup> {
    let line = |reason: &&Reason| {
        let rule = Markup::told("code class=\"rule\"", &reason.rule);
        Markup::node("li", [Markup::text(&reason.text), Markup::text(" "), rule])
    };
    let (books, telling): (Vec<&Reason>, Vec<&Reason>) =
        reasons.iter().partition(|reason| BOOKKEEPING.contains(&&*reason.rule));
    let mut inner = vec![Markup::told("h3", "Because")];
    if !telling.is_empty() {
        inner.extend(lines_within("ul class=\"because\"", telling.iter().map(line).collect()));
    }
    if !books.is_empty() {
        let list = Markup::node("ul", books.iter().take(LINES_MAX).map(line));
        inner.push(fold("The records behind it", [list]));
    }
    (inner.len() > 1).then(|| Markup::node("section class=\"block\"", inner))
}

/// Missing dumps by reason, so that a thousand ranks without a dump are one line.
fn lost_by_reason(autopsy: &Autopsy) -> Vec<Markup> {
    let mut reasons: BTreeMap<&str, Vec<Rank>> = BTreeMap::new();
    for (rank, why) in autopsy.lost() {
        reasons.entry(why).or_default().push(rank);
    }
    let mut reasons: Vec<_> = reasons.into_iter().collect();
    reasons.sort_by_key(|(_, ranks)| ranks.first().copied());
    let line = |(why, ranks): &(&str, Vec<Rank>)| {
        let why = if why.is_empty() { String::new() } else { format!(": {why}") };
        Markup::node("li", [Markup::told("b", &capital(&ranks_phrase(ranks, 8))), Markup::text(&why)])
    };
    reasons.iter().map(line).collect()
}

fn unread(file: &Unusable) -> Markup {
    let whose = file.rank.map(|rank| Markup::told("b", &format!("Rank {rank}: ")));
    let what = Markup::text(&format!("{}: {}", file.source, file.why));
    Markup::node("li", whose.into_iter().chain([what]))
}

fn caveat(caveat: &Caveat) -> Markup {
    let mut inner = vec![Markup::text(&caveat.text)];
    if !caveat.switch.is_empty() {
        inner.extend([Markup::text(" "), Markup::told("code class=\"switch\"", &caveat.switch)]);
    }
    Markup::node("li", inner)
}
