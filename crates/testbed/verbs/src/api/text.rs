//! Names of numbers, as rdma-core has them.
use std::ffi::{CStr, c_char, c_int};

const EVENTS: [&CStr; 20] = [
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal error",
];

const STATUSES: [&CStr; 24] = [
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

fn name(names: &[&'static CStr], number: c_int) -> *const c_char {
    let known = usize::try_from(number).ok().and_then(|at| names.get(at));
    known.map_or(c"unknown", |name| *name).as_ptr()
}

/// `ibv_event_type_str`.
pub(super) unsafe extern "C" fn event_type_str(event: c_int) -> *const c_char {
    name(&EVENTS, event)
}

/// `ibv_wc_status_str`.
pub(super) unsafe extern "C" fn wc_status_str(status: c_int) -> *const c_char {
    name(&STATUSES, status)
}
