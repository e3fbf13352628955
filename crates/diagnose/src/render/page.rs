//! Lines of a text: labels and rows, broken at words where a width says so. Everything that is written passes
//! [`printable`], so names and paths from outside steer no terminal.
use crate::stacks::Conduct;
use mycroft_record::text::printable;
use mycroft_record::time::rfc3339;
use mycroft_record::{HostTime, Place, Suspect};
use std::fmt::Write as _;

/// Narrowest text: one sentence in a column of fewer characters is not readable.
const WIDTH_MIN: usize = 40;

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
pub(super) enum Ink {
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

/// Text that grows line by line.
pub(super) struct Page {
    out: String,
    style: Style,
    /// Characters before each label.
    indent: usize,
    /// Width of the column of labels.
    label_width: usize,
    /// The label that was written last: a list has it once.
    label: String,
}

impl Page {
    pub(super) fn new(style: Style, indent: usize, label_width: usize) -> Page {
        let style = Style { width: style.width.max(WIDTH_MIN), ..style };
        Page { out: String::new(), style, indent, label_width, label: String::new() }
    }

    pub(super) fn finish(self) -> String {
        self.out
    }

    /// A line of its own, not broken; the next row has its label again.
    pub(super) fn line(&mut self, text: &str) {
        self.label.clear();
        let _ = writeln!(self.out, "{}", printable(text).trim_end());
    }

    /// A word that matters and what it is about.
    pub(super) fn headline(&mut self, ink: Ink, word: &str, text: &str) {
        self.label.clear();
        let _ = writeln!(self.out, "{}: {}\n", self.inked(ink, word), self.inked(Ink::Bold, text));
    }

    /// A label and its text, broken at words and indented under itself.
    pub(super) fn row(&mut self, label: &str, text: &str) {
        let room = self.style.width.saturating_sub(self.indent + self.label_width + 1);
        let is_new = std::mem::replace(&mut self.label, label.to_owned()) != label;
        for (at, line) in wrapped(&printable(text), room).into_iter().enumerate() {
            let label = format!("{:<1$}", if at == 0 && is_new { label } else { "" }, self.label_width);
            let line = format!("{:2$}{} {line}", "", self.inked(Ink::Dim, &label), self.indent);
            let _ = writeln!(self.out, "{}", line.trim_end());
        }
    }

    /// The same label for several rows that are told apart by it: each has it.
    pub(super) fn each(&mut self, label: &str, text: &str) {
        self.label.clear();
        self.row(label, text);
    }

    /// One row for each line, at most `lines_max` of them.
    pub(super) fn list(&mut self, label: &str, lines: &[String], lines_max: usize) {
        for line in lines.iter().take(lines_max) {
            self.row(label, line);
        }
        if let Some(more) = lines.len().checked_sub(lines_max).filter(|more| *more > 0) {
            self.row(label, &format!("and {more} more (--json has all)"));
        }
    }

    fn inked(&self, ink: Ink, text: &str) -> String {
        let text = printable(text);
        if self.style.is_coloured {
            format!("\u{1b}[{}m{text}\u{1b}[{}m", ink.code(), Ink::Plain.code())
        } else {
            text.into_owned()
        }
    }
}

/// Lines of at most `room` characters; a word that is longer stands alone.
fn wrapped(text: &str, room: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let (mut line, mut used) = (String::new(), 0);
    for word in text.split(' ') {
        let chars = word.chars().count();
        if used > 0 && used + 1 + chars > room {
            lines.push(std::mem::take(&mut line));
            used = 0;
        }
        if used > 0 {
            line.push(' ');
            used += 1;
        }
        line.push_str(word);
        used += chars;
    }
    lines.push(line);
    lines
}

/// Date and time to the millisecond, UTC, as the host's clock has it.
pub fn moment(time: HostTime) -> String {
    if !time.is_some() {
        return "an unknown time".to_owned();
    }
    let text = rfc3339(time);
    let (seconds, fraction) = text.split_once('.').unwrap_or((&text, "000"));
    format!("{}.{} UTC", seconds.replace('T', " "), fraction.get(..3).unwrap_or("000"))
}

/// `rank 3 on node7`, `node7`, `link node7 -> node9`.
pub(crate) fn place_text(place: &Place) -> String {
    match place {
        Place::Rank { rank, host } if host.is_empty() => format!("rank {rank}"),
        Place::Rank { rank, host } => format!("rank {rank} on {host}"),
        Place::Host { host } => host.to_string(),
        Place::Link { from, to } => format!("link {from} -> {to}"),
    }
}

/// Who, how sure, and what it did where that is known: `rank 3 on node7 (95 %), absent: waits for its data loader`.
pub(super) fn suspect_text(suspect: &Suspect, conduct: Option<&Conduct>) -> String {
    let sure = suspect.confidence.clamp(0.0, 1.0) * 100.0;
    let mut text = format!("{} ({sure:.0} %)", place_text(&suspect.place));
    if let Some(conduct) = conduct {
        let _ = write!(text, ", {}", conduct.role.as_str());
        if !conduct.doing.is_empty() {
            let _ = write!(text, ": {}", conduct.doing);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::Rank;

    #[test]
    fn lines_break_at_words() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("averyveryverylongword x", 5), ["averyveryverylongword", "x"]);
        assert_eq!(wrapped("", 5), [""]);
    }

    /// A function may be named so that it clears the screen of who reads about it.
    #[test]
    fn foreign_text_steers_no_terminal() {
        let mut page = Page::new(Style { width: 80, is_coloured: true }, 0, 4);
        for text in ["a\u{1b}[2Jb\u{202e}c\nd", "\u{9b}2J\u{7}"] {
            page.line(text);
            page.row("row", text);
            page.list("list", &[text.to_owned()], 3);
        }
        let said = page.finish();
        for ink in [Ink::Dim, Ink::Plain] {
            assert!(said.contains(ink.code()));
        }
        let said = said.replace("\u{1b}[2m", "").replace("\u{1b}[0m", "");
        assert!(said.lines().count() == 6 && !said.chars().any(|c| c.is_control() && c != '\n'), "{said:?}");
        assert!(said.contains("a\\u{1b}[2Jb\\u{202e}c\\nd"), "{said}");
    }

    #[test]
    fn a_rank_without_a_host_is_on_none() {
        let suspect = |host: &str| Suspect { place: Place::Rank { rank: Rank(3), host: host.into() }, confidence: 0.8 };
        assert_eq!(suspect_text(&suspect(""), None), "rank 3 (80 %)");
        assert_eq!(suspect_text(&suspect("n1"), None), "rank 3 on n1 (80 %)");
    }
}
