//! Starting and stopping the threads that have to do with the disk.
use crate::book::CaseBook;
use crate::brain::Clock;
use crate::config::LogSink;
use crate::error::ServeError;
use crate::keep_queue::Storage;
use crate::keeper::Keeper;
use crate::stats::Stats;
use crate::upkeep::Upkeep;
use mycroft_store::Store;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};

/// The threads.
pub(crate) struct Keepers {
    /// How the others reach them.
    pub(crate) storage: Storage,
    keeper: JoinHandle<()>,
    upkeep: JoinHandle<()>,
}

impl Keepers {
    /// Starts both.
    pub(crate) fn start(
        store: Store,
        book: &Arc<CaseBook>,
        stats: &Arc<Stats>,
        clock: &Clock,
        log: &LogSink,
    ) -> Result<Keepers, ServeError> {
        let (store, storage) = (Arc::new(store), Storage::new());
        let keeper = Keeper {
            queue: Arc::clone(&storage.queue),
            store: Arc::clone(&store),
            stats: Arc::clone(stats),
            log: Arc::clone(log),
        };
        let upkeep = Upkeep {
            bell: Arc::clone(&storage.bell),
            queue: Arc::clone(&storage.queue),
            store,
            book: Arc::clone(book),
            stats: Arc::clone(stats),
            clock: Arc::clone(clock),
            log: Arc::clone(log),
        };
        let keeper = spawn("mycroft-keeper", move || keeper.run())?;
        let upkeep = spawn("mycroft-upkeep", move || upkeep.run())?;
        Ok(Keepers { storage, keeper, upkeep })
    }

    /// Writes what waits, then makes everything durable.
    pub(crate) fn stop(self) {
        self.storage.queue.close();
        // A panic was printed by the panic hook and concerns nobody who is stopping.
        let _ = self.keeper.join();
        self.storage.bell.close();
        let _ = self.upkeep.join();
    }
}

fn spawn(name: &'static str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, ServeError> {
    Builder::new().name(name.to_owned()).spawn(work).map_err(|source| ServeError::Thread { what: name, source })
}
