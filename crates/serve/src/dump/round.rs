//! One capture from order to verdict.
use super::Dumps;
use super::gather::{AgentKey, Gathering};
use crate::api::{DumpHostJson, DumpJson, TimeJson, untold};
use crate::autopsy::AutopsyJson;
use crate::case::Capture;
use crate::command::Command;
use mycroft_diagnose::Gain;
use mycroft_diagnose::stacks::{Autopsy, Question, autopsy};
use mycroft_formats::{Naming, Piece, assemble, read};
use mycroft_record::dump::{Bundle, Unusable};
use mycroft_record::{HostTime, NANOS_PER_MS, Rank};
use mycroft_wire::sync::lock;
use mycroft_wire::{CaptureOrder, NotOrdered, Peer, VERSION_CAPTURE};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tracing::{error, info, warn};

/// How far ahead the agreed time is: an order is on its way within 0.2 s, an agent looks for it four times a second, and
/// the rest is for the network and a busy host.
const LEAD: Duration = Duration::from_millis(1000);
/// What agents may take: torch looks at its pipe every second and writes a dump of 0.5 MB in less than another; reading
/// a process takes 0.1 s.
const LIMIT: Duration = Duration::from_millis(5000);
/// For sending: 8 ranks x (0.5 MB + stacks) at 4 MB/s.
const SEND: Duration = Duration::from_millis(2000);
/// How often it is looked at which agents are still there.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Why a capture failed as a whole.
struct Failed(String);

fn log_end(dump: &DumpJson) {
    let (id, job, files, processes) = (dump.id, &dump.job, dump.files.len(), dump.tried.len());
    match &dump.error {
        error if !error.is_empty() => {
            warn!(capture = id, job, error, "capture {id} of job {job:?} failed: {error}");
        }
        _ => info!(capture = id, job, files, "capture {id} of job {job:?}: {files} files of {processes} processes"),
    }
}

impl Dumps {
    /// The thread of a capture.
    pub(super) fn run(&self, id: u64, gathering: &Gathering) {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.take(id, gathering)));
        let outcome = outcome.unwrap_or_else(|_| Err(Failed("the server failed; see its log".to_owned())));
        let now = (self.around.clock)();
        let mut done = None;
        {
            let mut state = lock(&self.state);
            state.running.remove(&id);
            if let Some(dump) = state.known.get_mut(&id) {
                *dump = gathering.joined(dump.clone());
                dump.ended_at = TimeJson::of(now);
                dump.progress.clear();
                match outcome {
                    Ok(json) => (dump.state, dump.autopsy) = ("done".to_owned(), json),
                    Err(Failed(error)) => (dump.state, dump.error) = ("failed".to_owned(), error),
                }
                done = Some(dump.clone());
            }
        }
        if let Some(dump) = done {
            log_end(&dump);
            if let Err(error) = self.keep.write(&dump) {
                error!(capture = id, %error, "storing capture {id}: {error}");
            }
        }
        self.tidy();
    }

    fn take(&self, id: u64, gathering: &Gathering) -> Result<Option<AutopsyJson>, Failed> {
        let begun = Instant::now();
        let Some(dump) = lock(&self.state).known.get(&id).cloned() else { return Ok(None) };
        let at = (self.around.clock)() + LEAD.as_nanos() as u64;
        self.change(id, |dump| dump.taken_at = TimeJson::exact(at));
        let order = CaptureOrder {
            id,
            job: dump.job.clone(),
            at,
            in_ms: LEAD.as_millis() as u32,
            limit_ms: LIMIT.as_millis() as u32,
            stacks: dump.stacks,
            flight_recorder: dump.flight_recorder,
        };
        let asked = self.order(&order, gathering);
        if asked.iter().all(|(peer, _)| peer.version < VERSION_CAPTURE) {
            self.note_hosts(&dump.job, &asked, gathering);
            return Err(Failed(no_agent(&asked)));
        }
        self.change(id, |dump| dump.progress = "agents take stacks and dumps".to_owned());
        self.wait(begun + LEAD + LIMIT + SEND, gathering);
        self.note_hosts(&dump.job, &asked, gathering);
        if gathering.is_stopped() {
            return Err(Failed("the server stopped".to_owned()));
        }
        let files = gathering.files();
        if files.is_empty() {
            self.attach(&dump, at, None);
            return Ok(None);
        }
        self.change(id, |dump| dump.progress = format!("looking into {} files", files.len()));
        let (root, naming) = (self.keep.files_of(id), Naming::default());
        let pieces = files.iter().map(|file| match std::fs::read(root.join(&file.path)) {
            Ok(bytes) => read(&file.path, &bytes, &naming),
            Err(error) => {
                let why = format!("cannot be read: {error}");
                Piece::Unread(Unusable { rank: naming.rank(&file.path), source: (&*file.path).into(), why })
            }
        });
        let mut pieces: Vec<Piece> = pieces.collect();
        if dump.flight_recorder {
            pieces.extend(untold(&gathering.tried()));
            pieces.extend(self.unheard(&dump.job, gathering));
        }
        let bundle = assemble(pieces).map_err(|clash| {
            Failed(format!("several files claim to be the dump of rank {}: {}", clash.rank.0, clash.sources.join(", ")))
        })?;
        let answer = autopsy(&bundle, &Question { grid: false });
        self.attach(&dump, at, Some((&bundle, &answer)));
        Ok(Some(AutopsyJson::of(&answer)))
    }

    /// Gives the order to every agent: which of them have ranks of the job, they know themselves.
    fn order(&self, order: &CaptureOrder, gathering: &Gathering) -> Vec<(Peer, AgentKey)> {
        let listeners = lock(&self.around.listeners);
        let mut asked = Vec::new();
        for (index, listener) in listeners.iter().enumerate() {
            for peer in listener.peers() {
                let key = (index, peer.connection);
                if peer.version >= VERSION_CAPTURE {
                    gathering.expect(key, &peer.host);
                    match listener.order(peer.connection, order) {
                        Ok(()) => {}
                        Err(NotOrdered::Gone) => gathering.give_up(key, "lost", NotOrdered::Gone.to_string()),
                        Err(other) => gathering.give_up(key, "refused", other.to_string()),
                    }
                }
                asked.push((peer, key));
            }
        }
        asked
    }

    /// Tells of the job's hosts whose agent cannot do it, or that have none.
    fn note_hosts(&self, job: &str, asked: &[(Peer, AgentKey)], gathering: &Gathering) {
        let able: BTreeSet<&str> =
            asked.iter().filter(|(p, _)| p.version >= VERSION_CAPTURE).map(|(p, _)| p.host.as_str()).collect();
        let old: BTreeMap<&str, u16> = asked
            .iter()
            .filter(|(p, _)| p.version < VERSION_CAPTURE)
            .map(|(p, _)| (p.host.as_str(), p.version))
            .collect();
        let tried = gathering.ranks();
        for (host, ranks) in self.hosts_of(job) {
            // An agent may call its host otherwise than the job does.
            if able.contains(host.as_str()) || ranks.iter().any(|rank| tried.contains(rank)) {
                continue;
            }
            let (state, text) = match old.get(host.as_str()) {
                Some(version) => (
                    "too-old",
                    format!("agent of host {host} is too old: {}", NotOrdered::TooOld(*version, VERSION_CAPTURE)),
                ),
                None if able.is_empty() && old.is_empty() => ("absent", "no agent is connected".to_owned()),
                None => ("absent", format!("no agent that calls itself {host} is connected; does it run there?")),
            };
            gathering.note_host(DumpHostJson { host, state: state.to_owned(), ranks: 0, text });
        }
    }

    /// Ranks of the job that no agent told of: none runs on their host, or it did not answer.
    fn unheard(&self, job: &str, gathering: &Gathering) -> Vec<Piece> {
        let tried = gathering.ranks();
        let hosts = self.hosts_of(job);
        let silent = hosts.iter().flat_map(|(host, ranks)| ranks.iter().map(move |rank| (host, *rank)));
        let silent = silent.filter(|(_, rank)| !tried.contains(rank));
        silent
            .map(|(host, rank)| {
                let why = "no agent told of this rank in the capture".to_owned();
                Piece::Unread(Unusable { rank: Some(Rank(rank)), source: (&**host).into(), why })
            })
            .collect()
    }

    /// The hosts that the job's records come from, and their ranks.
    fn hosts_of(&self, job: &str) -> BTreeMap<String, BTreeSet<u32>> {
        let (reply, answer) = oneshot::channel();
        if !self.around.inbox.ask(Command::Report { job: job.into(), reply }) {
            return BTreeMap::new();
        }
        // The brain answers, or drops the question when it stops.
        let report = answer.blocking_recv().ok().flatten();
        let mut hosts: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        for rank in report.iter().flat_map(|report| &report.ranks) {
            hosts.entry(rank.host.to_string()).or_default().insert(rank.rank.0);
        }
        hosts
    }

    /// Waits until every agent has answered, or is gone, or the time is up.
    fn wait(&self, until: Instant, gathering: &Gathering) {
        loop {
            let waiting = gathering.waiting(LOOK_EVERY.min(until.saturating_duration_since(Instant::now())));
            if waiting.is_empty() || gathering.is_stopped() {
                return;
            }
            let late = Instant::now() >= until;
            let here: BTreeSet<AgentKey> = {
                let listeners = lock(&self.around.listeners);
                let keys = |(index, peers): (usize, Vec<Peer>)| peers.into_iter().map(move |p| (index, p.connection));
                listeners.iter().map(|listener| listener.peers()).enumerate().flat_map(keys).collect()
            };
            for (key, host) in waiting {
                if !here.contains(&key) {
                    let text = format!("the agent of {host} went away in the middle of it; what it had sent is kept");
                    gathering.give_up(key, "lost", text);
                } else if late {
                    let text = format!("the agent of {host} did not answer in time; what it had sent is kept");
                    gathering.give_up(key, "silent", text);
                }
            }
        }
    }

    /// Adds what a capture says to its case.
    fn attach(&self, dump: &DumpJson, at: HostTime, found: Option<(&Bundle, &Autopsy)>) {
        let Some(live) = dump.case.and_then(|number| self.around.book.get(number)) else { return };
        let gain = found.map(|(bundle, autopsy)| Gain::of(dump.id, &live.case, bundle, autopsy));
        let capture = Capture { number: dump.id, taken_at: at, gain: gain.unwrap_or_else(Gain::nothing) };
        if self.around.book.attach(live.number, capture, (self.around.clock)()) {
            self.wake_keeper();
        }
    }
}

fn no_agent(asked: &[(Peer, AgentKey)]) -> String {
    let Some((first, _)) = asked.first() else {
        return "no agents are connected: check that `mycroft agent` runs on the job's hosts and names this server"
            .to_owned();
    };
    let (agents, host) = (asked.len(), &first.host);
    format!("all {agents} agents connected are too old for captures (the first is that of host {host}): upgrade them")
}

/// The lead in nanoseconds fits what an order can say.
const _: () = assert!(LEAD.as_nanos() < 10_000 * NANOS_PER_MS as u128);
