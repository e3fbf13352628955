//! How a core begins with what is known from before, and how jobs of another server come to it and go.
use super::{Core, Parts};
use crate::case::BookedCase;
use crate::warm::Orphans;
use mycroft_record::{HostTime, JobName};
use mycroft_store::Delivery;
use std::collections::BTreeSet;
use std::fmt;
use tokio::sync::oneshot;

/// Jobs of a partition on their way to the brain.
pub(crate) struct Joining {
    pub(crate) core: Box<Core>,
    pub(crate) reply: oneshot::Sender<()>,
}

impl fmt::Debug for Joining {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joining").finish_non_exhaustive()
    }
}

impl Core {
    /// The server starts at `at`: fresh engines, which live through what arrived lately; the cases in the book are those of
    /// the earlier run.
    pub(crate) fn start(&mut self, at: HostTime, past: &[Delivery]) {
        let cases = self.parts.book.all();
        self.begin(at, past, cases);
    }

    /// A core of jobs that another server had, to be joined to this server's: engines live through what arrived lately, and `cases`,
    /// which are in the book, are the other's.
    pub(crate) fn taken_over(parts: Parts, at: HostTime, past: &[Delivery], cases: Vec<BookedCase>) -> Core {
        let mut core = Core::new(parts);
        core.begin(at, past, cases);
        core
    }

    fn begin(&mut self, at: HostTime, past: &[Delivery], cases: Vec<BookedCase>) {
        self.jobs.clear();
        self.orphans = Orphans::new(cases, at);
        if let Some((first, last)) = past.first().zip(past.last()) {
            self.warming = Some(BTreeSet::new());
            self.begin_rhythm(first.arrives_at);
            for delivery in past {
                self.deliver(delivery.arrives_at.max(self.now), &delivery.batch);
            }
            self.ask(last.arrives_at.max(self.now), None);
            self.warming = None;
        }
        self.begin_rhythm(at);
        for (name, job) in &self.jobs {
            self.schedule.asked(name, at, job.check_at);
        }
        self.recognize();
    }

    /// Takes the jobs of another core, what is to be told of them, and the cases that nobody has recognized yet.
    pub(crate) fn join(&mut self, other: Core) {
        let Core { jobs, orphans, now, told, .. } = other;
        self.told.extend(told);
        self.orphans.join(orphans);
        for (name, job) in jobs {
            self.schedule.asked(&name, now, job.check_at);
            self.jobs.insert(name, job);
        }
    }

    /// Lets jobs go to another server: nothing is said of them any more.
    pub(crate) fn let_go(&mut self, names: &BTreeSet<JobName>) {
        self.orphans.forget(names);
        for name in names {
            self.schedule.forget(name);
            self.jobs.remove(name);
        }
    }
}
