//! Lines of logs as an answer shows them: where they stand, who printed them when, and what they are to the verdict.
use mycroft_record::time::day_of_date;
use mycroft_record::time::rfc3339;
use mycroft_record::{HostName, HostTime, NANOS_PER_SEC, Rank};
use std::sync::Arc;

/// What a line is to the verdict.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum LinePart {
    /// It shows where it began.
    First,
    /// The verdict rests on it.
    Evidence,
    /// It follows from something else.
    Follows,
    /// It tells something that the verdict does not use.
    Beside,
}

impl LinePart {
    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            LinePart::First => "first-failure",
            LinePart::Evidence => "evidence",
            LinePart::Follows => "consequence",
            LinePart::Beside => "beside",
        }
    }

    /// Whether the verdict rests on the line.
    pub fn is_used(self) -> bool {
        matches!(self, LinePart::First | LinePart::Evidence)
    }
}

/// A line of a log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PrintedLine {
    /// File name relative to the folder.
    pub file: Arc<str>,
    /// Line number, from 1.
    pub line: u64,
    /// Who printed it, where anything tells.
    pub rank: Option<Rank>,
    /// On which host; empty where not told.
    pub host: HostName,
    /// Nanoseconds since the beginning of a year that is not told, clock of that host.
    pub at: Option<u64>,
    /// What it is to the verdict.
    pub part: LinePart,
    /// What it says, in its own words where it has any.
    pub text: String,
}

impl PrintedLine {
    /// Month, day and time to the millisecond, e.g. `07-14 11:20:01.104`; empty where the line tells no time.
    pub fn moment(&self) -> String {
        const SECONDS_PER_DAY: u64 = 86_400;
        // Times count the days of a leap year.
        let (Some(at), Some(days)) = (self.at, day_of_date(2024, 1, 1)) else { return String::new() };
        let begin = days.saturating_mul(SECONDS_PER_DAY).saturating_mul(NANOS_PER_SEC);
        let text = rfc3339(HostTime(begin.saturating_add(at)));
        text.get(5..23).unwrap_or_default().replace('T', " ")
    }
}

/// Files and line numbers on which the verdict rests, one text a file: `job.log:3-6,9`.
pub(crate) fn cited(lines: &[PrintedLine]) -> Vec<String> {
    let mut used: Vec<(&str, u64)> =
        lines.iter().filter(|line| line.part.is_used()).map(|line| (&*line.file, line.line)).collect();
    used.sort_unstable();
    used.dedup();
    used.chunk_by(|a, b| a.0 == b.0).map(|file| format!("{}:{}", file[0].0, numbers(file))).collect()
}

fn numbers(lines: &[(&str, u64)]) -> String {
    let runs = lines.chunk_by(|a, b| a.1 + 1 == b.1);
    let text = |run: &[(&str, u64)]| match run {
        [(_, first), .., (_, last)] => format!("{first}-{last}"),
        _ => run[0].1.to_string(),
    };
    runs.map(text).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: u64, part: LinePart, at: Option<u64>) -> PrintedLine {
        let (file, host) = ("job.log".into(), HostName::default());
        PrintedLine { file, line: number, rank: None, host, at, part, text: String::new() }
    }

    #[test]
    fn used_lines_are_cited_in_ranges() {
        let lines: Vec<PrintedLine> = [3, 4, 5, 9].map(|at| line(at, LinePart::Evidence, None)).to_vec();
        let rest = [line(6, LinePart::Follows, None), line(2, LinePart::Beside, None)];
        assert_eq!(cited(&[lines, rest.to_vec()].concat()), ["job.log:3-5,9"]);
        assert!(cited(&rest).is_empty());
    }

    #[test]
    fn a_time_is_told_without_its_year() {
        let day = 86_400 * NANOS_PER_SEC;
        assert_eq!(line(1, LinePart::First, Some(31 * day + 1_500_000_000)).moment(), "02-01 00:00:01.500");
        assert_eq!(line(1, LinePart::First, None).moment(), "");
    }
}
