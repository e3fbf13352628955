//! Cases back from JSON: rows that an earlier run, also of an older version, left in the store.
use super::{
    BlastJson, CaseDumpJson, CaseJson, EvidenceJson, FlowJson, NoteJson, OpJson, ReasonJson, SaidJson, SuspectJson,
    TimeJson, ValidationJson,
};
use crate::case::{BookState, BookedCase, Capture, Validation};
use mycroft_diagnose::stacks::Outcome;
use mycroft_diagnose::validate::Outcome as Tested;
use mycroft_diagnose::{BlastEntry, Case, CaseId, CaseState, Evidence, Gain, Reason, Said};
use mycroft_record::{
    Category, ChannelId, CommId, CommRank, Direction, Finding, HostName, HostTime, JobName, OpClass, OpId, OpSeq,
    Place, Rank, Suspect, What,
};

impl CaseJson {
    /// The case that this is the JSON form of; `None` where it says something that this version has no word for.
    /// `BlastEntry::kind` is not told in JSON and unknown afterwards.
    pub(crate) fn booked(self) -> Option<BookedCase> {
        let state = BookState::from_text(&self.state)?;
        let finding = Finding {
            what: What::from_text(&self.what)?,
            category: Category::from_text(&self.category)?,
            suspects: suspects(&self.suspects)?,
            since: time(&self.since),
            detected_at: time(&self.detected_at),
            diagnosed_at: time(&self.diagnosed_at),
        };
        let case = Case {
            id: CaseId(self.id),
            state: if state == BookState::Open { CaseState::Open } else { CaseState::Closed },
            finding,
            group: optional(self.group.as_deref(), comm)?,
            op: optional(self.op.as_ref(), op)?,
            because: reasons(self.because)?,
            blast_radius: self.blast_radius.into_iter().map(blast).collect::<Option<_>>()?,
            do_next: self.do_next,
            opened_at: time(&self.opened_at),
            updated_at: time(&self.updated_at),
            closed_at: time(&self.closed_at),
            closed_because: self.closed_because,
            revisions: u32::try_from(self.revisions).unwrap_or(u32::MAX),
            said_before: self.said_before.iter().map(said).collect::<Option<_>>()?,
        };
        let captures = self.dumps.into_iter().map(capture).collect::<Option<_>>()?;
        let notes = self.notes.into_iter().map(NoteJson::told).collect();
        let validation = optional(self.validation.as_ref(), ValidationJson::told)?;
        Some(BookedCase { number: self.id, job: JobName::from(self.job), state, case, captures, validation, notes })
    }
}

impl ValidationJson {
    /// As it was told; `None` where it says something that this version has no word for.
    pub(crate) fn told(&self) -> Option<Validation> {
        let outcomes = [Tested::Confirmed, Tested::Cleared, Tested::Other, Tested::Untested];
        Some(Validation {
            at: self.at.as_ref().map_or(HostTime::NONE, |at| HostTime(at.ns)),
            outcome: outcomes.into_iter().find(|outcome| outcome.as_str() == self.outcome)?,
            category: Category::from_text(&self.category)?,
            suspects: self.suspects.iter().map(SuspectJson::told).collect::<Option<_>>()?,
            text: self.text.clone(),
            who: self.who.clone(),
            revisions: u32::try_from(self.revisions).unwrap_or(u32::MAX),
        })
    }
}

impl SuspectJson {
    /// The suspect that this is the JSON form of; `None` where its place is of a kind that this version does not know.
    pub(crate) fn told(&self) -> Option<Suspect> {
        let host = || HostName::from(self.host.as_deref().unwrap_or_default());
        let place = match self.kind.as_str() {
            "rank" => Place::Rank { rank: self.rank.map_or(Rank::UNKNOWN, Rank), host: host() },
            "host" => Place::Host { host: host() },
            "link" => {
                let link = self.link.as_ref()?;
                Place::Link { from: link.from.as_str().into(), to: link.to.as_str().into() }
            }
            _ => return None,
        };
        Some(Suspect { place, confidence: self.confidence })
    }
}

/// Reads what may be absent; `None`: it is there and cannot be read.
fn optional<T, U>(told: Option<T>, read: impl Fn(T) -> Option<U>) -> Option<Option<U>> {
    match told {
        None => Some(None),
        Some(told) => read(told).map(Some),
    }
}

fn time(told: &Option<TimeJson>) -> HostTime {
    told.as_ref().map_or(HostTime::NONE, |time| HostTime(time.ns))
}

fn comm(hex: &str) -> Option<CommId> {
    u64::from_str_radix(hex, 16).ok().map(CommId)
}

fn op(told: &OpJson) -> Option<OpId> {
    let peer = CommRank(told.peer.unwrap_or_default());
    Some(OpId { comm: comm(&told.comm)?, class: OpClass::from_text(&told.class), peer, seq: OpSeq(told.seq) })
}

fn flow(told: &FlowJson) -> Option<(ChannelId, CommRank, Direction)> {
    let direction = Direction::from_text(&told.direction);
    (direction.as_str() == told.direction).then_some((ChannelId(told.channel), CommRank(told.peer), direction))
}

fn suspects(told: &[SuspectJson]) -> Option<Vec<Suspect>> {
    told.iter().map(SuspectJson::told).collect()
}

fn said(told: &SaidJson) -> Option<Said> {
    let (what, category) = (What::from_text(&told.what)?, Category::from_text(&told.category)?);
    Some(Said { until: time(&told.until), what, category, suspects: suspects(&told.suspects)? })
}

fn reasons(told: Vec<ReasonJson>) -> Option<Vec<Reason>> {
    let reason = |told: ReasonJson| {
        let evidence = told.evidence.iter().map(evidence).collect::<Option<_>>()?;
        Some(Reason { rule: told.rule.into(), text: told.text, evidence })
    };
    told.into_iter().map(reason).collect()
}

fn evidence(told: &EvidenceJson) -> Option<Evidence> {
    let (op, flow) = (optional(told.op.as_ref(), op)?, optional(told.flow.as_ref(), flow)?);
    Some(Evidence { rank: told.rank.map(Rank), op, flow, at: time(&told.at) })
}

fn blast(told: BlastJson) -> Option<BlastEntry> {
    let ranks = |numbers: Vec<u32>| numbers.into_iter().map(Rank).collect();
    let op = optional(told.op.as_ref(), op)?;
    Some(BlastEntry { waiting: ranks(told.waiting), waits_for: ranks(told.waits_for), op, kind: None, text: told.text })
}

fn capture(told: CaseDumpJson) -> Option<Capture> {
    let gain = Gain {
        what: outcome(&told.what)?,
        category: optional(told.category.as_deref(), Category::from_text)?,
        suspects: suspects(&told.suspects)?,
        because: reasons(told.because)?,
    };
    Some(Capture { number: told.id, taken_at: time(&told.taken_at), gain })
}

fn outcome(word: &str) -> Option<Outcome> {
    let faults = What::ALL.iter().map(|what| Outcome::Fault(*what));
    faults.chain([Outcome::Healthy, Outcome::Unknown]).find(|outcome| outcome.as_str() == word)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row as version 0.1 wrote it into `meta.sqlite`, with two captures, one of which brought nothing.
    const ROW: &str = include_str!("../tests/case_row_v0_1.json");

    #[test]
    fn a_row_of_an_older_version_is_read_and_written_as_it_was() {
        let row: CaseJson = serde_json::from_str(ROW).expect("a case");
        let booked = row.clone().booked().expect("every word of it is known");
        assert_eq!((booked.number, &*booked.job, booked.state), (7, "llama-70b", BookState::Stale));
        assert_eq!(booked.case.finding.what, What::Hang);
        assert_eq!(booked.captures.len(), 2);
        assert_eq!(CaseJson::of(&booked), row);
        // It has fields more than that version wrote, which say nothing of it.
        let written = serde_json::to_string(&CaseJson::of(&booked)).expect("it has a JSON form");
        assert_eq!(serde_json::from_str::<CaseJson>(&written).expect("a case"), row);
        assert_eq!((row.revisions, row.revised_at, row.said_before.len()), (0, None, 0));
    }

    #[test]
    fn a_row_from_before_captures_is_read() {
        let mut value: serde_json::Value = serde_json::from_str(ROW).expect("a case");
        value.as_object_mut().expect("an object").remove("dumps");
        let row: CaseJson = serde_json::from_value(value).expect("captures may be missing");
        assert!(row.booked().expect("known").captures.is_empty());
    }

    #[test]
    fn a_row_with_words_of_another_version_is_refused() {
        for (known, other) in
            [("\"hang\"", "\"wobble\""), ("\"stale\"", "\"asleep\""), ("\"kind\":\"link\"", "\"kind\":\"rack\"")]
        {
            let row: CaseJson = serde_json::from_str(&ROW.replacen(known, other, 1)).expect("a shape that is known");
            assert!(row.booked().is_none(), "{other}");
        }
    }
}
