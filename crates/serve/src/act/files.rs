//! Files that carry a plan to who carries it out: `python/` for micro-batches, schedulers for hosts (docs/formats/plan.md).
use crate::api::LeftOutJson;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};

/// `format` of a plan's file.
const PLAN: &str = "mycroft-plan";
/// `format` of a list of hosts.
const EXCLUSIONS: &str = "mycroft-exclusions";
/// The version that is written, and the only one that is read.
const VERSION: u64 = 1;
/// Largest file that is read: as `python/` reads of a list.
const BYTES_MAX: u64 = 4 << 20;

/// A division of micro-batches, as `python/` reads it.
#[derive(Serialize, Deserialize)]
struct Division {
    format: String,
    version: u64,
    epoch: u64,
    step: u64,
    micro_batches: Vec<u32>,
    total: u64,
    #[serde(default)]
    reason: String,
}

/// Why a file was not written. It is as it was.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// Something else is in it, or it is too large.
    #[error("{path}: {why}; it stays as it is: give another file")]
    NotOurs {
        /// The file.
        path: PathBuf,
        /// What is in it.
        why: String,
    },
    /// The system refused.
    #[error("cannot {what} {path}: {source}")]
    Io {
        /// `read` or `write`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// What became of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Written {
    /// It says what the plan says.
    Yes,
    /// It said so before.
    Already,
}

/// Writes a division of micro-batches as the next plan of the file; one that is in it already stays as it is. Ranks that read
/// the file change over together.
///
/// # Errors
/// When something else is in the file, or it cannot be read or written.
pub fn division(path: &Path, micro_batches: &[u32], reason: &str) -> Result<Written, FileError> {
    let last = read(path)?.map(serde_json::from_value::<Division>).transpose();
    let last = last.map_err(|error| not_ours(path, &error.to_string()))?;
    if last.as_ref().is_some_and(|last| last.format != PLAN || last.version != VERSION) {
        return Err(not_ours(path, "it is no plan of a version that is known"));
    }
    if last.as_ref().is_some_and(|last| last.micro_batches == micro_batches) {
        return Ok(Written::Already);
    }
    let division = Division {
        format: PLAN.to_owned(),
        version: VERSION,
        epoch: last.as_ref().map_or(0, |last| last.epoch) + 1,
        step: last.map_or(0, |last| last.step),
        micro_batches: micro_batches.to_vec(),
        total: micro_batches.iter().map(|count| u64::from(*count)).sum(),
        reason: reason.to_owned(),
    };
    write(path, &division)?;
    Ok(Written::Yes)
}

/// Adds hosts to be left out to a list, whose other entries stay; of a host that is there already the later end counts.
///
/// # Errors
/// When something else is in the file, or it cannot be read or written.
pub fn exclusions(path: &Path, left_out: &[LeftOutJson]) -> Result<Written, FileError> {
    let mut list = match read(path)? {
        None => Map::new(),
        Some(Value::Object(list)) if list.get("format").is_none_or(|format| format == EXCLUSIONS) => list,
        Some(_) => return Err(not_ours(path, "it is no list of hosts")),
    };
    let before = list.clone();
    list.entry("format").or_insert(EXCLUSIONS.into());
    list.entry("version").or_insert(VERSION.into());
    let Value::Array(hosts) = list.entry("hosts").or_insert(Value::Array(Vec::new())) else {
        return Err(not_ours(path, "its hosts are no list"));
    };
    for host in left_out {
        let end = host.until.as_ref().map(|until| seconds(&until.text));
        let is_known = |entry: &Value| {
            let until = entry.get("until").and_then(Value::as_str);
            // Without an end it holds until somebody removes it; times in UTC sort as they are written.
            entry.get("host").and_then(Value::as_str) == Some(&host.host)
                && (until.is_none() || end.as_deref().is_some_and(|end| until >= Some(end)))
        };
        if !hosts.iter().any(is_known) {
            let mut entry = Map::new();
            entry.insert("host".to_owned(), host.host.clone().into());
            entry.insert("reason".to_owned(), host.because.clone().into());
            entry.extend(end.map(|end| ("until".to_owned(), end.into())));
            hosts.push(Value::Object(entry));
        }
    }
    if list == before {
        return Ok(Written::Already);
    }
    write(path, &list)?;
    Ok(Written::Yes)
}

/// A time of the server without parts of a second: `2026-12-01T00:00:00Z`.
fn seconds(text: &str) -> String {
    text.split_once('.').map_or_else(|| text.to_owned(), |(whole, _)| format!("{whole}Z"))
}

fn not_ours(path: &Path, why: &str) -> FileError {
    FileError::NotOurs { path: path.to_owned(), why: why.to_owned() }
}

fn refused(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> FileError {
    let path = path.to_owned();
    move |source| FileError::Io { what, path, source }
}

/// What is in a file, `None` where there is none.
fn read(path: &Path) -> Result<Option<Value>, FileError> {
    let bytes = match std::fs::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        found => found.map_err(refused("read", path))?.len(),
    };
    if bytes > BYTES_MAX {
        return Err(not_ours(path, &format!("it is larger than {BYTES_MAX} bytes")));
    }
    let text = std::fs::read(path).map_err(refused("read", path))?;
    serde_json::from_slice(&text).map(Some).map_err(|error| not_ours(path, &error.to_string()))
}

/// Writes beside the file and renames, so that no rank reads half of it.
fn write(path: &Path, value: &impl Serialize) -> Result<(), FileError> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let written = || -> std::io::Result<()> {
        let mut beside = tempfile::NamedTempFile::new_in(folder)?;
        serde_json::to_writer_pretty(&mut beside, value)?;
        beside.write_all(b"\n")?;
        // Ranks may run for other users.
        beside.as_file().set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))?;
        beside.persist(path).map_err(|error| error.error)?;
        Ok(())
    };
    written().map_err(refused("write", path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::TimeJson;

    fn leaves(host: &str, text: &str) -> LeftOutJson {
        let until = Some(TimeJson { ns: 1, text: text.to_owned() });
        LeftOutJson { host: host.to_owned(), strikes: 1, until, because: "it is slow".to_owned() }
    }

    #[test]
    fn a_division_is_the_next_plan_of_its_file_and_twice_is_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("plan.json");
        assert_eq!(division(&path, &[5, 3], "case 1").unwrap(), Written::Yes);
        let first = std::fs::read(&path).unwrap();
        assert_eq!(division(&path, &[5, 3], "case 2").unwrap(), Written::Already);
        assert_eq!(std::fs::read(&path).unwrap(), first);
        assert_eq!(division(&path, &[4, 4], "taken back").unwrap(), Written::Yes);
        let now: Division = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!((now.epoch, now.total, now.micro_batches.as_slice()), (2, 8, &[4, 4][..]));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "something is left behind");
    }

    #[test]
    fn hosts_join_a_list_that_keeps_its_own_and_the_later_end_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("hosts.json");
        std::fs::write(
            &path,
            r#"{"hosts": [{"host": "a"}, {"host": "b", "until": "2026-01-02T00:00:00Z"}], "by": "me"}"#,
        )
        .unwrap();
        let both = [leaves("a", "2026-01-01T00:00:00.5Z"), leaves("b", "2026-01-03T00:00:00.000000000Z")];
        assert_eq!(exclusions(&path, &both).unwrap(), Written::Yes);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.contains(r#""by": "me""#) && text.contains("2026-01-03T00:00:00Z") && text.contains("2026-01-02"),
            "{text}"
        );
        assert_eq!(text.matches(r#""host": "a""#).count(), 1, "{text}");
        assert_eq!(exclusions(&path, &both).unwrap(), Written::Already);
    }

    #[test]
    fn what_is_not_ours_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("else.json");
        for text in ["not JSON", "[1]", r#"{"format": "other", "version": 1}"#, r#"{"hosts": 3}"#] {
            std::fs::write(&path, text).unwrap();
            let error = format!("{}", division(&path, &[5, 3], "").unwrap_err());
            assert!(error.contains("it stays as it is"), "{error}");
            assert!(exclusions(&path, &[leaves("a", "x")]).is_err(), "{text}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
    }
}
