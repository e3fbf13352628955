//! From a call of the API to a kernel: groups, plans, and the profiler events that go with them.
//!
//! A call outside a group is a group of one. At the end of the outermost group every communicator gets one kernel and
//! its proxy operations, in the order and with the events of NCCL's `doLaunches` and `hostStreamPlanTask`.

mod order;
mod plan;
mod task;

use crate::abi::{Code, DType, Fault, Func, Res};
use crate::comm::Comm;
use crate::device::{Event, Item, lock, stream_of};
use crate::kernel::Kernel;
use crate::profiler::{ApiInfo, CollInfo, Ev, Handle, P2pInfo, Profiler, Start, kind, mask_now, state};
use crate::proxy::{Msg, Op, Watch};
use crate::schedule::P2P_BATCH;
use crate::transport::Lane;
use plan::{NetPart, Plan};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use task::Task;
pub(crate) use task::{Call, CollTask, P2pTask};

/// Most calls in one group.
const GROUP_CALLS_MAX: usize = 65_536;

type InitJob = Box<dyn FnOnce() -> Res<()> + Send>;

/// The calling thread's open group.
#[derive(Default)]
struct Group {
    depth: i32,
    tasks: Vec<(Arc<Comm>, Task)>,
    inits: Vec<InitJob>,
    fault: Option<Fault>,
    api: ApiState,
}

/// NCCL's thread-local `ncclProfilerApiState`.
#[derive(Debug, Default)]
struct ApiState {
    depth: i32,
    mask: i32,
    handle: Option<(Arc<Comm>, Handle)>,
    started: bool,
    stopped: bool,
}

thread_local! {
    static GROUP: RefCell<Group> = RefCell::default();
}

/// `ncclGroupStart`.
pub(crate) fn group_start() {
    GROUP.with(|g| g.borrow_mut().depth += 1);
}

/// `ncclGroupEnd`: at the outermost level, launches.
pub(crate) fn group_end() -> Res<()> {
    let group = GROUP.with(|g| {
        let mut group = g.borrow_mut();
        if group.depth == 0 {
            return Err(Fault::new(Code::InvalidUsage, "ncclGroupEnd without ncclGroupStart"));
        }
        group.api.end_begins();
        group.depth -= 1;
        Ok((group.depth == 0).then(|| std::mem::take(&mut *group)))
    })?;
    let Some(mut group) = group else { return Ok(()) };
    let outcome = match group.fault.take() {
        Some(fault) => Err(fault),
        None => finish_group(&mut group),
    };
    group.api.stop();
    outcome
}

fn finish_group(group: &mut Group) -> Res<()> {
    run_inits(std::mem::take(&mut group.inits))?;
    // One kernel per communicator, in the order of their first call.
    let mut order: Vec<Arc<Comm>> = Vec::new();
    let mut by_comm: HashMap<usize, Vec<Task>> = HashMap::new();
    for (comm, task) in group.tasks.drain(..) {
        let key = Arc::as_ptr(&comm) as usize;
        if !by_comm.contains_key(&key) {
            order.push(comm);
        }
        by_comm.entry(key).or_default().push(task);
    }
    for comm in order {
        if let Some(tasks) = by_comm.remove(&(Arc::as_ptr(&comm) as usize)) {
            launch(&comm, tasks)?;
        }
    }
    Ok(())
}

/// Initializations inside a group run side by side: several ranks of one communicator may be in this process.
fn run_inits(jobs: Vec<InitJob>) -> Res<()> {
    if jobs.is_empty() {
        return Ok(());
    }
    let identity = crate::env::Identity::current();
    std::thread::scope(|s| {
        let threads: Vec<_> = jobs
            .into_iter()
            .map(|job| {
                let identity = identity.clone();
                s.spawn(move || {
                    crate::env::set_thread_identity(Some(identity));
                    job()
                })
            })
            .collect();
        let mut outcome = Ok(());
        for thread in threads {
            let one = thread.join().unwrap_or_else(|_| Err(Fault::new(Code::InternalError, "initialization panicked")));
            outcome = outcome.and(one);
        }
        outcome
    })
}

/// Runs an initialization now, or at the end of the open group.
pub(crate) fn init_or_defer(job: InitJob) -> Res<()> {
    let job = GROUP.with(|g| {
        let mut group = g.borrow_mut();
        if group.depth == 0 {
            return Some(job);
        }
        group.inits.push(job);
        None
    });
    job.map_or(Ok(()), |job| job())
}

/// Remembers in the open group, if there is one, that a call was refused: its end repeats the fault.
pub(crate) fn note_refusal(fault: &Fault) {
    GROUP.with(|g| {
        let mut group = g.borrow_mut();
        if group.depth > 0 {
            group.fault.get_or_insert_with(|| fault.clone());
        }
    });
}

/// A collective or point-to-point call: joins the open group or is a group of its own.
pub(crate) fn enqueue(comm: &Arc<Comm>, call: Call, stream: usize) -> Res<()> {
    group_start();
    GROUP.with(|g| g.borrow_mut().api.goes_deeper());
    let added = add(comm, call, stream);
    if let Err(fault) = &added {
        note_refusal(fault);
    }
    let ended = group_end();
    added.and(ended)
}

fn add(comm: &Arc<Comm>, call: Call, stream: usize) -> Res<()> {
    check(comm, &call)?;
    if stream_of(stream).is_none() {
        return Err(Fault::new(Code::InvalidArgument, format!("{stream:#x} is not a stream")));
    }
    GROUP.with(|g| {
        let mut group = g.borrow_mut();
        if group.tasks.len() >= GROUP_CALLS_MAX {
            return Err(Fault::new(Code::InvalidUsage, format!("more than {GROUP_CALLS_MAX} calls in a group")));
        }
        let empty = matches!(&call, Call::Coll(c) if c.count == 0);
        if empty && comm.personality.nccl_plan {
            // Not even the API events: `enqueue.cc` returns before them.
            return Ok(());
        }
        let depth = group.depth;
        group.api.start(comm, depth);
        let api = &group.api;
        let group_api = api.handle.as_ref().map_or(Handle::NONE, |h| h.1);
        let mask = api.mask;
        let mut handle = start_api(comm, &call, stream, mask, group_api);
        let copy = handle;
        if !empty {
            let hidden = matches!(&call, Call::Coll(c) if comm.personality.hides(c.func));
            let mask = if hidden { 0 } else { mask };
            let (event, channels, choice) = (Handle::NONE, 0, None);
            let task = Task { call, stream, mask, group_api, api: copy, event, channels, choice };
            group.tasks.push((Arc::clone(comm), task));
        }
        if let Some(p) = &comm.profiler {
            p.stop(&mut handle);
        }
        Ok(())
    })
}

fn check(comm: &Comm, call: &Call) -> Res<()> {
    if comm.is_aborted() {
        return Err(Fault::new(Code::InvalidUsage, "the communicator was aborted"));
    }
    let (root, es, count) = match call {
        Call::Coll(c) => (c.root, c.dtype.size(), c.count),
        Call::P2p(p) => (p.peer, p.dtype.size(), p.count),
    };
    if root >= comm.ranks {
        let text = format!("root or peer {root} is not a rank of a communicator of {}", comm.ranks);
        return Err(Fault::new(Code::InvalidArgument, text));
    }
    let total = count.checked_mul(es).and_then(|b| b.checked_mul(comm.ranks));
    if total.is_none_or(|b| b > isize::MAX as usize) {
        return Err(Fault::new(Code::InvalidArgument, format!("count {count} does not fit the address space")));
    }
    let missing = match call {
        Call::Coll(c) => {
            let reads = c.func != Func::Broadcast || comm.rank == c.root;
            let writes = c.func != Func::Reduce || comm.rank == c.root;
            (reads && c.send == 0) || (writes && c.recv == 0)
        }
        Call::P2p(p) => p.buff == 0,
    };
    if missing && count > 0 {
        return Err(Fault::new(Code::InvalidArgument, "a buffer is NULL"));
    }
    Ok(())
}

const API_PARENTS: i32 = kind::INSIDE | kind::CE_ALL;

impl ApiState {
    fn start(&mut self, comm: &Arc<Comm>, depth: i32) {
        self.mask = mask_now();
        let wanted = API_PARENTS
            | kind::GROUP_API
            | kind::P2P_API
            | kind::COLL_API
            | kind::KERNEL_LAUNCH
            | kind::GROUP
            | kind::COLL
            | kind::P2P;
        let Some(p) = &comm.profiler else { return };
        if self.mask & wanted == 0 || self.depth != 0 {
            return;
        }
        let mut handle = Handle::NONE;
        p.start(&Start { parent: std::ptr::null(), rank: 0, ev: Ev::GroupApi { depth } }, &mut handle);
        self.depth = depth;
        if handle.is_some() {
            p.record(handle, state::GROUP_START_API_STOP);
        }
        self.started = true;
        self.handle = Some((Arc::clone(comm), handle));
    }

    /// A further call of an open group: the end of its own inner group is not the end of the API group.
    fn goes_deeper(&mut self) {
        if self.depth > 0 {
            self.depth += 1;
        }
    }

    fn end_begins(&mut self) {
        if self.depth > 0 {
            self.depth -= 1;
        }
        if self.depth == 0 && self.started && !self.stopped {
            self.stopped = true;
            if let Some((comm, handle)) = &self.handle
                && let Some(p) = &comm.profiler
            {
                p.record(*handle, state::GROUP_END_API_START);
            }
        }
    }

    fn stop(&mut self) {
        if let Some((comm, mut handle)) = self.handle.take()
            && let Some(p) = &comm.profiler
        {
            p.stop(&mut handle);
        }
    }
}

fn start_api(comm: &Comm, call: &Call, stream: usize, mask: i32, parent: Handle) -> Handle {
    let mut handle = Handle::NONE;
    let Some(p) = &comm.profiler else { return handle };
    let (wanted, ev) = match call {
        Call::Coll(c) => {
            let root = c.root as i32;
            let info = ApiInfo { func: c.func, count: c.count, dtype: c.dtype, root, stream };
            (kind::COLL_API | kind::COLL | API_PARENTS, Ev::CollApi(info))
        }
        Call::P2p(t) => {
            let func = if t.is_send { Func::Send } else { Func::Recv };
            let info = ApiInfo { func, count: t.count, dtype: t.dtype, root: t.peer as i32, stream };
            (kind::P2P_API | kind::P2P | kind::INSIDE, Ev::P2pApi(info))
        }
    };
    if mask & wanted != 0 {
        p.start(&Start { parent: parent.0, rank: 0, ev }, &mut handle);
    }
    handle
}

fn launch(comm: &Arc<Comm>, tasks: Vec<Task>) -> Res<()> {
    let mut tasks = if comm.personality.nccl_plan { order::ordered(comm, tasks) } else { tasks };
    if tasks.is_empty() {
        return Ok(());
    }
    comm.set_up();
    let mut tail = lock(&comm.launch);
    let mut plan = Plan::new(comm);
    plan.colls(&mut tasks, &mut tail.counters)?;
    plan.p2p(&mut tasks, &mut tail.counters)?;
    let streams = distinct_streams(&tasks);
    let first = streams[0];
    let done = Arc::new(Event::default());
    let kernel = Kernel {
        comm: Arc::clone(comm),
        channels: plan.channels.into_iter().collect(),
        conns: plan.conns,
        copies: plan.copies,
        done: Arc::clone(&done),
    };
    let mut launch_event = start_kernel_launch(comm, &tasks, first);
    let before = tail.last.replace((first, Arc::clone(&done)));
    comm.kernel_launched();
    push_kernel(kernel, &streams, before, &done)?;
    drop(tail);
    if let Some(p) = &comm.profiler {
        p.stop(&mut launch_event);
    }
    upload(comm, &mut tasks, plan.net, &plan.watches)
}

fn distinct_streams(tasks: &[Task]) -> Vec<usize> {
    let mut streams: Vec<usize> = Vec::new();
    for task in tasks {
        if !streams.contains(&task.stream) {
            streams.push(task.stream);
        }
    }
    streams
}

/// The kernel runs on the first stream, after what is on all of them, and everything later on any waits for it.
fn push_kernel(kernel: Kernel, streams: &[usize], before: Option<(usize, Arc<Event>)>, done: &Arc<Event>) -> Res<()> {
    let gone = || Fault::new(Code::InvalidArgument, "a stream was destroyed inside the group");
    let found: Option<Vec<_>> = streams.iter().map(|s| stream_of(*s)).collect();
    let found = found.ok_or_else(gone)?;
    if let Some((stream, event)) = before
        && stream != streams[0]
    {
        found[0].push(Item::Wait(event));
    }
    for other in &found[1..] {
        let reached = Arc::new(Event::default());
        other.push(Item::Record(Arc::clone(&reached)));
        found[0].push(Item::Wait(reached));
    }
    found[0].push(Item::Kernel(Box::new(kernel)));
    for other in &found[1..] {
        other.push(Item::Wait(Arc::clone(done)));
    }
    Ok(())
}

fn start_kernel_launch(comm: &Comm, tasks: &[Task], stream: usize) -> Handle {
    let mut handle = Handle::NONE;
    if let (Some(p), Some(task)) = (&comm.profiler, tasks.iter().find(|t| t.mask != 0))
        && task.mask & kind::KERNEL_LAUNCH != 0
    {
        p.start(&Start { parent: task.group_api.0, rank: 0, ev: Ev::KernelLaunch { stream } }, &mut handle);
    }
    handle
}

/// Group start, task starts, proxy operations, task stops, group stop: NCCL's order.
fn upload(comm: &Arc<Comm>, tasks: &mut [Task], net: Vec<NetPart>, watches: &[(usize, usize, u64)]) -> Res<()> {
    let mut group = Handle::NONE;
    if let (Some(p), Some(task)) = (&comm.profiler, tasks.iter().find(|t| t.mask != 0))
        && task.mask & (kind::GROUP | kind::COLL | kind::P2P | kind::INSIDE) != 0
    {
        p.start(&Start { parent: std::ptr::null(), rank: 0, ev: Ev::Group }, &mut group);
    }
    for task in tasks.iter_mut() {
        start_task(comm, task, group);
    }
    let mut messages = Vec::with_capacity(net.len() + watches.len());
    let mut sharing: HashMap<_, usize> = HashMap::new();
    for part in net {
        let task = &tasks[part.task];
        let (fifo, _, _) = comm.fifo(part.key)?;
        let mut op = Op::new(part.key, fifo, part.nsteps as u64, part.steps, task.mask, task.event);
        op.chunk_bytes = part.chunk_bytes as u64;
        if comm.personality.one_op_a_channel && part.key.lane == Lane::P2p {
            let before = sharing.entry((part.key.channel, part.key.dir)).or_default();
            op.silent = !before.is_multiple_of(P2P_BATCH);
            *before += 1;
        }
        messages.push(Msg::Op(Box::new(op)));
    }
    for (task, channel, counter) in watches {
        let watch = Watch {
            channel: *channel,
            counter: *counter,
            task: tasks[*task].event,
            handle: Handle::NONE,
            started: false,
        };
        messages.push(Msg::Watch(watch));
    }
    comm.to_proxy(messages)?;
    if let Some(p) = &comm.profiler {
        for task in tasks.iter_mut() {
            p.stop(&mut task.event);
        }
        p.stop(&mut group);
    }
    Ok(())
}

fn start_task(comm: &Comm, task: &mut Task, group: Handle) {
    let seq = match &task.call {
        Call::Coll(c) => comm.next_seq(c.func),
        Call::P2p(_) => 0,
    };
    let Some(p) = &comm.profiler else { return };
    // Before 2.27 a missing group handle suppressed everything below it; a communicator of one never reports.
    if comm.ranks == 1 || (p.has_op_states() && !group.is_some()) {
        return;
    }
    let ev = match &task.call {
        Call::Coll(c) if task.mask & (kind::COLL | kind::INSIDE) != 0 => Ev::Coll(coll_info(comm, c, task, seq, group)),
        Call::P2p(t) if task.mask & (kind::P2P | kind::INSIDE) != 0 => Ev::P2p(P2pInfo {
            comm_name: comm.name.as_ref().map_or(std::ptr::null(), |n| n.as_ptr()),
            comm_hash: comm.hash,
            func: if t.is_send { Func::Send } else { Func::Recv },
            buff: t.buff,
            count: t.count,
            dtype: t.dtype,
            peer: t.peer as i32,
            channels: task.channels as u8,
            parent_group: group.0,
        }),
        _ => return,
    };
    let parent = task_parent(p, task, group);
    p.start(&Start { parent: parent.0, rank: comm.rank as i32, ev }, &mut task.event);
}

/// v5 and later hang tasks under the API call, earlier versions under the group.
fn task_parent(p: &Profiler, task: &Task, group: Handle) -> Handle {
    if p.has_api_events() { task.api } else { group }
}

fn coll_info(comm: &Comm, c: &CollTask, task: &Task, seq: u64, group: Handle) -> CollInfo {
    let bytes = c.count * c.dtype.size();
    let choice = task.choice.unwrap_or_else(|| plan::plain_choice(comm, c.func, task.channels));
    let row = comm.personality;
    // NCCL itself moves these two as bytes, and tells them so.
    let as_bytes = row.nccl_plan && matches!(c.func, Func::AllGather | Func::Broadcast);
    let (count, dtype) = if as_bytes { (bytes, DType::I8) } else { (c.count, c.dtype) };
    CollInfo {
        comm_name: comm.name.as_ref().map_or(std::ptr::null(), |n| n.as_ptr()),
        comm_hash: comm.hash,
        seq,
        func: c.func,
        send: c.send,
        recv: c.recv,
        count,
        root: c.root as i32,
        dtype,
        op: c.op,
        traffic_bytes: match c.func {
            Func::AllReduce => 2 * bytes,
            Func::AllGather | Func::ReduceScatter => bytes * comm.ranks,
            _ => bytes,
        },
        channels: if row.tells_most_channels { choice.channels } else { task.channels } as u8,
        warps: choice.warps,
        algo: choice.algo,
        proto: choice.proto,
        parent_group: group.0,
    }
}
