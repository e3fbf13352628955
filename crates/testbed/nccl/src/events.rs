//! Points on a stream that a host can wait for, each by itself (the testbed's `cudaEventRecord` and its companions): a
//! framework that gives a handle for every operation needs more than "everything enqueued so far".
use crate::abi::{Code, Fault, Res};
use crate::device::{Event, Item, Stream, lock, stream_of};
use crate::ffi::guard;
use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

type Handle = *mut c_void;

/// Longest wait after which a waiter looks again; nothing depends on it.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

fn events() -> &'static Mutex<HashMap<usize, Arc<Event>>> {
    static EVENTS: OnceLock<Mutex<HashMap<usize, Arc<Event>>>> = OnceLock::new();
    EVENTS.get_or_init(Mutex::default)
}

fn event_of(handle: Handle) -> Res<Arc<Event>> {
    let found = lock(events()).get(&(handle as usize)).map(Arc::clone);
    found.ok_or_else(|| Fault::new(Code::InvalidArgument, format!("{handle:?} is not an event")))
}

fn stream_or_refusal(stream: Handle) -> Res<Arc<Stream>> {
    let found = stream_of(stream as usize);
    found.ok_or_else(|| Fault::new(Code::InvalidArgument, format!("{stream:?} is not a stream")))
}

/// Makes an event that happens when everything enqueued on `stream` so far is done.
///
/// # Safety
/// `event` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mtbEventRecord(event: *mut Handle, stream: Handle) -> c_int {
    guard(|| {
        if event.is_null() {
            return Err(Fault::new(Code::InvalidArgument, "the event's place is NULL"));
        }
        let found = stream_or_refusal(stream)?;
        let made = Arc::new(Event::default());
        let handle = Arc::as_ptr(&made) as usize;
        lock(events()).insert(handle, Arc::clone(&made));
        found.push(Item::Record(made));
        // SAFETY: not null, and the caller promises that it may be written.
        unsafe { event.write(handle as Handle) };
        Ok(())
    })
}

/// What is enqueued on `stream` from now on does not begin before the event has happened.
#[unsafe(no_mangle)]
pub extern "C" fn mtbStreamWaitEvent(stream: Handle, event: Handle) -> c_int {
    guard(|| {
        let event = event_of(event)?;
        stream_or_refusal(stream)?.push(Item::Wait(event));
        Ok(())
    })
}

/// Success when the event has happened, InProgress (7) when not.
#[unsafe(no_mangle)]
pub extern "C" fn mtbEventQuery(event: Handle) -> c_int {
    guard(|| match event_of(event)?.is_set() {
        true => Ok(()),
        false => Err(Fault::new(Code::InProgress, "the event has not happened")),
    })
}

/// Waits until the event has happened.
#[unsafe(no_mangle)]
pub extern "C" fn mtbEventSynchronize(event: Handle) -> c_int {
    guard(|| {
        let event = event_of(event)?;
        while !event.wait(LOOK_AGAIN) {}
        Ok(())
    })
}

/// Forgets an event; whoever waits for it still may.
#[unsafe(no_mangle)]
pub extern "C" fn mtbEventDestroy(event: Handle) -> c_int {
    guard(|| match lock(events()).remove(&(event as usize)) {
        Some(_) => Ok(()),
        None => Err(Fault::new(Code::InvalidArgument, format!("{event:?} is not an event"))),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{stream_create, stream_destroy};

    #[test]
    fn an_event_happens_after_what_came_before_it_and_waits_for_nothing_later() {
        let stream = stream_create().expect("a stream");
        let device = stream_of(stream).expect("just made");
        let (gate, later) = (Arc::new(Event::default()), Arc::new(Event::default()));
        let mut event: Handle = std::ptr::null_mut();
        device.push(Item::Wait(Arc::clone(&gate)));
        // SAFETY: the place is a variable of this frame.
        assert_eq!(unsafe { mtbEventRecord(&mut event, stream as Handle) }, 0);
        device.push(Item::Wait(Arc::clone(&later)));
        assert_eq!(mtbEventQuery(event), Code::InProgress as c_int);
        gate.set();
        assert_eq!((mtbEventSynchronize(event), mtbEventQuery(event)), (0, 0));
        assert!(!device.is_idle());
        later.set();
        let other = stream_create().expect("a stream");
        assert_eq!(mtbStreamWaitEvent(other as Handle, event), 0);
        stream_of(other).expect("just made").synchronize();
        assert!(stream_destroy(other));
        assert_eq!((mtbEventDestroy(event), mtbEventDestroy(event)), (0, Code::InvalidArgument as c_int));
        // SAFETY: a null place is refused, not written.
        assert_eq!(unsafe { mtbEventRecord(std::ptr::null_mut(), stream as Handle) }, Code::InvalidArgument as c_int);
        assert!(stream_destroy(stream));
    }
}
