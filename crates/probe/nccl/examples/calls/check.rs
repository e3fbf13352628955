//! What a trace says must be in the segment, and what is there.
use crate::driver::{self, COLL, KERNEL_CH, P2P, PROXY_OP, PROXY_STEP, Plugin};
use crate::play::{self, Play};
use crate::trace::{COLL_API, Call, P2P_API, Trace, What};
use mycroft_record::{CommId, Direction, OpClass, OpId, OpKind};
use mycroft_ring::{RawFlowDone, RawOpDone};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// States of steps from ABI 4 on that bring their bytes: sent, received.
const BYTES_STATES: [u64; 2] = [driver::SEND_WAIT as u64, driver::RECV_FLUSH_WAIT as u64];

/// What came of a trace.
pub struct Outcome {
    /// What is in the segment and should not be, or the other way round; empty when all is right.
    pub deviations: Vec<String>,
    /// Counts, for the table.
    pub summary: Summary,
}

/// Counts of a trace.
#[derive(Default)]
pub struct Summary {
    operations: usize,
    flows: usize,
    /// Operations whose end cannot be seen: no flow and no kernel event came.
    unobserved: usize,
    /// Operations that were over by all that had shown itself when a further channel began.
    early: usize,
    /// Calls of the API for which NCCL made no operation event: known to be issued, and no more.
    not_visible: usize,
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Summary { operations, flows, unobserved, early, not_visible } = self;
        write!(
            f,
            "operations {operations}\tflows {flows}\tunobserved {unobserved}\tearly {early}\tnot_visible {not_visible}"
        )
    }
}

/// An operation as the trace has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Operation {
    id: OpId,
    kind: OpKind,
    count: u64,
    flows: u16,
    observed: bool,
}

/// A flow as the trace has it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Flow {
    op: OpId,
    channel: u8,
    peer: u32,
    send: bool,
    total: u32,
    done: u32,
    bytes: u64,
}

/// Plays the trace in this process and compares.
///
/// # Errors
/// The trace cannot be read, or no segment came of it.
pub fn check(file: &Path) -> Result<Outcome, String> {
    let trace = Trace::read(file)?;
    let dir = PathBuf::from(std::env::var_os("MYCROFT_DIR").ok_or("MYCROFT_DIR names no folder")?);
    let plugin = Plugin::open(trace.abi);
    let mut play = Play::new(&plugin, play::nccl_of(trace.nccl)?);
    play.run(&trace);
    let mask = play.mask();
    let mut reader = driver::open_segment(&dir);
    let state = reader.state().map_err(|e| e.to_string())?;
    let before = driver::drain(&mut reader);
    let in_flight = reader.ops().map_err(|e| e.to_string())?.items.len();
    play.finish();
    let after = driver::drain(&mut reader);
    let records: Vec<_> = before.iter().chain(&after).copied().collect();
    let wanted = Wanted::of(&trace, mask);
    let mut deviations = wanted.compare(&driver::ops(&records), &driver::flows(&records));
    if state.dropped_total() != 0 {
        deviations.push(format!("{} events dropped", state.dropped_total()));
    }
    let unended = wanted.operations.iter().filter(|op| !op.observed).count();
    if in_flight > unended {
        deviations.push(format!("{in_flight} operations in flight at the end, {unended} have no sign of their end"));
    }
    let summary = Summary {
        operations: wanted.operations.len(),
        flows: wanted.flows.len(),
        unobserved: unended,
        early: wanted.early(&driver::ops(&records)),
        not_visible: wanted.not_visible,
    };
    Ok(Outcome { deviations, summary })
}

/// What must be in the segment.
struct Wanted {
    operations: Vec<Operation>,
    flows: Vec<Flow>,
    not_visible: usize,
}

/// What the trace tells of one event.
struct Event<'a> {
    start: &'a Call,
    stopped: bool,
    states: Vec<&'a Call>,
}

impl Operation {
    /// Whether `is` differs only because channels began after all that had begun was over: NCCL up to 2.26 does not tell
    /// how many channels an operation has, and a small send's kernel is over before its proxy begins. The flows that
    /// come later are recorded under the same operation, which [`Wanted::compare`] checks as for any other.
    fn is_early(&self, is: &Operation) -> bool {
        is.flows < self.flows && *self == Operation { flows: self.flows, ..*is }
    }
}

impl Wanted {
    fn early(&self, ops: &[RawOpDone]) -> usize {
        let early = |op: &&Operation| ops.iter().any(|is| is.op.id == op.id && is.observed && is.flows < op.flows);
        self.operations.iter().filter(early).count()
    }

    fn of(trace: &Trace, mask: u64) -> Wanted {
        let events = events(trace);
        let children = children(&events);
        let ids = ids(trace, &events);
        let of_kind = |parent: &u64, kind: u64| -> Vec<u64> {
            let all = children.get(parent).into_iter().flatten();
            all.copied().filter(|child| events[child].start.number("type") == kind).collect()
        };
        let (mut operations, mut flows) = (Vec::new(), Vec::new());
        for (handle, id) in &ids {
            let event = &events[handle];
            if event.start.number("type") == COLL_API {
                continue;
            }
            let proxies = of_kind(handle, PROXY_OP);
            let kernels = if mask & KERNEL_CH != 0 { of_kind(handle, KERNEL_CH) } else { Vec::new() };
            let all_stopped = |list: &[u64]| list.iter().all(|child| events[child].stopped);
            let observed = all_stopped(&proxies)
                && all_stopped(&kernels)
                && if mask & KERNEL_CH != 0 { !kernels.is_empty() } else { !proxies.is_empty() };
            operations.push(Operation {
                id: *id,
                kind: kind_of(trace.abi, event.start),
                count: event.start.number("count"),
                flows: proxies.len() as u16,
                observed,
            });
            for proxy in proxies {
                flows.push(flow(trace.abi, *id, &events[&proxy], &of_kind(&proxy, PROXY_STEP), &events));
            }
        }
        let hidden = hidden(&events, &children);
        for handle in &hidden {
            let (call, id) = (events[handle].start, ids[handle]);
            let kind = OpKind::from_text(call.text("func"));
            operations.push(Operation { id, kind, count: call.number("count"), flows: 0, observed: false });
        }
        Wanted { operations, flows, not_visible: hidden.len() }
    }

    fn compare(&self, ops: &[RawOpDone], flows: &[RawFlowDone]) -> Vec<String> {
        let mut deviations = Vec::new();
        let mut seen = BTreeSet::new();
        for done in ops {
            if !seen.insert(done.op.id) {
                deviations.push(format!("{:?}: recorded twice", done.op.id));
            }
            let is = Operation {
                id: done.op.id,
                kind: done.op.kind,
                count: done.op.count,
                flows: done.flows,
                observed: done.observed,
            };
            match self.operations.iter().find(|op| op.id == is.id) {
                None => deviations.push(format!("invented: {is:?}")),
                Some(op) if *op != is && !op.is_early(&is) => deviations.push(format!("is {is:?}, was {op:?}")),
                Some(_) => {}
            }
        }
        for op in self.operations.iter().filter(|op| !seen.contains(&op.id)) {
            deviations.push(format!("missing: {op:?}"));
        }
        let of = |done: &RawFlowDone| Flow {
            op: done.flow.op,
            channel: done.flow.channel.0,
            peer: done.flow.peer.0,
            send: done.flow.direction == Direction::Send,
            total: done.counters.total_chunks,
            done: done.counters.done,
            bytes: done.bytes,
        };
        let mut is: Vec<Flow> = flows.iter().map(of).collect();
        is.sort();
        for want in &self.flows {
            match is.iter().position(|flow| flow == want) {
                Some(at) => drop(is.remove(at)),
                None => deviations.push(format!("missing or different: {want:?}")),
            }
        }
        deviations.extend(is.iter().map(|flow| format!("other flow: {flow:?}")));
        deviations
    }
}

fn events(trace: &Trace) -> BTreeMap<u64, Event<'_>> {
    let mut events: BTreeMap<u64, Event<'_>> = BTreeMap::new();
    for call in &trace.calls {
        let handle = call.number("handle");
        match call.what {
            What::Start => {
                // A step may start again under the handle it has.
                events.entry(handle).or_insert(Event { start: call, stopped: false, states: Vec::new() });
            }
            What::Stop => drop(events.get_mut(&handle).map(|event| event.stopped = true)),
            What::State => drop(events.get_mut(&handle).map(|event| event.states.push(call))),
            What::Init | What::Finalize => {}
        }
    }
    events
}

fn children(events: &BTreeMap<u64, Event<'_>>) -> BTreeMap<u64, Vec<u64>> {
    let mut children: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for (handle, event) in events {
        children.entry(event.start.number("parent")).or_default().push(*handle);
    }
    children
}

/// The operations of the trace by their handles: numbered per communicator, sends and receives per peer.
fn ids(trace: &Trace, events: &BTreeMap<u64, Event<'_>>) -> BTreeMap<u64, OpId> {
    let hash_of_context: BTreeMap<u64, u64> = trace
        .calls
        .iter()
        .filter(|call| call.what == What::Init && call.has("hash"))
        .map(|call| (call.number("context"), call.hash()))
        .collect();
    let mut counters: BTreeMap<(u64, u8, u32), u64> = BTreeMap::new();
    let mut ids = BTreeMap::new();
    // Where calls are told, collectives are numbered by them.
    let by_calls = (22_900..23_100).contains(&trace.nccl) && trace.abi > 4;
    let mut starts: Vec<&Call> = trace.calls.iter().filter(|call| call.what == What::Start).collect();
    starts.sort_by_key(|call| call.t);
    for call in starts {
        let class = match call.number("type") {
            COLL if by_calls => {
                let number = ids.get(&call.number("parent")).copied();
                ids.extend(number.map(|id| (call.number("handle"), id)));
                continue;
            }
            COLL => OpClass::Collective,
            COLL_API if by_calls => OpClass::Collective,
            P2P if kind_of(trace.abi, call) == OpKind::Recv => OpClass::Recv,
            P2P => OpClass::Send,
            _ => continue,
        };
        let handle = call.number("handle");
        if ids.contains_key(&handle) || !events.contains_key(&handle) {
            continue;
        }
        let comm = hash_of_context.get(&call.number("context")).copied().unwrap_or_else(|| call.hash());
        let peer = if class == OpClass::Collective { 0 } else { call.number("peer") as u32 };
        let next = counters.entry((comm, class.code(), peer)).or_insert(0);
        ids.insert(
            handle,
            OpId { comm: CommId(comm), class, peer: mycroft_record::CommRank(peer), seq: mycroft_record::OpSeq(*next) },
        );
        *next += 1;
    }
    ids
}

/// What an operation does. Interface 1 has numbers: those of NCCL 2.23's `ncclFunc_t`.
fn kind_of(abi: u32, call: &Call) -> OpKind {
    if abi > 1 {
        return OpKind::from_text(call.text("func"));
    }
    let names = ["Broadcast", "Reduce", "AllGather", "ReduceScatter", "AllReduce", "SendRecv", "Send", "Recv"];
    OpKind::from_text(names.get(call.number("func") as usize).copied().unwrap_or_default())
}

fn flow(abi: u32, op: OpId, proxy: &Event<'_>, steps: &[u64], events: &BTreeMap<u64, Event<'_>>) -> Flow {
    let start = proxy.start;
    let (done, bytes) = if abi < 4 { by_op_states(proxy) } else { by_steps(steps, events) };
    Flow {
        op,
        channel: start.number("channel") as u8,
        peer: start.number("peer") as u32,
        send: start.number("send") == 1,
        total: start.number("steps") as u32,
        done,
        bytes,
    }
}

/// Up to NCCL 2.26: the highest number of steps in the last state, and how far the running count of bytes went.
fn by_op_states(proxy: &Event<'_>) -> (u32, u64) {
    let last = if proxy.start.number("send") == 1 { driver::OP_SEND_DONE } else { driver::OP_RECV_DONE };
    let done = proxy.states.iter().filter(|call| call.number("state") == last as u64);
    let steps = done.map(|call| call.number("steps") as u32).max().unwrap_or(0);
    let trans = || proxy.states.iter().map(|call| call.number("trans"));
    (steps, trans().max().unwrap_or(0) - trans().next().unwrap_or(0))
}

/// From NCCL 2.27 on: steps that stopped, and the bytes their states brought.
fn by_steps(steps: &[u64], events: &BTreeMap<u64, Event<'_>>) -> (u32, u64) {
    let mut bytes = 0;
    for step in steps {
        let with = |state: &&&Call| BYTES_STATES.contains(&state.number("state"));
        bytes += events[step].states.iter().filter(with).map(|call| call.number("trans")).next_back().unwrap_or(0);
    }
    (steps.iter().filter(|step| events[step].stopped).count() as u32, bytes)
}

/// Calls of the API to which no operation event belongs.
fn hidden(events: &BTreeMap<u64, Event<'_>>, children: &BTreeMap<u64, Vec<u64>>) -> Vec<u64> {
    let is_api = |event: &Event<'_>| [COLL_API, P2P_API].contains(&event.start.number("type"));
    let has_operation = |handle: &u64| {
        let all = children.get(handle).into_iter().flatten();
        all.map(|child| events[child].start.number("type")).any(|kind| kind == COLL || kind == P2P)
    };
    let all = events.iter().filter(|(handle, event)| is_api(event) && !has_operation(handle));
    all.map(|(handle, _)| *handle).collect()
}
