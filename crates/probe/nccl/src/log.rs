//! What the tracer has to say, in NCCL's own log: the only place where a job hears of it.
use crate::abi::Logger;
use mycroft_probe_core::FixedText;
use std::ffi::{c_int, c_ulong};
use std::fmt;

/// `NCCL_LOG_WARN`.
const LOG_WARN: c_int = 2;
/// `NCCL_INIT`, the subsystem the logger files the line under.
const LOG_INIT: c_ulong = 1;
/// Bytes of a line for NCCL's log, which itself cuts at 1024.
pub(crate) const LINE_BYTES: usize = 1024;

/// Says what went wrong.
pub(crate) fn report(logger: Option<Logger>, line: fmt::Arguments<'_>) {
    let Some(logger) = logger else { return };
    let line = FixedText::<LINE_BYTES>::printed(format_args!("mycroft: {line}"));
    // SAFETY: NCCL's variadic logger with a constant format and one string for it.
    unsafe { logger(LOG_WARN, LOG_INIT, c"mycroft".as_ptr(), 0, c"%s".as_ptr(), line.as_c_str().as_ptr()) };
}
