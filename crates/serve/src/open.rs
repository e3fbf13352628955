//! Opening what a server has on disk, and who is told: what can be refused before anything runs.
use crate::alert::{Alerts, Recipient};
use crate::book::{CASES_KEPT, CaseBook};
use crate::bus;
use crate::clock::Clock;
use crate::config::ServeConfig;
use crate::dump::{Around, Dumps};
use crate::error::ServeError;
use crate::inbox::Inbox;
use crate::keep_queue::Storage;
use crate::stats::Stats;
use crate::thread::spawn;
use crate::upkeep::old_cases;
use crate::warm::WARM_NS;
use mycroft_record::HostTime;
use mycroft_store::meta::SHARED_FROM;
use mycroft_store::{Deliveries, Store, StoreConfig};
use mycroft_wire::ListenerHandle;
use mycroft_wire::dir::PrivateDir;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tracing::dispatcher::{Dispatch, get_default};
use tracing::warn;

pub(crate) type Listeners = Arc<Mutex<Vec<ListenerHandle>>>;
pub(crate) type Threaded<T> = (Arc<T>, JoinHandle<()>);

/// The store, if one is wanted, and the book with the cases of earlier runs.
pub(crate) fn open_store(config: &ServeConfig) -> Result<(Option<Store>, CaseBook), ServeError> {
    let Some(dir) = &config.store_dir else {
        return Ok((None, CaseBook::reopen(Vec::new(), 0)));
    };
    // What is opened by its path from now on is ours, and nobody else can exchange it.
    PrivateDir::open(dir).map_err(|source| ServeError::StoreDir { dir: dir.clone(), source })?;
    let (retain_age, retain_bytes) = (config.retain_age, config.retain_bytes);
    let (meta, records) = (config.meta.clone(), config.records.clone());
    let store = Store::open(dir, StoreConfig { retain_age, retain_bytes, meta, records, ..StoreConfig::default() })?;
    store.damage().iter().for_each(|line| warn!(path = %dir.display(), "{line}"));
    let (mut cases, highest, unreadable) = old_cases(&store, CASES_KEPT)?;
    if unreadable > 0 {
        warn!(unreadable, "{unreadable} stored cases were written by another version and are not shown");
    }
    if config.bus.is_none() {
        return Ok((Some(store), CaseBook::reopen(cases, highest)));
    }
    // Those that move come with their partitions; whether these are this server's is not known yet.
    cases.retain(|case| case.number < SHARED_FROM);
    let book = CaseBook::reopen(cases, 0);
    book.go_on_at(bus::next_number(&store, &store.name()?)?);
    Ok((Some(store), book))
}

/// Says in the store that a run begins; what arrived lately before, and perhaps more.
pub(crate) fn begin_run(store: &Store, now: HostTime, next_case: u64) -> Result<Deliveries, ServeError> {
    if let Err(error) = store.note_started(now, next_case) {
        warn!(%error, "a replay of this store will not know that the server started now: {error}");
    }
    Ok(store.deliveries_since(now - WARM_NS)?)
}

/// Captures lie beside the records.
pub(crate) fn open_dumps(
    config: &ServeConfig,
    (listeners, inbox, storage): (&Listeners, &Arc<Inbox>, Option<&Storage>),
    (book, clock): (&Arc<CaseBook>, &Clock),
) -> Result<Arc<Dumps>, ServeError> {
    let around = Around {
        listeners: Arc::clone(listeners),
        inbox: Arc::clone(inbox),
        storage: storage.cloned(),
        book: Arc::clone(book),
        clock: Arc::clone(clock),
        subscriber: get_default(Dispatch::clone),
        on_case: config.dump_on_case,
    };
    let dir = config.store_dir.as_ref().map(|dir| dir.join("dumps"));
    Dumps::open(dir.clone(), around).map(Arc::new).map_err(|source| ServeError::Dumps { dir, source })
}

pub(crate) fn start_alerts(config: &ServeConfig, stats: &Arc<Stats>) -> Result<Option<Threaded<Alerts>>, ServeError> {
    let Some(url) = config.webhook.clone() else { return Ok(None) };
    let to = Recipient { url, format: config.webhook_format, key: config.webhook_key.clone() };
    let alerts = Arc::new(Alerts::new(Arc::clone(stats)));
    let worker = Arc::clone(&alerts);
    let thread = spawn("mycroft-alerts", move || worker.run(&to))?;
    Ok(Some((alerts, thread)))
}
