//! The plan and the results as text and as JSON.
use super::case::CaseTold;
use super::groups::Members;
use super::run::Results;
use mycroft_diagnose::validate::{Check, Group, Judgement, LinkMeasure, LinkRow, Plan, SlowPlace, Work};
use mycroft_record::Rank;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

fn seconds(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64()
}

/// How long a plan usually takes where somebody stands out in each pass, until the last time.
fn again_ns(plan: &Plan, again_max: usize) -> u64 {
    plan.usual_ns().saturating_mul(again_max as u64 + 1)
}

/// What is said before anybody is held.
pub(super) fn announced(ranks: usize, plan: &Plan, again_max: usize, at_most: Duration) -> String {
    format!(
        "holding {ranks} ranks for {} passes: about {:.1} s, up to {:.1} s where somebody stands out and is tested again, {:.1} s at most",
        plan.passes.len(),
        seconds(plan.usual_ns()),
        seconds(again_ns(plan, again_max)),
        at_most.as_secs_f64()
    )
}

/// A plan.
#[derive(Serialize)]
pub(super) struct Planned {
    job: String,
    ranks: usize,
    hosts: usize,
    groups: Vec<PlannedGroup>,
    passes: Vec<PlannedPass>,
    expected_pause_s: f64,
    expected_pause_again_s: f64,
}

#[derive(Serialize)]
struct PlannedGroup {
    communicator: String,
    members: Vec<u32>,
}

#[derive(Serialize)]
struct PlannedPass {
    test: &'static str,
    ranks: Vec<u32>,
    pairs: Vec<[u32; 2]>,
    expected_s: f64,
}

/// A plan, to be shown.
pub(super) fn planned(job: &str, members: &Members, groups: &[Group], plan: &Plan, again_max: usize) -> Planned {
    let numbers = |ranks: &[Rank]| ranks.iter().map(|rank| rank.0).collect();
    let group =
        |group: &Group| PlannedGroup { communicator: format!("{:016x}", group.comm), members: numbers(&group.members) };
    let passes = plan.passes.iter().map(|pass| {
        let (test, ranks, pairs) = match &pass.work {
            Work::Alone { check, ranks } => (check.as_str(), numbers(ranks), Vec::new()),
            Work::Pairs(pairs) => {
                ("ways", Vec::new(), pairs.iter().map(|pair| [pair.one.rank.0, pair.other.rank.0]).collect())
            }
        };
        PlannedPass { test, ranks, pairs, expected_s: seconds(pass.usual_ns) }
    });
    Planned {
        job: job.to_owned(),
        ranks: members.count(),
        hosts: members.host_count(),
        groups: groups.iter().map(group).collect(),
        passes: passes.collect(),
        expected_pause_s: seconds(plan.usual_ns()),
        expected_pause_again_s: seconds(again_ns(plan, again_max)),
    }
}

impl Planned {
    /// As text.
    pub(super) fn text(&self) -> String {
        let mut text = format!("job {:?}: ranks {}, hosts {}; nobody is held\n", self.job, self.ranks, self.hosts);
        for group in &self.groups {
            let _ = writeln!(text, "communicator {}: ranks {}", group.communicator, list(&group.members));
        }
        for (number, pass) in self.passes.iter().enumerate() {
            let pairs: Vec<String> = pass.pairs.iter().map(|[one, other]| format!("{one}-{other}")).collect();
            let who = if pairs.is_empty() { format!("ranks {}", list(&pass.ranks)) } else { pairs.join(" ") };
            let _ = writeln!(text, "pass {number}: {:<9} {who}  ({:.2} s)", pass.test, pass.expected_s);
        }
        let _ = writeln!(
            text,
            "expected pause {:.1} s, up to {:.1} s where somebody stands out and is tested again",
            self.expected_pause_s, self.expected_pause_again_s
        );
        text
    }
}

fn list(ranks: &[u32]) -> String {
    ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

/// What a validation found.
#[derive(Serialize)]
pub(super) struct Told {
    job: String,
    ranks: usize,
    expected_pause_s: f64,
    paused_s: f64,
    checks: Vec<CheckTold>,
    links: Vec<LinkTold>,
    slow: Vec<SlowTold>,
    missing: Vec<String>,
    caveats: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    case: Option<CaseTold>,
}

#[derive(Serialize)]
struct CheckTold {
    rank: u32,
    host: String,
    check: &'static str,
    part: u32,
    fastest_ms: f64,
    median_ms: f64,
    ratio: Option<f64>,
    slow: bool,
}

#[derive(Serialize)]
struct LinkTold {
    from: u32,
    to: u32,
    from_host: String,
    to_host: String,
    gb_per_s: Option<f64>,
    gb_ratio: Option<f64>,
    latency_us: Option<f64>,
    latency_ratio: Option<f64>,
    slow: bool,
}

#[derive(Serialize)]
struct SlowTold {
    what: &'static str,
    ranks: Vec<u32>,
    hosts: Vec<String>,
    check: Option<&'static str>,
    ratio: f64,
}

impl Told {
    /// What was found.
    pub(super) fn of(
        job: &str,
        members: &Members,
        plan: &Plan,
        paused: Duration,
        bytes: u64,
        results: &Results,
        judgement: &Judgement,
    ) -> Told {
        let host = |rank: Rank| members.host(rank).to_owned();
        let check = |row: &mycroft_diagnose::validate::CheckRow| CheckTold {
            rank: row.result.rank.0,
            host: host(row.result.rank),
            check: row.result.check.as_str(),
            part: row.result.part,
            fastest_ms: row.result.times.fastest_ns as f64 / 1e6,
            median_ms: row.result.times.median_ns as f64 / 1e6,
            ratio: row.ratio,
            slow: row.is_slow,
        };
        let slow = judgement.slow.iter().map(|slow| {
            let (what, ranks, check) = match slow.place {
                SlowPlace::Alone(rank, check) => ("rank", vec![rank], Some(check.as_str())),
                SlowPlace::Ends(rank) => ("ways of rank", vec![rank], None),
                SlowPlace::Link(one, other) => ("way", vec![one, other], None),
            };
            let hosts = ranks.iter().map(|rank| host(*rank)).collect();
            SlowTold { what, ranks: ranks.iter().map(|rank| rank.0).collect(), hosts, check, ratio: slow.ratio }
        });
        Told {
            job: job.to_owned(),
            ranks: members.count(),
            expected_pause_s: seconds(plan.usual_ns()),
            paused_s: paused.as_secs_f64(),
            checks: judgement.checks.iter().map(check).collect(),
            links: links(&judgement.links, bytes, &host),
            slow: slow.collect(),
            missing: results.missing.iter().cloned().collect(),
            caveats: judgement.caveats.clone(),
            case: None,
        }
    }

    /// With what became of a case.
    pub(super) fn about(self, case: Option<CaseTold>) -> Told {
        Told { case, ..self }
    }

    /// Who is slow, in one sentence.
    pub(super) fn found(&self) -> String {
        let slow: Vec<String> = self.slow.iter().map(SlowTold::text).collect();
        if slow.is_empty() { "nobody is slower than its peers".to_owned() } else { slow.join("; ") }
    }

    /// As text.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        self.checks_text(&mut text);
        if !self.links.is_empty() {
            let _ = writeln!(text, "{:<24} {:>12} {:>7} {:>12} {:>7}", "way", "GB/s", "ratio", "us", "ratio");
        }
        for link in &self.links {
            let way = format!("{} {} -> {} {}", link.from, link.from_host, link.to, link.to_host);
            let number = |value: Option<f64>, digits: usize| value.map_or("-".to_owned(), |v| format!("{v:.digits$}"));
            let _ = writeln!(
                text,
                "{way:<24} {:>12} {:>7} {:>12} {:>7}{}",
                number(link.gb_per_s, 3),
                number(link.gb_ratio, 2),
                number(link.latency_us, 0),
                number(link.latency_ratio, 2),
                if link.slow { "  slow" } else { "" }
            );
        }
        self.slow.iter().for_each(|slow| {
            let _ = writeln!(text, "slow: {}", slow.text());
        });
        if self.slow.is_empty() {
            let _ = writeln!(text, "nobody is slower than its peers");
        }
        self.missing.iter().for_each(|missing| {
            let _ = writeln!(text, "not measured: {missing}");
        });
        self.caveats.iter().for_each(|caveat| {
            let _ = writeln!(text, "not told apart: {caveat}");
        });
        text.extend(self.case.iter().map(CaseTold::text));
        let _ = writeln!(text, "the job paused for {:.2} s (expected {:.2} s)", self.paused_s, self.expected_pause_s);
        text
    }

    /// A table of each check: ranks down, parts across.
    fn checks_text(&self, text: &mut String) {
        let kinds: BTreeSet<&str> = self.checks.iter().map(|row| row.check).collect();
        for kind in Check::ALL.map(Check::as_str).into_iter().filter(|kind| kinds.contains(kind)) {
            let mut rows: BTreeMap<(u32, &str), Vec<&CheckTold>> = BTreeMap::new();
            for row in self.checks.iter().filter(|row| row.check == kind) {
                rows.entry((row.rank, &row.host)).or_default().push(row);
            }
            let parts = if kind == "host" { "4 MiB copied, then late by, ms (ratio)" } else { "each size, ms (ratio)" };
            let _ = writeln!(text, "{:<24} {parts}", kind);
            for ((rank, host), parts) in rows {
                let ratio = |row: &CheckTold| row.ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
                let cells: Vec<String> =
                    parts.iter().map(|row| format!("{:>9.3} ({})", row.fastest_ms, ratio(row))).collect();
                let slow = if parts.iter().any(|row| row.slow) { "  slow" } else { "" };
                let _ = writeln!(text, "{:<24} {}{slow}", format!("{rank} {host}"), cells.join(" "));
            }
        }
    }
}

impl SlowTold {
    /// `rank 3 on host1: device, 1.21 times its peers`.
    fn text(&self) -> String {
        let who: Vec<String> =
            self.ranks.iter().zip(&self.hosts).map(|(rank, host)| format!("rank {rank} on {host}")).collect();
        let what = match (self.what, self.check) {
            ("rank", Some(check)) => format!("{}: {check}", who.join(" and ")),
            ("way", _) => format!("the way between {}", who.join(" and ")),
            _ => format!("all ways of {}", who.join(" and ")),
        };
        format!("{what}, {:.2} times its peers", self.ratio)
    }
}

/// Directions of ways, bandwidth and latency of each together.
fn links(rows: &[LinkRow], bytes: u64, host: &impl Fn(Rank) -> String) -> Vec<LinkTold> {
    let mut ways: BTreeMap<(Rank, Rank), Vec<&LinkRow>> = BTreeMap::new();
    for row in rows {
        ways.entry((row.result.from, row.result.to)).or_default().push(row);
    }
    let told = |((from, to), of): ((Rank, Rank), Vec<&LinkRow>)| {
        let row = |measure| of.iter().find(|row| row.result.measure == measure);
        let (large, small) = (row(LinkMeasure::Bandwidth), row(LinkMeasure::Latency));
        LinkTold {
            from: from.0,
            to: to.0,
            from_host: host(from),
            to_host: host(to),
            gb_per_s: large.map(|row| bytes as f64 / row.result.times.fastest_ns.max(1) as f64),
            gb_ratio: large.and_then(|row| row.ratio),
            latency_us: small.map(|row| row.result.times.fastest_ns as f64 / 1e3),
            latency_ratio: small.and_then(|row| row.ratio),
            slow: of.iter().any(|row| row.is_slow),
        }
    };
    ways.into_iter().map(told).collect()
}
