//! An autopsy as JSON: what `mycroft autopsy --json` prints. Fields are only ever added.
use crate::api::case::finite;
use crate::api::{TimeJson, rank_number, rank_numbers};
use mycroft_diagnose::change::Shape;
use mycroft_diagnose::stacks::{Autopsy, Conduct, PaceChange, PrintedLine, StackGroup};
use mycroft_diagnose::{BlastEntry, Caveat, Reason};
use mycroft_record::dump::{Frame, Unusable};
use mycroft_record::pace::Unit;
use mycroft_record::{Place, Rank, Suspect};
use serde::{Deserialize, Serialize};

/// The whole answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AutopsyJson {
    /// What became of the job.
    pub verdict: VerdictJson,
    /// How many ranks were looked at, with or without a dump.
    pub ranks: usize,
    /// How many of them tell something: of the others there is no usable dump.
    #[serde(default)]
    pub told: usize,
    /// Files that could not be read, for a reason that lies with the reader (no permission, a failing disk, a limit): no
    /// evidence about their rank. Where there are any, `what` is never `healthy`.
    #[serde(default)]
    pub unread: Vec<UnreadJson>,
    /// Ranks of which there is no usable dump.
    pub missing_dumps: Vec<u32>,
    /// What is not known, one sentence each, with the switch that would provide it.
    pub caveats: Vec<String>,
    /// How the files were read: what was passed over, and why. Left to who reads the files; empty here.
    pub notes: Vec<String>,
    /// Why there is no usable dump of a rank.
    pub missing_because: Vec<MissingJson>,
    /// Lines of logs that tell something of the end, at most 4,096 of them.
    #[serde(default)]
    pub lines: Vec<LineJson>,
    /// How many more such lines there are.
    #[serde(default)]
    pub lines_left_out: usize,
    /// Who waits for whom.
    pub waits: Vec<WaitJson>,
    /// Ranks whose main threads have the same stack, largest group first.
    pub stacks: Vec<StackGroupJson>,
}

/// What became of the job and who is to blame.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct VerdictJson {
    /// `hang`, `desync`, `deadlock`, `crash`, `slow`, `healthy`, `healthy-as-far` (nothing is wrong as far as the files tell
    /// that could be read) or `unknown`.
    pub what: String,
    /// Kind of fault, as in cases (`not-started`, `code-divergence`, `argument-mismatch`, ...); null when nothing is wrong.
    pub category: Option<String>,
    /// One of the four families of the Flight Recorder paper: `cpu-side`, `gpu-kernel-hang`, `wrong-arguments` or
    /// `network-or-hardware`; null when nothing is wrong or not told apart.
    pub family: Option<String>,
    /// The sub-cause within the family, e.g. `stuck` or `dtype`; null like `family`.
    pub cause: Option<String>,
    /// When it began: the earliest record that shows it, clock of its host; null when nothing is wrong or no record tells.
    #[serde(default)]
    pub since: Option<TimeJson>,
    /// Only ranks that are blamed, most likely first.
    pub suspects: Vec<SuspectRankJson>,
    /// Description of the group in which it shows; null where it shows in none.
    pub group: Option<String>,
    /// Sequence number in that group.
    pub seq: Option<u64>,
    /// The operation in which it shows; null where none.
    pub collective: Option<String>,
    /// When iterations became slower and faster again, as progress lines of logs tell it; in their order.
    #[serde(default)]
    pub pace: Vec<PaceJson>,
    /// The rules that fired: a sentence with its numbers, the rule's name in brackets behind it.
    pub because: Vec<String>,
    /// The same rules with the records that show them.
    pub evidence: Vec<EvidenceOfRuleJson>,
    /// Concrete next steps.
    pub do_next: Vec<String>,
}

/// A change of what an iteration takes.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PaceJson {
    /// `slower`, or `faster-again`.
    pub change: String,
    /// `step`, or `ramp` where it went by and by.
    pub shape: String,
    /// Number of the iteration at which it begins; null where no line tells it.
    pub iteration: Option<u64>,
    /// Time of day `HH:MM:SS` of the clock that the log was written with; null where no line tells it.
    pub time_of_day: Option<String>,
    /// Which series, where there are several; else empty.
    pub series: String,
    /// Usual value before.
    pub before: f64,
    /// Usual value since.
    pub after: f64,
    /// `ms` an iteration, `tokens-per-second` or `samples-per-second`.
    pub unit: String,
    /// How many times as long an iteration takes.
    pub ratio: f64,
    /// The file.
    pub file: String,
    /// The first line that shows it.
    pub line: u64,
    /// Ranks that print their own times and show it.
    pub ranks: Vec<u32>,
    /// Ranks that do, and do not show it.
    pub others: Vec<u32>,
}

/// A rank that is blamed.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SuspectRankJson {
    /// Global rank; null where it is a host or a way between two, or where nothing tells it.
    pub rank: Option<u32>,
    /// 0..=1.
    pub confidence: f64,
    /// `absent`, `odd-one-out`, `stuck-inside`, `in-cycle`, `gone`, `slow`, or `way` where it is one between two hosts.
    pub role: String,
    /// Its host; empty where not known.
    pub host: String,
    /// The two ends of a way; null where it is no way.
    #[serde(default)]
    pub link: Option<[String; 2]>,
    /// What its stacks say it was doing; empty where nothing tells.
    pub doing: String,
    /// The frame of the user's code that matters.
    pub at: Option<FrameJson>,
}

/// A line of code.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FrameJson {
    /// Function.
    pub name: String,
    /// Source file.
    pub file: String,
    /// Line; 0 where not known.
    pub line: u32,
}

/// A rule that fired and the records that show it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EvidenceOfRuleJson {
    /// Stable name of the rule.
    pub rule: String,
    /// One sentence with its numbers.
    pub text: String,
    /// The records.
    pub records: Vec<RecordJson>,
}

/// Names a record in a dump.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordJson {
    /// Whose dump.
    pub rank: Option<u32>,
    /// `collective`, `send` or `recv`; null where it is about no operation.
    pub class: Option<String>,
    /// Sequence number in the group, as in the dump.
    pub seq: Option<u64>,
    /// The time in the record, clock of that rank's host.
    pub at: Option<TimeJson>,
}

/// A rank without a usable dump.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MissingJson {
    /// The rank.
    pub rank: Option<u32>,
    /// Why.
    pub why: String,
}

/// A file that could not be read.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UnreadJson {
    /// The rank that its name tells; null where it tells none.
    pub rank: Option<u32>,
    /// The file.
    pub file: String,
    /// Why.
    pub why: String,
}

/// A line of a log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LineJson {
    /// File name relative to the folder.
    pub file: String,
    /// Line number, from 1.
    pub line: u64,
    /// Who printed it; null where nothing tells.
    pub rank: Option<u32>,
    /// On which host; empty where not told.
    pub host: String,
    /// Month, day and time as printed, without a year (`07-14 11:20:01.104`); empty where not told.
    pub at: String,
    /// `first-failure`, `evidence` (the verdict rests on both), `consequence`, or `beside` (not used).
    pub part: String,
    /// What it says.
    pub text: String,
}

/// One arrow of the wait-for graph.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WaitJson {
    /// Ranks that wait.
    pub waiting: Vec<u32>,
    /// Ranks they wait for.
    pub waits_for: Vec<u32>,
    /// The operation they wait in.
    pub text: String,
}

/// Ranks whose main threads have the same stack.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StackGroupJson {
    /// The ranks.
    pub ranks: Vec<u32>,
    /// Whether it stands out from the majority.
    pub odd: bool,
    /// What the thread is doing.
    pub doing: String,
    /// Innermost first.
    pub frames: Vec<FrameJson>,
}

impl AutopsyJson {
    /// The JSON form of an autopsy (without its grid).
    pub fn of(autopsy: &Autopsy) -> AutopsyJson {
        AutopsyJson {
            verdict: VerdictJson::of(autopsy),
            ranks: autopsy.ranks.len(),
            told: autopsy.told(),
            unread: autopsy.unread.iter().map(UnreadJson::of).collect(),
            missing_dumps: autopsy.missing_dumps.iter().filter_map(|(rank, _)| rank_number(*rank)).collect(),
            caveats: autopsy.caveats.iter().map(Caveat::sentence).collect(),
            notes: Vec::new(),
            missing_because: autopsy
                .missing_dumps
                .iter()
                .map(|(rank, why)| MissingJson { rank: rank_number(*rank), why: why.clone() })
                .collect(),
            lines: autopsy.lines.iter().map(LineJson::of).collect(),
            lines_left_out: autopsy.lines_left_out,
            waits: autopsy.blast_radius.iter().map(WaitJson::of).collect(),
            stacks: autopsy.stack_groups.iter().map(StackGroupJson::of).collect(),
        }
    }
}

impl VerdictJson {
    fn of(autopsy: &Autopsy) -> VerdictJson {
        let told = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        VerdictJson {
            what: autopsy.outcome.as_str().to_owned(),
            category: autopsy.category.map(|category| category.as_str().to_owned()),
            family: autopsy.cause.map(|cause| cause.family().as_str().to_owned()),
            cause: autopsy.cause.map(|cause| cause.as_str().to_owned()),
            since: autopsy.since().and_then(TimeJson::of),
            suspects: autopsy
                .blamed()
                .map(|(rank, suspect, conduct)| SuspectRankJson::of(Some(rank), suspect, Some(conduct)))
                .chain(autopsy.others().map(|(suspect, conduct)| SuspectRankJson::of(None, suspect, conduct)))
                .collect(),
            group: told(&autopsy.group),
            seq: autopsy.seq,
            collective: told(&autopsy.collective),
            pace: autopsy.pace.iter().map(PaceJson::of).collect(),
            because: autopsy.because.iter().map(|reason| format!("{} [{}]", reason.text, reason.rule)).collect(),
            evidence: autopsy.because.iter().map(EvidenceOfRuleJson::of).collect(),
            do_next: autopsy.do_next.clone(),
        }
    }
}

impl PaceJson {
    fn of(change: &PaceChange) -> PaceJson {
        let unit = match change.unit {
            Unit::Millis => "ms",
            Unit::Tokens => "tokens-per-second",
            Unit::Samples => "samples-per-second",
        };
        let shape = match change.shape {
            Shape::Step => "step",
            Shape::Ramp => "ramp",
        };
        PaceJson {
            change: if change.is_slower { "slower" } else { "faster-again" }.to_owned(),
            shape: shape.to_owned(),
            iteration: change.iteration,
            time_of_day: change.time_of_day(),
            series: change.name.to_string(),
            before: finite(change.before),
            after: finite(change.after),
            unit: unit.to_owned(),
            ratio: finite(change.ratio()),
            file: change.source.to_string(),
            line: change.line,
            ranks: rank_numbers(&change.ranks),
            others: rank_numbers(&change.others),
        }
    }
}

impl SuspectRankJson {
    fn of(rank: Option<Rank>, suspect: &Suspect, conduct: Option<&Conduct>) -> SuspectRankJson {
        let link = |place: &Place| match place {
            Place::Link { from, to } => Some([from.to_string(), to.to_string()]),
            _ => None,
        };
        SuspectRankJson {
            rank: rank.and_then(rank_number),
            confidence: finite(suspect.confidence),
            role: conduct.map_or("way", |conduct| conduct.role.as_str()).to_owned(),
            host: suspect.place.host().map_or_else(String::new, ToString::to_string),
            link: link(&suspect.place),
            doing: conduct.map_or_else(String::new, |conduct| conduct.doing.clone()),
            at: conduct.and_then(|conduct| conduct.at.as_ref()).map(FrameJson::of),
        }
    }
}

impl UnreadJson {
    fn of(file: &Unusable) -> UnreadJson {
        UnreadJson { rank: file.rank.and_then(rank_number), file: file.source.to_string(), why: file.why.clone() }
    }
}

impl FrameJson {
    fn of(frame: &Frame) -> FrameJson {
        FrameJson { name: frame.name.to_string(), file: frame.file.to_string(), line: frame.line }
    }
}

impl EvidenceOfRuleJson {
    fn of(reason: &Reason) -> EvidenceOfRuleJson {
        let records = reason.evidence.iter().map(|evidence| RecordJson {
            rank: evidence.rank.and_then(rank_number),
            class: evidence.op.map(|op| op.class.as_str().to_owned()),
            seq: evidence.op.map(|op| op.seq.0),
            at: TimeJson::of(evidence.at),
        });
        EvidenceOfRuleJson { rule: reason.rule.to_string(), text: reason.text.clone(), records: records.collect() }
    }
}

impl LineJson {
    fn of(line: &PrintedLine) -> LineJson {
        LineJson {
            file: line.file.to_string(),
            line: line.line,
            rank: line.rank.and_then(rank_number),
            host: line.host.to_string(),
            at: line.moment(),
            part: line.part.as_str().to_owned(),
            text: line.text.clone(),
        }
    }
}

impl WaitJson {
    fn of(entry: &BlastEntry) -> WaitJson {
        WaitJson {
            waiting: rank_numbers(&entry.waiting),
            waits_for: rank_numbers(&entry.waits_for),
            text: entry.text.clone(),
        }
    }
}

impl StackGroupJson {
    fn of(group: &StackGroup) -> StackGroupJson {
        StackGroupJson {
            ranks: rank_numbers(&group.ranks),
            odd: group.odd,
            doing: group.doing.clone(),
            frames: group.frames.iter().map(FrameJson::of).collect(),
        }
    }
}
