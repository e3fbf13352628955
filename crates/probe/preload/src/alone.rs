//! Tests that a rank does by itself: matrix products on the device and on the processor, copies in memory, and how late a
//! thread wakes up (FALCON 4.3, computation validation).
use crate::answer::{REPETITIONS, Repeated, done, ended};
use crate::device;
use crate::room::Room;
use mycroft_ring::clock::monotonic_ns;
use mycroft_ring::gate::task::{Answer, Ending};
use std::hint::black_box;

/// Nanoseconds that a product of each size takes on a healthy device of the stand-in.
const DEVICE_NS: [u64; 3] = [2_000_000, 4_000_000, 8_000_000];
/// Longest time for a product: a device that takes 250 times as long has stopped.
const DEVICE_NS_MAX: u64 = 2_000_000_000;
/// Rows of the processor's matrices: a third of a megabyte at most, so that caches hold them, and below a millisecond each,
/// so that some are done without the thread being moved.
const ROWS: [usize; 3] = [32, 64, 96];
/// Bytes that are copied: more than the caches of a core.
const COPY_BYTES: usize = 4 << 20;
/// How long a thread sleeps to see when it wakes up.
const SLEEP_NS: i64 = 100_000;

/// Does it once more than counts; `None` where it did not end.
fn repeat(mut once: impl FnMut() -> Option<()>) -> Option<Repeated> {
    let mut times = [0; REPETITIONS];
    once()?;
    for time in &mut times {
        let begun_ns = monotonic_ns();
        once()?;
        *time = monotonic_ns().saturating_sub(begun_ns);
    }
    Some(times)
}

/// Products on the device. (The stand-in's kernels have a nominal duration; for a GPU it takes cuBLAS.)
pub(crate) fn device() -> Answer {
    let Some(stream) = device::stream() else { return ended(Ending::Unable) };
    let mut all = [[0; REPETITIONS]; DEVICE_NS.len()];
    for (times, nominal_ns) in all.iter_mut().zip(DEVICE_NS) {
        let product = || {
            let begun_ns = monotonic_ns();
            if !device::compute(stream, nominal_ns) {
                return None;
            }
            while !device::is_idle(stream) {
                if monotonic_ns().saturating_sub(begun_ns) > DEVICE_NS_MAX {
                    return None;
                }
                std::thread::yield_now();
            }
            Some(())
        };
        let Some(measured) = repeat(product) else { return ended(Ending::Endless) };
        *times = measured;
    }
    done(&all)
}

/// Products on the processor.
pub(crate) fn processor() -> Answer {
    let most = ROWS[ROWS.len() - 1];
    let Some(mut room) = Room::new(3 * most * most * size_of::<f32>()) else { return ended(Ending::Unable) };
    let mut all = [[0; REPETITIONS]; ROWS.len()];
    for (times, rows) in all.iter_mut().zip(ROWS) {
        let (inputs, output) = room.floats().split_at_mut(2 * most * most);
        inputs.iter_mut().enumerate().for_each(|(i, value)| *value = (i % 13) as f32);
        let (left, right) = inputs.split_at(most * most);
        let product = || {
            multiply(rows, black_box(left), black_box(right), output);
            black_box(&*output);
            Some(())
        };
        let Some(measured) = repeat(product) else { return ended(Ending::Endless) };
        *times = measured;
    }
    done(&all)
}

/// `output += left * right`, square matrices row by row.
fn multiply(rows: usize, left: &[f32], right: &[f32], output: &mut [f32]) {
    for (out, left) in output.chunks_exact_mut(rows).zip(left.chunks_exact(rows)).take(rows) {
        for (factor, right) in left.iter().zip(right.chunks_exact(rows)) {
            for (out, value) in out.iter_mut().zip(right) {
                *out += factor * value;
            }
        }
    }
}

/// Copies in memory, and how late a thread wakes up from a short sleep.
pub(crate) fn host() -> Answer {
    let Some(mut room) = Room::new(2 * COPY_BYTES) else { return ended(Ending::Unable) };
    let (from, to) = room.floats().split_at_mut(COPY_BYTES / size_of::<f32>());
    let copy = || {
        to.copy_from_slice(black_box(from));
        black_box(&*to);
        Some(())
    };
    let Some(copies) = repeat(copy) else { return ended(Ending::Endless) };
    let sleep = || {
        let time = libc::timespec { tv_sec: 0, tv_nsec: SLEEP_NS };
        // SAFETY: a valid time, and what is left of it is not asked for.
        unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
        Some(())
    };
    let Some(mut wakes) = repeat(sleep) else { return ended(Ending::Endless) };
    wakes.iter_mut().for_each(|wake| *wake = wake.saturating_sub(SLEEP_NS.unsigned_abs()).max(1));
    done(&[copies, wakes])
}
