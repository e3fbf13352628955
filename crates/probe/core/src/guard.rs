//! The edge to C: nothing that goes wrong inside may reach the job (invariant 3).
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::CommInfo;
    use crate::runtime::{Attach, AttachError, Runtime};

    #[test]
    fn a_panic_gives_the_fallback_and_ends_tracing() {
        assert_eq!(ffi_guard(1, || 2), 2);
        let dir = tempfile::tempdir().expect("a temporary folder");
        // SAFETY: this test has a process of its own and no other thread reads the environment.
        unsafe { std::env::set_var("MYCROFT_DIR", dir.path()) };
        let comm = CommInfo { id: Some(1), name: "", n_nodes: 1, n_ranks: 1, rank: Some(0) };
        let attach = Attach { abi: 6, nccl_version: 0, kernel_events: true, hidden: &[], segment_bytes: 0, comm };
        assert!(Runtime::attach(&attach).is_ok() && Runtime::get().is_some());
        assert_eq!(ffi_guard(1, || -> i32 { panic!("inside the plugin") }), 1);
        assert!(Runtime::get().is_none(), "from now on every callback returns at once");
        assert!(matches!(Runtime::attach(&attach), Err(AttachError::Disabled)));
    }
}
