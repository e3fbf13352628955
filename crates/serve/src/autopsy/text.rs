//! An autopsy as text for a terminal, in the order in which a person asks: what, since, who, what kind, why, who waits,
//! what to do, what is not known (design section 5). The same autopsy gives the same text.
use super::json::with_switch;
use mycroft_diagnose::stacks::{Autopsy, Blamed, Outcome};
use mycroft_record::dump::Frame;
use mycroft_record::time::rfc3339;
use mycroft_record::{HostTime, Rank};
use std::fmt::Write as _;

/// Width of the first column: the longest label is `suspect`.
const LABEL: usize = 9;
/// Narrowest text: one sentence in a column of fewer characters is not readable.
const WIDTH_MIN: usize = 40;
/// Suspects shown; more than that many are a group, and the group has a name.
const SUSPECTS_SHOWN: usize = 8;
/// Lines of a list shown; the rest is counted, `--json` has all.
const LINES_SHOWN: usize = 12;
/// Longest list of ranks written out, in ranges.
const RANGES_SHOWN: usize = 16;

/// How to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Style {
    /// Columns; at least 40 are used.
    pub width: usize,
    /// With colours (ANSI).
    pub is_coloured: bool,
}

impl Default for Style {
    /// For a file: 110 columns, no colours.
    fn default() -> Style {
        Style { width: 110, is_coloured: false }
    }
}

/// Red for what is wrong, green for what is not, yellow for what is not known.
#[derive(Clone, Copy)]
enum Ink {
    Plain,
    Bold,
    Dim,
    Red,
    Green,
    Yellow,
}

impl Ink {
    fn code(self) -> &'static str {
        match self {
            Ink::Plain => "0",
            Ink::Bold => "1",
            Ink::Dim => "2",
            Ink::Red => "1;31",
            Ink::Green => "1;32",
            Ink::Yellow => "1;33",
        }
    }
}

/// The autopsy as text.
pub fn render(autopsy: &Autopsy, style: Style) -> String {
    let mut page =
        Page { out: String::new(), style: Style { width: style.width.max(WIDTH_MIN), ..style }, label: String::new() };
    page.headline(autopsy);
    page.finding(autopsy);
    for reason in &autopsy.because {
        page.row("because", &format!("{} [{}]", reason.text, reason.rule));
    }
    page.waits(autopsy);
    for (at, step) in autopsy.do_next.iter().enumerate() {
        page.row("do next", &format!("{}. {step}", at + 1));
    }
    let missing = autopsy.missing_dumps.iter().map(|(rank, why)| format!("rank {rank}: {why}"));
    page.list("no dump", missing.collect());
    let caveats = autopsy.caveats.iter().map(|caveat| with_switch(&caveat.text, &caveat.switch));
    page.list("not known", caveats.collect());
    page.out
}

/// Text that grows line by line.
struct Page {
    out: String,
    style: Style,
    /// The label that was written last: a list has it once.
    label: String,
}

impl Page {
    fn headline(&mut self, autopsy: &Autopsy) {
        let (ink, word) = match autopsy.outcome {
            Outcome::Healthy => (Ink::Green, "HEALTHY".to_owned()),
            Outcome::Unknown => (Ink::Yellow, "UNKNOWN".to_owned()),
            Outcome::Fault(_) => (Ink::Red, autopsy.outcome.as_str().to_uppercase()),
        };
        let dumps = autopsy.ranks.len() - autopsy.missing_dumps.len().min(autopsy.ranks.len());
        let told = format!("{} ranks, {dumps} dumps", autopsy.ranks.len());
        let text = match (autopsy.outcome, autopsy.suspects.as_slice()) {
            (Outcome::Healthy, _) => format!("nothing is wrong ({told})"),
            (_, []) => format!("nobody is blamed ({told})"),
            (_, suspects) => {
                let ranks: Vec<Rank> = suspects.iter().map(|suspect| suspect.rank).collect();
                let word = if ranks.len() == 1 { "rank" } else { "ranks" };
                format!("{word} {} ({told})", ranks_text(ranks))
            }
        };
        let word = self.ink(ink, &word);
        let text = self.ink(Ink::Bold, &clean(&text));
        let _ = writeln!(self.out, "{word}: {text}\n");
    }

    fn finding(&mut self, autopsy: &Autopsy) {
        let mut kind = vec![autopsy.outcome.as_str().to_owned()];
        if !autopsy.collective.is_empty() || autopsy.seq.is_some() {
            let op = if autopsy.collective.is_empty() { "operation" } else { &autopsy.collective };
            let number = autopsy.seq.map_or(String::new(), |seq| format!(" #{seq}"));
            kind.push(format!("in {op}{number}"));
        }
        if !autopsy.group.is_empty() {
            kind.push(format!("of {}", autopsy.group));
        }
        self.row("what", &kind.join(" "));
        // The earliest record that shows it: the dumps do not tell when the fault itself began.
        let shown = autopsy.because.iter().flat_map(|reason| &reason.evidence).filter_map(|e| e.at.some());
        if let Some(first) = shown.min().filter(|_| matches!(autopsy.outcome, Outcome::Fault(_))) {
            self.row("since", &moment(first));
        }
        for suspect in autopsy.suspects.iter().take(SUSPECTS_SHOWN) {
            self.suspect(suspect);
        }
        if let Some(more) = autopsy.suspects.len().checked_sub(SUSPECTS_SHOWN).filter(|more| *more > 0) {
            self.row("", &format!("and {more} more"));
        }
        let words = [
            autopsy.category.map(|category| category.as_str()),
            autopsy.cause.map(|cause| cause.family().as_str()),
            autopsy.cause.map(|cause| cause.as_str()),
        ];
        let words: Vec<&str> = words.into_iter().flatten().collect();
        if !words.is_empty() {
            self.row("category", &words.join(" / "));
        }
    }

    fn suspect(&mut self, suspect: &Blamed) {
        let host = if suspect.host.is_empty() { String::new() } else { format!(" on {}", suspect.host) };
        let doing = if suspect.doing.is_empty() { String::new() } else { format!(": {}", suspect.doing) };
        let sure = suspect.confidence.clamp(0.0, 1.0) * 100.0;
        self.row(
            "suspect",
            &format!("rank {}{host}, {}, {sure:.0} % sure{doing}", suspect.rank, suspect.role.as_str()),
        );
        if let Some(frame) = &suspect.at {
            self.row("", &format!("at {}", frame_text(frame)));
        }
    }

    /// The blast radius: who waits for whom.
    fn waits(&mut self, autopsy: &Autopsy) {
        let arrows = autopsy.arrows.iter().map(|arrow| {
            let (waiting, waits_for) = (ranks_text(arrow.waiting.clone()), ranks_text(arrow.waits_for.clone()));
            if arrow.text.is_empty() { format!("{waiting} for {waits_for}") } else { arrow.text.clone() }
        });
        self.list("waiting", arrows.collect());
    }

    /// One row for each line, the first few of them.
    fn list(&mut self, label: &str, lines: Vec<String>) {
        for line in lines.iter().take(LINES_SHOWN) {
            self.row(label, line);
        }
        if let Some(more) = lines.len().checked_sub(LINES_SHOWN).filter(|more| *more > 0) {
            self.row(label, &format!("and {more} more (--json has all)"));
        }
    }

    /// A label and its text, broken at words and indented under itself.
    fn row(&mut self, label: &str, text: &str) {
        let room = self.style.width - LABEL - 1;
        let is_new = std::mem::replace(&mut self.label, label.to_owned()) != label;
        for (at, line) in wrapped(&clean(text), room).into_iter().enumerate() {
            let label = self.ink(Ink::Dim, &format!("{:<LABEL$}", if at == 0 && is_new { label } else { "" }));
            let line = format!("{label} {line}");
            let _ = writeln!(self.out, "{}", line.trim_end());
        }
    }

    fn ink(&self, ink: Ink, text: &str) -> String {
        if self.style.is_coloured {
            format!("\u{1b}[{}m{text}\u{1b}[{}m", ink.code(), Ink::Plain.code())
        } else {
            text.to_owned()
        }
    }
}

/// Lines of at most `room` characters; a word that is longer stands alone.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        let chars = word.chars().count();
        if used > 0 && used + 1 + chars > room {
            lines.push(String::new());
            used = 0;
        }
        // `lines` begins with one line and only grows.
        let Some(line) = lines.last_mut() else { break };
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += chars;
    }
    lines
}

/// Texts of dumps are foreign: what could steer a terminal or turn the direction of writing is shown by its number.
fn clean(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        let steers = matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        match char {
            '\n' | '\t' => out.push(' '),
            _ if char.is_control() || steers => out.extend(char.escape_unicode()),
            _ => out.push(char),
        }
    }
    out
}

fn frame_text(frame: &Frame) -> String {
    match (frame.file.is_empty(), frame.line) {
        (true, _) => frame.name.to_string(),
        (false, 0) => format!("{} ({})", frame.name, frame.file),
        (false, line) => format!("{} ({}:{line})", frame.name, frame.file),
    }
}

/// Date and time to the millisecond, UTC, as the hosts' clocks have it.
fn moment(time: HostTime) -> String {
    let text = rfc3339(time);
    let (seconds, fraction) = text.split_once('.').unwrap_or((&text, "000"));
    format!("{}.{} UTC", seconds.replace('T', " "), fraction.get(..3).unwrap_or("000"))
}

/// Ranks for people: `0-3,8`, the first few ranges of them.
fn ranks_text(mut ranks: Vec<Rank>) -> String {
    ranks.sort_unstable();
    ranks.dedup();
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == rank.0 => *last = rank.0,
            _ => ranges.push((rank.0, rank.0)),
        }
    }
    let shown = ranges.iter().take(RANGES_SHOWN).map(|(first, last)| match last - first {
        0 => first.to_string(),
        1 => format!("{first},{last}"),
        _ => format!("{first}-{last}"),
    });
    let mut text = shown.collect::<Vec<_>>().join(",");
    if ranges.len() > RANGES_SHOWN {
        let more: u32 = ranges[RANGES_SHOWN..].iter().map(|(first, last)| last - first + 1).sum();
        let _ = write!(text, " and {more} more");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranks(numbers: &[u32]) -> Vec<Rank> {
        numbers.iter().copied().map(Rank).collect()
    }

    #[test]
    fn ranks_as_ranges() {
        assert_eq!(ranks_text(ranks(&[])), "");
        assert_eq!(ranks_text(ranks(&[3, 1, 2, 7, 9, 8, 7])), "1-3,7-9");
        assert_eq!(ranks_text(ranks(&[5, 4])), "4,5");
        let scattered: Vec<u32> = (0..40).map(|n| n * 2).collect();
        assert!(ranks_text(ranks(&scattered)).ends_with(" and 24 more"));
    }

    #[test]
    fn lines_break_at_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("averyveryverylongword x", 5), ["averyveryverylongword", "x"]);
        assert_eq!(wrapped("", 5), [""]);
    }

    /// A function may be named so that it clears the screen of who reads about it.
    #[test]
    fn foreign_text_steers_no_terminal() {
        assert_eq!(clean("a\u{1b}[2Jb\u{202e}c\nd"), "a\\u{1b}[2Jb\\u{202e}c d");
    }
}
