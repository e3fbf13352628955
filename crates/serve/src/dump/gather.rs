//! What agents send of one capture, into files. Agents are not trusted with names or sizes.
use crate::api::{DumpFileJson, DumpHostJson, DumpJson, DumpTriedJson, rank_number};
use mycroft_record::text::printable;
use mycroft_wire::sync::lock;
use mycroft_wire::{CaptureKind, Captured};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Bytes of one capture: 4,096 dumps of 0.5 MB.
const CAPTURE_BYTES_MAX: u64 = 2 << 30;
/// Bytes of one file: what an agent reads at most.
const FILE_BYTES_MAX: u64 = 64 << 20;
/// Files of one agent: 256 ranks (what it watches) x 34 (a dump, itself, 32 children).
const FILES_MAX: usize = 256 * 34;
/// What one agent, and all together, may tell of processes, in bytes of memory: 1,024 ranks x 40 children x 200 bytes of
/// text are 8 MB, and a reader who asks for a capture is given all of it.
const TOLD_OF_AGENT_MAX: usize = 8 << 20;
const TOLD_MAX: usize = 32 << 20;
/// A line about a process besides its texts.
const LINE_BYTES: usize = 256;
/// Longest file name.
const NAME_BYTES_MAX: usize = 128;

/// Listener and connection of an agent.
pub(crate) type AgentKey = (usize, u64);

/// What one agent has sent.
struct Agent {
    host: String,
    /// Its folder: unique in this capture, and a plain name.
    folder: String,
    state: &'static str,
    ranks: u32,
    text: String,
    open: BTreeMap<String, (File, u64)>,
    files: usize,
    /// Bytes of what it told of processes.
    told: usize,
}

/// One capture while it runs.
pub(crate) struct Gathering {
    id: u64,
    dir: PathBuf,
    inner: Mutex<Inner>,
    changed: Condvar,
}

#[derive(Default)]
struct Inner {
    agents: BTreeMap<AgentKey, Agent>,
    /// Hosts that were not asked, and why.
    others: Vec<DumpHostJson>,
    tried: Vec<DumpTriedJson>,
    files: Vec<DumpFileJson>,
    bytes: u64,
    told: usize,
    stopped: bool,
}

impl Gathering {
    pub(crate) fn new(id: u64, dir: PathBuf) -> Gathering {
        Gathering { id, dir, inner: Mutex::default(), changed: Condvar::new() }
    }

    /// An agent gets the order; what it sends from now on is taken.
    pub(crate) fn expect(&self, key: AgentKey, host: &str) {
        let mut inner = lock(&self.inner);
        let plain = plain_name(host);
        let taken = |folder: &str| inner.agents.values().any(|agent| agent.folder == folder);
        let folder = if taken(&plain) { format!("{plain}_agent{}-{}", key.0, key.1) } else { plain };
        let (host, state) = (host.to_owned(), "waiting");
        let agent =
            Agent { host, folder, state, ranks: 0, text: String::new(), open: BTreeMap::new(), files: 0, told: 0 };
        inner.agents.insert(key, agent);
    }

    /// An agent that was not, or will not, answer: why.
    pub(crate) fn give_up(&self, key: AgentKey, state: &'static str, text: String) {
        if let Some(agent) = lock(&self.inner).agents.get_mut(&key) {
            (agent.state, agent.text) = (state, text);
            agent.open.clear();
        }
        self.changed.notify_all();
    }

    /// A host without an agent that could be asked.
    pub(crate) fn note_host(&self, host: DumpHostJson) {
        lock(&self.inner).others.push(host);
    }

    /// Takes what an agent sent.
    pub(crate) fn take(&self, key: AgentKey, captured: Captured) {
        let mut inner = lock(&self.inner);
        if inner.agents.get(&key).is_none_or(|agent| agent.state != "waiting") {
            return;
        }
        match captured {
            Captured::Piece { file, offset, bytes, .. } => {
                if let Err(error) = self.piece(&mut inner, key, &file, offset, &bytes)
                    && let Some(agent) = inner.agents.get_mut(&key)
                {
                    (agent.state, agent.text) = ("refused", format!("storing {file:?}: {error}"));
                    agent.open.clear();
                }
            }
            Captured::Tried { kind, rank, pid, file, text, .. } => {
                let line = LINE_BYTES + 2 * file.len() + text.len();
                let is_room = inner.told + line <= TOLD_MAX;
                let Some(agent) = inner.agents.get_mut(&key) else { return };
                if !is_room || agent.told + line > TOLD_OF_AGENT_MAX {
                    agent.state = "refused";
                    agent.text = "it tells more of processes than is kept; what it had sent is kept".to_owned();
                    agent.open.clear();
                    drop(inner);
                    self.changed.notify_all();
                    return;
                }
                agent.told += line;
                let whole = agent.open.remove(&file).map(|(_, bytes)| bytes);
                let path = format!("{}/{file}", agent.folder);
                let tried = DumpTriedJson {
                    kind: kind_word(kind).to_owned(),
                    rank: rank_number(rank),
                    host: shown(&agent.host),
                    pid,
                    file: whole.map(|_| path.clone()),
                    text: shown(&text),
                };
                inner.told += line;
                inner.tried.push(tried);
                inner.files.extend(whole.map(|bytes| DumpFileJson { path, bytes }));
            }
            Captured::End { ranks, text, .. } => {
                let Some(agent) = inner.agents.get_mut(&key) else { return };
                agent.state = if text.is_empty() { "ok" } else { "refused" };
                (agent.ranks, agent.text) = (ranks, shown(&text));
                agent.open.clear();
            }
        }
        drop(inner);
        self.changed.notify_all();
    }

    fn piece(&self, inner: &mut Inner, key: AgentKey, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let refuse = |text: &str| Err(io::Error::new(io::ErrorKind::InvalidData, text));
        if !is_plain(name) {
            return refuse("not a plain file name");
        }
        let more = bytes.len() as u64;
        if inner.bytes.saturating_add(more) > CAPTURE_BYTES_MAX || offset.saturating_add(more) > FILE_BYTES_MAX {
            return refuse("too large");
        }
        let Some(agent) = inner.agents.get_mut(&key) else { return Ok(()) };
        if !agent.open.contains_key(name) {
            if agent.files >= FILES_MAX {
                return refuse("too many files");
            }
            agent.files += 1;
            let dir = self.dir.join(&agent.folder);
            DirBuilder::new().recursive(true).mode(0o700).create(&dir)?;
            let file = File::options().write(true).create_new(true).mode(0o600).open(dir.join(name))?;
            agent.open.insert(name.to_owned(), (file, 0));
        }
        let Some((file, size)) = agent.open.get_mut(name) else { return Ok(()) };
        if *size != offset {
            return refuse("its pieces are out of order");
        }
        file.write_all(bytes)?;
        *size += more;
        inner.bytes += more;
        Ok(())
    }

    /// Waits for news; the agents that still have to answer, with their hosts.
    pub(crate) fn waiting(&self, longest: Duration) -> Vec<(AgentKey, String)> {
        let inner = lock(&self.inner);
        let waits = |inner: &Inner| inner.agents.values().any(|agent| agent.state == "waiting");
        let until = Instant::now() + longest;
        let left = until.saturating_duration_since(Instant::now());
        let (inner, _) = self
            .changed
            .wait_timeout_while(inner, left, |inner| waits(inner) && !inner.stopped)
            .unwrap_or_else(PoisonError::into_inner);
        let waiting = inner.agents.iter().filter(|(_, agent)| agent.state == "waiting");
        waiting.map(|(key, agent)| (*key, agent.host.clone())).collect()
    }

    /// The files that are whole.
    pub(crate) fn files(&self) -> Vec<DumpFileJson> {
        lock(&self.inner).files.clone()
    }

    /// What was tried.
    pub(crate) fn tried(&self) -> Vec<DumpTriedJson> {
        lock(&self.inner).tried.clone()
    }

    /// The ranks that somebody tried.
    pub(crate) fn ranks(&self) -> BTreeSet<u32> {
        lock(&self.inner).tried.iter().filter_map(|tried| tried.rank).collect()
    }

    /// The server stops.
    pub(crate) fn stop(&self) {
        lock(&self.inner).stopped = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        lock(&self.inner).stopped
    }

    /// A capture as far as it is.
    pub(crate) fn joined(&self, dump: DumpJson) -> DumpJson {
        let inner = lock(&self.inner);
        // Agents without ranks of the job are no hosts of it, unless they could not tell.
        let asked = inner.agents.values().filter(|agent| agent.state != "ok" || agent.ranks > 0);
        let mut hosts: Vec<DumpHostJson> = asked
            .map(|agent| DumpHostJson {
                host: shown(&agent.host),
                state: agent.state.to_owned(),
                ranks: agent.ranks,
                text: agent.text.clone(),
            })
            .chain(inner.others.iter().cloned())
            .collect();
        hosts.sort_by(|a, b| (&a.host, &a.state).cmp(&(&b.host, &b.state)));
        let mut tried = inner.tried.clone();
        tried.sort_by(|a, b| (a.rank, &a.host, &a.kind, a.pid).cmp(&(b.rank, &b.host, &b.kind, b.pid)));
        let mut files = inner.files.clone();
        files.sort_by(|a, b| a.path.cmp(&b.path));
        debug_assert_eq!(dump.id, self.id, "a capture is joined with its own files");
        DumpJson { hosts, tried, files, ..dump }
    }
}

fn kind_word(kind: CaptureKind) -> &'static str {
    match kind {
        CaptureKind::Stacks => "stacks",
        CaptureKind::ChildStacks => "child-stacks",
        CaptureKind::FlightRecorder => "flight-recorder",
        CaptureKind::Other(_) => "other",
    }
}

/// Text of an agent (and through it of a job) as one printable line.
fn shown(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
    printable(&line).into_owned()
}

fn is_plain(name: &str) -> bool {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
    (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.starts_with('.') && name.bytes().all(fits)
}

/// A host's name as that of a folder.
fn plain_name(host: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' };
    let name: String = host.chars().take(NAME_BYTES_MAX / 2).map(plain).collect();
    let name = name.trim_start_matches('.').to_owned();
    if name.is_empty() { "host".to_owned() } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::Rank;

    fn piece(file: &str, offset: u64, bytes: &[u8]) -> Captured {
        Captured::Piece { capture: 1, file: file.to_owned(), offset, bytes: bytes.to_vec() }
    }

    fn tried(file: &str) -> Captured {
        let (file, text) = (file.to_owned(), "a\nb".to_owned());
        Captured::Tried { capture: 1, kind: CaptureKind::Stacks, rank: Rank(3), pid: 7, file, text }
    }

    #[test]
    fn lines_without_end_are_cut_off_and_what_came_before_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let gathering = Gathering::new(1, dir.path().join("files"));
        (0..9).for_each(|key| gathering.expect((0, key), "host"));
        let line = |n: u32| Captured::Tried {
            capture: 1,
            kind: CaptureKind::Stacks,
            rank: Rank(n),
            pid: n,
            file: String::new(),
            text: "x".repeat(1000),
        };
        for key in 0..9 {
            (0..20_000).for_each(|n| gathering.take((0, key), line(n)));
        }
        let inner = lock(&gathering.inner);
        assert!(inner.told <= TOLD_MAX && inner.tried.len() <= TOLD_MAX / 1256, "{} lines", inner.tried.len());
        assert!(inner.tried.len() > 20_000, "{} lines", inner.tried.len());
        let refused = inner.agents.values().filter(|agent| agent.state == "refused" && agent.text.contains("more"));
        assert_eq!(refused.count(), 9);
    }

    #[test]
    fn pieces_become_files_and_only_with_plain_names_and_in_order() {
        let dir = tempfile::tempdir().expect("a directory");
        let gathering = Gathering::new(1, dir.path().join("files"));
        for key in 0..9 {
            gathering.expect((0, key), "../ho st");
        }
        for (key, bad) in ["../x", "", ".hidden", "a/b", "a\0b", "\u{e9}"].into_iter().enumerate() {
            gathering.take((0, key as u64), piece(bad, 0, b"x"));
        }
        gathering.take((0, 6), piece("a", 1, b"x"));
        gathering.take((0, 7), piece("a", 0, b"one "));
        gathering.take((0, 7), piece("a", 4, b"two"));
        gathering.take((0, 7), tried("a"));
        gathering.take((0, 7), tried("none"));
        gathering.take((0, 7), piece("a", 0, b"again"));
        gathering.take((0, 8), Captured::End { capture: 1, ranks: 1, text: String::new() });
        gathering.take((0, 8), piece("late", 0, b"x"));
        gathering.take((5, 5), piece("stranger", 0, b"x"));
        assert!(gathering.waiting(Duration::ZERO).is_empty(), "every agent is through or refused");
        let json = gathering.files();
        assert_eq!(json, [DumpFileJson { path: "_ho_st_agent0-7/a".into(), bytes: 7 }], "nothing else is a file of it");
        assert_eq!(std::fs::read(dir.path().join("files/_ho_st_agent0-7/a")).expect("readable"), b"one two");
        assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 1);
    }
}
