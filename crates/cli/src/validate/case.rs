//! What a validation does to a case of a server.
use super::groups::Members;
use anyhow::{Context, Result, bail};
use mycroft_diagnose::validate::{Judgement, Weighed, weigh};
use mycroft_record::{Category, Finding, HostName, HostTime, Place, Rank, Suspect, What};
use mycroft_serve::api::{CaseJson, LinkJson, SuspectJson, ValidationJson};
use serde::Serialize;

/// A case, as far as a test can say something about it.
pub(super) struct Tested {
    id: u64,
    finding: Finding,
}

/// What became of a case.
#[derive(Serialize)]
pub(super) struct CaseTold {
    id: u64,
    outcome: &'static str,
    category: &'static str,
    suspects: Vec<SuspectJson>,
}

impl Tested {
    /// Of a server's case of this job.
    ///
    /// # Errors
    /// It is of another job, of a kind that a test says nothing about, or names what this version does not know.
    pub(super) fn of(case: &CaseJson, job: &str) -> Result<Tested> {
        if case.job != job {
            bail!("case {} is of job {:?}, not of {job:?}", case.id, case.job);
        }
        if What::from_text(&case.what) != Some(What::Slowdown) {
            bail!("case {} is a {}: only a slowdown is tested, a job that stands cannot be held", case.id, case.what);
        }
        let category = Category::from_text(&case.category).context("a category that this version does not know")?;
        let suspect = |json: &SuspectJson| {
            let host = |name: &Option<String>| HostName::from(name.as_deref().unwrap_or_default());
            let place = match (json.rank, &json.link) {
                (_, Some(LinkJson { from, to })) => {
                    Place::Link { from: HostName::from(from.as_str()), to: HostName::from(to.as_str()) }
                }
                (Some(rank), None) => Place::Rank { rank: Rank(rank), host: host(&json.host) },
                (None, None) => Place::Host { host: host(&json.host) },
            };
            Suspect { place, confidence: json.confidence }
        };
        let (since, detected_at, diagnosed_at) = (HostTime::NONE, HostTime::NONE, HostTime::NONE);
        let suspects = case.suspects.iter().map(suspect).collect();
        let finding = Finding { what: What::Slowdown, category, suspects, since, detected_at, diagnosed_at };
        Ok(Tested { id: case.id, finding })
    }

    /// The case after this judgement.
    pub(super) fn told(&self, judgement: &Judgement, members: &Members) -> CaseTold {
        let hosts = members.known().into_iter().map(|rank| (rank, HostName::from(members.host(rank)))).collect();
        let Weighed { outcome, category, suspects } = weigh(&self.finding, judgement, &hosts);
        let suspects = suspects.iter().map(suspect_json).collect();
        CaseTold { id: self.id, outcome: outcome.as_str(), category: category.as_str(), suspects }
    }
}

fn suspect_json(suspect: &Suspect) -> SuspectJson {
    let (kind, rank, host, link) = match &suspect.place {
        Place::Rank { rank, host } => ("rank", Some(rank.0), Some(host), None),
        Place::Host { host } => ("host", None, Some(host), None),
        Place::Link { from, to } => ("link", None, None, Some(LinkJson { from: from.to_string(), to: to.to_string() })),
    };
    let host = host.filter(|host| !host.is_empty()).map(|host| host.to_string());
    SuspectJson { kind: kind.to_owned(), rank, host, link, confidence: suspect.confidence }
}

impl CaseTold {
    /// Its number.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// As the server takes it.
    pub(super) fn validation(&self, text: &str, who: &str) -> ValidationJson {
        ValidationJson {
            outcome: self.outcome.to_owned(),
            category: self.category.to_owned(),
            suspects: self.suspects.clone(),
            text: text.to_owned(),
            who: who.to_owned(),
            at: None,
            revisions: 0,
        }
    }

    /// In one line.
    pub(super) fn text(&self) -> String {
        let suspects: Vec<String> = self.suspects.iter().map(crate::told::suspect).collect();
        format!("case {}: {}, {}: {}\n", self.id, self.outcome, self.category, suspects.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(what: &str, category: &str) -> CaseJson {
        let text = format!(
            r#"{{"id": 7, "job": "llama", "state": "open", "what": "{what}", "category": "{category}", "settled": true,
            "since": null, "detected_at": null, "diagnosed_at": null, "opened_at": null, "updated_at": null,
            "closed_at": null, "closed_because": "", "revisions": 0, "revised_at": null, "said_before": [],
            "suspects": [{{"kind": "rank", "rank": 3, "host": "host1", "link": null, "confidence": 0.5}},
                {{"kind": "link", "rank": null, "host": null, "link": {{"from": "a", "to": "b"}}, "confidence": 0.25}},
                {{"kind": "host", "rank": null, "host": "host2", "link": null, "confidence": 0.125}}],
            "group": null, "op": null, "because": [], "blast_radius": [], "do_next": [], "dumps": []}}"#
        );
        serde_json::from_str(&text).expect("a case")
    }

    #[test]
    fn a_slowdown_s_suspects_are_taken_as_they_are() {
        let case = case("slowdown", "gpu");
        let tested = Tested::of(&case, "llama").expect("may be tested");
        assert_eq!(tested.finding.category, Category::Gpu);
        let back: Vec<SuspectJson> = tested.finding.suspects.iter().map(suspect_json).collect();
        assert_eq!(back, case.suspects);
    }

    #[test]
    fn another_job_s_case_and_one_that_stands_are_not_tested() {
        for (case, job) in
            [(case("slowdown", "gpu"), "other"), (case("hang", "gpu"), "llama"), (case("slowdown", "new"), "llama")]
        {
            assert!(Tested::of(&case, job).is_err());
        }
    }
}
