//! The four functions that programs call through the context: posting work, and polling for what is done.
use super::device::MESSAGE_BYTES_MAX;
use super::pairs::OwnedQp;
use super::queues::OwnedCq;
use crate::abi::{self, RecvWr, SendWr, Sge};
use crate::qp::{Data, Piece, Receive, Request, Send, State};
use std::ffi::c_int;
use std::ptr;

/// `ibv_poll_cq`.
pub(super) unsafe extern "C" fn poll_cq(cq: *mut abi::Cq, count: c_int, wc: *mut abi::Wc) -> c_int {
    // SAFETY: the program gives a queue that it made.
    let Some(owned) = (unsafe { cq.cast::<OwnedCq>().as_ref() }) else { return -1 };
    let mut got = 0;
    while got < count.max(0) {
        let Some(next) = owned.cq.pop() else { break };
        // SAFETY: the program gives `count` places.
        unsafe { wc.add(got as usize).write(next) };
        got += 1;
    }
    got
}

/// `ibv_req_notify_cq`.
pub(super) unsafe extern "C" fn req_notify_cq(cq: *mut abi::Cq, _: c_int) -> c_int {
    // SAFETY: the program gives a queue that it made.
    let Some(owned) = (unsafe { cq.cast::<OwnedCq>().as_ref() }) else { return libc::EINVAL };
    owned.cq.arm();
    0
}

/// The pieces of a work request, or `EINVAL`.
///
/// # Safety
/// `list` has `count` elements, or `count` is 0.
unsafe fn pieces(list: *const Sge, count: c_int, most: u32) -> Result<Vec<Piece>, c_int> {
    let count = usize::try_from(count).ok().filter(|count| *count <= most as usize).ok_or(libc::EINVAL)?;
    if count == 0 {
        return Ok(Vec::new());
    }
    // SAFETY: the caller's promise.
    let list = unsafe { std::slice::from_raw_parts(list, count) };
    let bytes: u64 = list.iter().map(|sge| u64::from(sge.length)).sum();
    if bytes > u64::from(MESSAGE_BYTES_MAX) {
        return Err(libc::EINVAL);
    }
    Ok(list.iter().map(|sge| Piece { address: sge.addr, bytes: sge.length, key: sge.lkey }).collect())
}

/// What a work request asks for.
///
/// # Safety
/// Its list of pieces has the length that it names; inline data is readable.
unsafe fn request(wr: &SendWr, owned: &OwnedQp) -> Result<Send, c_int> {
    let (request, has_immediate) = match wr.opcode {
        abi::WR_SEND | abi::WR_SEND_WITH_IMM => (Request::Send, wr.opcode == abi::WR_SEND_WITH_IMM),
        abi::WR_RDMA_WRITE | abi::WR_RDMA_WRITE_WITH_IMM => {
            let target = Request::Write { address: wr.remote_addr, key: wr.rkey };
            (target, wr.opcode == abi::WR_RDMA_WRITE_WITH_IMM)
        }
        _ => return Err(libc::EOPNOTSUPP),
    };
    let cap = &owned.init.cap;
    // SAFETY: the caller's promise.
    let pieces = unsafe { pieces(wr.sg_list, wr.num_sge, cap.max_send_sge)? };
    let mut data = Data::Pieces(pieces);
    if wr.send_flags & abi::SEND_INLINE != 0 {
        if data.bytes() > cap.max_inline_data {
            return Err(libc::EINVAL);
        }
        let mut bytes = Vec::with_capacity(data.bytes() as usize);
        if let Data::Pieces(pieces) = &data {
            for piece in pieces {
                let from: *const u8 = ptr::with_exposed_provenance(piece.address as usize);
                // SAFETY: the program says that so many bytes are readable there now.
                bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(from, piece.bytes as usize) });
            }
        }
        data = Data::Inline(bytes);
    }
    Ok(Send {
        id: wr.wr_id,
        request,
        data,
        immediate: has_immediate.then_some(wr.imm_data),
        signaled: owned.init.sq_sig_all != 0 || wr.send_flags & abi::SEND_SIGNALED != 0,
    })
}

/// `ibv_post_send`.
pub(super) unsafe extern "C" fn post_send(qp: *mut abi::Qp, wr: *mut SendWr, bad: *mut *mut SendWr) -> c_int {
    // SAFETY: the program gives a queue pair that it made.
    let Some(owned) = (unsafe { qp.cast::<OwnedQp>().as_ref() }) else { return libc::EINVAL };
    owned.device.with(&owned.pair, |connection, _| {
        let mut at = wr;
        // SAFETY: the program gives a list of work requests that ends with null.
        while let Some(work) = unsafe { at.as_ref() } {
            let allowed = match connection.state() {
                State::ReadyToSend | State::Error => {
                    let room = connection.sends() < owned.init.cap.max_send_wr as usize;
                    if room { Ok(()) } else { Err(libc::ENOMEM) }
                }
                _ => Err(libc::EINVAL),
            };
            // SAFETY: the program's promises for a work request.
            match allowed.and_then(|()| unsafe { request(work, owned) }) {
                Ok(send) => connection.post_send(send),
                Err(errno) => {
                    // SAFETY: the program gives a place for it.
                    unsafe { bad.write(at) };
                    return errno;
                }
            }
            at = work.next;
        }
        0
    })
}

/// `ibv_post_recv`.
pub(super) unsafe extern "C" fn post_recv(qp: *mut abi::Qp, wr: *mut RecvWr, bad: *mut *mut RecvWr) -> c_int {
    // SAFETY: the program gives a queue pair that it made.
    let Some(owned) = (unsafe { qp.cast::<OwnedQp>().as_ref() }) else { return libc::EINVAL };
    owned.device.with(&owned.pair, |connection, _| {
        let mut at = wr;
        // SAFETY: the program gives a list of work requests that ends with null.
        while let Some(work) = unsafe { at.as_ref() } {
            let allowed = match connection.state() {
                State::Reset => Err(libc::EINVAL),
                _ if connection.receives() >= owned.init.cap.max_recv_wr as usize => Err(libc::ENOMEM),
                _ => Ok(()),
            };
            // SAFETY: the program's promises for a work request.
            let pieces =
                allowed.and_then(|()| unsafe { pieces(work.sg_list, work.num_sge, owned.init.cap.max_recv_sge) });
            match pieces {
                Ok(pieces) => connection.post_receive(Receive { id: work.wr_id, pieces }),
                Err(errno) => {
                    // SAFETY: the program gives a place for it.
                    unsafe { bad.write(at) };
                    return errno;
                }
            }
            at = work.next;
        }
        0
    })
}
