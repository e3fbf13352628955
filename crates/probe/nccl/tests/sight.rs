//! Operations without kernel events: what their flows show, and how those without flows leave the live table.
mod driver;

use driver::{
    CollArgs, Ctx, Ev, OP_RECV_DONE, OP_RECV_POSTED, OP_RECV_RECEIVED, OP_RECV_TRANSMITTED, OP_SEND_DONE,
    OP_SEND_POSTED, OP_SEND_REM_FIFO_WAIT, OP_SEND_TRANSMITTED, Plugin, ProxyArgs, drain, in_own_process, open_segment,
    ops,
};
use mycroft_record::{Direction, OpClass};
use mycroft_ring::{RawOpDone, SegmentReader};

const SENDS: [i32; 4] = [OP_SEND_POSTED, OP_SEND_REM_FIFO_WAIT, OP_SEND_TRANSMITTED, OP_SEND_DONE];
const RECEIVES: [i32; 4] = [OP_RECV_POSTED, OP_RECV_RECEIVED, OP_RECV_TRANSMITTED, OP_RECV_DONE];
/// As many operations may wait to be seen before the oldest is given up.
const WINDOW: u64 = 64;

fn reduce(plugin: &Plugin, context: Ctx, hash: u64, seq: u64) -> Ev {
    let coll = plugin.coll(context, &CollArgs::all_reduce(hash, 0, seq, 1));
    plugin.stop(coll);
    coll
}

/// One step over the network, state by state.
fn flow(plugin: &Plugin, context: Ctx, op: Ev, send: bool) {
    let flow = plugin.proxy_op(context, op, 0, &ProxyArgs::own(0, 1, 1, send));
    for state in if send { SENDS } else { RECEIVES } {
        plugin.record_op(flow, state, 100, 1);
    }
    plugin.stop(flow);
}

fn in_flight(reader: &mut SegmentReader) -> usize {
    reader.ops().expect("readable").items.len()
}

fn done(reader: &mut SegmentReader) -> Vec<RawOpDone> {
    ops(&drain(reader))
}

#[test]
fn a_communicator_without_flows_leaves_nothing_in_flight() {
    in_own_process("a_communicator_without_flows_leaves_nothing_in_flight", &[], |dir| {
        let plugin = Plugin::open(1);
        let context = plugin.init(0, c"", 0, 0, &mut 0);
        let mut reader = open_segment(dir);
        (0..=WINDOW).for_each(|seq| _ = reduce(&plugin, context, 7, seq));
        assert!(in_flight(&mut reader) as u64 <= WINDOW);
        // From here on it is known to lie inside a host.
        reduce(&plugin, context, 7, WINDOW + 1);
        assert_eq!(in_flight(&mut reader), 0);
        let told = done(&mut reader);
        assert!(told.iter().all(|op| !op.observed), "{told:?}");
        // A flow comes after all: it belongs to the operation that was given up, and from then on they are waited for.
        let late = reduce(&plugin, context, 7, 2 * WINDOW);
        flow(&plugin, context, late, true);
        let seen = reduce(&plugin, context, 7, 2 * WINDOW + 1);
        flow(&plugin, context, seen, true);
        let told = done(&mut reader);
        assert_eq!(told.iter().map(|op| op.observed).filter(|observed| *observed).count(), 1, "{told:?}");
        assert_eq!((in_flight(&mut reader), reader.state().expect("readable").dropped_total()), (0, 0));
    });
}

#[test]
fn an_operation_that_ends_gives_up_those_before_it() {
    in_own_process("an_operation_that_ends_gives_up_those_before_it", &[], |dir| {
        let plugin = Plugin::open(1);
        let context = plugin.init(0, c"", 0, 0, &mut 0);
        let mut reader = open_segment(dir);
        (0..3).for_each(|seq| _ = reduce(&plugin, context, 7, seq));
        assert_eq!(in_flight(&mut reader), 3);
        let seen = reduce(&plugin, context, 7, 3);
        let after = reduce(&plugin, context, 7, 4);
        flow(&plugin, context, seen, true);
        assert_eq!(in_flight(&mut reader), 1, "the one that was enqueued later");
        let told = done(&mut reader);
        let mut observed: Vec<(u64, bool)> = told.iter().map(|op| (op.op.id.seq.0, op.observed)).collect();
        observed.sort_unstable();
        assert_eq!(observed, [(0, false), (1, false), (2, false), (3, true)]);
        flow(&plugin, context, after, true);
        assert_eq!(in_flight(&mut reader), 0);
    });
}

/// A collective is begun when the device has data to send; a receive when the device is free for it, unless data waits.
#[test]
fn flows_show_when_the_device_began() {
    in_own_process("flows_show_when_the_device_began", &[], |dir| {
        let plugin = Plugin::open(1);
        let context = plugin.init(0, c"", 0, 0, &mut 0);
        let mut reader = open_segment(dir);
        let first = reduce(&plugin, context, 7, 0);
        let incoming = plugin.proxy_op(context, first, 0, &ProxyArgs::own(0, 1, 1, false));
        RECEIVES[..2].iter().for_each(|state| plugin.record_op(incoming, *state, 100, 1));
        let outgoing = plugin.proxy_op(context, first, 0, &ProxyArgs::own(0, 1, 1, true));
        SENDS.iter().for_each(|state| plugin.record_op(outgoing, *state, 100, 1));
        plugin.stop(outgoing);
        RECEIVES[2..].iter().for_each(|state| plugin.record_op(incoming, *state, 200, 1));
        plugin.stop(incoming);
        let recv = plugin.p2p(context, 7, 0, false, 1, 1);
        plugin.stop(recv);
        flow(&plugin, context, recv, false);
        let records = drain(&mut reader);
        let (told, flows) = (ops(&records), driver::flows(&records));
        let of = |class| *told.iter().find(|op| op.op.id.class == class).expect("it ended");
        let (first, recv) = (of(OpClass::Collective), of(OpClass::Recv));
        let sent = flows.iter().find(|flow| flow.flow.op == first.op.id && flow.flow.direction == Direction::Send);
        let sent = sent.expect("its outgoing flow");
        assert_eq!(first.op.started_ticks, sent.first_ready_ticks, "not when another's data came");
        let free = recv.op.enqueued_ticks.max(first.ended_ticks);
        assert!((free..=recv.ended_ticks).contains(&recv.op.started_ticks), "{recv:?}");
    });
}
