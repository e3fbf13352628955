//! What every reader promises for any bytes: it returns, and holds at most twice the input (and a small constant) in
//! memory while it does.
use mycroft_formats::{CaptureReader, LogReader, Naming, assemble, read};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The readers and a name under which `read` gives a file to each.
pub const READERS: &[(&str, &str)] = &[
    ("pickle", "comm_lib_trace_rank_3"),
    ("json", "trace_3.json"),
    ("stacks_text", "rank_3.txt"),
    ("periodic", "stacks_20261121_092309.txt"),
    ("log", "job.log"),
    ("trace", "host_3.pt.trace.json"),
];

/// Live bytes allowed per byte of input.
const MEMORY_PER_BYTE: usize = 2;

/// Live bytes allowed beside that: the readers' own floor (512 KiB) and half as much for what is not worth counting
/// (nodes of maps, the text of an error).
const MEMORY_FLOOR: usize = 768 << 10;

/// Counts this thread's live bytes and their peak.
pub struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// What an allocation of so many bytes takes in truth: glibc keeps 8 bytes beside each and rounds to 16, at least 32.
fn cost(bytes: usize) -> isize {
    (bytes + 8).next_multiple_of(16).max(32) as isize
}

fn add(bytes: isize) {
    // A thread that is ending has no counters left, and nothing is measured there.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every call goes to the system's allocator unchanged; the counters are plain cells of the calling thread and
// allocate nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(cost(layout.size()));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(-cost(layout.size()));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // While it moves, both are there.
        add(cost(size));
        add(-cost(layout.size()));
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Peak of live bytes, over those at the start, while `work` runs.
pub fn peak_bytes<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.with(Cell::get);
    PEAK.with(|peak| peak.set(before));
    let result = work();
    (result, (PEAK.with(Cell::get) - before).max(0) as usize)
}

/// Reads `bytes` under `path` and checks the promises; panics where one is broken.
pub fn check(path: &str, bytes: &[u8]) {
    let naming = Naming::default();
    let (piece, peak) = peak_bytes(|| read(path, bytes, &naming));
    let allowed = MEMORY_PER_BYTE * bytes.len() + MEMORY_FLOOR;
    assert!(peak <= allowed, "{path}: {peak} bytes live for {} bytes of input, allowed are {allowed}", bytes.len());
    // The same file twice is never a clash, and says the same.
    assert!(assemble(vec![piece.clone(), piece]).is_ok(), "{path}: the same file twice is a clash");
}

/// A log that is read in pieces of odd sizes says what it says when it is read whole.
pub fn in_pieces(path: &str, bytes: &[u8]) {
    let naming = Naming::default();
    let whole = {
        let mut reader = LogReader::new(path, &naming);
        reader.feed(bytes);
        reader.finish()
    };
    let mut reader = LogReader::new(path, &naming);
    for piece in bytes.chunks(61) {
        reader.feed(piece);
    }
    // What a reader may hold grows with what it was fed: a dense log is cut elsewhere.
    let parts = reader.finish();
    let cut = [&whole, &parts].into_iter().flatten().any(|log| log.beyond > 0);
    assert!(cut || whole == parts, "{path}: other lines in pieces");
}

/// A capture tells the same packets and the same fault whole and in pieces, and none is kept.
pub fn capture(bytes: &[u8]) {
    let told = |size: usize| {
        let mut reader = CaptureReader::default();
        let (mut packets, mut sum, mut fault) = (0usize, 0u64, None);
        for piece in bytes.chunks(size.max(1)) {
            let outcome = reader.read(piece, |packet| {
                packets += 1;
                sum = sum.rotate_left(7) ^ packet.time_ns ^ packet.bytes.len() as u64;
            });
            fault = fault.or(outcome.err());
        }
        (packets, sum, fault.or(reader.end().err()))
    };
    let (whole, peak) = peak_bytes(|| told(bytes.len()));
    let allowed = MEMORY_PER_BYTE * bytes.len() + MEMORY_FLOOR;
    assert!(peak <= allowed, "a capture: {peak} bytes live for {} bytes of input", bytes.len());
    assert_eq!(whole, told(61), "other packets in pieces");
}
