//! Series in memory, kept and forgotten as a store does: a replay's, whose engines begin anew where the server's did.
use super::JobSeries;
use mycroft_record::{HostTime, JobName};
use mycroft_store::series::{PieceRow, SeriesRows, StoredPiece, StoredSeries};
use mycroft_wire::sync::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The series of all jobs.
#[derive(Debug, Default)]
pub(crate) struct KeptSeries(Mutex<BTreeMap<JobName, Kept>>);

/// Those of one job.
#[derive(Debug, Default)]
struct Kept {
    /// By start, by what they are about, and by width.
    pieces: BTreeMap<(HostTime, &'static str, u64), PieceRow>,
    states: BTreeMap<&'static str, String>,
}

impl KeptSeries {
    /// Keeps what is over, and forgets what is older than it is kept.
    pub(crate) fn keep(&self, rows: Vec<SeriesRows>) {
        let mut jobs = lock(&self.0);
        for SeriesRows { job, pieces, states } in rows {
            let kept = jobs.entry(job.as_str().into()).or_default();
            for piece in pieces {
                let (what, width_s, oldest) = (piece.what, piece.width_s, piece.end - piece.kept_ns);
                kept.pieces.insert((piece.start, what, width_s), piece);
                kept.pieces.retain(|(_, of, width), old| (*of, *width) != (what, width_s) || old.end >= oldest);
            }
            kept.states.extend(states);
        }
    }

    /// What a job's series go on with; new ones where nothing was kept.
    pub(crate) fn series(&self, job: &JobName) -> JobSeries {
        lock(&self.0).get(job).map_or_else(JobSeries::default, |kept| JobSeries::go_on(&kept.stored()))
    }

    /// Jobs of which something was kept.
    pub(crate) fn jobs(&self) -> Vec<JobName> {
        lock(&self.0).keys().cloned().collect()
    }
}

impl Kept {
    fn stored(&self) -> StoredSeries {
        let piece = |row: &PieceRow| StoredPiece {
            what: row.what.to_owned(),
            width_s: row.width_s,
            start: row.start,
            end: row.end,
            iterations: row.iterations,
            sum_ms: row.sum_ms,
            body: row.body.clone(),
        };
        let state = |(what, json): (&&'static str, &String)| ((*what).to_owned(), json.clone());
        StoredSeries {
            pieces: self.pieces.values().map(piece).collect(),
            states: self.states.iter().map(state).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_forgotten_when_it_is_older_than_it_is_kept_and_others_stay() {
        let piece = |what, width_s, start: u64| {
            let (start, end) = (HostTime(start), HostTime(start + 10));
            PieceRow { what, width_s, kept_ns: 100, start, end, iterations: 1, sum_ms: 1.0, body: Vec::new() }
        };
        let kept = KeptSeries::default();
        let rows = |pieces| SeriesRows { job: "job".to_owned(), pieces, states: vec![("ranks", "[]".to_owned())] };
        kept.keep(vec![rows(vec![piece("ranks", 1, 10), piece("ranks", 60, 10), piece("paths", 1, 10)])]);
        kept.keep(vec![rows(vec![piece("ranks", 1, 110)])]);
        let starts = |what: &str, width_s| {
            let stored = lock(&kept.0)["job"].stored();
            let mine = stored.pieces.into_iter().filter(|piece| piece.what == what && piece.width_s == width_s);
            mine.map(|piece| piece.start.0).collect::<Vec<_>>()
        };
        assert_eq!(starts("ranks", 1), [10, 110], "a hundred later it is still kept");
        kept.keep(vec![rows(vec![piece("ranks", 1, 111)])]);
        assert_eq!([starts("ranks", 1), starts("ranks", 60), starts("paths", 1)], [vec![110, 111], vec![10], vec![10]]);
        assert_eq!(kept.jobs(), ["job".into()]);
    }
}
