//! One end of a connection: a queue pair with a completion queue of its own, and a channel to sleep at.
use super::abi::{
    Channel, Cq, Gid, MASK_INIT, MASK_RTR, MASK_RTS, QPS, QPT_RC, Qp, QpAttr, QpInitAttr, RecvWr, SEND_INLINE, SendWr,
    Sge, Wc,
};
use super::nic::{NONE, Nic, failed, made};
use std::io;
use std::mem::{MaybeUninit, zeroed};
use std::ptr::null_mut;
use std::sync::Arc;

/// Requests on their way at most: twice the slices of a FIFO, as NCCL has it (2 x MAX_REQUESTS).
const WORK_MAX: u32 = 64;
/// Bytes that a credit takes, sent along with its request.
pub(super) const CREDIT_BYTES: usize = 32;
/// The code of a sender's timeout, 4.096 us doubled so many times; 20, 4 s, is NCCL's.
const ENV_TIMEOUT: &str = "NCCL_IB_TIMEOUT";
const TIMEOUT: u8 = 20;
/// Tries without an answer, and "always" where the receiver is not ready: NCCL's.
const RETRIES: u8 = 7;
/// The code of 0.64 ms for a sender whose receiver is not ready: NCCL's.
const NOT_READY: u8 = 12;

/// The end.
#[derive(Debug)]
pub(super) struct End {
    pub(super) nic: Arc<Nic>,
    channel: *mut Channel,
    cq: *mut Cq,
    qp: *mut Qp,
    armed: bool,
}

// SAFETY: an end is used by one thread at a time; verbs do not ask which.
unsafe impl Send for End {}

/// What a queue pair is to send.
pub(super) struct Write {
    pub(super) from: Sge,
    pub(super) to: (u64, u32),
    pub(super) opcode: u32,
    pub(super) flags: u32,
    pub(super) immediate: u32,
}

impl End {
    /// A queue pair that is made and not connected.
    ///
    /// # Errors
    /// The device makes no more.
    pub(super) fn new(nic: Arc<Nic>) -> io::Result<End> {
        let mut end = End { channel: null_mut(), cq: null_mut(), qp: null_mut(), armed: false, nic };
        let v = &end.nic.library;
        // SAFETY: an open context, and objects of it; all-zero bytes are valid attributes.
        unsafe {
            end.channel = made((v.create_comp_channel)(end.nic.context), "no completion channel")?;
            let flags = libc::fcntl((*end.channel).fd, libc::F_GETFL);
            libc::fcntl((*end.channel).fd, libc::F_SETFL, flags | libc::O_NONBLOCK);
            let entries = 3 * WORK_MAX as i32;
            end.cq = made((v.create_cq)(end.nic.context, entries, NONE, end.channel, 0), "no completion queue")?;
            let mut init: QpInitAttr = zeroed();
            (init.send_cq, init.recv_cq, init.qp_type) = (end.cq, end.cq, QPT_RC);
            (init.max_send_wr, init.max_recv_wr, init.max_send_sge) = (WORK_MAX, WORK_MAX, 1);
            init.max_inline_data = CREDIT_BYTES as u32;
            end.qp = made((v.create_qp)(end.nic.pd, &mut init), "no queue pair")?;
        }
        Ok(end)
    }

    pub(super) fn number(&self) -> u32 {
        // SAFETY: a live queue pair.
        unsafe { (*self.qp).qp_num }
    }

    pub(super) fn fd(&self) -> i32 {
        // SAFETY: a live channel.
        unsafe { (*self.channel).fd }
    }

    /// Takes the queue pair to where it sends, in the steps of NCCL.
    ///
    /// # Errors
    /// The device refuses a step.
    pub(super) fn connect(&self, peer: (Gid, u32)) -> io::Result<()> {
        let timeout = std::env::var(ENV_TIMEOUT).ok().and_then(|text| text.parse().ok()).unwrap_or(TIMEOUT);
        // SAFETY: all-zero bytes are valid attributes.
        let mut attr: QpAttr = unsafe { zeroed() };
        attr.port_num = 1;
        attr.qp_access_flags = super::abi::ACCESS as u32;
        (attr.path_mtu, attr.dest_qp_num) = (self.nic.mtu, peer.1);
        (attr.max_rd_atomic, attr.max_dest_rd_atomic, attr.min_rnr_timer) = (1, 1, NOT_READY);
        (attr.ah_attr.dgid, attr.ah_attr.is_global, attr.ah_attr.port_num) = (peer.0, 1, 1);
        (attr.timeout, attr.retry_cnt, attr.rnr_retry) = (timeout, RETRIES, RETRIES);
        for (state, mask) in QPS.into_iter().zip([MASK_INIT, MASK_RTR, MASK_RTS]) {
            attr.qp_state = state;
            // SAFETY: a live queue pair and attributes.
            let code = unsafe { (self.nic.library.modify_qp)(self.qp, &mut attr, mask) };
            if code != 0 {
                let why = io::Error::from_raw_os_error(code);
                return Err(io::Error::new(why.kind(), format!("a queue pair cannot be connected: {why}")));
            }
        }
        Ok(())
    }

    /// Posts a write.
    ///
    /// # Errors
    /// The queue is full, or the queue pair is not ready.
    pub(super) fn write(&self, write: Write) -> io::Result<()> {
        let mut from = write.from;
        // SAFETY: all-zero bytes are a valid request.
        let mut wr: SendWr = unsafe { zeroed() };
        (wr.opcode, wr.send_flags, wr.imm_data) = (write.opcode, write.flags, write.immediate.to_be_bytes());
        (wr.remote_addr, wr.rkey) = write.to;
        if from.length > 0 {
            (wr.sg_list, wr.num_sge) = (&raw mut from, 1);
        }
        debug_assert!(write.flags & SEND_INLINE == 0 || from.length as usize <= CREDIT_BYTES);
        let mut bad = null_mut();
        // SAFETY: a live queue pair and a request whose parts live through the call.
        match unsafe { ((*(*self.qp).context).post_send)(self.qp, &mut wr, &mut bad) } {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    /// Posts a receive without memory, for a write with immediate data.
    ///
    /// # Errors
    /// The queue is full.
    pub(super) fn receive(&self) -> io::Result<()> {
        let mut wr = RecvWr { wr_id: 0, next: null_mut(), sg_list: null_mut(), num_sge: 0 };
        let mut bad = null_mut();
        // SAFETY: a live queue pair and a request.
        match unsafe { ((*(*self.qp).context).post_recv)(self.qp, &mut wr, &mut bad) } {
            0 => Ok(()),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }

    fn poll_once(&self) -> io::Result<Option<Wc>> {
        let mut wc = MaybeUninit::uninit();
        // SAFETY: a live queue and a place, which is filled where the answer is 1.
        let wc = unsafe {
            match ((*(*self.cq).context).poll_cq)(self.cq, 1, wc.as_mut_ptr()) {
                1 => wc.assume_init(),
                0 => return Ok(None),
                _ => return Err(failed("a completion queue failed")),
            }
        };
        if wc.status != 0 {
            return Err(io::Error::other(format!("RDMA: {}", self.nic.library.status(wc.status))));
        }
        Ok(Some(wc))
    }

    /// The next completion. Where there is none, the channel's descriptor says when there is.
    ///
    /// # Errors
    /// Work ended unsuccessfully.
    pub(super) fn poll(&mut self) -> io::Result<Option<Wc>> {
        if let Some(wc) = self.poll_once()? {
            return Ok(Some(wc));
        }
        if self.armed {
            let (mut cq, mut context) = (null_mut(), NONE);
            // SAFETY: a live channel that does not block, and places.
            self.armed = unsafe { (self.nic.library.get_cq_event)(self.channel, &mut cq, &mut context) } != 0;
        }
        if !self.armed {
            self.armed = true;
            // SAFETY: a live queue.
            unsafe { ((*(*self.cq).context).req_notify_cq)(self.cq, 0) };
        }
        self.poll_once()
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let v = &self.nic.library;
        // SAFETY: live objects or null, each given back once, in the order in which they need each other.
        unsafe {
            if !self.qp.is_null() {
                (v.destroy_qp)(self.qp);
            }
            if !self.cq.is_null() {
                (v.destroy_cq)(self.cq);
            }
            if !self.channel.is_null() {
                (v.destroy_comp_channel)(self.channel);
            }
        }
    }
}
