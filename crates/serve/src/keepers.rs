//! Starting and stopping the threads that have to do with the disk.
use crate::book::CaseBook;
use crate::clock::Clock;
use crate::error::ServeError;
use crate::keep_queue::Storage;
use crate::keeper::Keeper;
use crate::stats::Stats;
use crate::thread::spawn;
use crate::upkeep::Upkeep;
use mycroft_store::Store;
use std::sync::Arc;
use std::thread::JoinHandle;

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
        store: Arc<Store>,
        book: &Arc<CaseBook>,
        stats: &Arc<Stats>,
        clock: &Clock,
    ) -> Result<Keepers, ServeError> {
        let storage = Storage::new();
        let keeper = Keeper { queue: Arc::clone(&storage.queue), store: Arc::clone(&store), stats: Arc::clone(stats) };
        let upkeep = Upkeep {
            storage: storage.clone(),
            store,
            book: Arc::clone(book),
            stats: Arc::clone(stats),
            clock: Arc::clone(clock),
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
