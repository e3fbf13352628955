//! Lines of NCCL's Inspector (and RCCL's): one JSON object for each collective that a rank completed, with how long it was in it,
//! by communicator and number. No time of day is told, so operations are matched by number.
use crate::lanes::{Lanes, nanos};
use mycroft_record::Rank;
use mycroft_record::trace::{Trace, TraceLane, TraceOp};
use serde::Deserialize;
use std::borrow::Cow;

/// How far into a file the first operation is.
const PROBE_BYTES: usize = 64 << 10;
/// Input for each operation that is kept: lines have 200 to 500 bytes.
const BYTES_PER_OP: usize = 4 * size_of::<TraceOp>();
/// Operations that are kept of any file.
const OPS_MIN: usize = 512;

/// Whether these are such lines.
pub(crate) fn is_inspector(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(PROBE_BYTES)];
    let has = |word: &[u8]| memchr::memmem::find(head, word).is_some();
    has(b"\"coll_perf\"") && has(b"\"coll_exec_time_us\"") && has(b"\"n_ranks\"")
}

#[derive(Deserialize, Default)]
struct Header<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    rank: Option<u32>,
    n_ranks: Option<u32>,
}

#[derive(Deserialize)]
struct Performance<'a> {
    #[serde(borrow)]
    coll: Cow<'a, str>,
    coll_sn: u64,
    #[serde(default)]
    coll_msg_size_bytes: u64,
    coll_exec_time_us: f64,
}

/// A line: what tells the communicator stands in a header, or, as some collectors write it, beside the operation.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow)]
    header: Option<Header<'a>>,
    #[serde(borrow, flatten)]
    flat: Header<'a>,
    #[serde(borrow)]
    coll_perf: Option<Performance<'a>>,
}

/// Reads the lines of one process; the rank is the one in its largest communicator. A line that is cut or of something else is
/// passed over.
///
/// # Errors
/// None tells a rank; in words.
pub(crate) fn read(bytes: &[u8]) -> Result<Trace, String> {
    let room = bytes.len() / BYTES_PER_OP + OPS_MIN;
    let mut lanes = Lanes::default();
    let mut trace = Trace { is_numbered: true, ..Trace::default() };
    let mut largest: Option<(u32, u32)> = None;
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| line.len() > 2) {
        let Ok(Line { header, flat, coll_perf: Some(done) }) = serde_json::from_slice(line) else { continue };
        let Header { id: Some(id), rank: Some(rank), n_ranks: Some(size) } = header.unwrap_or(flat) else { continue };
        let (Ok(seq), Some(dur_ns)) = (u32::try_from(done.coll_sn), nanos(done.coll_exec_time_us)) else { continue };
        if largest.is_none_or(|(most, _)| size > most) {
            largest = Some((size, rank));
        }
        let lane = TraceLane { group: (&*id).into(), desc: "".into(), op: (&*done.coll).into(), size };
        let Some(lane) = Some(lane).filter(|_| trace.ops.len() < room).and_then(|lane| lanes.number(lane)) else {
            trace.beyond += 1;
            continue;
        };
        trace.ops.push(TraceOp { lane, seq, start_ns: 0, dur_ns, elements: done.coll_msg_size_bytes });
    }
    let (_, rank) = largest.ok_or("no line tells communicator, rank and operation")?;
    if rank > crate::RANK_MAX {
        return Err(format!("rank {rank}: at most {} are read", crate::RANK_MAX));
    }
    trace.rank = Rank(rank);
    trace.lanes = lanes.list();
    trace.ops.sort_unstable_by_key(|op| (op.lane, op.seq));
    trace.ops.dedup_by_key(|op| (op.lane, op.seq));
    Ok(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NESTED: &str = r#"{"header":{"id":"0x9f","rank":5,"n_ranks":8,"nnodes":1},"metadata":{"hostname":"n1","pid":7},"coll_perf":{"coll":"AllReduce","coll_sn":12,"coll_msg_size_bytes":4096,"coll_exec_time_us":61,"coll_timing_source":"kernel_gpu"}}"#;
    const FLAT: &str = r#"{"id":"0x3","rank":1,"n_ranks":2,"pid":7,"hostname":"n1","coll_perf":{"coll":"AllGather","coll_sn":3,"coll_msg_size_bytes":64,"coll_exec_time_us":10.5}}"#;

    #[test]
    fn both_forms_are_read_and_the_rank_is_that_of_the_largest_communicator() {
        let text = format!("{FLAT}\n{NESTED}\n{{\"cut\": \n{NESTED}\n");
        assert!(is_inspector(text.as_bytes()) && !is_inspector(b"{\"rank\": 3}"));
        let trace = read(text.as_bytes()).expect("two lines");
        assert_eq!((trace.rank, trace.lanes.len(), trace.ops.len()), (Rank(5), 2, 2));
        let op = trace.ops.iter().find(|op| op.seq == 12).expect("it is there");
        assert_eq!((op.dur_ns, op.elements, trace.lanes[op.lane as usize].size), (61_000, 4096, 8));
        assert!(read(b"{\"coll_perf\": 1}\n").is_err());
    }
}
