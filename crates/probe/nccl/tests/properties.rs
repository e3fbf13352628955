//! Any order of any events, garbage included: no crash, no NULL handle, no counter that falls or passes its total.
mod driver;

use driver::{CollArgs, Ctx, Ev, Plugin, ProxyArgs, in_own_process, open_segment};
use mycroft_record::FlowCounters;
use mycroft_ring::{RawRecord, SegmentReader};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::c_int;

/// One call of NCCL; indexes choose among what earlier calls returned.
#[derive(Clone, Debug)]
enum Call {
    Init,
    Finalize(usize),
    Coll(usize, u8),
    P2p(usize, bool, c_int),
    ProxyOp(usize, usize, ProxyOpCall),
    Step(usize, usize, c_int),
    Kernel(usize, usize, u8, u64),
    Stop(usize),
    Record(usize, c_int, u64),
    RecordNull(usize, c_int),
    /// Makes a handle out of nothing, for later calls.
    Garbage(u64),
    /// Bends an existing handle.
    Bend(usize, u32),
}

#[derive(Clone, Debug)]
struct ProxyOpCall {
    own: bool,
    channel: u8,
    peer: c_int,
    n_steps: c_int,
    send: bool,
}

fn call() -> impl Strategy<Value = Call> {
    let context = 0..1000usize;
    // Mostly recent handles, so that whole life cycles happen.
    let handle = prop_oneof![3 => 0..6usize, 1 => 0..1000usize];
    // Small totals and steps that share a lane, so that counting one twice would pass the total.
    let steps = prop_oneof![4 => 1..20, 8 => Just(9), 1 => any::<c_int>()];
    let step = prop_oneof![4 => 0..20, 8 => Just(0), 8 => Just(8), 1 => any::<c_int>()];
    let proxy = (prop::bool::weighted(0.9), 0..4u8, -1..4, steps, any::<bool>())
        .prop_map(|(own, channel, peer, n_steps, send)| ProxyOpCall { own, channel, peer, n_steps, send });
    let state = prop_oneof![8 => 0..23, 1 => any::<c_int>()];
    prop_oneof![
        1 => Just(Call::Init),
        1 => context.clone().prop_map(Call::Finalize),
        4 => (context.clone(), any::<u8>()).prop_map(|(c, n)| Call::Coll(c, n % 5)),
        2 => (context.clone(), any::<bool>(), -1..5).prop_map(|(c, s, p)| Call::P2p(c, s, p)),
        6 => (context.clone(), handle.clone(), proxy).prop_map(|(c, h, p)| Call::ProxyOp(c, h, p)),
        20 => (context.clone(), handle.clone(), step).prop_map(|(c, h, s)| Call::Step(c, h, s)),
        3 => (context, handle.clone(), any::<u8>(), any::<u64>()).prop_map(|(c, h, n, t)| Call::Kernel(c, h, n % 70, t)),
        8 => handle.clone().prop_map(Call::Stop),
        30 => (handle.clone(), state.clone(), any::<u64>()).prop_map(|(h, s, v)| Call::Record(h, s, v)),
        5 => (handle.clone(), state).prop_map(|(h, s)| Call::RecordNull(h, s)),
        1 => any::<u64>().prop_map(Call::Garbage),
        2 => (handle, 0..64u32).prop_map(|(h, b)| Call::Bend(h, b)),
    ]
}

/// NCCL as it would be if it went mad.
struct Mad<'a> {
    plugin: &'a Plugin,
    contexts: Vec<Ctx>,
    /// The newest last.
    handles: Vec<Ev>,
    reader: &'a RefCell<Option<SegmentReader>>,
    seen: BTreeMap<(u16, u32), (FlowCounters, u64)>,
}

impl Mad<'_> {
    fn context(&self, index: usize) -> Ctx {
        if self.contexts.is_empty() { Ctx(index as u64) } else { self.contexts[index % self.contexts.len()] }
    }

    fn handle(&self, back: usize) -> Ev {
        if self.handles.is_empty() {
            Ev(back as u64)
        } else {
            self.handles[self.handles.len() - 1 - back % self.handles.len()]
        }
    }

    fn run(&mut self, call: &Call) {
        let plugin = self.plugin;
        let made = match *call {
            Call::Init => {
                let mut mask = 0;
                self.contexts.push(plugin.init(self.contexts.len() as u64, c"mad", 4, 0, &mut mask));
                return;
            }
            Call::Finalize(c) => return plugin.finalize(self.context(c)),
            Call::Coll(c, n) => plugin.coll(self.context(c), &CollArgs::all_reduce(1, 0, 0, n)),
            Call::P2p(c, send, peer) => plugin.p2p(self.context(c), 1, 0, send, peer, 1),
            Call::ProxyOp(c, h, ref p) => {
                let pid = if p.own { std::process::id() as i32 } else { 1 };
                let args = ProxyArgs { pid, channel: p.channel, peer: p.peer, n_steps: p.n_steps, send: p.send };
                plugin.proxy_op(self.context(c), self.handle(h), 0, &args)
            }
            Call::Step(c, h, step) => plugin.step(self.context(c), self.handle(h), step),
            Call::Kernel(c, h, channel, timer) => plugin.kernel(self.context(c), self.handle(h), channel, timer),
            Call::Stop(h) => return plugin.stop(self.handle(h)),
            Call::Record(h, state, value) if plugin.abi <= 3 => {
                return plugin.record_op(self.handle(h), state, value, value as c_int % 64);
            }
            Call::Record(h, state, value) => return plugin.record(self.handle(h), state, value),
            Call::RecordNull(h, state) => return plugin.record_null(self.handle(h), state),
            Call::Garbage(bits) => Ev(bits),
            Call::Bend(h, bit) => Ev(self.handle(h).0 ^ 1 << bit),
        };
        self.handles.push(made);
    }

    fn check(&mut self, dir: &std::path::Path) {
        let mut reader = self.reader.borrow_mut();
        if reader.is_none() && dir.exists() {
            *reader = Some(open_segment(dir));
        }
        let Some(reader) = reader.as_mut() else { return };
        for flow in reader.flows().expect("readable").items {
            ordered(&flow.counters);
            let (before, polls) = self.seen.entry((flow.index, flow.generation)).or_default();
            let (a, b) = (*before, flow.counters);
            let fell = a.posted > b.posted || a.ready > b.ready || a.transmitted > b.transmitted || a.done > b.done;
            assert!(!fell && *polls <= flow.peer_wait_polls, "a counter fell: {a:?} to {b:?}");
            (*before, *polls) = (b, flow.peer_wait_polls);
        }
        let mut records = Vec::new();
        reader.drain(100_000, &mut records).expect("readable");
        for record in records {
            if let RawRecord::FlowDone(flow) = record {
                ordered(&flow.counters);
            }
        }
    }
}

fn ordered(c: &FlowCounters) {
    let falling =
        c.total_chunks >= c.posted && c.posted >= c.ready && c.ready >= c.transmitted && c.transmitted >= c.done;
    assert!(falling, "out of order: {c:?}");
}

fn madness(test: &str, abi: u32) {
    in_own_process(test, &[("MYCROFT_SEGMENT_BYTES", "524288")], |dir| {
        let plugin = Plugin::open(abi);
        let reader = RefCell::new(None);
        let mut runner = TestRunner::new(Config { cases: 400, failure_persistence: None, ..Config::default() });
        let result = runner.run(&prop::collection::vec(call(), 1..300), |calls| {
            let mut mad =
                Mad { plugin: &plugin, contexts: vec![], handles: vec![], reader: &reader, seen: BTreeMap::new() };
            mad.run(&Call::Init);
            for (i, call) in calls.iter().enumerate() {
                mad.run(call);
                if i % 16 == 0 {
                    mad.check(dir);
                }
            }
            mad.check(dir);
            Ok(())
        });
        result.unwrap_or_else(|error| panic!("{error}"));
    });
}

#[test]
fn any_calls_v1() {
    madness("any_calls_v1", 1);
}

#[test]
fn any_calls_v3() {
    madness("any_calls_v3", 3);
}

#[test]
fn any_calls_v4() {
    madness("any_calls_v4", 4);
}

#[test]
fn any_calls_v6() {
    madness("any_calls_v6", 6);
}

#[test]
fn any_calls_v7() {
    madness("any_calls_v7", 7);
}
