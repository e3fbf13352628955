//! Step marks: the training loop may tell where an iteration begins (C ABI, also for ctypes).
use crate::guard::ffi_guard;
use crate::runtime::Runtime;
use mycroft_ring::{RawRecord, RawStepMark, now_ticks};
use std::ffi::c_int;

/// C ABI: iteration `step` begins. Costs one ring record. Returns 0 when it was recorded, 1 when nothing is traced (no
/// communicator yet, or tracing is off); never fails otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn mycroft_step(step: u64) -> c_int {
    ffi_guard(1, || {
        let Some(runtime) = Runtime::get() else { return 1 };
        runtime.push(&RawRecord::StepMark(RawStepMark { at_ticks: now_ticks(), step }));
        0
    })
}
