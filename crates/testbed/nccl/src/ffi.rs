//! The edge to C: no panic crosses it, and every fault leaves a sentence behind.

use crate::abi::{Code, Fault, Res};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

thread_local! {
    static LAST: RefCell<CString> = RefCell::new(CString::default());
}

/// Runs the body of an exported function.
pub(crate) fn guard(body: impl FnOnce() -> Res<()>) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|_| Err(Fault::new(Code::InternalError, "a bug in the collective library: it panicked")));
    match outcome {
        Ok(()) => Code::Success as c_int,
        Err(fault) => {
            if fault.code != Code::InProgress {
                crate::log::warn(&fault.message);
                let text = CString::new(fault.message.replace('\0', " ")).unwrap_or_default();
                LAST.with(|l| *l.borrow_mut() = text);
            }
            fault.code as c_int
        }
    }
}

/// The last fault of this thread.
pub(crate) fn last_error() -> *const c_char {
    LAST.with(|l| l.borrow().as_ptr())
}

/// What a code means.
pub(crate) fn describe(code: c_int) -> &'static CStr {
    match code {
        0 => c"no error",
        1 => c"unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
        2 => c"unhandled system error (run with NCCL_DEBUG=INFO for details)",
        3 => c"internal error - please report this issue to the NCCL developers",
        4 => c"invalid argument (run with NCCL_DEBUG=WARN for details)",
        5 => c"invalid usage (run with NCCL_DEBUG=WARN for details)",
        6 => c"remote process exited or there was a network error",
        7 => c"NCCL operation in progress",
        _ => c"unknown result code",
    }
}
