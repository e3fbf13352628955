//! What a server tells, in words for a terminal: suspects, times with their ages, names that came over the wire.
use mycroft_diagnose::render::NOBODY;
use mycroft_record::text::printable;
use mycroft_record::time::rfc3339;
use mycroft_record::{HostTime, NANOS_PER_SEC};
use mycroft_serve::api::{CaseJson, NoteJson, SuspectJson, TimeJson};
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, Write};
use std::time::{SystemTime, UNIX_EPOCH};

/// Seconds of the units in which an age is told.
const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// This machine's wall clock.
pub(crate) fn now() -> HostTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    HostTime(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// Whether a case holds.
pub(crate) fn is_open(case: &CaseJson) -> bool {
    case.state == "open"
}

/// One suspect: `rank 6 on host1 (95 %)`, `host1 (80 %)`, `link host0 -> host1 (60 %)`.
pub(crate) fn suspect(suspect: &SuspectJson) -> String {
    let host = suspect.host.as_deref().map(printable);
    let place = match (&suspect.link, suspect.rank, host) {
        (Some(link), _, _) => format!("link {} -> {}", printable(&link.from), printable(&link.to)),
        (None, Some(rank), Some(host)) => format!("rank {rank} on {host}"),
        (None, Some(rank), None) => format!("rank {rank}"),
        (None, None, Some(host)) => host.into_owned(),
        (None, None, None) => "a rank without a number".to_owned(),
    };
    format!("{place} ({:.0} %)", suspect.confidence * 100.0)
}

/// The first suspect of a case, and how many more there are.
pub(crate) fn first_suspect(case: &CaseJson) -> String {
    match case.suspects.as_slice() {
        [] => "no suspect yet".to_owned(),
        [only] => suspect(only),
        [first, more @ ..] => format!("{} and {} more", suspect(first), more.len()),
    }
}

/// How long ago something was: `12 s`, `3 min`, `2 h`, `5 d`.
pub(crate) fn age(ns: u64) -> String {
    match ns / NANOS_PER_SEC {
        seconds @ ..MINUTE => format!("{seconds} s"),
        seconds @ ..HOUR => format!("{} min", seconds / MINUTE),
        seconds @ ..DAY => format!("{} h {} min", seconds / HOUR, seconds % HOUR / MINUTE),
        seconds => format!("{} d {} h", seconds / DAY, seconds % DAY / HOUR),
    }
}

/// A time of day with its age, `14:03:21 UTC, 12 s ago`, with the date when it was another day; `-` when unknown.
pub(crate) fn time(time: Option<&TimeJson>, now: HostTime) -> String {
    let Some(time) = time.and_then(|time| HostTime(time.ns).some()) else { return "-".to_owned() };
    let (then, today) = (rfc3339(time), rfc3339(now));
    let (date, clock) = (&then[..10], &then[11..19]);
    let date = if date == &today[..10] { String::new() } else { format!("{date} ") };
    let ago = if time > now { "just now".to_owned() } else { format!("{} ago", age(now.since_ns(time))) };
    format!("{date}{clock} UTC, {ago}")
}

/// Of `2026-11-29T09:12:34.000000000Z` what people read: `2026-11-29 09:12:34 UTC`.
pub(crate) fn to_the_second(text: &str) -> String {
    format!("{} UTC", text.get(..19).unwrap_or(text).replace('T', " "))
}

/// One line: number, state, what, category, first suspect, since when, job.
pub(crate) fn line(case: &CaseJson, now: HostTime) -> String {
    format!(
        "{:<4} {:<9} {:<9} {:<18} {}  since {}  job {}",
        case.id,
        printable(&case.state),
        printable(&case.what),
        printable(&case.category),
        first_suspect(case),
        time(case.since.as_ref(), now),
        printable(&case.job),
    )
}

/// Everything that a case says.
pub(crate) fn whole(case: &CaseJson, now: HostTime) -> String {
    let mut rows = vec![format!("case {}: {}, job {}", case.id, printable(&case.state), printable(&case.job))];
    let mut row = |label: &str, text: &str| rows.push(format!("  {label:<10} {text}"));
    row("what", &format!("{} / {}", printable(&case.what), printable(&case.category)));
    let unsettled = if case.settled { "" } else { "; not settled, may change" };
    match case.suspects.as_slice() {
        [] if case.settled => row("suspect", NOBODY),
        [] => row("suspect", &format!("not known yet{unsettled}")),
        suspects => suspects.iter().for_each(|one| row("suspect", &format!("{}{unsettled}", suspect(one)))),
    }
    row("since", &time(case.since.as_ref(), now));
    row("opened", &time(case.opened_at.as_ref(), now));
    if let Some(said) = case.said_before.last() {
        let who = said.suspects.first().map_or_else(|| "nobody".to_owned(), suspect);
        let before = format!("{} / {}, {who}", printable(&said.what), printable(&said.category));
        row("revised", &format!("{}; before it said {before}", time(case.revised_at.as_ref(), now)));
    }
    if case.closed_at.is_some() {
        row("closed", &format!("{}: {}", time(case.closed_at.as_ref(), now), printable(&case.closed_because)));
    }
    let mut list = |label: &str, lines: &mut dyn Iterator<Item = &String>| {
        for (number, line) in lines.enumerate() {
            row(if number == 0 { label } else { "" }, &printable(line));
        }
    };
    list("because", &mut case.because.iter().map(|reason| &reason.text));
    list("affected", &mut case.blast_radius.iter().map(|entry| &entry.text));
    list("do next", &mut case.do_next.iter());
    let notes: Vec<String> = case.notes.iter().map(|note| said(note, now)).collect();
    list("said", &mut notes.iter());
    rows.push(String::new());
    rows.join("\n")
}

/// What somebody said: `ada@desk, 14:03:21 UTC, 2 min ago: looks after it; no alerts until 15:03:21 UTC; it is the switch`.
fn said(note: &NoteJson, now: HostTime) -> String {
    let mut parts = Vec::new();
    if note.acknowledges {
        parts.push("looks after it".to_owned());
    }
    if let Some(until) = &note.silent_until {
        let is_over = note.at.as_ref().is_some_and(|at| until.ns <= at.ns);
        let until = to_the_second(&until.text);
        parts.push(if is_over { "alerts again".to_owned() } else { format!("no alerts until {until}") });
    }
    if !note.text.is_empty() {
        parts.push(note.text.clone());
    }
    format!("{}, {}: {}", note.who, time(note.at.as_ref(), now), parts.join("; "))
}

/// Prints what was asked for. A reader that closes the pipe has seen enough: `main` takes that for success.
///
/// # Errors
/// When standard output does not take it.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// JSON for a script that is fit for a terminal, too: what does not print is escaped as JSON escapes it.
pub(crate) fn json(value: &impl Serialize) -> Result<String, serde_json::Error> {
    let (mut out, mut one, mut units) = (String::new(), [0; 4], [0; 2]);
    for c in serde_json::to_string_pretty(value)?.chars() {
        // In JSON text characters that are not ASCII stand in strings only; the others are escaped already.
        if c.is_ascii() || matches!(printable(c.encode_utf8(&mut one)), Cow::Borrowed(_)) {
            out.push(c);
        } else {
            c.encode_utf16(&mut units).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        }
    }
    Ok(out)
}

/// Text of several lines from a server; each line is made fit for a terminal.
pub(crate) fn lines(text: &str) -> String {
    text.lines().map(|line| format!("{}\n", printable(line))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_serve::api::SaidJson;

    const NEW_YEAR: HostTime = HostTime(1_735_689_600 * NANOS_PER_SEC);

    fn case() -> CaseJson {
        serde_json::from_str(include_str!("../../serve/src/tests/case_row_v0_1.json")).expect("a case")
    }

    #[test]
    fn each_kind_of_suspect_is_named_once() {
        let said: Vec<String> = case().suspects.iter().map(suspect).collect();
        let wanted =
            ["rank 1 on host1 (90 %)", "link host1 -> host0 (25 %)", "host1 (12 %)", "a rank without a number (6 %)"];
        assert_eq!(said, wanted);
        assert_eq!(first_suspect(&case()), "rank 1 on host1 (90 %) and 3 more");
    }

    #[test]
    fn times_have_their_age_and_the_date_of_another_day() {
        let at = |ns: u64| Some(TimeJson::exact(NEW_YEAR + ns));
        let minutes = |count: u64| count * 60 * NANOS_PER_SEC;
        assert_eq!(time(at(0).as_ref(), NEW_YEAR + 12 * NANOS_PER_SEC), "00:00:00 UTC, 12 s ago");
        assert_eq!(time(at(0).as_ref(), NEW_YEAR + minutes(61)), "00:00:00 UTC, 1 h 1 min ago");
        assert_eq!(time(at(minutes(5)).as_ref(), NEW_YEAR), "00:05:00 UTC, just now");
        assert_eq!(time(at(0).as_ref(), NEW_YEAR + minutes(25 * 60)), "2025-01-01 00:00:00 UTC, 1 d 1 h ago");
        assert_eq!(time(None, NEW_YEAR), "-");
    }

    #[test]
    fn a_line_has_the_state_as_a_word_and_no_nanoseconds() {
        let line = line(&case(), NEW_YEAR + 11 * NANOS_PER_SEC);
        assert!(line.starts_with("7    stale     hang      network-send"), "{line}");
        assert!(line.contains("since 2024-12-31 23:59:59 UTC, 12 s ago  job llama-70b"), "{line}");
        let whole = whole(&case(), NEW_YEAR + 11 * NANOS_PER_SEC);
        assert!(whole.contains("suspect    link host1 -> host0 (25 %)\n"), "{whole}");
        assert!(!whole.contains(".000000000"), "{whole}");
    }

    #[test]
    fn a_revised_case_says_what_it_said_before() {
        let mut case = case();
        assert!(!whole(&case, NEW_YEAR).contains("revised"));
        let (what, category, suspects) = ("hang".into(), "not-started".into(), case.suspects[..1].to_vec());
        case.revised_at = Some(TimeJson::exact(NEW_YEAR));
        case.said_before = vec![SaidJson { until: case.revised_at.clone(), what, category, suspects }];
        let whole = whole(&case, NEW_YEAR + 3 * NANOS_PER_SEC);
        let wanted = "revised    00:00:00 UTC, 3 s ago; before it said hang / not-started, rank 1 on host1 (90 %)\n";
        assert!(whole.contains(wanted), "{whole}");
    }

    #[test]
    fn what_came_over_the_wire_reaches_no_terminal_raw() {
        let mut case = case();
        case.job = "train\x1b[31m".into();
        case.suspects[0].host = Some("host\x071".into());
        case.do_next = vec!["\u{9b}2J".into()];
        let json = json(&case).expect("a case has a JSON form");
        assert_eq!(serde_json::from_str::<CaseJson>(&json).expect("it is JSON"), case);
        for text in [line(&case, NEW_YEAR), whole(&case, NEW_YEAR), lines("a\x1b[2Jb\nc"), json] {
            assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text:?}");
        }
    }
}
