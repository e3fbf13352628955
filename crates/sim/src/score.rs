//! What the right answer to each fault is, and whether a verdict is it.
use crate::due::Due;
use crate::fault::{Fault, FaultKind, FaultLevel};
use crate::scenario::{Algo, DpMode, Scenario};
use mycroft_record::{Category, Finding, Place, What};
use std::collections::BTreeSet;

/// Which verdicts are right for a kind of fault. The first of each list is the best word; the others are accepted
/// because nothing that can be seen tells them apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expectation {
    /// Right answers to "what is wrong".
    pub whats: &'static [What],
    /// Right kinds of fault.
    pub categories: &'static [Category],
    /// Who must be named.
    pub level: FaultLevel,
}

/// The right verdicts for `kind` (Mycroft section 7.1, categories after its Table 4; the others' words in
/// [`FaultKind::facts`]).
///
/// A NIC that is down or slow neither sends nor receives well, so both network words are right; which one is seen
/// first depends on which operation was in flight. A killed process also hangs its peers, but the process is known to
/// be gone, so only `crash` is right.
pub fn expected(kind: FaultKind) -> Expectation {
    let facts = kind.facts();
    Expectation { whats: facts.whats, categories: facts.categories, level: facts.level }
}

/// Confidences closer than this are equal.
const TIE: f64 = 1e-6;

/// What was really done: known to the testbed, the simulator and tests, never to the diagnosis (invariant 2).
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Truth {
    /// The fault; `None` in a healthy run.
    pub fault: Option<Fault>,
    /// Names of the culprit hosts, in index order.
    pub hosts: Vec<String>,
    /// Global ranks of the culprit: the rank or ranks, or all ranks of the culprit hosts.
    pub ranks: Vec<u32>,
    /// When the fault was injected, milliseconds since the Unix epoch by the launcher's clock; 0 before.
    pub at_ms: u64,
    /// When it was over, on the same clock; `None`: never, or it comes back.
    pub until_ms: Option<u64>,
    /// How many times longer the job's iterations took while it lasted; `None` where nobody measured it.
    pub slowdown: Option<f64>,
    /// What it costs and whether a case is due for that; `None` where nobody measured it, and an older rule decides.
    pub due: Option<Due>,
    /// Hosts that nothing tells apart from the culprit: they may be named, but only together with it.
    pub either: Vec<String>,
    /// The same of ranks.
    pub either_ranks: Vec<u32>,
    /// Another fault that nothing tells from it: a verdict that is right for that one is right for this, on its host or rank.
    pub alike: Option<Box<Truth>>,
}

impl Truth {
    /// The truth of a run without a fault.
    pub fn healthy() -> Truth {
        Truth::default()
    }

    /// The truth of `fault` in `scenario`, injected at `at_ms`.
    pub fn of(fault: &Fault, scenario: &Scenario, at_ms: u64) -> Truth {
        let culprits = fault.culprit_hosts(scenario);
        let per_host = scenario.ranks_per_host;
        let mut ranks = fault.culprit_ranks(scenario);
        if ranks.is_empty() {
            ranks = culprits.iter().flat_map(|host| host * per_host..(host + 1) * per_host).collect();
        }
        let lasts = fault.lasts_s().filter(|_| fault.every_s.is_none());
        let names = |hosts: &[u32]| hosts.iter().map(|host| scenario.host_name(*host)).collect();
        Truth {
            fault: Some(fault.clone()),
            hosts: names(&culprits),
            ranks,
            at_ms,
            until_ms: lasts.map(|lasts| at_ms + ((lasts + fault.ramp_s.unwrap_or(0.0)) * 1e3) as u64),
            slowdown: None,
            due: None,
            either: names(&other_ends(fault, scenario)),
            either_ranks: other_rank(fault, scenario).into_iter().collect(),
            alike: only_path(fault, scenario)
                .or_else(|| path_of_one_way(fault, scenario))
                .map(|path| Box::new(Truth::of(&path, scenario, at_ms))),
        }
    }

    /// The truth of every fault of a scenario whose job began at `start_ms`.
    pub fn of_all(scenario: &Scenario, start_ms: u64) -> Vec<Truth> {
        let at = |fault: &Fault| start_ms + (fault.after_s * 1e3) as u64;
        scenario.all_faults().map(|fault| Truth::of(fault, scenario, at(fault))).collect()
    }
}

/// Two hosts that talk to each other and nobody else: which of the two NICs is slow cannot be seen.
fn other_ends(fault: &Fault, scenario: &Scenario) -> Vec<u32> {
    if let Some((peer, true)) = only_way(fault, scenario) {
        return vec![peer];
    }
    if !matches!(fault.kind, FaultKind::NicBandwidth | FaultKind::CrossNuma) {
        return Vec::new();
    }
    let peers: Vec<u32> = scenario.neighbours(fault.host).into_iter().collect();
    match peers[..] {
        [peer] if scenario.neighbours(peer).len() == 1 => vec![peer],
        _ => Vec::new(),
    }
}

/// The only host at the other end of all that a host sends, or receives, where that is what is slow; and whether that host
/// has no other traffic of the kind. Trees are taken for rings.
fn only_way(fault: &Fault, scenario: &Scenario) -> Option<(u32, bool)> {
    let on = |host: u32| host * scenario.ranks_per_host..(host + 1) * scenario.ranks_per_host;
    let to = |host: u32| -> BTreeSet<u32> {
        on(host).flat_map(|rank| scenario.sends_to(rank)).map(|rank| scenario.host_of(rank)).collect()
    };
    let from =
        |host: u32| -> BTreeSet<u32> { (0..scenario.hosts).filter(|other| to(*other).contains(&host)).collect() };
    let there = match fault.kind {
        FaultKind::NicSend => to(fault.host),
        FaultKind::NicReceive => from(fault.host),
        _ => return None,
    };
    let peer = there.first().copied().filter(|_| there.len() == 1)?;
    let others = if fault.kind == FaultKind::NicSend { from(peer) } else { to(peer) };
    Some((peer, others.len() == 1))
}

/// The congested path that a NIC looks like that is slow in one direction and has one host at the other end of it.
fn path_of_one_way(fault: &Fault, scenario: &Scenario) -> Option<Fault> {
    let (peer, _) = only_way(fault, scenario)?;
    Some(Fault { kind: FaultKind::NetworkCongestion, peer_host: Some(peer), severity: None, ..fault.clone() })
}

/// A rank that sends to one other only, which receives from nobody else: whose end of the wire is slow cannot be seen. In
/// trees every rank but the leaves has several.
fn other_rank(fault: &Fault, scenario: &Scenario) -> Option<u32> {
    let is_ring = scenario.algo == Algo::Ring || scenario.dp_mode != DpMode::AllReduce;
    if fault.kind != FaultKind::MemoryAlignment || !is_ring {
        return None;
    }
    let only = |ranks: BTreeSet<u32>| ranks.first().copied().filter(|_| ranks.len() == 1);
    let rank = only(fault.culprit_ranks(scenario).into_iter().collect())?;
    let peer = only(scenario.sends_to(rank))?;
    let senders = (0..scenario.world()).filter(|other| scenario.sends_to(*other).contains(&peer));
    (senders.count() == 1).then_some(peer)
}

/// The congested path that looks like a rank whose sends are slow: all that it sends goes to one rank, which receives
/// nothing else, and nothing else goes between the two hosts.
fn only_path(fault: &Fault, scenario: &Scenario) -> Option<Fault> {
    let (peer, host) = (scenario.host_of(other_rank(fault, scenario)?), fault.host);
    let on = |host: u32| host * scenario.ranks_per_host..(host + 1) * scenario.ranks_per_host;
    let links = |from: u32, to: u32| {
        on(from).flat_map(|rank| scenario.sends_to(rank)).filter(|rank| on(to).contains(rank)).count()
    };
    let (kind, peer_host) = (FaultKind::NetworkCongestion, Some(peer));
    (links(host, peer) + links(peer, host) == 1).then(|| Fault { kind, peer_host, rank: None, ..fault.clone() })
}

/// Whether a verdict is right, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Score {
    /// It is.
    pub correct: bool,
    /// One sentence.
    pub why: String,
}

impl Score {
    /// One word: a due case that is not there is missed, everything else that is not right is wrong.
    pub fn word(&self) -> &'static str {
        match self.correct {
            true => "RIGHT",
            false if self.why.starts_with("MISSED: ") => "MISSED",
            false => "WRONG",
        }
    }

    fn wrong(why: String) -> Score {
        Score { correct: false, why }
    }
}

/// Scores the verdict of a run: right words, and the most likely suspects are exactly the culprit.
///
/// The places are right when every culprit is among the suspects and no innocent is named with as much confidence as
/// the least sure culprit. For a fault of a host, its name or any of its ranks names it; for `background-traffic` both hosts must be named, or
/// the link between them.
pub fn score(truth: &Truth, finding: Option<&Finding>) -> Score {
    let of_itself = score_alone(truth, finding);
    let of_alike = truth.alike.as_ref().map(|alike| score_alone(alike, finding)).filter(|score| score.correct);
    if of_itself.correct { of_itself } else { of_alike.unwrap_or(of_itself) }
}

fn score_alone(truth: &Truth, finding: Option<&Finding>) -> Score {
    let fault = truth.fault.as_ref().filter(|fault| fault.kind.is_of_job());
    let (fault, finding) = match (fault, finding) {
        (None, None) => return Score { correct: true, why: "healthy, and no case was opened".to_owned() },
        (None, Some(finding)) => {
            return Score::wrong(format!("healthy, but a {} ({}) was reported", finding.what, finding.category));
        }
        (Some(fault), None) => return Score::wrong(format!("{} was not noticed", fault.kind)),
        (Some(fault), Some(finding)) => (fault, finding),
    };
    let expected = expected(fault.kind);
    if !expected.whats.contains(&finding.what) {
        return Score::wrong(format!("{}: expected {}, got {}", fault.kind, expected.whats[0], finding.what));
    }
    if !expected.categories.contains(&finding.category) {
        let words: Vec<&str> = expected.categories.iter().map(|category| category.as_str()).collect();
        return Score::wrong(format!("{}: expected {}, got {}", fault.kind, words.join(" or "), finding.category));
    }
    match places(truth, expected.level, finding) {
        Ok(()) => Score { correct: true, why: format!("{}: culprit, kind and category are right", fault.kind) },
        Err(why) => Score::wrong(format!("{}: {why}", fault.kind)),
    }
}

/// Which of the truth's culprits a place names: indexes into `truth.ranks` or `truth.hosts`.
pub(crate) fn culprits_named(truth: &Truth, level: FaultLevel, place: &Place) -> Vec<usize> {
    let host_index = |name: &str| truth.hosts.iter().position(|host| host == name);
    match (level, place) {
        (FaultLevel::Rank, Place::Rank { rank, .. }) => {
            truth.ranks.iter().position(|culprit| *culprit == rank.0).into_iter().collect()
        }
        (FaultLevel::Rank, _) => Vec::new(),
        (_, Place::Rank { rank, .. }) => {
            let per_host = truth.ranks.len() / truth.hosts.len().max(1);
            let position = truth.ranks.iter().position(|culprit| *culprit == rank.0);
            position.map(|position| position / per_host.max(1)).into_iter().collect()
        }
        (_, Place::Host { host }) => host_index(host).into_iter().collect(),
        (FaultLevel::HostPair, Place::Link { from, to }) => match (host_index(from), host_index(to)) {
            (Some(from), Some(to)) => vec![from, to],
            _ => Vec::new(),
        },
        (_, Place::Link { .. }) => Vec::new(),
    }
}

/// Whether the suspects are exactly the culprit; else why not.
pub(crate) fn places(truth: &Truth, level: FaultLevel, finding: &Finding) -> Result<(), String> {
    let Some(least) = least_sure(truth, level, finding) else {
        return Err(format!("suspects {} miss {}", describe(finding), describe_truth(truth, level)));
    };
    let innocent = finding.suspects.iter().find(|suspect| {
        // The other end of a wire is no innocent, but it may not be surer than the culprit.
        let needed = if is_other_end(truth, &suspect.place) { least + TIE } else { least };
        suspect.confidence >= needed && culprits_named(truth, level, &suspect.place).is_empty()
    });
    match innocent {
        Some(suspect) => {
            let who = describe_place(&suspect.place);
            Err(format!("innocent {who} is named as surely as {}", describe_truth(truth, level)))
        }
        None => Ok(()),
    }
}

/// With which confidence the least sure culprit is named; `None`: not all that must be are.
pub(crate) fn least_sure(truth: &Truth, level: FaultLevel, finding: &Finding) -> Option<f64> {
    let culprits = if level == FaultLevel::Rank { truth.ranks.len() } else { truth.hosts.len() };
    let mut best = vec![f64::NEG_INFINITY; culprits];
    for suspect in &finding.suspects {
        for culprit in culprits_named(truth, level, &suspect.place) {
            best[culprit] = best[culprit].max(suspect.confidence);
        }
    }
    // Of many hosts that fail together two are enough to see that it is not one.
    best.sort_by(|a, b| b.total_cmp(a));
    let enough = if level == FaultLevel::Hosts { best.len().min(2) } else { best.len() };
    let least = best.iter().take(enough).copied().fold(f64::INFINITY, f64::min);
    least.is_finite().then_some(least)
}

/// Whether a place is a host or a rank that nothing tells apart from the culprit.
pub(crate) fn is_other_end(truth: &Truth, place: &Place) -> bool {
    match place {
        Place::Host { host } => truth.either.iter().any(|end| **host == **end),
        Place::Rank { rank, .. } => truth.either_ranks.contains(&rank.0),
        Place::Link { .. } => false,
    }
}

fn describe_truth(truth: &Truth, level: FaultLevel) -> String {
    match level {
        FaultLevel::Rank => format!("rank {:?}", truth.ranks),
        _ => truth.hosts.join(" and "),
    }
}

fn describe(finding: &Finding) -> String {
    let places: Vec<String> = finding.suspects.iter().map(|suspect| describe_place(&suspect.place)).collect();
    format!("[{}]", places.join(", "))
}

fn describe_place(place: &Place) -> String {
    match place {
        Place::Rank { rank, .. } => format!("rank {rank}"),
        Place::Host { host } => host.to_string(),
        Place::Link { from, to } => format!("link {from} to {to}"),
    }
}

#[cfg(test)]
mod tests;
