//! Who slowed the last iterations, where all since the onset do not show it: the first of these may have been long for another
//! reason, as chance makes some of a restless job.
use super::{Bench, Docket, is_sure, meets, stands_out};
use crate::case::weigh::{DECISIVE, Verdict};
use crate::fact::Fact;
use crate::watch::Slow;
use mycroft_record::Place;

/// The last iterations, where all since the onset may not be of one fault.
const NEWEST: usize = 3;
/// A case that would be opened with a suspect less sure than this is worth a look at fewer iterations.
const UNSURE: f64 = 0.6;

impl Docket {
    /// Who made iterations longer from `slow.onset` on, unless the last iterations are beyond doubt somebody's whom all since
    /// then do not show.
    pub(super) fn slowed_lately(&self, bench: &Bench<'_>, slow: &Slow) -> (Verdict, Vec<Fact>) {
        let told = self.slowed(bench, slow);
        let newest = bench.watch.laps_ago(NEWEST).filter(|from| *from > slow.onset).map(|from| slow.since(from));
        match newest.filter(|newest| newest.long.len() >= 2) {
            Some(newest) => self.surer(bench, told, &newest),
            None => told,
        }
    }

    /// What a case is to be opened with, unless that is unsure, and the last long iterations that follow each other, at least
    /// two, are beyond doubt somebody's.
    pub(super) fn slowed_in_a_row(
        &self,
        bench: &Bench<'_>,
        slow: &Slow,
        told: (Verdict, Vec<Fact>),
    ) -> (Verdict, Vec<Fact>) {
        match slow.last_row().filter(|row| told.0.confidence() < UNSURE && row.onset > slow.onset) {
            Some(row) => self.surer(bench, told, &row),
            None => told,
        }
    }

    /// What was told, or what `newest` says if that is beyond doubt and about another.
    fn surer(&self, bench: &Bench<'_>, told: (Verdict, Vec<Fact>), newest: &Slow) -> (Verdict, Vec<Fact>) {
        let (late, late_facts) = self.slowed(bench, newest);
        let is_named = |place: &Place| told.0.leads().any(|named| meets(place, named));
        let is_it = late.leads().count() == 1
            && is_sure(&late, DECISIVE)
            && stands_out(&late)
            && late.confidence() > told.0.confidence()
            && !late.leads().any(is_named);
        if is_it { (late, late_facts) } else { told }
    }
}
