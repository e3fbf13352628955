//! Series of jobs, worked out from their records: what a server would tell of them.
use super::Player;
use crate::api::{IterationsJson, PathsJson, RankSeriesJson, SeriesJson, TimeJson};
use crate::book::Filter;
use crate::series::{JobSeries, KeptSeries, SeriesKind, SeriesTold};
use mycroft_record::{HostTime, JobName};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Points of iterations, and ranks and paths in full: as many as the server tells in one answer at most.
const TOLD_MAX: usize = 10_000;
/// Cases that are bands, as the server tells.
const BANDS_MAX: usize = 200;

impl Player {
    /// Also tells the series of each job ([`super::Played::series`]), kept and forgotten as a server's store does.
    #[must_use]
    pub fn with_series(mut self) -> Player {
        let kept = Arc::new(KeptSeries::default());
        if let Some(parts) = &mut self.parts {
            let of = Arc::clone(&kept);
            parts.series = Arc::new(move |job| of.series(job));
        }
        self.kept = Some(kept);
        self
    }

    /// Keeps what of the series is over.
    pub(super) fn keep_series(&mut self) {
        if let (Some(kept), Some(core)) = (&self.kept, &mut self.core) {
            kept.keep(core.unsaved());
        }
    }

    /// The series of all jobs that were ever played; none where they are not wanted.
    pub(super) fn series(&self) -> BTreeMap<JobName, SeriesJson> {
        let Some(kept) = &self.kept else { return BTreeMap::new() };
        let living = self.core.iter().flat_map(|core| core.jobs());
        let mut told: BTreeMap<JobName, SeriesJson> =
            living.map(|(name, job)| (name.clone(), self.series_of(name, job.series()))).collect();
        for name in kept.jobs() {
            told.entry(name.clone()).or_insert_with(|| self.series_of(&name, &kept.series(&name)));
        }
        told
    }

    fn series_of(&self, name: &JobName, series: &JobSeries) -> SeriesJson {
        let all = |what| SeriesTold::of(series, what, HostTime::NONE, HostTime(u64::MAX));
        let (mut cases, _) = self.book.list(&Filter { job: Some(name.clone()), state: None }, BANDS_MAX);
        cases.reverse();
        let as_of = TimeJson::exact(self.last);
        SeriesJson {
            iterations: IterationsJson::of(name, as_of, &all(SeriesKind::Iterations), TOLD_MAX, &cases),
            ranks: RankSeriesJson::of(name, &all(SeriesKind::Ranks).ranks, TOLD_MAX),
            paths: PathsJson::of(name, &all(SeriesKind::Paths).paths, TOLD_MAX),
        }
    }
}
