//! Live captures as JSON: stacks and Flight Recorder dumps taken of a running job.
use super::{ReasonJson, SuspectJson, TimeJson};
use crate::autopsy::AutopsyJson;
use mycroft_formats::Piece;
use mycroft_record::Rank;
use mycroft_record::dump::Unusable;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// `GET /api/v1/jobs/JOB/dumps`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DumpsJson {
    /// Newest first, without ranks, files and autopsy.
    pub dumps: Vec<DumpJson>,
    /// Dumps cut off by `limit`.
    pub more: u64,
}

/// `GET /api/v1/jobs/JOB/dumps/ID`: one capture of a job.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DumpJson {
    /// Its number, unique within this server for ever.
    pub id: u64,
    /// The job.
    pub job: String,
    /// The case it belongs to, if any.
    pub case: Option<u64>,
    /// Taken because a case opened, not because somebody asked.
    pub automatic: bool,
    /// `running`, `done` or `failed` (`error` says why).
    pub state: String,
    /// What is being done while it runs, one phrase.
    pub progress: String,
    /// Why it failed; empty otherwise.
    pub error: String,
    /// The time at which all agents were to begin.
    pub taken_at: TimeJson,
    /// When it was done; null while it runs.
    pub ended_at: Option<TimeJson>,
    /// Stacks were asked for.
    pub stacks: bool,
    /// Flight Recorder dumps were asked for.
    pub flight_recorder: bool,
    /// The hosts of the job, and what their agents did.
    pub hosts: Vec<DumpHostJson>,
    /// The processes that were tried.
    pub tried: Vec<DumpTriedJson>,
    /// The files that came of it.
    pub files: Vec<DumpFileJson>,
    /// What the files say; null while it runs and where there are none.
    pub autopsy: Option<AutopsyJson>,
}

/// The agent of one host.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DumpHostJson {
    /// The host.
    pub host: String,
    /// `ok`, `waiting`, `too-old`, `lost` (its connection ended), `silent` (no answer in time), `refused` or `absent`
    /// (no agent of it is connected).
    pub state: String,
    /// Ranks of the job there, as its agent says.
    pub ranks: u32,
    /// What to know and to do; may be empty.
    pub text: String,
}

/// What became of one process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DumpTriedJson {
    /// `stacks`, `child-stacks` or `flight-recorder`.
    pub kind: String,
    /// Global rank (of a child: its parent's); null where no launcher told it.
    pub rank: Option<u32>,
    /// The host.
    pub host: String,
    /// Process.
    pub pid: u32,
    /// The file it gave; null: none, and `text` says why and what to do.
    pub file: Option<String>,
    /// What to know and to do; may be empty.
    pub text: String,
}

/// A file of a capture.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DumpFileJson {
    /// `HOST/NAME`: what goes behind `/files/`.
    pub path: String,
    /// Size.
    pub bytes: u64,
}

/// What a capture adds to a case.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct CaseDumpJson {
    /// Number of the capture.
    pub id: u64,
    /// When it was taken.
    pub taken_at: Option<TimeJson>,
    /// `hang`, ..., `healthy` or `unknown`: the autopsy's own verdict.
    pub what: String,
    /// Its category; null when nothing is wrong or nothing is told.
    pub category: Option<String>,
    /// Whom it blames. A case's own suspects go before them.
    pub suspects: Vec<SuspectJson>,
    /// The reasons it adds to the case's `because`.
    pub because: Vec<ReasonJson>,
}

impl DumpJson {
    /// The same without its long parts, for lists.
    pub(crate) fn short(&self) -> DumpJson {
        DumpJson { tried: Vec::new(), files: Vec::new(), hosts: Vec::new(), autopsy: None, ..self.clone() }
    }
}

/// What captures say of ranks that gave no dump, beside the files: an agent that could not get one knows nothing of its
/// rank, unless the process was gone.
pub fn untold(tried: &[DumpTriedJson]) -> Vec<Piece> {
    let of_recorder = || tried.iter().filter(|tried| tried.kind == "flight-recorder");
    let told: BTreeSet<u32> =
        of_recorder().filter(|tried| tried.file.is_some()).filter_map(|tried| tried.rank).collect();
    let without = of_recorder().filter(|tried| tried.file.is_none());
    without
        .filter_map(|tried| {
            let rank = tried.rank.filter(|rank| !told.contains(rank))?;
            let source = format!("agent of {}, process {}", tried.host, tried.pid).into();
            let file = |why: String| Unusable { rank: Some(Rank(rank)), source, why };
            Some(if tried.text.contains(EXITED) {
                // In the words by which the autopsy knows the end of a process.
                Piece::Unusable(file(format!("No such process: {}", tried.text)))
            } else {
                Piece::Unread(file(tried.text.clone()))
            })
        })
        .collect()
}

/// How agents tell that a process is gone.
const EXITED: &str = "the process exited meanwhile";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_gave_no_dump_is_unknown_unless_its_process_is_gone() {
        let tried = |rank, file: Option<&str>, text: &str| DumpTriedJson {
            kind: "flight-recorder".to_owned(),
            rank: Some(rank),
            host: "n1".to_owned(),
            pid: 7,
            file: file.map(str::to_owned),
            text: text.to_owned(),
        };
        let mut all = vec![
            tried(0, Some("n1/comm_lib_trace_rank_0"), ""),
            tried(0, None, "no permission"),
            tried(1, None, "no permission: the process runs as user 7"),
            tried(2, None, "the process exited meanwhile"),
        ];
        all.push(DumpTriedJson { kind: "stacks".to_owned(), ..tried(3, None, "no permission") });
        let pieces = untold(&all);
        let [Piece::Unread(unread), Piece::Unusable(gone)] = pieces.as_slice() else { panic!("{pieces:?}") };
        assert_eq!((unread.rank, gone.rank), (Some(Rank(1)), Some(Rank(2))));
        assert!(unread.why.starts_with("no permission") && gone.why.starts_with("No such process"));
    }
}
