//! Queue pairs: making them, and the steps from reset to ready.
use super::device::{OwnedContext, PIECES_MAX, WORK_MAX, mtu_code};
use super::fail;
use super::queues::OwnedCq;
use crate::abi::{self, QpAttr, QpInitAttr};
use crate::cq::lock;
use crate::device::{Device, Pair};
use crate::psn;
use crate::qp::{Config, Retry, State};
use crate::settings::MTUS;
use std::ffi::c_int;
use std::net::Ipv6Addr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// Bytes that a request may bring along at most.
const INLINE_BYTES_MAX: u32 = 1024;
/// The unit of a local timeout: 4.096 us, doubled as often as the code says (InfiniBand Architecture Specification, volume 1,
/// 9.7.6.1.3).
const TIMEOUT_NS: u64 = 4096;

/// A queue pair and what the program said of it.
#[repr(C)]
pub(super) struct OwnedQp {
    ibv: abi::Qp,
    pub(super) device: Arc<Device>,
    pub(super) pair: Arc<Pair>,
    pub(super) init: QpInitAttr,
    attr: Mutex<QpAttr>,
}

/// `ibv_create_qp`.
pub(super) unsafe extern "C" fn create_qp(pd: *mut abi::Pd, init: *mut QpInitAttr) -> *mut abi::Qp {
    // SAFETY: the program gives a domain of an open context, attributes, and queues that it made.
    let parts = unsafe {
        pd.as_ref().zip(init.as_ref()).and_then(|(pd, init)| {
            let context = pd.context.cast::<OwnedContext>().as_ref()?;
            let send = init.send_cq.cast::<OwnedCq>().as_ref()?;
            Some((context, init, send, init.recv_cq.cast::<OwnedCq>().as_ref()?))
        })
    };
    let Some((context, init, send, recv)) = parts else { return fail(libc::EINVAL) };
    if init.qp_type != abi::QPT_RC || !init.srq.is_null() {
        return fail(libc::EOPNOTSUPP);
    }
    let cap = &init.cap;
    let work = cap.max_send_wr.max(cap.max_recv_wr);
    let pieces = cap.max_send_sge.max(cap.max_recv_sge);
    if work > WORK_MAX || pieces > PIECES_MAX || cap.max_inline_data > INLINE_BYTES_MAX {
        return fail(libc::EINVAL);
    }
    let device = &context.device;
    let Some(pair) = device.add_pair(Arc::clone(&send.cq), Arc::clone(&recv.cq)) else { return fail(libc::ENOMEM) };
    let ibv = abi::Qp {
        context: (&raw const context.ibv).cast_mut(),
        qp_context: init.qp_context,
        pd,
        send_cq: init.send_cq,
        recv_cq: init.recv_cq,
        srq: init.srq,
        handle: pair.number,
        qp_num: pair.number,
        state: abi::QPS_RESET,
        qp_type: init.qp_type,
        mutex: libc::PTHREAD_MUTEX_INITIALIZER,
        cond: libc::PTHREAD_COND_INITIALIZER,
        events_completed: 0,
    };
    // SAFETY: all-zero bytes are a valid value.
    let attr = Mutex::new(QpAttr { cap: init.cap, ..unsafe { std::mem::zeroed() } });
    let owned = OwnedQp { ibv, device: Arc::clone(device), pair, init: *init, attr };
    let owned = Box::leak(Box::new(owned));
    let at: *mut OwnedQp = owned;
    owned.pair.handle.store(at.expose_provenance(), Ordering::Release);
    at.cast()
}

/// `ibv_destroy_qp`.
pub(super) unsafe extern "C" fn destroy_qp(qp: *mut abi::Qp) -> c_int {
    if qp.is_null() {
        return libc::EINVAL;
    }
    // SAFETY: `create_qp` made it, and the program gives it back.
    let owned = unsafe { Box::from_raw(qp.cast::<OwnedQp>()) };
    owned.device.remove_pair(&owned.pair);
    owned.device.flush();
    0
}

/// What must be said with a step, and where it leads; `None` where there is no such step.
fn step(from: State, to: u32) -> Option<(State, c_int)> {
    match (from, to) {
        (_, abi::QPS_RESET) => Some((State::Reset, 0)),
        (_, abi::QPS_ERR) => Some((State::Error, 0)),
        (State::Reset | State::Init, abi::QPS_INIT) => Some((State::Init, 0)),
        (State::Init, abi::QPS_RTR) => {
            Some((State::ReadyToReceive, abi::QP_AV | abi::QP_PATH_MTU | abi::QP_DEST_QPN | abi::QP_RQ_PSN))
        }
        (State::ReadyToReceive, abi::QPS_RTS) => {
            Some((State::ReadyToSend, abi::QP_TIMEOUT | abi::QP_RETRY_CNT | abi::QP_RNR_RETRY | abi::QP_SQ_PSN))
        }
        (State::ReadyToSend, abi::QPS_RTS) => Some((State::ReadyToSend, 0)),
        _ => None,
    }
}

/// The configuration with what `attr` says.
fn configure(config: &Config, attr: &QpAttr, mask: c_int) -> Option<Config> {
    let mut new = *config;
    let says = |bit: c_int| mask & bit != 0;
    if says(abi::QP_PATH_MTU) {
        new.mtu_bytes = *MTUS.get((attr.path_mtu as usize).checked_sub(1)?)?;
    }
    if says(abi::QP_DEST_QPN) {
        new.peer = attr.dest_qp_num & psn::MASK;
    }
    if says(abi::QP_RQ_PSN) {
        new.receive_psn = attr.rq_psn & psn::MASK;
    }
    if says(abi::QP_SQ_PSN) {
        new.send_psn = attr.sq_psn & psn::MASK;
    }
    if says(abi::QP_ACCESS_FLAGS) {
        new.may_write = attr.qp_access_flags as c_int & abi::ACCESS_REMOTE_WRITE != 0;
    }
    if says(abi::QP_MIN_RNR_TIMER) {
        new.not_ready_code = attr.min_rnr_timer & 0x1f;
    }
    let Retry { timeout_ns, count, not_ready } = new.retry;
    new.retry = Retry {
        timeout_ns: if says(abi::QP_TIMEOUT) {
            (attr.timeout & 0x1f > 0).then(|| TIMEOUT_NS << (attr.timeout & 0x1f))
        } else {
            timeout_ns
        },
        count: if says(abi::QP_RETRY_CNT) { attr.retry_cnt & 7 } else { count },
        not_ready: if says(abi::QP_RNR_RETRY) { attr.rnr_retry & 7 } else { not_ready },
    };
    Some(new)
}

/// `ibv_modify_qp`.
pub(super) unsafe extern "C" fn modify_qp(qp: *mut abi::Qp, attr: *mut QpAttr, mask: c_int) -> c_int {
    // SAFETY: the program gives a queue pair that it made, and attributes.
    let parts = unsafe { qp.cast::<OwnedQp>().as_ref().zip(attr.as_ref()) };
    let Some((owned, attr)) = parts else { return libc::EINVAL };
    if mask & abi::QP_AV != 0 {
        let peer = Ipv6Addr::from(attr.ah_attr.dgid.raw).to_ipv4_mapped();
        let Some(peer) = peer.filter(|_| attr.ah_attr.is_global != 0) else { return libc::EINVAL };
        *lock(&owned.pair.peer) = Some(peer);
    }
    let new_state = owned.device.with(&owned.pair, |connection, _| {
        let to = if mask & abi::QP_STATE != 0 { attr.qp_state } else { code(connection.state()) };
        let (state, needs) = step(connection.state(), to)?;
        let config = configure(connection.config(), attr, mask)?;
        if mask & needs != needs || config.mtu_bytes > owned.device.mtu_bytes {
            return None;
        }
        connection.become_state(state, config);
        Some(code(state))
    });
    let Some(new_state) = new_state else { return libc::EINVAL };
    // SAFETY: only the program's thread that modifies the pair uses this field.
    unsafe { (*qp).state = new_state };
    remember(&mut lock(&owned.attr), attr, mask);
    0
}

/// Keeps what the program said, to tell it again.
fn remember(known: &mut QpAttr, said: &QpAttr, mask: c_int) {
    if mask & abi::QP_AV != 0 {
        known.ah_attr = said.ah_attr;
    }
    if mask & abi::QP_ACCESS_FLAGS != 0 {
        known.qp_access_flags = said.qp_access_flags;
    }
    for (bit, to, from) in [
        (abi::QP_TIMEOUT, &mut known.timeout, said.timeout),
        (abi::QP_RETRY_CNT, &mut known.retry_cnt, said.retry_cnt),
        (abi::QP_RNR_RETRY, &mut known.rnr_retry, said.rnr_retry),
        (abi::QP_MIN_RNR_TIMER, &mut known.min_rnr_timer, said.min_rnr_timer),
    ] {
        if mask & bit != 0 {
            *to = from;
        }
    }
}

fn code(state: State) -> u32 {
    match state {
        State::Reset => abi::QPS_RESET,
        State::Init => abi::QPS_INIT,
        State::ReadyToReceive => abi::QPS_RTR,
        State::ReadyToSend => abi::QPS_RTS,
        State::Error => abi::QPS_ERR,
    }
}

/// `ibv_query_qp`.
pub(super) unsafe extern "C" fn query_qp(
    qp: *mut abi::Qp,
    attr: *mut QpAttr,
    _: c_int,
    init: *mut QpInitAttr,
) -> c_int {
    // SAFETY: the program gives a queue pair that it made.
    let Some(owned) = (unsafe { qp.cast::<OwnedQp>().as_ref() }) else { return libc::EINVAL };
    let mut out = *lock(&owned.attr);
    let (state, config) = owned.device.with(&owned.pair, |connection, _| (connection.state(), *connection.config()));
    (out.qp_state, out.cur_qp_state) = (code(state), code(state));
    out.path_mtu = mtu_code(config.mtu_bytes);
    (out.rq_psn, out.sq_psn, out.dest_qp_num) = (config.receive_psn, config.send_psn, config.peer);
    out.port_num = 1;
    // SAFETY: the program gives places for both.
    unsafe {
        attr.write(out);
        init.write(owned.init);
    }
    0
}

/// `ibv_query_ece` and `ibv_set_ece`: no options of a vendor.
pub(super) unsafe extern "C" fn no_ece() -> c_int {
    libc::EOPNOTSUPP
}
