//! One host: is its agent there and of this version, what got lost, which NCCL runs, what is not seen.
use super::clocks;
use super::finding::Finding;
use crate::check::Grade;
use crate::peculiar::{self, FIRST_WITH_PROFILER};
use crate::told::{age, to_the_second};
use mycroft_record::nccl::{Effect, Library, NcclVersion, peculiarities};
use mycroft_record::text::printable;
use mycroft_serve::api::{AgentJson, FleetJson, HostJson, SpoolJson, TracedJson};
use std::collections::BTreeMap;

/// A host that is not heard for longer is silent, as in health, seconds.
const SILENT_S: f64 = 10.0;
/// Records that are older on arrival have waited in the spool, seconds.
const BEHIND_S: f64 = 10.0;
/// Of records that wait in a spool, what is told of: about a minute of a host of 8 ranks, at 15 KB a second.
const WAITING_BYTES: u64 = 1 << 20;
/// A loss is told for so long after it, seconds.
const LOST_S: u64 = 3600;
/// How an agent's service is looked at.
const SERVICE: &str = "there: systemctl status 'mycroft-agent*'; journalctl -u 'mycroft-agent*' -n 50";

/// What is to be said of a host.
pub(super) fn findings(host: &HostJson, fleet: &FleetJson) -> Vec<Finding> {
    let mut found: Vec<Finding> = silence(host, fleet).into_iter().collect();
    found.extend(host.agents.iter().filter_map(|agent| version(agent, fleet)));
    let is_heard = host.last_heard_at.is_some() && host.silent_s <= SILENT_S;
    found.extend(host.clock.as_ref().filter(|_| is_heard).and_then(clocks::of_host));
    found.extend(lost(host, fleet));
    found.extend(spooled(host));
    found.extend(host.traced.iter().flat_map(nccl));
    found.extend(host.traced.iter().filter_map(not_seen));
    let name = printable(&host.host);
    found.into_iter().map(|finding| finding.on(&name)).collect()
}

fn span(seconds: f64) -> String {
    age((seconds.max(0.0) * 1e9) as u64)
}

/// `8 ranks of train`, with commas for each job.
fn ranks_there(host: &HostJson) -> String {
    let mut of: BTreeMap<&str, u64> = BTreeMap::new();
    for traced in &host.traced {
        *of.entry(&traced.job).or_default() += traced.processes;
    }
    let told: Vec<String> = of.into_iter().map(|(job, ranks)| format!("{ranks} ranks of {}", printable(job))).collect();
    told.join(", ")
}

fn silence(host: &HostJson, fleet: &FleetJson) -> Option<Finding> {
    let is_heard = host.last_heard_at.is_some() && host.silent_s <= SILENT_S;
    if is_heard {
        return None;
    }
    if host.agents.is_empty() { Some(gone(host)) } else { mute(host, fleet) }
}

/// Of an agent that is connected and sends no records.
fn mute(host: &HostJson, fleet: &FleetJson) -> Option<Finding> {
    let (ranks, answers) = (ranks_there(host), host.agents.iter().any(is_alive));
    // It says each second that it is there; where no job runs there is nothing else to send.
    if answers && ranks.is_empty() {
        return None;
    }
    if host.last_heard_at.is_none() {
        let text = "the agent is connected and has sent nothing";
        return (fleet.uptime_s > SILENT_S).then(|| Finding::new(Grade::Warn, "agent", text, SERVICE));
    }
    let ago = span(host.silent_s);
    let text = if answers {
        format!("the agent answers and has sent nothing of {ranks} for {ago}: what reads the ranks there hangs")
    } else {
        format!("the agent is connected and has sent nothing for {ago}: it hangs, or the host does")
    };
    Some(Finding::new(Grade::Fail, "agent", text, SERVICE))
}

fn is_alive(agent: &AgentJson) -> bool {
    agent.silent_s.is_some_and(|silent_s| silent_s <= SILENT_S)
}

/// Of a host without an agent.
fn gone(host: &HostJson) -> Finding {
    let ranks = ranks_there(host);
    let since = host.last_agent.as_ref().map(|agent| to_the_second(&printable(&agent.heard_at.text)));
    let heard = match &since {
        Some(since) => format!("its agent has not been heard since {since}"),
        None => format!("no agent is connected; last heard {} ago", span(host.silent_s)),
    };
    let spool = host.last_agent.as_ref().and_then(|agent| agent.spool);
    let waits = spool.filter(|spool| spool.records > 0).map(|spool| format!("; then {} in its spool", waiting(spool)));
    let waits = waits.unwrap_or_default();
    if ranks.is_empty() {
        let job =
            if host.last_heard_at.is_some() { "no job ran there then" } else { "nothing of a job had come of it" };
        let text = format!("{heard}: {job}{waits}");
        let fix = "there: systemctl start mycroft-agent; a host that was taken away is forgotten after a day";
        return Finding::new(Grade::Warn, "agent", text, fix);
    }
    let text = format!(
        "{heard}, with {ranks}: nothing is known of them, their records wait in the spool if the agent runs (256 MiB: some four \
         hours){waits}"
    );
    Finding::new(Grade::Fail, "agent", text, SERVICE)
}

/// `1200 records (0.3 MiB) waited`.
fn waiting(spool: SpoolJson) -> String {
    format!("{} records ({:.1} MiB) waited", spool.records, spool.bytes as f64 / f64::from(1 << 20))
}

/// What waits at a host for the server.
fn spooled(host: &HostJson) -> Option<Finding> {
    let is_late = host.last_heard_at.is_some() && host.silent_s <= SILENT_S && host.behind_s > BEHIND_S;
    let spools = host.agents.iter().filter_map(|agent| agent.spool);
    let (records, bytes) = spools.fold((0, 0), |(records, bytes), spool| {
        (u64::saturating_add(records, spool.records), u64::saturating_add(bytes, spool.bytes))
    });
    let mib = bytes as f64 / f64::from(1 << 20);
    let text = match (is_late, bytes >= WAITING_BYTES) {
        (false, false) => return None,
        (false, true) => {
            format!("{records} records ({mib:.1} MiB) wait in its spool: verdicts on the host wait for them")
        }
        (true, _) => {
            let left =
                if records > 0 { format!(", and {records} records ({mib:.1} MiB) still do") } else { String::new() };
            let late = span(host.behind_s);
            format!(
                "its records arrive {late} late: the agent sends what waited in its spool{left}, and verdicts on the host wait for it"
            )
        }
    };
    let fix = "it catches up by itself; where it does not: the network to the server, or the host's load";
    Some(Finding::new(Grade::Warn, "spool", text, fix))
}

fn version(agent: &AgentJson, fleet: &FleetJson) -> Option<Finding> {
    let [_, highest] = fleet.wire_versions;
    let (theirs, ours) = (printable(&agent.software), format!("mycroft {}", fleet.version));
    let lacks = match agent.wire_version {
        old if old >= highest => "",
        0 | 1 => ": no captures, no clock, not held for tests",
        2 => ": its clock is not known, it is not held for tests",
        _ => ": it is not held for tests",
    };
    if theirs == ours && lacks.is_empty() {
        return None;
    }
    let protocol = if lacks.is_empty() {
        String::new()
    } else {
        format!(", speaks version {} of {highest} of the protocol{lacks}", agent.wire_version)
    };
    let text = format!("the agent is {theirs}, the server {}{protocol}", printable(&ours));
    let fix = "there: install the server's version, then systemctl restart 'mycroft-agent*' (jobs go on)";
    Some(Finding::new(Grade::Warn, "version", text, fix))
}

fn lost(host: &HostJson, fleet: &FleetJson) -> Vec<Finding> {
    let lost = &host.lost;
    let segment = "in the job: MYCROFT_SEGMENT_BYTES higher (default 1 MiB a rank), if /dev/shm has room";
    let places = [
        (lost.ring, "overwritten in the ring before the agent read them", segment),
        (lost.probe, "dropped in the job for want of a slot", segment),
        (
            lost.spool,
            "dropped from a full spool while the server was away",
            "mycroft agent --spool-bytes higher, and room on its disk",
        ),
        (lost.damaged, "torn or impossible", "the same version of tracer and agent there"),
        (lost.server, "dropped by the server, which could not keep up", "see the server's findings"),
    ];
    let is_lately = lost.last_at.as_ref().is_some_and(|at| fleet.now.ns.saturating_sub(at.ns) < LOST_S * 1_000_000_000);
    let lately = places.into_iter().filter(|(records, _, _)| is_lately && *records > 0);
    let text = |records: u64, what: &str| format!("{records} records were {what}; what they would show is unknown");
    let mut found: Vec<Finding> =
        lately.map(|(records, what, fix)| Finding::new(Grade::Warn, "lost", text(records, what), fix)).collect();
    let said = host.agents.iter().filter_map(|agent| agent.spool).map(|spool| spool.dropped).max().unwrap_or(0);
    let dropped = host.agent_dropped.max(said);
    if dropped > 0 && lost.spool == 0 {
        let text = format!("the agent has dropped {dropped} records since it started");
        found.push(Finding::new(Grade::Warn, "lost", text, "mycroft agent --spool-bytes higher, and room on its disk"));
    }
    found
}

/// What is known of the versions of NCCL there.
fn nccl(traced: &TracedJson) -> Vec<Finding> {
    let version = NcclVersion(traced.nccl_code);
    let is_concerned = |effect: Effect| effect != Effect::KernelEventsCostly || traced.kernel_events == Some(true);
    let known = peculiarities(Library::Nccl, version).filter(|known| is_concerned(known.effect));
    let of_job = |check: crate::check::Check| {
        Finding::new(check.grade, "nccl", check.found, check.fix).of_job(&printable(&traced.job))
    };
    known.map(|known| of_job(peculiar::line(known, version))).collect()
}

/// What is not seen of processes, because of a library or a switch.
fn not_seen(traced: &TracedJson) -> Option<Finding> {
    let version = NcclVersion(traced.nccl_code);
    let finding = |check, text: String, fix: &str| {
        Some(Finding::new(Grade::Warn, check, text, fix).of_job(&printable(&traced.job)))
    };
    match (traced.nccl_code, traced.profiler_abi) {
        // Before the first communicator.
        (0, _) => None,
        (1..FIRST_WITH_PROFILER, _) => finding("nccl", peculiar::calls_only(version), peculiar::BEFORE_PLUGINS),
        (_, 0) => {
            let text =
                format!("NCCL {version} has not loaded the tracer: calls alone are recorded, no operation's progress");
            finding(
                "tracer",
                text,
                "in the job: eval \"$(python -m mycroft env)\", or NCCL_PROFILER_PLUGIN=/path/libmycroft_nccl.so",
            )
        }
        _ if traced.kernel_events == Some(false) => {
            let text = "kernel events are off: when a rank began an operation is guessed, gpu and not-started are harder to tell \
                        apart, and what stays inside a host is not seen";
            let costs = peculiarities(Library::Nccl, version).any(|known| known.effect == Effect::KernelEventsCostly);
            let fix = if costs {
                "NCCL 2.32 or later; with this one MYCROFT_KERNEL_EVENTS=on in the job costs 4 to 13 % of small operations"
            } else {
                "in the job, for its next start: MYCROFT_KERNEL_EVENTS=on"
            };
            finding("tracer", text.to_owned(), fix)
        }
        _ => None,
    }
}
