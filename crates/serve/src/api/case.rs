//! A case as JSON.
use super::{CaseDumpJson, NoteJson, TimeJson, rank_number, rank_numbers};
use crate::case::{BookedCase, Capture, Validation};
use mycroft_diagnose::{BlastEntry, Evidence, Reason, Said};
use mycroft_record::{OpId, Place, Suspect};
use serde::{Deserialize, Serialize};

/// One fault from its first sign to its end: the unit of paging, of `GET /api/v1/cases/ID` and of alerts.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CaseJson {
    /// Number of the case, unique within this server for ever.
    pub id: u64,
    /// The job.
    pub job: String,
    /// `open`, `closed` (recovered or ended), `withdrawn` (one pause that went away by itself) or `stale` (nobody
    /// watches it any more: the server restarted, the engine failed, or the job fell silent).
    pub state: String,
    /// `hang`, `slowdown`, `desync`, `deadlock` or `crash`.
    pub what: String,
    /// The kind of fault: `record::Category`'s words.
    pub category: String,
    /// Suspect and category are settled: `diagnosed_at` is known.
    pub settled: bool,
    /// When the fault began (clock of the host that shows it).
    pub since: Option<TimeJson>,
    /// When the case was opened.
    pub detected_at: Option<TimeJson>,
    /// When suspect and category were settled; null while they are not.
    pub diagnosed_at: Option<TimeJson>,
    /// When the case was opened, server clock.
    pub opened_at: Option<TimeJson>,
    /// When anything of it changed last, server clock.
    pub updated_at: Option<TimeJson>,
    /// When it was closed; null while open.
    pub closed_at: Option<TimeJson>,
    /// Why it was closed; empty while open.
    pub closed_because: String,
    /// How often it said something else after it had settled.
    #[serde(default)]
    pub revisions: u64,
    /// When it was revised last; null: never.
    #[serde(default)]
    pub revised_at: Option<TimeJson>,
    /// What it said before each revision, oldest first; the newest eight.
    #[serde(default)]
    pub said_before: Vec<SaidJson>,
    /// Most likely first.
    pub suspects: Vec<SuspectJson>,
    /// Communicator in which it shows, 16 hex digits.
    pub group: Option<String>,
    /// Operation in which it shows.
    pub op: Option<OpJson>,
    /// The rules that fired.
    pub because: Vec<ReasonJson>,
    /// Who waits for whom.
    pub blast_radius: Vec<BlastJson>,
    /// What to do, most useful first.
    pub do_next: Vec<String>,
    /// Captures (stacks, Flight Recorder dumps) that were taken for it; their reasons are in `because`, too.
    #[serde(default)]
    pub dumps: Vec<CaseDumpJson>,
    /// The last test of its suspects in the held job; absent: none. What it said is in `suspects`, `category` and `because`, unless
    /// the case was revised since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<ValidationJson>,
    /// What people said of it, oldest first; absent: nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<NoteJson>,
}

/// The body of `POST /api/v1/cases/ID/validation`, and part of a case since.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ValidationJson {
    /// What became of the first suspect: `confirmed`, `cleared`, `other` (somebody else is slow) or `untested`.
    pub outcome: String,
    /// What kind of fault it is since.
    pub category: String,
    /// Whom the case names since, most likely first.
    pub suspects: Vec<SuspectJson>,
    /// What was measured, one sentence.
    pub text: String,
    /// Who tested.
    pub who: String,
    /// When it was told, server clock; what a client says is not read.
    #[serde(default)]
    pub at: Option<TimeJson>,
    /// Revisions of the case when it was tested.
    #[serde(default)]
    pub revisions: u64,
}

/// What a settled case said until it was revised.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SaidJson {
    /// When it was revised, server clock.
    pub until: Option<TimeJson>,
    /// What it said was wrong.
    pub what: String,
    /// The kind of fault that it gave.
    pub category: String,
    /// Whom it named, most likely first.
    pub suspects: Vec<SuspectJson>,
}

/// `GET /api/v1/cases`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CasesJson {
    /// Newest first.
    pub cases: Vec<CaseJson>,
    /// Cases that match but were cut off by `limit`.
    pub more: u64,
}

/// Who or what is blamed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SuspectJson {
    /// `rank`, `host` or `link`: which of the following fields says it.
    pub kind: String,
    /// Global rank, for `rank`.
    pub rank: Option<u32>,
    /// Host, for `rank` (where known) and `host`.
    pub host: Option<String>,
    /// The two ends, for `link`.
    pub link: Option<LinkJson>,
    /// 0 to 1.
    pub confidence: f64,
}

/// A network path between two hosts.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkJson {
    /// The host that sends.
    pub from: String,
    /// The host that receives.
    pub to: String,
}

/// A rule that fired, with the numbers it saw.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReasonJson {
    /// Stable name.
    pub rule: String,
    /// One sentence with the numbers.
    pub text: String,
    /// The records that show it.
    pub evidence: Vec<EvidenceJson>,
}

/// Names the record that shows what a reason says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EvidenceJson {
    /// Whose record.
    pub rank: Option<u32>,
    /// Operation.
    pub op: Option<OpJson>,
    /// Flow.
    pub flow: Option<FlowJson>,
    /// Time in the record, clock of that rank's host.
    pub at: Option<TimeJson>,
}

/// An operation: equal on all ranks for a collective.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct OpJson {
    /// Communicator, 16 hex digits (NCCL's hash).
    pub comm: String,
    /// `collective`, `send` or `recv`: which counter `seq` belongs to.
    pub class: String,
    /// Peer of a send or receive, rank inside the communicator; null for collectives.
    pub peer: Option<u32>,
    /// Order number from 0.
    pub seq: u64,
}

/// One direction of one connection on one channel.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FlowJson {
    /// NCCL channel.
    pub channel: u8,
    /// Peer, rank inside the communicator.
    pub peer: u32,
    /// `send` or `recv`.
    pub direction: String,
}

/// One arrow of the blast radius.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BlastJson {
    /// The ranks that wait.
    pub waiting: Vec<u32>,
    /// The ranks they wait for.
    pub waits_for: Vec<u32>,
    /// The operation they wait in.
    pub op: Option<OpJson>,
    /// One phrase for people.
    pub text: String,
}

impl ValidationJson {
    pub(crate) fn of(validation: &Validation) -> ValidationJson {
        ValidationJson {
            outcome: validation.outcome.as_str().to_owned(),
            category: validation.category.as_str().to_owned(),
            suspects: validation.suspects.iter().map(SuspectJson::of).collect(),
            text: validation.text.clone(),
            who: validation.who.clone(),
            at: TimeJson::of(validation.at),
            revisions: u64::from(validation.revisions),
        }
    }
}

impl CaseJson {
    /// The JSON form of a case, under the server's own number.
    pub fn of(booked: &BookedCase) -> CaseJson {
        let case = &booked.case;
        let finding = &case.finding;
        CaseJson {
            id: booked.number,
            job: booked.job.to_string(),
            state: booked.state.as_str().to_owned(),
            what: finding.what.as_str().to_owned(),
            category: finding.category.as_str().to_owned(),
            settled: finding.diagnosed_at.is_some(),
            since: TimeJson::of(finding.since),
            detected_at: TimeJson::of(finding.detected_at),
            diagnosed_at: TimeJson::of(finding.diagnosed_at),
            opened_at: TimeJson::of(case.opened_at),
            updated_at: TimeJson::of(case.updated_at),
            closed_at: TimeJson::of(case.closed_at),
            closed_because: case.closed_because.clone(),
            revisions: u64::from(case.revisions),
            revised_at: TimeJson::of(case.revised_at()),
            said_before: case.said_before.iter().map(SaidJson::of).collect(),
            suspects: finding.suspects.iter().map(SuspectJson::of).collect(),
            group: case.group.map(|comm| comm.to_string()),
            op: case.op.map(OpJson::of),
            because: case.because.iter().map(ReasonJson::of).collect(),
            blast_radius: case.blast_radius.iter().map(BlastJson::of).collect(),
            do_next: case.do_next.clone(),
            dumps: booked.captures.iter().map(CaseDumpJson::of).collect(),
            validation: booked.validation.as_ref().map(ValidationJson::of),
            notes: booked.notes.iter().map(NoteJson::of).collect(),
        }
    }
}

impl CaseDumpJson {
    fn of(capture: &Capture) -> CaseDumpJson {
        let gain = &capture.gain;
        CaseDumpJson {
            id: capture.number,
            taken_at: TimeJson::of(capture.taken_at),
            what: gain.what.as_str().to_owned(),
            category: gain.category.map(|category| category.as_str().to_owned()),
            suspects: gain.suspects.iter().map(SuspectJson::of).collect(),
            because: gain.because.iter().map(ReasonJson::of).collect(),
        }
    }
}

impl SaidJson {
    fn of(said: &Said) -> SaidJson {
        SaidJson {
            until: TimeJson::of(said.until),
            what: said.what.as_str().to_owned(),
            category: said.category.as_str().to_owned(),
            suspects: said.suspects.iter().map(SuspectJson::of).collect(),
        }
    }
}

impl SuspectJson {
    /// The JSON form of a suspect.
    pub(crate) fn of(suspect: &Suspect) -> SuspectJson {
        let (kind, rank, host, link) = match &suspect.place {
            Place::Rank { rank, host } => {
                ("rank", rank_number(*rank), (!host.is_empty()).then(|| host.to_string()), None)
            }
            Place::Host { host } => ("host", None, Some(host.to_string()), None),
            Place::Link { from, to } => {
                ("link", None, None, Some(LinkJson { from: from.to_string(), to: to.to_string() }))
            }
        };
        SuspectJson { kind: kind.to_owned(), rank, host, link, confidence: finite(suspect.confidence) }
    }
}

impl ReasonJson {
    fn of(reason: &Reason) -> ReasonJson {
        ReasonJson {
            rule: reason.rule.to_string(),
            text: reason.text.clone(),
            evidence: reason.evidence.iter().map(EvidenceJson::of).collect(),
        }
    }
}

impl EvidenceJson {
    fn of(evidence: &Evidence) -> EvidenceJson {
        EvidenceJson {
            rank: evidence.rank.and_then(rank_number),
            op: evidence.op.map(OpJson::of),
            flow: evidence.flow.map(|(channel, peer, direction)| FlowJson {
                channel: channel.0,
                peer: peer.0,
                direction: direction.as_str().to_owned(),
            }),
            at: TimeJson::of(evidence.at),
        }
    }
}

impl OpJson {
    fn of(op: OpId) -> OpJson {
        let collective = op.class == mycroft_record::OpClass::Collective;
        OpJson {
            comm: op.comm.to_string(),
            class: op.class.as_str().to_owned(),
            peer: (!collective).then_some(op.peer.0),
            seq: op.seq.0,
        }
    }
}

impl BlastJson {
    fn of(entry: &BlastEntry) -> BlastJson {
        BlastJson {
            waiting: rank_numbers(&entry.waiting),
            waits_for: rank_numbers(&entry.waits_for),
            op: entry.op.map(OpJson::of),
            text: entry.text.clone(),
        }
    }
}

/// JSON has no NaN: serde_json would write null where a number is promised.
pub(crate) fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}
