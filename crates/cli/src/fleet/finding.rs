//! What is found of hosts, of a job or of the server: one line, and what mends it.
use crate::check::Grade;
use serde::Serialize;
use std::collections::BTreeMap;

/// One thing that is found.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Finding {
    pub(super) grade: Grade,
    /// What was looked at: a stable word.
    pub(super) check: &'static str,
    /// Where; empty: on the server, or of a job.
    pub(super) hosts: Vec<String>,
    /// Of which job, where it is of one.
    pub(super) job: Option<String>,
    pub(super) found: String,
    /// The command or setting that mends it, and where.
    pub(super) fix: String,
}

impl Finding {
    /// Of the server itself.
    pub(super) fn new(grade: Grade, check: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Finding {
        Finding { grade, check, hosts: Vec::new(), job: None, found: found.into(), fix: fix.into() }
    }

    /// The same of a host.
    pub(super) fn on(self, host: &str) -> Finding {
        Finding { hosts: vec![host.to_owned()], ..self }
    }

    /// The same of a job.
    pub(super) fn of_job(self, job: &str) -> Finding {
        Finding { job: Some(job.to_owned()), ..self }
    }
}

/// The worst first; what is alike on several hosts once, that of more hosts before that of fewer.
pub(super) fn together(findings: Vec<Finding>) -> Vec<Finding> {
    type Said = (Option<String>, &'static str, String, String, Grade);
    let mut alike: BTreeMap<Said, Vec<String>> = BTreeMap::new();
    for Finding { grade, check, hosts, job, found, fix } in findings {
        alike.entry((job, check, found, fix, grade)).or_default().extend(hosts);
    }
    let mut all: Vec<Finding> = alike
        .into_iter()
        .map(|((job, check, found, fix, grade), mut hosts)| {
            hosts.sort();
            hosts.dedup();
            Finding { grade, check, hosts, job, found, fix }
        })
        .collect();
    // What is of the server concerns all hosts.
    let weight = |finding: &Finding| if finding.hosts.is_empty() { usize::MAX } else { finding.hosts.len() };
    all.sort_by(|a, b| (b.grade, weight(b), &a.hosts).cmp(&(a.grade, weight(a), &b.hosts)));
    all
}
