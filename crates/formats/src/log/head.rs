//! What stands before a line's message: who printed it, on which host, when. Launchers, log shippers and libraries each
//! put their own in front, in any order.
//!
//! `[rankN]:` (torch 2.2 and newer), `[1,N]<stdout>:` (mpirun) and `N: ` (srun -l) are the rank of the job. `[Rank N]` is
//! not: it is the rank within a process group.
use super::words::{after, number, word};
use mycroft_record::time::day_of_date;
use mycroft_record::{HostName, NANOS_PER_SEC, Rank};

/// How far into a line prefixes reach.
const HEAD_BYTES: usize = 400;

/// How far into a line a date of the system's log begins.
const SYSLOG_CHARS: usize = 32;

/// What the prefixes of a line tell.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Head {
    pub(super) rank: Option<Rank>,
    pub(super) host: HostName,
    /// Nanoseconds since the beginning of the year.
    pub(super) at: Option<u64>,
}

/// Reads the prefixes of a line.
pub(super) fn head(line: &str) -> Head {
    let line = prefixes(line);
    Head { rank: rank(line), host: host(line), at: time(line) }
}

/// Of the prefixes of a line who printed it, and when.
pub(super) fn rank_and_time(line: &str) -> (Option<Rank>, Option<u64>) {
    let line = prefixes(line);
    (rank(line), time(line))
}

fn prefixes(line: &str) -> &str {
    let mut end = line.len().min(HEAD_BYTES);
    while !line.is_char_boundary(end) {
        end -= 1;
    }
    &line[..end]
}

fn time(line: &str) -> Option<u64> {
    glog_time(line).or_else(|| iso_time(line)).or_else(|| syslog_time(line))
}

fn rank(line: &str) -> Option<Rank> {
    let told = after(line, "[rank").and_then(|rest| Some((number(rest)?, rest.find(']')?)));
    let told = told.map(|(number, _)| number);
    let mpi = || after(line, "[1,").filter(|rest| rest.contains("]<std")).and_then(number);
    let task = || {
        let (digits, rest) = line.trim_start().split_once(':')?;
        (rest.starts_with(' ') && !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
            .then(|| number(digits))?
    };
    let rank = told.or_else(mpi).or_else(task).and_then(|rank| u32::try_from(rank).ok());
    rank.filter(|rank| *rank <= crate::RANK_MAX).map(Rank)
}

fn host(line: &str) -> HostName {
    let ray = || after(line, " pid=").and_then(|rest| Some(word(after(rest, ", ip=")?, &[')', ','])));
    // `node-2:5776:5902 [0] ...`: host, process and thread of NCCL.
    let nccl = || {
        let at = line.find(" [")?;
        let last = line[..at].rsplit(' ').next()?;
        let mut parts = last.split(':');
        let (host, pid, tid) = (parts.next()?, parts.next()?, parts.next()?);
        let numbers = [pid, tid].iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
        (numbers && parts.next().is_none() && line.contains("NCCL")).then_some(host)
    };
    let syslog = || {
        let head = &line[..line.find(" kernel: ")?];
        head.rsplit(' ').next()
    };
    let known = nccl().or_else(syslog).or_else(ray).unwrap_or_default();
    let is_host = |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:".contains(&byte));
    Some(known).filter(is_host).unwrap_or_default().into()
}

/// `E812 10:31:00.100219411` of glog and of torch's own logging: severity, month and day, no year.
fn glog_time(line: &str) -> Option<u64> {
    let mut rest = line;
    loop {
        let at = rest.find(['E', 'W', 'I', 'F'])?;
        let starts = at == 0 || matches!(rest.as_bytes()[at - 1], b'[' | b' ' | b':');
        rest = &rest[at + 1..];
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if starts && (3..=4).contains(&digits) && rest[digits..].starts_with(' ') {
            let (month, day) = rest[..digits].split_at(digits - 2);
            if let Some(time) = in_year(month.parse().ok()?, day.parse().ok()?, rest[digits..].trim_start()) {
                return Some(time);
            }
        }
    }
}

/// `2026-08-10T03:05:11,672`, with a space, an underscore or a `T`.
fn iso_time(line: &str) -> Option<u64> {
    let bytes = line.as_bytes();
    let at = (0..bytes.len().saturating_sub(18)).find(|&at| {
        let digit = |offset: usize| bytes[at + offset].is_ascii_digit();
        (0..4).all(digit)
            && bytes[at + 4] == b'-'
            && bytes[at + 7] == b'-'
            && matches!(bytes[at + 10], b' ' | b'T' | b'_')
    })?;
    let text = line.get(at..)?;
    in_year(text.get(5..7)?.parse().ok()?, text.get(8..10)?.parse().ok()?, text.get(11..)?)
}

/// `Nov 26 03:20:01 node7 kernel: ...`, also in brackets and with the day of the week.
fn syslog_time(line: &str) -> Option<u64> {
    const MONTHS: [&str; 12] =
        ["Jan ", "Feb ", "Mar ", "Apr ", "May ", "Jun ", "Jul ", "Aug ", "Sep ", "Oct ", "Nov ", "Dec "];
    let head = line.char_indices().nth(SYSLOG_CHARS).map_or(line, |(end, _)| &line[..end]);
    let (month, rest) = MONTHS.iter().zip(1..).find_map(|(name, month)| Some((month, after(head, name)?)))?;
    let rest = rest.trim_start();
    let (day, rest) = rest.split_once(' ')?;
    in_year(month, day.parse().ok()?, rest)
}

/// A day and a time of day `HH:MM:SS[.fraction]` as nanoseconds since the beginning of a year. February 29 exists: which
/// year it was is not told.
fn in_year(month: u64, day: u64, time: &str) -> Option<u64> {
    let leap = 2024;
    let days = day_of_date(leap, month, day)?.checked_sub(day_of_date(leap, 1, 1)?)?;
    let part = |range: std::ops::Range<usize>| -> Option<u64> { time.get(range)?.parse().ok() };
    let (hour, minute, second) = (part(0..2)?, part(3..5)?, part(6..8)?);
    if hour > 23 || minute > 59 || second > 60 || time.as_bytes().get(2) != Some(&b':') {
        return None;
    }
    let fraction = time.get(8..).and_then(|rest| rest.strip_prefix(['.', ','])).unwrap_or_default();
    let nanos = fraction.bytes().take_while(u8::is_ascii_digit).chain(std::iter::repeat(b'0')).take(9);
    let nanos = nanos.fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    Some((days * 86_400 + hour * 3_600 + minute * 60 + second) * NANOS_PER_SEC + nanos)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(month: u64, day: u64, time: &str) -> Option<u64> {
        in_year(month, day, time)
    }

    #[test]
    fn prefixes_of_launchers_and_libraries_are_told_apart() {
        let of = |line: &str| (head(line).rank.map(|rank| rank.0), head(line).host.to_string());
        assert_eq!(
            of("[rank3]:[E812 10:31:00.1 ProcessGroupNCCL.cpp:685] [Rank 1] Watchdog"),
            (Some(3), String::new())
        );
        assert_eq!(of("(W pid=9, ip=10.0.0.7) [rank1]:[E1118 x"), (Some(1), "10.0.0.7".to_owned()));
        assert_eq!(of("[1,12]<stderr>: RuntimeError"), (Some(12), String::new()));
        assert_eq!(of(" 7: RuntimeError: x"), (Some(7), String::new()));
        assert_eq!(of("[Rank 7] Watchdog caught"), (None, String::new()));
        assert_eq!(of("n-2:5776:5902 [0] a.cc:12 NCCL WARN x"), (None, "n-2".to_owned()));
        assert_eq!(of("[2026-03-03 12:11:38] n7:18:19 [1] a.cc:2 NCCL WARN x"), (None, "n7".to_owned()));
        assert_eq!(of("Nov 26 03:20:01 gpu5 kernel: NVRM: Xid (PCI:0000:1b:00): 79"), (None, "gpu5".to_owned()));
        assert_eq!(of("10:31:00 x"), (None, String::new()));
        assert_eq!(of("  File \"a.py\", line 3: x"), (None, String::new()));
    }

    #[test]
    fn times_of_all_forms_compare() {
        let of = |line: &str| head(line).at;
        assert_eq!(of("[rank0]:[E812 10:31:00.100219411 P.cpp:685] x"), at(8, 12, "10:31:00.100219411"));
        assert_eq!(of("E1118 20:32:23.9 x"), at(11, 18, "20:32:23.900"));
        assert_eq!(of("[2024-02-09 09:09:15,164] torch"), at(2, 9, "09:09:15.164"));
        assert_eq!(of("  | 2024-08-23T22:22:51.874Z | [rank3]: x"), at(8, 23, "22:22:51.874"));
        assert_eq!(of("  time      : 2026-08-10_03:05:11"), at(8, 10, "03:05:11"));
        assert_eq!(of("Nov  6 03:20:01 gpu5 kernel: x"), at(11, 6, "03:20:01"));
        assert_eq!(of("[Wed Nov 26 03:20:01 2026] NVRM: Xid"), at(11, 26, "03:20:01"));
        assert_eq!(of("E999 10:31:00 x"), None);
        assert_eq!(of("2026-13-01 10:31:00"), None);
        assert!(at(12, 31, "23:59:59") > at(1, 1, "00:00:00"));
    }
}
