//! A kernel: the work of one group of calls on one communicator, executed cooperatively by one device thread.
//!
//! Each channel works off its list of [`Work`]; each work has [`Fiber`]s that all make progress side by side; each
//! fiber executes the [`Prim`]itives of its [`Program`] slice by slice. A slice is done when its input slots are full
//! and its output slots are free; otherwise the device looks at the next fiber, and sleeps on the communicator's
//! doorbell when none can move.

pub mod p2p;
pub mod ring;
pub mod tree;

use crate::abi::{DType, RedOp};
use crate::clock::{globaltimer_ns, monotonic_ns};
use crate::comm::Comm;
use crate::device::{Event, lock, sleep_until, stop_here_if_told};
use crate::dtype;
use crate::env::STEPS;
use crate::transport::{ConnKey, fifo::Doorbell, fifo::Fifo, waker::ProxyWaker};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// One step of an algorithm on one chunk. Offsets and counts are in elements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Prim {
    /// Offset in the send buffer of the chunk to combine or to send.
    pub src: Option<usize>,
    /// Offset in the receive buffer where the result goes.
    pub dst: Option<usize>,
    /// Takes a chunk from every upstream connection.
    pub recv: bool,
    /// Gives the result to every downstream connection.
    pub send: bool,
    /// The result is final: apply the end of an average.
    pub post: bool,
    /// Elements.
    pub count: usize,
}

/// What a fiber executes.
#[derive(Debug, Clone)]
pub enum Program {
    /// A ring collective.
    Ring(ring::Ring),
    /// One direction of a tree collective.
    Tree(tree::Tree),
    /// Point-to-point transfers on one connection, in order.
    P2p(p2p::P2p),
}

impl Program {
    fn prim(&self, index: usize) -> Option<Prim> {
        match self {
            Program::Ring(r) => r.prim(index),
            Program::Tree(t) => t.prim(index),
            Program::P2p(p) => p.prim(index),
        }
    }
}

/// Buffers and arithmetic of a fiber.
#[derive(Debug, Clone, Copy)]
pub struct Operands {
    /// Address of the send buffer.
    pub send: usize,
    /// Address of the receive buffer.
    pub recv: usize,
    /// Type of the elements.
    pub dtype: DType,
    /// Reduction.
    pub op: RedOp,
    /// Ranks, the divisor of an average.
    pub ranks: usize,
}

/// One sequence of primitives with its connections.
#[derive(Debug)]
pub struct Fiber {
    /// What to do.
    pub program: Program,
    /// On what.
    pub operands: Operands,
    /// Where chunks come from.
    pub recvs: Vec<ConnKey>,
    /// Where chunks go.
    pub sends: Vec<ConnKey>,
    /// Steps of a chunk.
    pub chunk_steps: u64,
    /// Steps of a slice.
    pub slice_steps: u64,
    index: usize,
    slice: u64,
    started: bool,
    done: bool,
}

impl Fiber {
    /// A fiber that has not begun.
    pub fn new(
        program: Program,
        operands: Operands,
        recvs: Vec<ConnKey>,
        sends: Vec<ConnKey>,
        steps: (u64, u64),
    ) -> Fiber {
        Fiber {
            program,
            operands,
            recvs,
            sends,
            chunk_steps: steps.0,
            slice_steps: steps.1,
            index: 0,
            slice: 0,
            started: false,
            done: false,
        }
    }
}

/// What one channel does before it goes on to the next.
#[derive(Debug)]
pub struct Work {
    /// All of these, side by side.
    pub fibers: Vec<Fiber>,
    /// The channel's work counter, for KernelCh events.
    pub counter: u64,
    /// Whether somebody watches the counter.
    pub watched: bool,
}

/// Who hears that a slot was filled or emptied.
#[derive(Debug, Clone)]
pub enum Notify {
    /// The device of the other rank, in shared memory.
    Peer(Doorbell),
    /// The proxy thread of this rank.
    Proxy(Arc<ProxyWaker>),
}

impl Notify {
    fn poke(&self) {
        match self {
            Notify::Peer(bell) => bell.ring(),
            Notify::Proxy(waker) => waker.wake(),
        }
    }
}

/// The device's end of a connection.
#[derive(Debug)]
pub struct DevConn {
    /// The slots.
    pub fifo: Fifo,
    /// Steps this end has gone through.
    pub step: u64,
    /// Who waits at the other end.
    pub notify: Notify,
}

/// Everything the device keeps of a communicator between kernels.
#[derive(Debug, Default)]
pub struct DevState {
    /// Connections made so far.
    pub conns: HashMap<ConnKey, DevConn>,
}

/// One launch.
#[derive(Debug)]
pub struct Kernel {
    /// The communicator.
    pub comm: Arc<Comm>,
    /// Per channel, what to do in order.
    pub channels: Vec<(usize, std::collections::VecDeque<Work>)>,
    /// Connections the device does not know yet.
    pub conns: Vec<(ConnKey, DevConn)>,
    /// Set when the kernel is over.
    pub done: Arc<Event>,
    /// Copies with no connection at all (a communicator of one rank, a rank that sends to itself).
    pub copies: Vec<Operands3>,
}

/// A local copy: operands and the number of elements.
pub type Operands3 = (Operands, usize);

/// What one look at a fiber gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Moved,
    Blocked,
    Finished,
}

impl Kernel {
    /// Executes the kernel; returns when it is complete or its communicator was aborted.
    pub fn run(&mut self) {
        let comm = Arc::clone(&self.comm);
        if !self.execute(&comm) {
            crate::log::info("kernel left unfinished: communicator aborted");
        }
        if let Some(control) = &comm.identity.control {
            control.rank().kernels_done.fetch_add(1, Relaxed);
        }
        self.done.set();
        comm.kernel_finished();
    }

    fn execute(&mut self, comm: &Comm) -> bool {
        for (operands, count) in &self.copies {
            copy_alone(operands, *count);
        }
        let mut state = lock(&comm.device);
        state.conns.extend(self.conns.drain(..));
        let mut toll = CopyToll::default();
        loop {
            if comm.is_aborted() {
                return false;
            }
            // Inside a host nothing but the kernel's start and stop can be seen, in NCCL as here: a device that stopped in
            // the middle would look like any of its neighbours. It goes on to the end of such a kernel.
            if comm.nodes > 1 {
                stop_here_if_told(comm.identity.control.as_ref(), || comm.is_aborted());
            }
            let seen = comm.bell.rings();
            let mut moved = false;
            let mut busy = false;
            for (channel, works) in &mut self.channels {
                while let Some(work) = works.front_mut() {
                    let look = run_work(comm, &mut state, *channel, work, &mut toll);
                    moved |= look != Look::Blocked;
                    if look != Look::Finished {
                        busy = true;
                        break;
                    }
                    works.pop_front();
                }
            }
            if !busy {
                return true;
            }
            if !moved {
                comm.bell.wait(seen, 100);
            }
        }
    }
}

fn run_work(comm: &Comm, state: &mut DevState, channel: usize, work: &mut Work, toll: &mut CopyToll) -> Look {
    if work.watched && !work.fibers.iter().any(|f| f.started) {
        comm.work_started(channel, work.counter, globaltimer_ns());
    }
    let mut look = Look::Blocked;
    let mut finished = true;
    for fiber in &mut work.fibers {
        if fiber.done {
            continue;
        }
        match fiber.advance(comm, state, toll) {
            Look::Finished => {
                fiber.done = true;
                look = Look::Moved;
            }
            Look::Moved => {
                look = Look::Moved;
                finished = false;
            }
            Look::Blocked => finished = false,
        }
    }
    if finished {
        if work.watched {
            comm.work_completed(channel, work.counter, globaltimer_ns());
        }
        return Look::Finished;
    }
    look
}

impl Fiber {
    /// Does at most one slice.
    fn advance(&mut self, comm: &Comm, state: &mut DevState, toll: &mut CopyToll) -> Look {
        if !self.started {
            self.started = true;
            self.align(state);
        }
        let Some(prim) = self.program.prim(self.index) else { return Look::Finished };
        if !self.ready(&prim, state) {
            return Look::Blocked;
        }
        self.do_slice(comm, &prim, state, toll);
        self.slice += 1;
        if self.slice * self.slice_steps >= self.chunk_steps {
            self.slice = 0;
            self.index += 1;
        }
        Look::Moved
    }

    /// Both ends begin an operation at a multiple of its chunk, as NCCL does, so that a slice never wraps around.
    fn align(&self, state: &mut DevState) {
        for key in self.recvs.iter().chain(&self.sends) {
            if let Some(conn) = state.conns.get_mut(key) {
                conn.step = conn.step.next_multiple_of(self.chunk_steps);
            }
        }
    }

    fn ready(&self, prim: &Prim, state: &DevState) -> bool {
        let end = |conn: &DevConn| (conn.step + self.slice_steps) as i64;
        let full = |key| state.conns.get(key).is_some_and(|c| c.fifo.tail() >= end(c));
        let free = |key| state.conns.get(key).is_some_and(|c| c.fifo.head() + STEPS as i64 >= end(c));
        (!prim.recv || self.recvs.iter().all(full)) && (!prim.send || self.sends.iter().all(free))
    }

    /// Elements of the current slice: from where in the chunk, and how many.
    fn slice_range(&self, prim: &Prim, slot_bytes: usize) -> (usize, usize) {
        let slices = (self.chunk_steps / self.slice_steps) as usize;
        let cap = slot_bytes * self.slice_steps as usize / self.operands.dtype.size();
        let each = prim.count.div_ceil(slices).next_multiple_of(16).min(cap);
        let from = (each * self.slice as usize).min(prim.count);
        (from, each.min(prim.count - from))
    }

    fn do_slice(&self, comm: &Comm, prim: &Prim, state: &mut DevState, toll: &mut CopyToll) {
        let o = &self.operands;
        let slot_bytes = comm.slot_bytes;
        let (from, count) = self.slice_range(prim, slot_bytes);
        let es = o.dtype.size();
        let len = count * es;
        let slots = |state: &DevState, keys: &[ConnKey]| -> Vec<*mut u8> {
            keys.iter().map(|k| &state.conns[k]).map(|c| c.fifo.slot(c.step, self.slice_steps)).collect()
        };
        let inputs = if prim.recv { slots(state, &self.recvs) } else { Vec::new() };
        let outputs = if prim.send { slots(state, &self.sends) } else { Vec::new() };
        let src = prim.src.map(|off| (o.send + (off + from) * es) as *const u8);
        let dst = prim.dst.map(|off| (o.recv + (off + from) * es) as *mut u8);
        if len > 0 {
            // SAFETY: the caller of the API promised `count` elements behind both buffers until the kernel is done,
            // and programs stay inside them (tests check every program). `ready` said that the input slots are full
            // and the output slots are free, so they belong to this device; `slice_range` keeps to their size.
            unsafe { combine(o, len, src, dst, &inputs, &outputs, prim.post) };
        }
        if prim.send {
            toll.pay(comm, len * outputs.len());
        }
        self.publish(prim, len, state);
    }

    fn publish(&self, prim: &Prim, len: usize, state: &mut DevState) {
        if prim.recv {
            for key in &self.recvs {
                let Some(conn) = state.conns.get_mut(key) else { continue };
                conn.step += self.slice_steps;
                conn.fifo.set_head(conn.step as i64);
                conn.notify.poke();
            }
        }
        if prim.send {
            for key in &self.sends {
                let Some(conn) = state.conns.get_mut(key) else { continue };
                conn.fifo.set_size(conn.step, len);
                conn.step += self.slice_steps;
                conn.fifo.set_tail(conn.step as i64);
                conn.notify.poke();
            }
        }
    }
}

/// Combines source and inputs, `len` bytes each, and puts the result at the destination and in every output.
///
/// # Safety
/// Every pointer must be good for `len` bytes; slots overlap nothing; source and destination are disjoint or equal.
unsafe fn combine(
    o: &Operands,
    len: usize,
    src: Option<*const u8>,
    dst: Option<*mut u8>,
    inputs: &[*mut u8],
    outputs: &[*mut u8],
    post: bool,
) {
    let Some(main) = dst.or_else(|| outputs.first().copied()) else { return };
    let mut rest = inputs;
    let first = match src {
        Some(p) => p,
        None => match inputs.split_first() {
            Some((head, tail)) => {
                rest = tail;
                head.cast_const()
            }
            None => return,
        },
    };
    let scaled = src.is_some() && o.op == RedOp::Avg && o.dtype.is_float();
    if !std::ptr::eq(first, main) {
        // SAFETY: both are good for `len` bytes (contract); `copy` allows overlap.
        unsafe { std::ptr::copy(first, main, len) };
    }
    // SAFETY: main is good for `len` bytes and nothing else refers to them while `acc` lives: inputs are slots, which
    // overlap neither user buffers nor output slots.
    let acc = unsafe { std::slice::from_raw_parts_mut(main, len) };
    if scaled {
        dtype::scale_input(acc, o.dtype, o.ranks);
    }
    for input in rest {
        // SAFETY: an input slot is good for `len` bytes (contract) and belongs to this device until published.
        let other = unsafe { std::slice::from_raw_parts(input.cast_const(), len) };
        dtype::reduce_into(acc, other, o.dtype, o.op);
    }
    if post && o.op == RedOp::Avg {
        dtype::divide_output(acc, o.dtype, o.ranks);
    }
    for out in outputs {
        if !std::ptr::eq(*out, main) {
            // SAFETY: output slots are good for `len` bytes and differ from `main`, so they do not overlap it.
            unsafe { std::ptr::copy_nonoverlapping(main.cast_const(), *out, len) };
        }
    }
}

fn copy_alone(o: &Operands, count: usize) {
    let len = count * o.dtype.size();
    if len > 0 {
        // SAFETY: the caller of the API promised `count` elements behind both buffers until the kernel is done.
        unsafe { combine(o, len, Some(o.send as *const u8), Some(o.recv as *mut u8), &[], &[], true) };
    }
}

/// The fault `copy_bytes_per_sec`: the device owes time for every byte it copies into slots.
#[derive(Debug, Default)]
struct CopyToll {
    paid_until_ns: u64,
}

impl CopyToll {
    fn pay(&mut self, comm: &Comm, bytes: usize) {
        let Some(control) = &comm.identity.control else { return };
        let record = control.rank();
        record.copied_bytes.fetch_add(bytes as u64, Relaxed);
        let rate = record.copy_bytes_per_sec.load(Relaxed);
        if rate == 0 {
            return;
        }
        let cost = (bytes as u128 * 1_000_000_000 / u128::from(rate)) as u64;
        let now = monotonic_ns();
        self.paid_until_ns = self.paid_until_ns.max(now) + cost;
        while monotonic_ns() < self.paid_until_ns && !comm.is_aborted() {
            sleep_until(self.paid_until_ns.min(monotonic_ns() + 20_000_000));
        }
    }
}
