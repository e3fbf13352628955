//! What the right answer to each fault is, and whether a verdict is it.
use crate::fault::{Fault, FaultKind, FaultLevel};
use mycroft_record::{Category, Finding, Place, What};

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

/// The right verdicts for `kind` (Mycroft section 7.1, categories after its Table 4).
///
/// A NIC that is down or slow neither sends nor receives well, so both network words are right; which one is seen
/// first depends on which operation was in flight. A killed process also hangs its peers, but the process is known to
/// be gone, so only `crash` is right.
pub fn expected(kind: FaultKind) -> Expectation {
    let (whats, categories): (&[What], &[Category]) = match kind {
        FaultKind::NicDown => (&[What::Hang], &[Category::NetworkSend, Category::NetworkReceive]),
        FaultKind::NicBandwidth => (&[What::Slowdown], &[Category::NetworkSend, Category::NetworkReceive]),
        FaultKind::PcieDowngrade => (&[What::Slowdown], &[Category::GpuCopy]),
        FaultKind::GpuPower | FaultKind::BackgroundCompute => (&[What::Slowdown], &[Category::Gpu]),
        FaultKind::BackgroundTraffic => (&[What::Slowdown], &[Category::NetworkCongestion]),
        FaultKind::ProxyDelay => (&[What::Slowdown], &[Category::HostThread]),
        FaultKind::GpuHang => (&[What::Hang], &[Category::Gpu]),
        FaultKind::RankCrash => (&[What::Crash], &[Category::ProcessExit]),
        FaultKind::RankStuck => (&[What::Hang], &[Category::NotStarted]),
    };
    Expectation { whats, categories, level: kind.level() }
}

/// What was really done: known to the testbed and to tests, never to the diagnosis (design invariant 2).
#[derive(Clone, PartialEq, Debug)]
pub struct Truth {
    /// The fault; `None` in a healthy run.
    pub fault: Option<Fault>,
    /// Names of the culprit hosts, in index order.
    pub hosts: Vec<String>,
    /// Global ranks of the culprit: the one rank, or all ranks of the culprit hosts.
    pub ranks: Vec<u32>,
    /// When the fault was injected, milliseconds since the Unix epoch by the launcher's clock; 0 before.
    pub at_ms: u64,
}

impl Truth {
    /// The truth of a run without a fault.
    pub fn healthy() -> Truth {
        Truth { fault: None, hosts: Vec::new(), ranks: Vec::new(), at_ms: 0 }
    }

    /// The truth of `fault` in a cluster of `hosts` with `ranks_per_host` ranks; `host_name` names a host by index.
    pub fn of(fault: &Fault, hosts: u32, ranks_per_host: u32, host_name: impl Fn(u32) -> String, at_ms: u64) -> Truth {
        let culprits = fault.culprit_hosts(hosts);
        let ranks = match fault.culprit_rank(ranks_per_host) {
            Some(rank) => vec![rank],
            None => culprits.iter().flat_map(|host| host * ranks_per_host..(host + 1) * ranks_per_host).collect(),
        };
        let names = culprits.into_iter().map(host_name).collect();
        Truth { fault: Some(fault.clone()), hosts: names, ranks, at_ms }
    }
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
    let (fault, finding) = match (&truth.fault, finding) {
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
fn culprits_named(truth: &Truth, level: FaultLevel, place: &Place) -> Vec<usize> {
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
        (FaultLevel::Host, Place::Link { .. }) => Vec::new(),
    }
}

fn places(truth: &Truth, level: FaultLevel, finding: &Finding) -> Result<(), String> {
    let culprits = if level == FaultLevel::Rank { truth.ranks.len() } else { truth.hosts.len() };
    let mut best = vec![f64::NEG_INFINITY; culprits];
    let mut innocent: Option<(f64, &Place)> = None;
    for suspect in &finding.suspects {
        let named = culprits_named(truth, level, &suspect.place);
        for &culprit in &named {
            best[culprit] = best[culprit].max(suspect.confidence);
        }
        if named.is_empty() && innocent.is_none_or(|(confidence, _)| suspect.confidence > confidence) {
            innocent = Some((suspect.confidence, &suspect.place));
        }
    }
    let least = best.iter().copied().fold(f64::INFINITY, f64::min);
    if !least.is_finite() {
        return Err(format!("suspects {} miss {}", describe(finding), describe_truth(truth, level)));
    }
    match innocent {
        Some((confidence, place)) if confidence >= least => {
            Err(format!("innocent {} is named as surely as {}", describe_place(place), describe_truth(truth, level)))
        }
        _ => Ok(()),
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
mod tests {
    use super::*;
    use mycroft_record::time::HostTime;
    use mycroft_record::{Rank, Suspect};

    fn truth(text: &str) -> Truth {
        Truth::of(&text.parse().unwrap(), 4, 4, |host| format!("host{host}"), 1)
    }

    fn rank(rank: u32, confidence: f64) -> Suspect {
        Suspect { place: Place::Rank { rank: Rank(rank), host: "".into() }, confidence }
    }

    fn host(host: &str, confidence: f64) -> Suspect {
        Suspect { place: Place::Host { host: host.into() }, confidence }
    }

    fn finding(what: What, category: Category, suspects: Vec<Suspect>) -> Finding {
        Finding { what, category, suspects, since: HostTime(1), detected_at: HostTime(2), diagnosed_at: HostTime(3) }
    }

    #[test]
    fn a_rank_fault_needs_its_rank() {
        let truth = truth("gpu-power@host1:rank6");
        let right = |suspects| score(&truth, Some(&finding(What::Slowdown, Category::Gpu, suspects))).correct;
        assert!(right(vec![rank(6, 0.9)]));
        assert!(right(vec![rank(6, 0.9), rank(7, 0.2)]));
        assert!(!right(vec![rank(6, 0.9), rank(7, 0.9)]));
        assert!(!right(vec![rank(7, 0.9), rank(6, 0.5)]));
        assert!(!right(vec![host("host1", 0.9)]));
        assert!(!right(vec![]));
    }

    #[test]
    fn words_must_be_right() {
        let truth = truth("gpu-hang@host0");
        assert!(score(&truth, Some(&finding(What::Hang, Category::Gpu, vec![rank(0, 1.0)]))).correct);
        assert!(!score(&truth, Some(&finding(What::Slowdown, Category::Gpu, vec![rank(0, 1.0)]))).correct);
        let wrong = score(&truth, Some(&finding(What::Hang, Category::Peer, vec![rank(0, 1.0)])));
        assert!(!wrong.correct);
        assert!(wrong.why.contains("expected gpu, got peer"), "{}", wrong.why);
    }

    #[test]
    fn a_host_fault_takes_the_host_or_ranks_of_it() {
        let truth = truth("nic-down@host2");
        let right = |suspects| score(&truth, Some(&finding(What::Hang, Category::NetworkSend, suspects))).correct;
        assert!(right(vec![host("host2", 0.8)]));
        assert!(right(vec![rank(8, 0.8), rank(11, 0.8)]));
        assert!(!right(vec![rank(8, 0.8), rank(12, 0.8)]));
        assert!(!right(vec![host("host1", 0.8)]));
    }

    #[test]
    fn shared_nics_need_both_hosts() {
        let truth = truth("background-traffic@host0+host2");
        let right =
            |suspects| score(&truth, Some(&finding(What::Slowdown, Category::NetworkCongestion, suspects))).correct;
        assert!(right(vec![host("host0", 0.8), host("host2", 0.7)]));
        assert!(right(vec![rank(1, 0.8), rank(9, 0.7)]));
        assert!(!right(vec![host("host0", 0.8)]));
        assert!(!right(vec![host("host0", 0.8), host("host2", 0.7), host("host1", 0.75)]));
        let link =
            |from: &str, to: &str| Suspect { place: Place::Link { from: from.into(), to: to.into() }, confidence: 0.9 };
        assert!(right(vec![link("host2", "host0")]));
        assert!(!right(vec![link("host2", "host1")]));
    }

    #[test]
    fn silence_is_right_only_when_healthy() {
        assert!(score(&Truth::healthy(), None).correct);
        let case = finding(What::Hang, Category::Gpu, vec![rank(0, 1.0)]);
        assert!(!score(&Truth::healthy(), Some(&case)).correct);
        assert!(!score(&truth("rank-crash@host0"), None).correct);
    }

    #[test]
    fn every_kind_has_an_expectation() {
        for kind in FaultKind::ALL {
            let expectation = expected(kind);
            assert_eq!(kind.stops_job(), expectation.whats[0] != What::Slowdown, "{kind}");
            assert!(!expectation.categories.is_empty());
        }
    }
}
