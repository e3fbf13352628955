//! Traces of torch's profiler (Kineto) in the format of Chrome: collectives and iterations of one rank.
//!
//! One pass over the events; an event is looked at and forgotten, unless it is a collective or an iteration. Collectives are
//! kernels of the device where there are any, else what Gloo's or NCCL's own annotations tell.
use crate::lanes::{Lanes, nanos};
use mycroft_record::Rank;
use mycroft_record::trace::{Trace, TraceLane, TraceOp, TraceStep};
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, de};
use std::borrow::Cow;
use std::fmt;

/// How far into a file its list of events begins: device properties and the groups of 100,000 ranks are before it.
const PROBE_BYTES: usize = 1 << 20;
/// Input for each operation that is kept: twice what it costs in a list that grows.
const BYTES_PER_OP: usize = 4 * size_of::<TraceOp>();
/// Operations that are kept of any file.
const OPS_MIN: usize = 512;

/// Whether a JSON text is such a trace.
pub(crate) fn is_trace(bytes: &[u8]) -> bool {
    memchr::memmem::find(&bytes[..bytes.len().min(PROBE_BYTES)], b"\"traceEvents\"").is_some()
}

/// Reads a trace; the rank is that of its `distributedInfo`, if it has one.
pub(crate) fn read(bytes: &[u8]) -> Result<(Trace, Option<Rank>), String> {
    let mut found = Found { room: bytes.len() / BYTES_PER_OP + OPS_MIN, ..Found::default() };
    let mut json = serde_json::Deserializer::from_slice(bytes);
    json.deserialize_map(Whole(&mut found)).map_err(|error| error.to_string())?;
    let rank = found.rank.filter(|rank| *rank <= crate::RANK_MAX).map(Rank);
    Ok((found.trace(), rank))
}

#[derive(Default)]
struct Found {
    rank: Option<u32>,
    lanes: Lanes,
    /// Collectives of the device, and those that annotations tell.
    device: Vec<TraceOp>,
    host: Vec<TraceOp>,
    steps: Vec<TraceStep>,
    room: usize,
    beyond: u64,
}

impl Found {
    fn trace(self) -> Trace {
        let lanes = self.lanes.list();
        let mut ops = if self.device.is_empty() { self.host } else { self.device };
        ops.sort_unstable_by_key(|op| (op.start_ns, op.lane, op.dur_ns));
        let mut steps = self.steps;
        steps.sort_unstable_by_key(|step| (step.number, step.start_ns));
        steps.dedup_by_key(|step| step.number);
        steps.sort_by_key(|step| step.start_ns);
        Trace { lanes, ops, steps, beyond: self.beyond, ..Trace::default() }
    }

    fn event(&mut self, event: &Event<'_>) {
        let (Some(start_ns), Some(dur_ns)) = (event.ts.and_then(nanos), event.dur.and_then(nanos)) else { return };
        let number = || event.name.strip_prefix("ProfilerStep#").and_then(|number| number.parse().ok());
        // The device's annotation of the same name spans what was issued within.
        if let Some(number) = number().filter(|_| event.cat != "gpu_user_annotation") {
            let step = TraceStep { number, start_ns, dur_ns };
            return if self.has_room() { self.steps.push(step) } else { self.beyond += 1 };
        }
        let (is_device, name) = match &*event.cat {
            "kernel" if event.name.starts_with("nccl") => (true, kernel(&event.name)),
            "user_annotation" | "cpu_op" => match event.name.strip_prefix("gloo:") {
                Some(name) => (false, name),
                None => return,
            },
            _ => return,
        };
        let args = &event.args;
        let op: &str = args.collective.as_deref().unwrap_or(name);
        let group = args.group.as_deref().unwrap_or_default();
        let lane = TraceLane {
            group: group.into(),
            desc: args.desc.as_deref().unwrap_or_default().into(),
            op: op.into(),
            size: args.size.unwrap_or(0),
        };
        let Some(lane) = Some(lane).filter(|_| self.has_room()).and_then(|lane| self.lanes.number(lane)) else {
            self.beyond += 1;
            return;
        };
        let list = if is_device { &mut self.device } else { &mut self.host };
        list.push(TraceOp { lane, seq: 0, start_ns, dur_ns, elements: args.elements.unwrap_or(0) });
    }

    fn has_room(&self) -> bool {
        self.device.len() + self.host.len() + self.steps.len() < self.room
    }
}

/// `ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)` as `AllReduce`.
fn kernel(name: &str) -> &str {
    let rest = ["ncclDevKernel_", "ncclKernel_"].iter().find_map(|start| name.strip_prefix(start)).unwrap_or(name);
    rest.split(['_', '(']).next().unwrap_or(rest)
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Event<'a> {
    #[serde(borrow)]
    cat: Cow<'a, str>,
    #[serde(borrow)]
    name: Cow<'a, str>,
    ts: Option<f64>,
    dur: Option<f64>,
    #[serde(borrow)]
    args: Args<'a>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Args<'a> {
    #[serde(rename = "Collective name", borrow)]
    collective: Option<Cow<'a, str>>,
    #[serde(rename = "Process Group Name", borrow)]
    group: Option<Cow<'a, str>>,
    #[serde(rename = "Process Group Description", borrow)]
    desc: Option<Cow<'a, str>>,
    #[serde(rename = "Group size")]
    size: Option<u32>,
    #[serde(rename = "In msg nelems")]
    elements: Option<u64>,
}

#[derive(Deserialize)]
struct Distributed {
    rank: Option<u32>,
}

struct Whole<'f>(&'f mut Found);

impl<'de> Visitor<'de> for Whole<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a trace of a profiler")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<(), M::Error> {
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match &*key {
                "traceEvents" => map.next_value_seed(Events(&mut *self.0))?,
                "distributedInfo" => self.0.rank = map.next_value::<Distributed>()?.rank,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

struct Events<'f>(&'f mut Found);

impl<'de> de::DeserializeSeed<'de> for Events<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        from.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Events<'_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a list of events")
    }

    fn visit_seq<S: SeqAccess<'de>>(self, mut seq: S) -> Result<(), S::Error> {
        let mut events = 0_usize;
        while let Some(event) = seq.next_element::<Event<'de>>()? {
            events += 1;
            self.0.event(&event);
        }
        if events == 0 { Err(S::Error::custom("a trace without events")) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = r#"{ "schemaVersion": 1, "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
        "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}},
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#7", "pid": 1, "tid": 1, "ts": 100.5, "dur": 900},
        {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
         "ts": 200, "dur": 20.25, "args": {"Collective name": "allreduce", "In msg nelems": 64, "Group size": 8,
         "Process Group Name": "0", "Process Group Description": "default_pg", "Process Group Ranks": "[0, 1, 2]"}},
        {"ph": "X", "cat": "kernel", "name": "ncclKernel_AllGather_RING_LL_Sum_int8_t(x)", "ts": 150, "dur": 1},
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 160, "dur": 1},
        {"ph": "X", "cat": "user_annotation", "name": "gloo:all_reduce", "ts": 10, "dur": 5}
        ], "traceName": "t"}"#;

    #[test]
    fn collectives_and_iterations_are_found() {
        let (trace, rank) = read(TRACE.as_bytes()).expect("a trace");
        assert_eq!((rank, trace.steps.len(), trace.beyond), (Some(Rank(3)), 1, 0));
        assert_eq!((trace.steps[0].number, trace.steps[0].start_ns), (7, 100_500));
        let ops: Vec<(&str, i64, u64)> =
            trace.ops.iter().map(|op| (&*trace.lanes[op.lane as usize].op, op.dur_ns, op.elements)).collect();
        assert_eq!(ops, [("AllGather", 1_000, 0), ("allreduce", 20_250, 64)]);
        let gloo = TRACE.replace("\"kernel\"", "\"other\"");
        let (trace, _) = read(gloo.as_bytes()).expect("a trace");
        assert_eq!((trace.ops.len(), &*trace.lanes[0].op), (1, "all_reduce"));
        assert!(read(b"{\"traceEvents\": []}").is_err() && read(&TRACE.as_bytes()[..400]).is_err());
    }
}
