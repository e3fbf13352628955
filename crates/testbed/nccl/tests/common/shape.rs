//! The structure of a trace of profiler calls: what is left when handles, times, addresses and the number of repeated steps
//! are folded. Two traces of the same job have the same structure where the same things were told in the same order.
//!
//! `docs/formats/calls.md` says what is compared and what is folded.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

const GROUP: u64 = 1;
const COLL: u64 = 2;
const P2P: u64 = 4;
const PROXY_OP: u64 = 8;
const PROXY_STEP: u64 = 16;
const KERNEL: u64 = 64;

/// Fields that differ from run to run, or are told otherwise.
const FOLDED: &[&str] = &[
    "t",
    "thread",
    "call",
    "context",
    "handle",
    "parent",
    "parent_group",
    "comm",
    "hash",
    "send_buff",
    "recv_buff",
    "buff",
    "stream",
    "timer",
    "type",
    "mask",
];

/// The structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// What the calling threads called, in order.
    pub caller: Vec<String>,
    /// What was told inside each operation: proxy operations with their steps, kernels.
    pub inside: Vec<String>,
}

#[derive(Debug)]
struct Event {
    kind: u64,
    label: String,
    fields: Value,
    parent: u64,
    role: &'static str,
    /// Number of the call in the trace, and what it was: a state (with its steps), or nothing for the stop.
    calls: Vec<(usize, Option<(i64, u64)>)>,
    started: usize,
}

impl Event {
    fn number(&self, name: &str) -> i64 {
        self.fields[name].as_i64().unwrap_or(-1)
    }

    fn stops(&self) -> usize {
        self.calls.iter().filter(|c| c.1.is_none()).count()
    }
}

fn kind_name(kind: u64) -> &'static str {
    match kind {
        GROUP => "group",
        COLL => "collective",
        P2P => "transfer",
        PROXY_OP => "proxy-op",
        PROXY_STEP => "step",
        KERNEL => "kernel",
        256 => "group-api",
        512 => "collective-api",
        1024 => "transfer-api",
        2048 => "launch",
        _ => "other",
    }
}

fn fields(value: &Value) -> String {
    let object = value.as_object().expect("a line is an object");
    let kept = object.iter().filter(|(name, _)| !FOLDED.contains(&name.as_str()));
    kept.map(|(name, value)| format!(" {name}={value}")).collect()
}

/// A trace while it is read.
#[derive(Default)]
struct Reader {
    events: BTreeMap<u64, Event>,
    order: Vec<u64>,
    counts: BTreeMap<u64, usize>,
    caller: Vec<String>,
}

impl Reader {
    fn start(&mut self, at: usize, line: Value, role: &'static str) {
        let number = |name: &str| line[name].as_u64().unwrap_or(0);
        let (kind, handle, parent) = (number("type"), number("handle"), number("parent"));
        let of = |handle: u64| self.events.get(&handle).map_or("none".to_owned(), |e: &Event| e.label.clone());
        let (above, group) = (of(parent), of(number("parent_group")));
        let count = self.counts.entry(kind).or_default();
        let label = format!("{}#{count}", kind_name(kind));
        *count += 1;
        if ![PROXY_OP, PROXY_STEP, KERNEL].contains(&kind) {
            let group = if line["parent_group"].is_null() { String::new() } else { format!(" in {group}") };
            self.caller.push(format!("{role}: start {label} under {above}{group}{}", fields(&line)));
        }
        self.events.insert(handle, Event { kind, label, fields: line, parent, role, calls: Vec::new(), started: at });
        self.order.push(handle);
    }

    fn later(&mut self, at: usize, line: &Value, role: &'static str) {
        let Some(event) = self.events.get_mut(&line["handle"].as_u64().unwrap_or(0)) else { return };
        let state = line["state"].as_i64().map(|state| (state, line["steps"].as_u64().unwrap_or(0)));
        event.calls.push((at, state));
        if role != event.role {
            event.role = "several threads";
        }
        if ![PROXY_OP, PROXY_STEP, KERNEL].contains(&event.kind) {
            let what = state.map_or("stop".to_owned(), |s| format!("state {}", s.0));
            self.caller.push(format!("{role}: {what} {}", event.label));
        }
    }
}

fn thread_of(line: &Value) -> u64 {
    line["thread"].as_u64().unwrap_or(u64::MAX)
}

/// The thread that called `init` is the caller; one that told of proxy operations is the proxy's.
fn roles(lines: &[Value]) -> BTreeMap<u64, &'static str> {
    let mut roles = BTreeMap::new();
    for line in lines {
        let inside = line["type"].as_u64().is_some_and(|kind| [PROXY_OP, PROXY_STEP, KERNEL].contains(&kind));
        match line["call"].as_str() {
            Some("init") => drop(roles.insert(thread_of(line), "caller")),
            Some("start") if inside => drop(roles.entry(thread_of(line)).or_insert("proxy")),
            _ => {}
        }
    }
    roles
}

/// Reads a trace.
pub fn shape(path: &Path) -> Shape {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut reader = Reader::default();
    let mut abi = 0;
    let read = |(at, line)| {
        serde_json::from_str::<Value>(line).unwrap_or_else(|e| panic!("{}:{}: {e}", path.display(), at + 1))
    };
    let lines: Vec<Value> = text.lines().enumerate().map(read).collect();
    let roles = roles(&lines);
    for (at, line) in lines.into_iter().enumerate() {
        if at == 0 {
            abi = line["abi"].as_u64().expect("a head says its interface");
        }
        let role = roles.get(&thread_of(&line)).copied().unwrap_or("another thread");
        match line["call"].as_str() {
            Some("init") => reader.caller.push(format!("{role}: init{}", fields(&line))),
            Some("start") => reader.start(at, line, role),
            Some("state" | "stop") => reader.later(at, &line, role),
            Some("finalize") => reader.caller.push(format!("{role}: finalize")),
            _ => {}
        }
    }
    let inside = inside(&reader, abi);
    Shape { caller: reader.caller, inside }
}

fn inside(reader: &Reader, abi: u64) -> Vec<String> {
    let mut by_task: BTreeMap<usize, (Vec<String>, Vec<String>)> = BTreeMap::new();
    for handle in &reader.order {
        let event = &reader.events[handle];
        let Some(task) = reader.events.get(&event.parent) else { continue };
        let lines = by_task.entry(task.started).or_default();
        let above = &task.label;
        match event.kind {
            PROXY_OP => lines.0.push(format!("{above}: {}", proxy_op(reader, *handle, abi))),
            KERNEL => lines.1.push(format!("{above}: {}", kernel(event))),
            _ => {}
        }
    }
    let mut all = Vec::new();
    for (mut ops, mut kernels) in by_task.into_values() {
        // Up to interface 3 an operation starts when the proxy first works on it: the order is a matter of time.
        if abi <= 3 {
            ops.sort();
        }
        kernels.sort();
        all.extend(ops);
        all.extend(kernels);
    }
    all
}

fn kernel(event: &Event) -> String {
    let states: Vec<i64> = event.calls.iter().filter_map(|c| c.1.map(|s| s.0)).collect();
    format!("{} kernel{} states {states:?} stops {}", event.role, fields(&event.fields), event.stops())
}

/// A proxy operation with its steps: how often each was told is folded, in which order is not.
fn proxy_op(reader: &Reader, handle: u64, abi: u64) -> String {
    let op = &reader.events[&handle];
    let steps: Vec<&Event> =
        reader.order.iter().map(|h| &reader.events[h]).filter(|e| e.kind == PROXY_STEP && e.parent == handle).collect();
    let receives = op.fields["send"] == 0 || op.fields["send"] == false;
    let mut patterns: BTreeSet<String> = BTreeSet::new();
    let mut numbers: BTreeSet<i64> = BTreeSet::new();
    for step in &steps {
        let number = step.number("step");
        // A start that was repeated before anything was posted: the last one counts.
        if step.calls.is_empty() && steps.iter().any(|s| s.started > step.started && s.number("step") == number) {
            continue;
        }
        numbers.insert(number);
        // NCCL 2.26 stops only the first of several receives that are done at once.
        let may_stay_open = abi == 3 && receives;
        patterns.insert(pattern(op, step, number, may_stay_open));
    }
    let states: BTreeSet<i64> = op.calls.iter().filter_map(|c| c.1.map(|s| s.0)).collect();
    let whole = (0..numbers.len() as i64).eq(numbers.iter().copied()) && numbers.len() as i64 == op.number("steps");
    format!(
        "{} proxy-op{} states {states:?} stops {}; steps {} {}",
        op.role,
        fields(&op.fields),
        op.stops(),
        if whole { "all" } else { "not all" },
        patterns.into_iter().collect::<Vec<_>>().join(" | ")
    )
}

/// The calls of one step with those of its operation that cover it.
fn pattern(op: &Event, step: &Event, number: i64, may_stay_open: bool) -> String {
    let mut calls: Vec<(usize, String)> = vec![(step.started, "start".to_owned())];
    for (at, state) in &step.calls {
        calls.push((*at, state.map_or("stop".to_owned(), |s| s.0.to_string())));
    }
    let states: BTreeSet<i64> = op.calls.iter().filter_map(|c| c.1.filter(|s| s.1 > 0).map(|s| s.0)).collect();
    for state in states {
        let covering = op.calls.iter().find(|c| c.1.is_some_and(|s| s.0 == state && s.1 as i64 > number));
        calls.extend(covering.map(|c| (c.0, format!("op{state}"))));
    }
    calls.sort();
    let mut texts: Vec<String> = calls.into_iter().map(|c| c.1).collect();
    texts.dedup();
    if may_stay_open {
        texts.retain(|text| text != "stop");
        texts.push("(stop)".to_owned());
    }
    format!("[{}{}]", if step.role == op.role { "" } else { "other thread: " }, texts.join(" "))
}

/// What one has and the other has not: lines with `-` (only in the first) or `+` (only in the second).
pub fn differences(one: &Shape, other: &Shape) -> Vec<String> {
    let mut found = diff(&one.caller, &other.caller);
    found.extend(diff(&one.inside, &other.inside));
    found
}

/// The longest common sequence is no difference.
fn diff(one: &[String], other: &[String]) -> Vec<String> {
    let (n, m) = (one.len(), other.len());
    let mut best = vec![vec![0usize; m + 1]; n + 1];
    for i in (0..n).rev() {
        for j in (0..m).rev() {
            best[i][j] = if one[i] == other[j] { best[i + 1][j + 1] + 1 } else { best[i + 1][j].max(best[i][j + 1]) };
        }
    }
    let (mut i, mut j, mut found) = (0, 0, Vec::new());
    while i < n || j < m {
        if i < n && j < m && one[i] == other[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == m || (i < n && best[i + 1][j] >= best[i][j + 1]) {
            found.push(format!("- {}", one[i]));
            i += 1;
        } else {
            found.push(format!("+ {}", other[j]));
            j += 1;
        }
    }
    found
}
