//! What a file's name tells: the rank, and the host where it or its folder names one.
use mycroft_record::time::day_of_date;
use mycroft_record::{HostName, HostTime, NANOS_PER_SEC, Rank};
use regex_lite::Regex;

/// Largest rank that a name may tell: ten times the largest jobs. Dates and process ids are larger.
pub const RANK_MAX: u32 = (1 << 20) - 1;

/// Endings of file names that are no part of the stem.
const ENDINGS: &[&str] = &[
    "bin",
    "dump",
    "gdb",
    "json",
    "locals",
    "log",
    "native",
    "out",
    "pickle",
    "pkl",
    "pyspy",
    "stacks",
    "subprocesses",
    "trace",
    "txt",
];

/// Words that begin the names of folders which are no hosts.
const NO_HOST: &[&str] = &["attempt", "dump", "epoch", "iter", "job", "rank", "restart", "run", "step", "try", "torch"];

/// The same for names of logs: of a job, a process or a stream.
const NO_HOST_OF_LOG: &[&str] =
    &["err", "fr", "log", "nccl", "out", "pid", "ras", "slurm", "std", "task", "train", "v", "version", "worker"];

/// How a file's name tells its rank.
///
/// By default the rank is the last number of the file's stem, e.g. 5 in `nccl_trace_rank_container-node02_5` and 3 in
/// `rank_3.native.txt`; the host is what stands between `rank_` and that number, or else the folder, where it looks like a
/// host's name (`node1/comm_lib_trace_rank_3`).
#[derive(Clone, Debug, Default)]
pub struct Naming {
    pattern: Option<Regex>,
}

/// A rank pattern that cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadPattern {
    /// It is no regular expression.
    #[error("rank pattern `{pattern}`: {why}")]
    NoRegex {
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        why: String,
    },
    /// It has no group that could hold the rank.
    #[error("rank pattern `{pattern}`: no group holds the rank; write it as `(\\d+)` or `(?<rank>\\d+)`")]
    NoGroup {
        /// The pattern.
        pattern: String,
    },
}

impl Naming {
    /// Ranks by a regular expression over the path: group `rank`, or else the first group; group `host`, if there is one,
    /// is the host.
    ///
    /// # Errors
    /// [`BadPattern`] when it is no regular expression or has no group.
    pub fn with_pattern(pattern: &str) -> Result<Naming, BadPattern> {
        let regex = Regex::new(pattern)
            .map_err(|error| BadPattern::NoRegex { pattern: pattern.to_owned(), why: error.to_string() })?;
        if regex.captures_len() < 2 {
            return Err(BadPattern::NoGroup { pattern: pattern.to_owned() });
        }
        Ok(Naming { pattern: Some(regex) })
    }

    /// The rank that the name of a file tells, if it tells one.
    pub fn rank(&self, path: &str) -> Option<Rank> {
        let rank = match &self.pattern {
            Some(pattern) => {
                let found = pattern.captures(path)?;
                found.name("rank").or_else(|| found.get(1))?.as_str().parse().ok()
            }
            // A time of day is no rank.
            None if taken_at(path).is_some() => None,
            None => last_number(stem(path)).and_then(|digits| digits.parse().ok()),
        };
        rank.filter(|&rank| rank <= RANK_MAX).map(Rank)
    }

    /// Whether the name of a file says that it holds a dump or stacks of a rank: then it is missed if it is of no use.
    pub(crate) fn promises(&self, path: &str) -> bool {
        let name = path.rsplit('/').next().unwrap_or(path);
        let stem = stem(path);
        let ours = ["rank", "trace", "dump", "pyspy", "py-spy", "stack", "faulthandler"];
        let other = [".log", ".md", ".out", ".err"];
        self.rank(path).is_some()
            && (self.pattern.is_some() || ours.iter().any(|word| stem.contains(word)))
            && !other.iter().any(|ending| name.ends_with(ending))
    }

    /// The rank whose log a file is: a number in the name of a log is a job's, a node's or a day's unless it says otherwise.
    pub(crate) fn rank_of_log(&self, path: &str) -> Option<Rank> {
        let stem = stem(path);
        let bare = stem.bytes().all(|byte| byte.is_ascii_digit())
            && path.rsplit('/').nth(1).is_some_and(|folder| folder.contains("rank"));
        (self.pattern.is_some() || bare || stem.contains("rank")).then(|| self.rank(path)).flatten()
    }

    /// The host whose log a file is: by a pattern, its folder, or its own name where that is a host's (`node14.log`).
    pub(crate) fn host_of_log(&self, path: &str) -> HostName {
        let told = self.host(path);
        let name = stem(path);
        let other = NO_HOST.iter().chain(NO_HOST_OF_LOG).any(|word| name.starts_with(word));
        let numbered =
            name.ends_with(|c: char| c.is_ascii_digit()) && name.starts_with(|c: char| c.is_ascii_alphabetic());
        if told.is_empty() && numbered && !other && !name.contains("rank") && is_host(name) {
            name.into()
        } else {
            told
        }
    }

    /// The host that the name of a file or its folder tells; empty where they tell none.
    pub fn host(&self, path: &str) -> HostName {
        if let Some(found) = self.pattern.as_ref().and_then(|pattern| pattern.captures(path))
            && let Some(host) = found.name("host")
        {
            return host.as_str().into();
        }
        host_in_name(stem(path)).or_else(|| host_in_folder(path)).unwrap_or_default().into()
    }
}

/// Whether a file's name says that people wrote it, about a job and not in it: it may quote what jobs print.
pub fn is_written_by_people(path: &str) -> bool {
    let ends = [".md", ".rst", ".py", ".sh", ".yaml", ".yml", ".toml", ".rs", ".c", ".cc", ".cpp", ".h", ".html"];
    ends.iter().any(|end| path.ends_with(end))
}

/// Whether a file's name says that it holds stacks.
pub(crate) fn tells_stacks(path: &str) -> bool {
    let stem = stem(path);
    ["stack", "pyspy", "py-spy", "faulthandler", "traceback"].iter().any(|word| stem.contains(word))
}

/// When a periodic file was written: `..._YYYYmmdd_HHMMSS`, in the host's own time zone, read as UTC.
pub(crate) fn taken_at(path: &str) -> HostTime {
    let stem = stem(path).as_bytes();
    let Some(tail) = stem.last_chunk::<STAMP_BYTES>() else { return HostTime::NONE };
    if tail[0] != b'_' || tail[9] != b'_' {
        return HostTime::NONE;
    }
    let number = |range: std::ops::Range<usize>| -> Option<u64> {
        tail[range].iter().try_fold(0, |sum, byte| Some(sum * 10 + u64::from(char::from(*byte).to_digit(10)?)))
    };
    let seconds = || -> Option<u64> {
        let (year, month, day) = (number(1..5)?, number(5..7)?, number(7..9)?);
        let (hour, minute, second) = (number(10..12)?, number(12..14)?, number(14..16)?);
        let days = day_of_date(year, month, day)?;
        (hour < 24 && minute < 60 && second < 60).then_some(days * 86_400 + hour * 3_600 + minute * 60 + second)
    };
    seconds().map_or(HostTime::NONE, |seconds| HostTime(seconds * NANOS_PER_SEC))
}

/// `_20261121_092309`.
const STAMP_BYTES: usize = 16;

/// The file's name without the endings that say what it is; dots of host names stay.
fn stem(path: &str) -> &str {
    let mut stem = path.rsplit('/').next().unwrap_or(path);
    while let Some((rest, ending)) = stem.rsplit_once('.') {
        if rest.is_empty() || !ENDINGS.contains(&ending) {
            break;
        }
        stem = rest;
    }
    stem
}

fn last_number(stem: &str) -> Option<&str> {
    let end = stem.rfind(|c: char| c.is_ascii_digit())? + 1;
    let start = stem[..end].trim_end_matches(|c: char| c.is_ascii_digit()).len();
    Some(&stem[start..end])
}

/// `container-node02` in `nccl_trace_rank_container-node02_5`.
fn host_in_name(stem: &str) -> Option<&str> {
    let (_, rest) = stem.split_once("rank_")?;
    let (host, rank) = rest.rsplit_once('_')?;
    (!rank.is_empty() && rank.bytes().all(|byte| byte.is_ascii_digit()) && is_host(host)).then_some(host)
}

/// `node1` in `node1/comm_lib_trace_rank_3`.
fn host_in_folder(path: &str) -> Option<&str> {
    let folder = path.rsplit('/').nth(1)?;
    let named_by_number =
        folder.bytes().any(|byte| byte.is_ascii_digit()) && folder.starts_with(|c: char| c.is_ascii_alphabetic());
    let other = NO_HOST.iter().any(|word| folder.starts_with(word));
    (named_by_number && !other && is_host(folder)).then_some(folder)
}

/// Letters, digits, `-` and `.`: what a host's name is made of (RFC 1123).
fn is_host(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.')
}
