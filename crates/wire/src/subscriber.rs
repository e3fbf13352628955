//! Who hears what a thread tells: the subscriber of the thread that started it.
use tracing::dispatcher::{Dispatch, get_default, with_default};

/// The work of a new thread, heard by the `tracing` subscriber of the thread that calls this. So two servers in one process
/// may have a subscriber each; where there is one for the whole process, it is that one.
pub fn with_callers_subscriber<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let dispatch = get_default(Dispatch::clone);
    move || with_default(&dispatch, work)
}
