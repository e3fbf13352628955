//! The database of cases as the store uses it: where it is, and what is in its place while it cannot be used.
use crate::error::StoreError;
use crate::meta::{Meta, MetaError, MetaPlace, PostgresAt, identity};
use mycroft_record::{HostTime, NANOS_PER_SEC};
use mycroft_wire::sync::lock;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Mutex};

/// How long a failed attempt to open a file is left alone: it costs seconds, and a disk does not change its mind soon.
const RETRY_NS: u64 = 10 * NANOS_PER_SEC;
/// The same for a server of databases, which a thread tries beside: leases that nobody lengthens are over in seconds.
const RETRY_SERVER_NS: u64 = NANOS_PER_SEC;
/// The database where it is a file.
pub(crate) const FILE: &str = "meta.sqlite";
/// Rows that wait until a server of databases can be reached again.
pub(crate) const WAITING: &str = "waiting.sqlite";

/// The database, or what stands in for it.
#[derive(Debug)]
pub(super) struct Database {
    source: Source,
    current: Mutex<Arc<Meta>>,
    /// Held while rows are written, so that none is written into a stand-in that was emptied.
    writing: Mutex<()>,
    trouble: Mutex<Option<Trouble>>,
}

/// Where it is.
#[derive(Clone, Debug)]
struct Source {
    dir: PathBuf,
    /// On a server of databases, and the store's name there.
    remote: Option<(PostgresAt, String)>,
}

/// Why it cannot be used.
#[derive(Debug)]
struct Trouble {
    why: String,
    /// Not tried before.
    retry_at: HostTime,
    /// What a thread that tries it will say.
    tried: Option<Receiver<Result<Meta, MetaError>>>,
}

impl Trouble {
    fn new(why: &MetaError) -> Trouble {
        Trouble { why: why.to_string(), retry_at: HostTime::NONE, tried: None }
    }
}

impl Source {
    /// Opens it.
    fn open(&self) -> Result<Meta, MetaError> {
        let file = self.dir.join(FILE);
        match &self.remote {
            Some((at, store)) => Meta::open_postgres(at, store, Some(&file)),
            None => Meta::open(&file),
        }
    }

    /// What takes rows while it cannot be used: of a server of databases they outlive the process where there is a disk for them.
    fn stand_in(&self) -> Result<Meta, MetaError> {
        match &self.remote {
            Some(_) => Meta::open(&self.dir.join(WAITING)).or_else(|_| Meta::in_memory()),
            None => Meta::copy_in_memory(&self.dir.join(FILE)).or_else(|_| Meta::in_memory()),
        }
    }
}

impl Database {
    /// Opens it. A file that cannot be used has a stand-in until it can; a server of databases must be there at the start.
    ///
    /// # Errors
    /// The server cannot be reached or used.
    pub(super) fn open(dir: &Path, place: &MetaPlace) -> Result<Database, StoreError> {
        let remote = match place {
            MetaPlace::File => None,
            MetaPlace::Postgres(at) => Some((at.clone(), identity::of(dir)?)),
        };
        let source = Source { dir: dir.to_owned(), remote };
        let (meta, trouble) = match source.open() {
            Ok(meta) => {
                let waiting = dir.join(WAITING);
                if source.remote.is_some() && waiting.exists() {
                    meta.take_over(&Meta::open(&waiting)?)?;
                    // Emptied, and closed by now. A later start must not need room on the disk for it; where it stays it is empty.
                    let _ = std::fs::remove_file(&waiting);
                }
                (meta, None)
            }
            Err(error) if source.remote.is_some() => return Err(error.into()),
            Err(error) => (source.stand_in()?, Some(Trouble::new(&error))),
        };
        Ok(Database {
            source,
            current: Mutex::new(Arc::new(meta)),
            writing: Mutex::default(),
            trouble: Mutex::new(trouble),
        })
    }

    /// Why it cannot be used now, where it cannot.
    pub(super) fn trouble(&self) -> Option<String> {
        lock(&self.trouble).as_ref().map(|trouble| trouble.why.clone())
    }

    /// Whether what stands in for it is put into it later.
    pub(super) fn waits(&self) -> bool {
        self.is_shared()
    }

    /// Asks it, or what stands in for it. Where it turns out to be away, that stands in for it from now on.
    ///
    /// # Errors
    /// What it said.
    pub(super) fn ask<T>(&self, question: impl FnOnce(&Meta) -> Result<T, MetaError>) -> Result<T, StoreError> {
        let meta = Arc::clone(&lock(&self.current));
        self.ask_of(&meta, question)
    }

    fn ask_of<T>(
        &self,
        meta: &Arc<Meta>,
        question: impl FnOnce(&Meta) -> Result<T, MetaError>,
    ) -> Result<T, StoreError> {
        let answer = question(meta);
        if let Err(error) = &answer
            && error.is_away()
        {
            self.lose(meta, error)?;
        }
        Ok(answer?)
    }

    /// As `ask`, and never what stands in for it.
    ///
    /// # Errors
    /// What it said, or that it cannot be asked.
    pub(super) fn ask_itself<T>(&self, question: impl FnOnce(&Meta) -> Result<T, MetaError>) -> Result<T, StoreError> {
        let meta = {
            let trouble = lock(&self.trouble);
            if let Some(trouble) = trouble.as_ref() {
                return Err(StoreError::NotKept { why: trouble.why.clone() });
            }
            Arc::clone(&lock(&self.current))
        };
        self.ask_of(&meta, question)
    }

    /// As `ask_itself` where other stores use it, too; of a file, which is this store's alone, what stands in for it knows as much.
    ///
    /// # Errors
    /// As `ask_itself`.
    pub(super) fn ask_shared<T>(&self, question: impl FnOnce(&Meta) -> Result<T, MetaError>) -> Result<T, StoreError> {
        if self.is_shared() { self.ask_itself(question) } else { self.ask(question) }
    }

    /// Whether other stores may use it, too.
    pub(super) fn is_shared(&self) -> bool {
        self.source.remote.is_some()
    }

    /// As `ask_itself`, for what changes rows.
    ///
    /// # Errors
    /// What it said, or that it cannot be asked.
    pub(super) fn write(&self, change: impl FnOnce(&Meta) -> Result<(), MetaError>) -> Result<(), StoreError> {
        // Before waiting, since rows that move back may take long; whoever was waited for may have found it away.
        if let Some(why) = self.trouble() {
            return Err(StoreError::NotKept { why });
        }
        let _until_written = lock(&self.writing);
        self.ask_itself(change)
    }

    /// As `write`, for what need not be in the database yet: where that turns out to be away, it waits.
    ///
    /// # Errors
    /// What it said, or what stands in for it.
    pub(super) fn keep(&self, change: impl Fn(&Meta) -> Result<(), MetaError>) -> Result<(), StoreError> {
        let _until_written = lock(&self.writing);
        match self.ask(&change) {
            Err(StoreError::Meta(error)) if error.is_away() => self.ask(change),
            other => other,
        }
    }

    fn lose(&self, lost: &Arc<Meta>, why: &MetaError) -> Result<(), MetaError> {
        let mut trouble = lock(&self.trouble);
        let mut current = lock(&self.current);
        if Arc::ptr_eq(&current, lost) {
            *current = Arc::new(self.source.stand_in()?);
            *trouble = Some(Trouble::new(why));
        }
        Ok(())
    }

    /// Opens it again if it could not be used so far. True: it can now. A file is tried here and now, a server of databases by
    /// a thread, of which a later call hears.
    pub(super) fn retry(&self, now: HostTime) -> bool {
        let current = Arc::clone(&lock(&self.current));
        if let Some(gone) = current.gone()
            && self.lose(&current, &gone).is_err()
        {
            return false;
        }
        if self.trouble().is_none() {
            return false;
        }
        let Some(tried) = self.tried(now) else { return false };
        // Nobody writes while rows move; who only asks waits for nothing, and neither does whoever asks why it is away.
        let _until_swapped = lock(&self.writing);
        let stand_in = Arc::clone(&lock(&self.current));
        let back = tried.and_then(|meta| meta.take_over(&stand_in).map(|()| meta));
        let mut trouble = lock(&self.trouble);
        match back {
            Ok(meta) => {
                *lock(&self.current) = Arc::new(meta);
                *trouble = None;
                true
            }
            Err(error) => {
                if let Some(known) = trouble.as_mut() {
                    known.why = error.to_string();
                    known.retry_at = now + self.retry_ns();
                }
                false
            }
        }
    }

    fn retry_ns(&self) -> u64 {
        if self.is_shared() { RETRY_SERVER_NS } else { RETRY_NS }
    }

    /// What came of trying it again; `None`: nothing yet, or it is not due.
    fn tried(&self, now: HostTime) -> Option<Result<Meta, MetaError>> {
        let mut trouble = lock(&self.trouble);
        let known = trouble.as_mut()?;
        let tried = match &known.tried {
            Some(answer) => match answer.try_recv() {
                Ok(tried) => tried,
                Err(TryRecvError::Empty) => return None,
                Err(TryRecvError::Disconnected) => Err(MetaError::Address("trying it again failed".to_owned())),
            },
            None if now < known.retry_at => return None,
            None if self.source.remote.is_none() => self.source.open(),
            None => {
                known.tried = self.try_beside();
                known.retry_at = now + self.retry_ns();
                return None;
            }
        };
        known.tried = None;
        Some(tried)
    }

    fn try_beside(&self) -> Option<Receiver<Result<Meta, MetaError>>> {
        let (answer, answered) = channel();
        let source = self.source.clone();
        let spawned = std::thread::Builder::new().name("mycroft-meta".to_owned()).spawn(move || {
            // Nobody waits any more only where the store is gone.
            let _ = answer.send(source.open());
        });
        spawned.ok().map(|_| answered)
    }
}
