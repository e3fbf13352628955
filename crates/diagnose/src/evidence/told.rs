//! What cases that are open say of how long iterations were before, and of why they are longer now.
use super::{COST, Evidence, Subject};
use crate::measure::Component;
use mycroft_record::HostTime;

impl Evidence {
    /// Cases that are open are about these, `None` of a stop; the first of them began `since`.
    pub(crate) fn tell(&mut self, since: Option<HostTime>, of: Vec<Option<(Component, Subject)>>) {
        if let Some(since) = since {
            self.iterations.tell(since);
        }
        self.told = of;
    }

    /// Whether a case is about the iterations just before a moment, and something that cases are about still makes iterations longer
    /// by what counts, besides what is `own`. What no longer does is not why they are longer now.
    pub(crate) fn is_slowed_by_another(&self, at: HostTime, own: impl Fn(&Subject) -> bool) -> bool {
        let least_ms = self.usual_ms().map_or(0.0, |(usual_ms, _)| COST * usual_ms);
        let costs = |key: &(Component, Subject)| {
            let of_job = (Component::Iteration, Subject::Job);
            let track = self.tracks.get(if key.1 == Subject::Job { &of_job } else { key });
            !own(&key.1) && track.is_some_and(|track| track.more_ms >= least_ms)
        };
        self.iterations.is_told(at) && self.told.iter().any(|key| key.as_ref().is_none_or(costs))
    }
}
