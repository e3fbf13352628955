//! What the threads of the bus share, and what is wrong with it.
use super::held::Held;
use super::source::BusSource;
use crate::book::CaseBook;
use crate::clock::Clock;
use crate::config::ServeConfig;
use crate::inbox::Inbox;
use crate::intake::Intake;
use crate::job::BrainMaker;
use crate::stats::Stats;
use crate::stored::{SeriesMaker, Stored};
use mycroft_bus::Topic;
use mycroft_store::Store;
use mycroft_wire::sync::lock;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// How often leases are lengthened, and looked for: seven times before one ends.
const ROUND: Duration = Duration::from_millis(500);
/// How often that is looked for which somebody waits for.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What the threads of the bus touch.
pub(crate) struct Around {
    pub(crate) topic: Arc<dyn Topic>,
    /// How many partitions there are; 0 until brokers have said.
    pub(crate) partitions: AtomicU32,
    pub(crate) held: Arc<Held>,
    pub(crate) store: Arc<Store>,
    pub(crate) book: Arc<CaseBook>,
    pub(crate) intake: Arc<Intake>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) stats: Arc<Stats>,
    pub(crate) clock: Clock,
    pub(crate) make: BrainMaker,
    pub(crate) series: SeriesMaker,
    pub(crate) tick_ns: u64,
    pub(crate) rest: Rest,
}

/// What the threads of a bus need, where the server has one: it has a store then, too.
pub(crate) fn around(
    config: &ServeConfig,
    (intake, inbox, book, stats): (&Arc<Intake>, &Arc<Inbox>, &Arc<CaseBook>, &Arc<Stats>),
    (held, stored, clock): (Arc<Held>, &Stored, &Clock),
    (make, series): (BrainMaker, SeriesMaker),
) -> Option<Around> {
    let (BusSource(topic), store) = config.bus.clone().zip(stored.0.clone())?;
    Some(Around {
        topic,
        partitions: AtomicU32::new(0),
        held,
        store,
        book: Arc::clone(book),
        intake: Arc::clone(intake),
        inbox: Arc::clone(inbox),
        stats: Arc::clone(stats),
        clock: Arc::clone(clock),
        make,
        series,
        tick_ns: u64::try_from(config.tick.as_nanos()).unwrap_or(u64::MAX),
        rest: Rest::default(),
    })
}

/// What only these threads know.
#[derive(Default)]
pub(crate) struct Rest {
    is_stopping: AtomicBool,
    stopped: (Mutex<bool>, Condvar),
    /// What is wrong with partitions.
    troubles: Mutex<BTreeMap<u32, String>>,
}

impl Around {
    pub(super) fn is_stopping(&self) -> bool {
        self.rest.is_stopping.load(Ordering::SeqCst)
    }

    pub(super) fn partitions(&self) -> u32 {
        self.partitions.load(Ordering::SeqCst)
    }

    /// Asks brokers how many partitions there are, until they say so.
    pub(super) fn learn_partitions(&self) {
        while !self.is_stopping() && self.partitions() == 0 {
            match self.topic.partitions() {
                Ok(partitions) => {
                    self.partitions.store(partitions, Ordering::SeqCst);
                    self.problem("bus.read", None);
                }
                Err(error) => {
                    self.problem("bus.read", Some(error.to_string()));
                    self.pause();
                }
            }
        }
    }

    /// Waits until the next round, or the server stops.
    pub(super) fn pause(&self) {
        self.pause_for(ROUND);
    }

    fn pause_for(&self, time: Duration) {
        let (stopped, rings) = &self.rest.stopped;
        drop(rings.wait_timeout_while(lock(stopped), time, |stopped| !*stopped));
    }

    /// Looks until `probe` gives something; `None`: it did not in time, or the server stops.
    pub(super) fn wait_until<T>(&self, deadline: Instant, mut probe: impl FnMut() -> Option<T>) -> Option<T> {
        loop {
            let found = probe();
            if found.is_some() || self.is_stopping() || Instant::now() >= deadline {
                return found;
            }
            self.pause_for(LOOK_EVERY);
        }
    }

    /// Notes what is wrong with a partition, or that nothing is.
    pub(super) fn trouble(&self, part: u32, why: Option<String>) {
        let mut troubles = lock(&self.rest.troubles);
        let is_news = match why {
            Some(why) => troubles.insert(part, why.clone()) != Some(why),
            None => troubles.remove(&part).is_some(),
        };
        if !is_news {
            return;
        }
        let told = troubles.iter().next().map(|(part, why)| {
            format!("{} partitions of the bus cannot be read, such as {part}: {why}", troubles.len())
        });
        drop(troubles);
        self.problem("bus.read", told);
    }

    pub(super) fn problem(&self, place: &'static str, told: Option<String>) {
        let line = told.clone();
        if self.stats.problem(place, told) {
            match line {
                Some(line) => warn!(place, "{line}"),
                None => info!(place, "{place}: works again"),
            }
        }
    }

    /// Nothing is read any more, and nobody waits.
    pub(super) fn stop(&self) {
        self.rest.is_stopping.store(true, Ordering::SeqCst);
        *lock(&self.rest.stopped.0) = true;
        self.rest.stopped.1.notify_all();
    }
}
