//! Jobs of a bus that are another server's by now.
use super::Loop;
use mycroft_record::JobName;
use std::collections::BTreeSet;
use tracing::info;

impl Loop {
    /// Jobs whose partition of the bus is another server's by now are not judged any more, and their cases are not ours.
    pub(super) fn let_go_lost(&mut self) {
        let lost = self.let_go();
        self.around.book.let_go(&lost);
    }

    /// Lets them go; their cases are still in the book.
    pub(super) fn let_go(&mut self) -> BTreeSet<JobName> {
        let lost = self.around.held.take_lost();
        if !lost.is_empty() {
            self.core.let_go(&lost);
            self.reports.retain(|job, _| !lost.contains(job));
            info!("{} jobs are let go: their partition of the bus is not this server's any more", lost.len());
        }
        lost
    }
}
