//! The edge to C: nothing that goes wrong inside may reach the job (design invariant 3).
use crate::runtime;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs the body of a C callback. A panic ends tracing for good and gives `fallback`; the job goes on untraced.
#[inline]
pub fn ffi_guard<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(payload) => {
            runtime::disable();
            // A payload's destructor could panic in turn: leave it.
            std::mem::forget(payload);
            fallback
        }
    }
}
