//! Tests that a rank does by itself: matrix products on the device and on the processor, copies in memory, and how late a
//! thread wakes up (FALCON 4.3, computation validation).
use crate::answer::{REPETITIONS, Repeated, done, ended};
use crate::device::{Device, Products, SIZES};
use crate::room::Room;
use mycroft_ring::clock::monotonic_ns;
use mycroft_ring::gate::task::{Answer, Ending};
use std::hint::black_box;

/// Longest time for a product: a device that takes 250 times as long has stopped.
const DEVICE_NS_MAX: u64 = 2_000_000_000;
/// Rows of the processor's matrices: a third of a megabyte at most, so that caches hold them, and below a millisecond each,
/// so that some are done without the thread being moved.
const ROWS: [usize; 3] = [32, 64, 96];
/// Bytes that are copied: more than the caches of a core.
const COPY_BYTES: usize = 4 << 20;
/// Bytes that are copied from a GPU to the host: a millisecond or two of its bus.
const GPU_COPY_BYTES: usize = 32 << 20;
/// How long a thread sleeps to see when it wakes up.
const SLEEP_NS: i64 = 100_000;

/// Does it once more than counts.
fn repeat(mut once: impl FnMut() -> Result<(), Ending>) -> Result<Repeated, Ending> {
    let mut times = [0; REPETITIONS];
    once()?;
    for time in &mut times {
        let begun_ns = monotonic_ns();
        once()?;
        *time = monotonic_ns().saturating_sub(begun_ns);
    }
    Ok(times)
}

/// Waits until the device has done what was begun.
fn wait_for(device: &Device, begun: bool) -> Result<(), Ending> {
    let begun_ns = monotonic_ns();
    while !device.is_idle().ok_or(Ending::Endless)? {
        if monotonic_ns().saturating_sub(begun_ns) > DEVICE_NS_MAX {
            return Err(Ending::Endless);
        }
        std::thread::yield_now();
    }
    if begun { Ok(()) } else { Err(Ending::Failed) }
}

/// Products on the device.
pub(crate) fn device() -> Answer {
    let Some(device) = Device::open(None) else { return ended(Ending::Unable) };
    let Some(products) = Products::of(&device) else { return ended(Ending::Unable) };
    let mut all = [[0; REPETITIONS]; SIZES];
    for (size, times) in all.iter_mut().enumerate() {
        match repeat(|| wait_for(&device, products.begin(size))) {
            Ok(measured) => *times = measured,
            Err(ending) => {
                if ending == Ending::Endless {
                    // The device may still use them.
                    std::mem::forget(products);
                }
                return ended(ending);
            }
        }
    }
    done(&all)
}

/// Copies from the device to the host; the stand-in's device has the host's memory.
pub(crate) fn copy() -> Answer {
    let Some(device) = Device::open(None) else { return ended(Ending::Unable) };
    let Device::Gpu(gpu) = &device else { return ended(Ending::Unable) };
    let (Some(from), Some(to)) = (gpu.memory(GPU_COPY_BYTES), gpu.host_memory(GPU_COPY_BYTES)) else {
        return ended(Ending::Unable);
    };
    match repeat(|| wait_for(&device, from.begin_copy(&to))) {
        Ok(times) => done(&[times]),
        Err(ending) => {
            if ending == Ending::Endless {
                // As above.
                std::mem::forget((from, to));
            }
            ended(ending)
        }
    }
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
            Ok(())
        };
        match repeat(product) {
            Ok(measured) => *times = measured,
            Err(ending) => return ended(ending),
        }
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
        Ok(())
    };
    let copies = repeat(copy);
    let sleep = || {
        let time = libc::timespec { tv_sec: 0, tv_nsec: SLEEP_NS };
        // SAFETY: a valid time, and what is left of it is not asked for.
        unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) };
        Ok(())
    };
    let (copies, mut wakes) = match (copies, repeat(sleep)) {
        (Ok(copies), Ok(wakes)) => (copies, wakes),
        (Err(ending), _) | (_, Err(ending)) => return ended(ending),
    };
    wakes.iter_mut().for_each(|wake| *wake = wake.saturating_sub(SLEEP_NS.unsigned_abs()).max(1));
    done(&[copies, wakes])
}
