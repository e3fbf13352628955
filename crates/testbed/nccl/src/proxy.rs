//! The proxy progress thread of a communicator: moves slots between FIFOs and the network, polls the works' clocks,
//! and tells the profiler plugin at exactly the points where NCCL does.

mod delay;
mod op;
mod tell;

use crate::abi::Code;
use crate::comm::Comm;
use crate::env::STEPS;
use crate::profiler::{Ev, Handle, Start, kind, state};
use crate::transport::greet::{Stranger, hello};
use crate::transport::net::{Arrival, Link, RecvLink, SendLink, Stop, nic_down};
use crate::transport::{ConnKey, Dir};
use crate::{clock::monotonic_ns, device::lock};
use delay::maybe_delay;
pub(crate) use op::Op;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;
use tell::Teller;

/// How long the thread sleeps at most while an operation is active: faults come without a wake-up.
const RECHECK_NS: u64 = 20_000_000;
/// How late the plugin may hear of a kernel's start or end. NCCL's proxy thread spins and hears at once; here ranks share
/// cores, and a wake-up per kernel would cost the job more than everything else a plugin does. The event carries the
/// device's own clock, so only the hearing is late.
const DOZE_NS: u64 = 40_000_000;

/// How long the end of a communicator waits at most for senders whose last slice has no answer yet: with RDMA it is the queue
/// pair that answers them. Long enough for some losses in a row at timeouts of 100 ms.
const LINGER_NS: u64 = 1_000_000_000;

/// What the launching thread hands over.
#[derive(Debug)]
pub(crate) enum Msg {
    /// A part of an operation that crosses the network.
    Op(Box<Op>),
    /// A work whose start and end the plugin wants to hear of.
    Watch(Watch),
    /// The end.
    Stop,
}

/// A work to watch on behalf of KernelCh events.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) channel: usize,
    pub(crate) counter: u64,
    pub(crate) task: Handle,
    pub(crate) handle: Handle,
    pub(crate) started: bool,
}

/// A connection as the thread keeps it: its socket and its operations in order.
#[derive(Debug, Default)]
struct Conn {
    send: Option<SendLink>,
    recv: Option<RecvLink>,
    ops: VecDeque<Op>,
    step: u64,
    /// Why the socket is of no more use.
    broken: Option<String>,
    wait_ns: Option<u64>,
    word_sent: (u64, u64),
    credit: u64,
    acked: u64,
    sum_bytes: usize,
}

impl Conn {
    /// Whether the front operation cannot end without the socket.
    fn needs_network(&self, dir: Dir) -> bool {
        self.ops.front().is_some_and(|op| match dir {
            Dir::Send => op.done < op.nsteps,
            Dir::Recv => op.transmitted < op.nsteps,
        })
    }

    /// Does `io` unless the NIC is down or the socket is gone; an error ends the socket, not the operation: what has
    /// arrived may still complete it.
    fn try_io(&mut self, down: bool, io: impl FnOnce(&mut Conn) -> io::Result<bool>) -> bool {
        if down || self.broken.is_some() {
            return false;
        }
        match io(self) {
            Ok(moved) => moved,
            Err(e) => {
                self.broken = Some(e.to_string());
                true
            }
        }
    }
}

struct Proxy<'a> {
    comm: &'a Arc<Comm>,
    conns: BTreeMap<ConnKey, Conn>,
    strangers: Vec<Stranger>,
    watches: Vec<Watch>,
    rng: u64,
    stopping: bool,
    idle: bool,
    /// Kernels began, ended or were announced lately: until then (monotonic) the thread looks again by itself.
    doze_until_ns: u64,
}

/// The thread.
pub(crate) fn run(comm: &Arc<Comm>) {
    let seed = comm.identity.control.as_ref().map_or(1, |c| c.seed());
    let mut proxy = Proxy {
        comm,
        conns: BTreeMap::new(),
        strangers: Vec::new(),
        watches: Vec::new(),
        rng: (seed ^ comm.hash) | 1,
        stopping: false,
        idle: true,
        doze_until_ns: 0,
    };
    loop {
        proxy.take_messages();
        if comm.is_aborted() {
            return;
        }
        if proxy.stopping && proxy.is_quiet() {
            proxy.conns.values_mut().for_each(|conn| conn.send = None);
            let until_ns = monotonic_ns() + LINGER_NS;
            return proxy
                .conns
                .values_mut()
                .filter_map(|conn| conn.recv.as_mut())
                .for_each(|recv| recv.linger(until_ns));
        }
        if proxy.pass() {
            continue;
        }
        let doze_ns = proxy.doze_until_ns.saturating_sub(monotonic_ns());
        comm.waker.about_to_sleep(doze_ns > 0);
        let more = !lock(&comm.inbox).is_empty() || comm.is_aborted() || proxy.pass();
        if !more {
            proxy.sleep(doze_ns);
        }
        comm.waker.awake();
    }
}

impl Proxy<'_> {
    fn is_quiet(&self) -> bool {
        self.watches.is_empty() && self.conns.values().all(|c| c.ops.is_empty())
    }

    fn take_messages(&mut self) {
        let messages = std::mem::take(&mut *lock(&self.comm.inbox));
        if messages.is_empty() {
            return;
        }
        let mut ctrl = self.ctrl_start(state::CTRL_APPEND);
        let appended = messages.len();
        for message in messages {
            match message {
                Msg::Stop => self.stopping = true,
                Msg::Watch(watch) => {
                    self.watches.push(watch);
                    self.doze_until_ns = monotonic_ns() + DOZE_NS;
                }
                Msg::Op(mut op) => {
                    teller(self.comm).op_start(&mut op, false);
                    self.conns.entry(op.key).or_default().ops.push_back(*op);
                }
            }
        }
        self.ctrl_stop(&mut ctrl, Some((state::CTRL_APPEND_END, appended)));
    }

    /// Everything once; true when anything moved.
    fn pass(&mut self) -> bool {
        let mut moved = self.watch_clocks();
        moved |= self.accept();
        for (key, conn) in &mut self.conns {
            conn.wait_ns = None;
            let mut work = ConnWork { comm: self.comm, key: *key, rng: &mut self.rng };
            moved |= work.progress(conn);
            if let (Some(why), true) = (&conn.broken, conn.needs_network(key.dir)) {
                let at = conn.ops.front().map_or((0, 0, 0), |op| (op.transmitted, op.done, op.nsteps));
                let text = format!(
                    "{:?} connection with rank {} on channel {}: {why}; {} of {} steps transmitted, {} done",
                    key.dir, key.peer, key.channel, at.0, at.2, at.1
                );
                self.comm.set_async_error(Code::RemoteError, &text);
            }
        }
        if moved && self.idle {
            self.idle = false;
            let mut ctrl = self.ctrl_start(state::CTRL_ACTIVE);
            self.ctrl_stop(&mut ctrl, None);
        }
        moved
    }

    fn accept(&mut self) -> bool {
        let Some(listener) = &self.comm.listener else { return false };
        if nic_down(&self.comm.identity) {
            return false;
        }
        let mut moved = false;
        if self.comm.nodes > 1 {
            while let Ok(Some(stranger)) = listener.accept() {
                self.strangers.push(stranger);
                moved = true;
            }
        }
        for stranger in std::mem::take(&mut self.strangers) {
            match stranger.listen(self.comm.hash, self.comm.ranks, self.comm.channels) {
                Ok(Ok((key, link))) => {
                    self.conns.entry(key).or_default().recv = Some(link);
                    moved = true;
                }
                Ok(Err(patient)) => self.strangers.push(patient),
                Err(e) => crate::log::info(&format!("refused a connection: {e}")),
            }
        }
        moved
    }

    fn watch_clocks(&mut self) -> bool {
        let Some(p) = &self.comm.profiler else { return false };
        let mut moved = false;
        let comm = self.comm;
        self.watches.retain_mut(|w| {
            let (started, completed) = comm.work_times(w.channel, w.counter);
            if let (Some(at), false) = (started, w.started) {
                w.started = true;
                moved = true;
                let ev = Ev::KernelCh { channel: w.channel as u8, p_timer: at };
                p.start(&Start { parent: w.task.0, rank: 0, ev }, &mut w.handle);
            }
            let (Some(at), true) = (completed, w.started) else { return true };
            p.record_kernel_stop(w.handle, at);
            p.stop(&mut w.handle);
            comm.proxy_op_finished();
            moved = true;
            false
        });
        if moved {
            self.doze_until_ns = monotonic_ns() + DOZE_NS;
        }
        moved
    }

    /// Sleeps until a socket, the device, the host or a token bucket has something.
    fn sleep(&mut self, doze_ns: u64) {
        if !self.idle && self.is_quiet() {
            self.idle = true;
            let mut ctrl = self.ctrl_start(state::CTRL_IDLE);
            self.ctrl_stop(&mut ctrl, None);
        }
        let down = nic_down(&self.comm.identity);
        let poll = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let mut fds = vec![poll(self.comm.waker.fd(), libc::POLLIN)];
        let mut limit_ns = match (down, doze_ns) {
            (true, _) => Some(RECHECK_NS / 4),
            (false, 0) => None,
            (false, ns) => Some(ns),
        };
        if !down {
            if let (Some(listener), true) = (&self.comm.listener, self.comm.nodes > 1) {
                fds.push(poll(listener.fd(), libc::POLLIN));
            }
            fds.extend(self.strangers.iter().map(|s| poll(s.fd(), libc::POLLIN)));
        }
        for conn in self.conns.values().filter(|c| c.broken.is_none() || !c.ops.is_empty()) {
            if !conn.ops.is_empty() {
                limit_ns = Some(limit_ns.unwrap_or(u64::MAX).min(RECHECK_NS));
            }
            if let Some(wait) = conn.wait_ns {
                limit_ns = Some(limit_ns.unwrap_or(u64::MAX).min(wait.max(20_000)));
            }
            if down || conn.broken.is_some() {
                continue;
            }
            if let Some(send) = &conn.send {
                let out = if send.is_sending() && conn.wait_ns.is_none() { libc::POLLOUT } else { 0 };
                fds.push(poll(send.link.fd(), libc::POLLIN | out));
                fds.extend(send.rdma().map(|(fd, _)| poll(fd, libc::POLLIN)));
            }
            if let Some(recv) = &conn.recv {
                let out = if recv.link.has_queued() { libc::POLLOUT } else { 0 };
                let inn = if conn.wait_ns.is_none() { libc::POLLIN } else { 0 };
                fds.push(poll(recv.link.fd(), inn | out));
                fds.extend(recv.rdma_fd().map(|fd| poll(fd, libc::POLLIN)));
            }
        }
        let idle = self.is_quiet();
        let mut ctrl = if idle { self.ctrl_start(state::CTRL_SLEEP) } else { Handle::NONE };
        let limit = limit_ns
            .map(|ns| libc::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 });
        let limit_ptr = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: fds is a valid array of its length; the limit is null or lives to the end of this function.
        unsafe { libc::ppoll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, limit_ptr, std::ptr::null()) };
        self.ctrl_stop(&mut ctrl, Some((state::CTRL_WAKEUP, 0)));
    }

    fn ctrl_start(&self, first: i32) -> Handle {
        let mut handle = Handle::NONE;
        if let Some(p) = &self.comm.profiler
            && crate::profiler::mask_now() & kind::PROXY_CTRL != 0
        {
            p.start(&Start { parent: std::ptr::null(), rank: 0, ev: Ev::ProxyCtrl }, &mut handle);
            p.record_ctrl(handle, first, 0);
        }
        handle
    }

    fn ctrl_stop(&self, handle: &mut Handle, last: Option<(i32, usize)>) {
        let (Some(p), true) = (&self.comm.profiler, handle.is_some()) else { return };
        if let Some((state, appended)) = last {
            p.record_ctrl(*handle, state, i32::try_from(appended).unwrap_or(i32::MAX));
        }
        p.stop(handle);
    }
}

fn teller(comm: &Comm) -> Teller<'_> {
    Teller { profiler: comm.profiler.as_ref(), rank: comm.rank }
}

/// Progress on one connection.
struct ConnWork<'a> {
    comm: &'a Arc<Comm>,
    key: ConnKey,
    rng: &'a mut u64,
}

impl ConnWork<'_> {
    fn progress(&mut self, conn: &mut Conn) -> bool {
        let down = nic_down(&self.comm.identity);
        self.begin(conn);
        let mut moved = match self.key.dir {
            Dir::Send => self.progress_send(conn, down),
            Dir::Recv => self.progress_recv(conn, down),
        };
        if conn.ops.front().is_some_and(|op| op.begun && op.done >= op.nsteps) {
            self.finish(conn);
            moved = true;
        }
        moved
    }

    /// The first look at an operation: it is now in progress, from a step both ends agree on.
    fn begin(&self, conn: &mut Conn) {
        let Some(op) = conn.ops.front_mut().filter(|op| !op.begun) else { return };
        op.begun = true;
        op.base = conn.step.next_multiple_of(op.chunk_steps);
        // NCCL 2.26 and earlier never reset this sum between operations, and plugins must cope with that.
        op.sum_bytes = conn.sum_bytes;
        teller(self.comm).op_start(op, true);
        if let Some(p) = &self.comm.profiler
            && !p.has_op_states()
        {
            p.record_op(op.handle, state::OP_IN_PROGRESS, 0, 0);
        }
    }

    fn finish(&self, conn: &mut Conn) {
        let Some(mut op) = conn.ops.pop_front() else { return };
        conn.step = op.base + op.nsteps;
        conn.sum_bytes = op.sum_bytes;
        op.sent.tell(self.comm.identity.addr, conn.send.as_ref().and_then(SendLink::queue_pair));
        if let Some(p) = &self.comm.profiler {
            p.stop(&mut op.handle);
        }
        self.comm.proxy_op_finished();
    }

    fn progress_send(&mut self, conn: &mut Conn, down: bool) -> bool {
        let mut moved = conn.try_io(down, |conn| self.send_io(conn));
        let Some(mut op) = conn.ops.pop_front() else { return moved };
        moved |= self.send_post(&mut op);
        moved |= self.send_transmit(&mut op, conn, down);
        moved |= self.send_done(&mut op, conn.send.as_ref());
        conn.ops.push_front(op);
        moved
    }

    fn send_io(&self, conn: &mut Conn) -> io::Result<bool> {
        let mut moved = false;
        if conn.send.is_none() && !conn.ops.is_empty() {
            conn.send = Some(self.connect()?);
            moved = true;
        }
        let Some(link) = &mut conn.send else { return Ok(moved) };
        if link.link.finish_connect()? {
            moved |= link.listen()?;
        }
        conn.wait_ns = link.rdma().map(|(_, look_ns)| look_ns).filter(|_| !conn.ops.is_empty());
        Ok(moved | Self::pump_send(self.comm, link, &mut conn.wait_ns)?)
    }

    fn pump_send(comm: &Comm, link: &mut SendLink, wait_ns: &mut Option<u64>) -> io::Result<bool> {
        if !link.is_sending() {
            return Ok(false);
        }
        match link.pump(&comm.identity)? {
            Stop::Done => Ok(true),
            Stop::Kernel => Ok(false),
            Stop::Tokens(ns) => {
                *wait_ns = Some(ns);
                Ok(false)
            }
        }
    }

    fn connect(&self) -> io::Result<SendLink> {
        let to = self.comm.peers[self.key.peer].addr.ok_or_else(|| io::Error::other("the peer has no address"))?;
        let greeting = hello(self.comm.hash, self.comm.rank, self.key.channel, self.key.lane);
        let from = self.comm.identity.addr;
        SendLink::new(Link::connect(from, to, greeting)?, from, to.ip())
    }

    /// s2: free slots become credit for the device.
    fn send_post(&self, op: &mut Op) -> bool {
        let mut moved = false;
        while op.posted < op.nsteps && op.posted + op.slice_steps <= op.done + STEPS {
            teller(self.comm).step_start(op, op.posted);
            op.posted += op.slice_steps;
            op.fifo.set_head((op.base + op.posted) as i64 - STEPS as i64);
            teller(self.comm).op_record(op, state::OP_SEND_POSTED, op.posted);
            teller(self.comm).step_record(op, op.posted - op.slice_steps, state::STEP_SEND_GPU_WAIT);
            moved = true;
        }
        if moved {
            self.comm.bell.ring();
        }
        moved
    }

    /// s3 and s4: a filled slot waits for the receiver's credit and then goes to the transport.
    fn send_transmit(&mut self, op: &mut Op, conn: &mut Conn, down: bool) -> bool {
        let mut moved = false;
        while op.transmitted < op.posted {
            let step = op.base + op.transmitted;
            if op.fifo.tail() < (step + op.slice_steps) as i64 {
                break;
            }
            teller(self.comm).op_record(op, state::OP_SEND_REM_FIFO_WAIT, op.transmitted + op.slice_steps);
            teller(self.comm).step_record(op, op.transmitted, state::STEP_SEND_PEER_WAIT);
            if op.ready <= op.transmitted {
                op.ready = op.transmitted + op.slice_steps;
                maybe_delay(&self.comm.identity, self.rng);
            }
            let Some(link) = &mut conn.send else { break };
            if link.credit < step + op.slice_steps || link.is_sending() {
                break;
            }
            let bytes = op.fifo.size(step);
            op.sends(bytes);
            link.begin(&op.fifo, step, op.slice_steps, bytes);
            conn.try_io(down, |conn| match &mut conn.send {
                Some(link) => Self::pump_send(self.comm, link, &mut conn.wait_ns),
                None => Ok(false),
            });
            op.transmitted += op.slice_steps;
            teller(self.comm).op_record(op, state::OP_SEND_TRANSMITTED, op.transmitted);
            teller(self.comm).step_record(op, op.transmitted - op.slice_steps, state::STEP_SEND_WAIT);
            moved = true;
        }
        moved
    }

    /// s5: acknowledged slices are done and their slots free.
    fn send_done(&self, op: &mut Op, link: Option<&SendLink>) -> bool {
        let Some(link) = link else { return false };
        let mut moved = false;
        while op.done < op.transmitted && link.acked >= op.base + op.done + op.slice_steps {
            teller(self.comm).step_stop(op, op.done);
            op.done += op.slice_steps;
            teller(self.comm).op_record(op, state::OP_SEND_DONE, op.done);
            moved = true;
        }
        moved
    }

    fn progress_recv(&mut self, conn: &mut Conn, down: bool) -> bool {
        let mut moved = false;
        let connected = conn.recv.is_some() && conn.broken.is_none() && !down;
        if let Some(op) = conn.ops.front_mut() {
            moved |= self.recv_post(op, conn.recv.as_mut().filter(|_| connected), &mut conn.credit);
        }
        moved |= conn.try_io(down, |conn| self.recv_io(conn));
        if let Some(op) = conn.ops.front_mut() {
            moved |= self.recv_done(op);
        }
        moved
    }

    fn recv_io(&self, conn: &mut Conn) -> io::Result<bool> {
        let Some(link) = &mut conn.recv else { return Ok(false) };
        let moved = self.recv_data(conn.ops.front_mut(), link, &mut conn.acked, &mut conn.wait_ns)?;
        if (conn.credit, conn.acked) != conn.word_sent {
            conn.word_sent = (conn.credit, conn.acked);
            link.tell(conn.credit, conn.acked);
        }
        link.link.flush()?;
        Ok(moved)
    }

    /// Posts receives: credit for the sender. Without a connection the start is repeated, as NCCL does.
    fn recv_post(&self, op: &mut Op, mut link: Option<&mut RecvLink>, credit: &mut u64) -> bool {
        let mut moved = false;
        while op.posted < op.nsteps && op.posted + op.slice_steps <= op.done + STEPS {
            teller(self.comm).step_start(op, op.posted);
            let Some(link) = &mut link else { break };
            link.post(&op.fifo, op.base + op.posted, op.slice_steps);
            op.posted += op.slice_steps;
            *credit = op.base + op.posted;
            teller(self.comm).op_record(op, state::OP_RECV_POSTED, op.posted);
            teller(self.comm).step_record(op, op.posted - op.slice_steps, state::STEP_RECV_WAIT);
            moved = true;
        }
        moved
    }

    fn recv_data(
        &self,
        op: Option<&mut Op>,
        link: &mut RecvLink,
        acked: &mut u64,
        wait_ns: &mut Option<u64>,
    ) -> io::Result<bool> {
        let mut moved = false;
        let mut op = op;
        loop {
            let room = |step: u64| {
                let op = op.as_deref()?;
                let known = step == op.base + op.transmitted && op.transmitted < op.posted;
                known.then(|| (op.fifo.slot(step, op.slice_steps), op.fifo.slot_bytes() * op.slice_steps as usize))
            };
            let (step, bytes) = match link.pump(&self.comm.identity, room)? {
                Arrival::Slice(step, bytes) => (step, bytes),
                Arrival::None(Stop::Tokens(ns)) => {
                    *wait_ns = Some(ns);
                    return Ok(moved);
                }
                Arrival::None(_) => return Ok(moved),
            };
            let Some(op) = op.as_deref_mut() else { return Ok(moved) };
            op.step_bytes = bytes;
            op.sum_bytes += bytes;
            let index = op.transmitted;
            op.transmitted += op.slice_steps;
            *acked = op.base + op.transmitted;
            teller(self.comm).op_record(op, state::OP_RECV_RECEIVED, op.transmitted);
            teller(self.comm).step_record(op, index, state::STEP_RECV_FLUSH_WAIT);
            op.fifo.set_size(step, bytes);
            op.fifo.set_tail((op.base + op.transmitted) as i64);
            self.comm.bell.ring();
            teller(self.comm).op_record(op, state::OP_RECV_TRANSMITTED, op.transmitted);
            teller(self.comm).step_record(op, index, state::STEP_RECV_GPU_WAIT);
            moved = true;
        }
    }

    fn recv_done(&self, op: &mut Op) -> bool {
        let mut moved = false;
        let only_first = self.comm.profiler.as_ref().is_some_and(|p| p.personality().stops_one_receive_a_pass);
        while op.done < op.transmitted && op.fifo.head() >= (op.base + op.done + op.slice_steps) as i64 {
            if !(moved && only_first) {
                teller(self.comm).step_stop(op, op.done);
            }
            op.done += op.slice_steps;
            teller(self.comm).op_record(op, state::OP_RECV_DONE, op.done);
            moved = true;
        }
        moved
    }
}
