//! Reading series of jobs from the store.
use crate::series::JobSeries;
use mycroft_record::JobName;
use mycroft_store::Store;
use std::sync::Arc;
use tracing::warn;

/// Gives what is known of a job's series from before.
pub(crate) type SeriesMaker = Arc<dyn Fn(&JobName) -> JobSeries + Send + Sync>;

/// The store to read from; none where nothing is kept.
#[derive(Clone, Debug)]
pub(crate) struct Stored(pub(crate) Option<Arc<Store>>);

impl Stored {
    /// Gives the series of jobs, new ones where nothing was kept.
    pub(crate) fn maker(self) -> SeriesMaker {
        Arc::new(move |job| self.series(job).unwrap_or_default())
    }

    /// The series of a job as far as they were kept; `None`: nothing was. Waits for the disk: some 30 MB at 10,240 ranks.
    pub(crate) fn series(&self, job: &JobName) -> Option<JobSeries> {
        match self.0.as_ref()?.series(job) {
            Ok(stored) if stored.states.is_empty() => None,
            Ok(stored) => Some(JobSeries::go_on(&stored)),
            Err(error) => {
                warn!(%job, %error, "series of job {job:?} begin anew: {error}");
                None
            }
        }
    }
}
