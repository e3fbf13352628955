//! Perfetto's trace: a process for each rank, tracks of its communicators and of the channels of its flows, and the cases.
//!
//! Slices of one track must nest, and operations that are enqueued ahead may overlap: what overlaps goes to another lane of the same
//! name. A flow is an arrow from the slice of who sends to that of who receives.
use super::pieces::{Pieces, Way, Whose};
use super::proto::{Annotation, Event, Packet, Process, Trace, Track};
use crate::told::first_suspect;
use anyhow::Result;
use mycroft_record::{Direction, FlowDone, HostTime, OpClass, OpMeta, Rank, Source};
use mycroft_serve::api::{CaseJson, TimeJson};
use prost::Message;
use std::collections::BTreeMap;

/// One writer of packets.
const SEQUENCE: u32 = 1;
/// The first packet says that nothing came before it.
const CLEARED: u32 = 1;
const BEGIN: i32 = 1;
const END: i32 = 2;
const INSTANT: i32 = 3;
/// The process of cases: the numbers of others begin behind it.
const CASES: u64 = 1;

/// A slice, and where it belongs.
struct Slice {
    process: u64,
    /// The name of its tracks.
    track: String,
    from: u64,
    to: u64,
    event: Event,
}

/// Writes a trace; gives what was written.
pub(super) fn write(
    mut pieces: Pieces,
    cases: &[CaseJson],
    mut out: impl FnMut(&[u8]) -> Result<()>,
) -> Result<String> {
    let (ops, flows) = (std::mem::take(&mut pieces.ops), std::mem::take(&mut pieces.flows));
    let ended = ops.iter().filter_map(|(whose, done)| op(&pieces, *whose, &done.op, done.ended_at));
    let mut slices: Vec<Slice> = ended.collect();
    let in_flight: Vec<Slice> =
        pieces.in_flight().filter_map(|(whose, meta, at)| op(&pieces, whose, meta, at)).map(open).collect();
    let counts = format!(
        "{} operations, {} of them in flight, {} flows, {} cases",
        slices.len() + in_flight.len(),
        in_flight.len(),
        flows.len(),
        cases.len()
    );
    slices.extend(in_flight);
    slices.extend(flows.iter().filter_map(|(whose, done)| flow(&pieces, *whose, done)));
    let last = slices.iter().map(|slice| slice.to).max().unwrap_or(0);
    slices.extend(cases.iter().filter_map(|one| case(one, last)));
    slices.sort_by_key(|slice| (slice.from, std::cmp::Reverse(slice.to)));
    let mut put = |packet: Packet| out(&Trace { packet: vec![packet] }.encode_to_vec());
    put(Packet { sequence_flags: Some(CLEARED), trusted_packet_sequence_id: Some(SEQUENCE), ..Packet::default() })?;
    processes(&pieces).into_iter().try_for_each(&mut put)?;
    let mut events = Vec::with_capacity(2 * slices.len());
    let mut lanes: BTreeMap<(u64, String), Vec<(u64, u64)>> = BTreeMap::new();
    let mut next = number(pieces.whose.len() as Whose);
    for Slice { process, track, from, to, mut event } in slices {
        let known = lanes.entry((process, track.clone())).or_default();
        let free = known.iter().position(|(_, until)| *until <= from);
        let lane = free.unwrap_or(known.len());
        if free.is_none() {
            put(described(Track { uuid: Some(next), name: Some(track), parent_uuid: Some(process), process: None }))?;
            known.push((next, 0));
            next += 1;
        }
        known[lane].1 = to;
        event.track_uuid = Some(known[lane].0);
        event.r#type = Some(BEGIN);
        let end = Event { r#type: Some(END), track_uuid: event.track_uuid, ..Event::default() };
        events.push((from, 1, event));
        events.push((to, 0, end));
    }
    events.extend(pieces.steps.iter().map(|(whose, mark)| {
        let name = Some(format!("step {}", mark.step));
        let track_uuid = Some(number(*whose));
        (mark.at.0, 2, Event { r#type: Some(INSTANT), track_uuid, name, ..Event::default() })
    }));
    // What ends goes before what begins at the same time.
    events.sort_by_key(|(at, order, _)| (*at, *order));
    for (at, _, event) in events {
        let (timestamp, track_event) = (Some(at), Some(event));
        put(Packet { timestamp, track_event, trusted_packet_sequence_id: Some(SEQUENCE), ..Packet::default() })?;
    }
    Ok(counts)
}

/// The processes of the trace: that of cases, and the ranks.
fn processes(pieces: &Pieces) -> Vec<Packet> {
    let rank = |(whose, source): (usize, &Source)| {
        let rank = source.process.map_or(Rank::UNKNOWN, |process| process.rank);
        process(number(whose as Whose), format!("rank {rank} on {}", source.host))
    };
    let cases = process(CASES, "mycroft: cases".to_owned());
    std::iter::once(cases).chain(pieces.whose.iter().enumerate().map(rank)).map(described).collect()
}

/// The number of a process's track.
fn number(whose: Whose) -> u64 {
    CASES + 1 + u64::from(whose)
}

fn process(uuid: u64, name: String) -> Track {
    // Process ids of several hosts may be alike: the number stands for it.
    let process = Process { pid: i32::try_from(uuid).ok(), process_name: Some(name) };
    Track { uuid: Some(uuid), process: Some(process), ..Track::default() }
}

fn described(track: Track) -> Packet {
    Packet { track_descriptor: Some(track), trusted_packet_sequence_id: Some(SEQUENCE), ..Packet::default() }
}

/// A slice from the first to the last time; an instant of the clock at least. `None`: its end is not known.
fn between(from: HostTime, to: HostTime) -> Option<(u64, u64)> {
    let (from, to) = (from.some()?.0, to.some()?.0);
    Some((from, to.max(from + 1)))
}

/// An operation that had not ended when it was last seen.
fn open(slice: Slice) -> Slice {
    let name = slice.event.name.map(|name| format!("{name} (in flight)"));
    Slice { event: Event { name, ..slice.event }, ..slice }
}

fn op(pieces: &Pieces, whose: Whose, op: &OpMeta, ended_at: HostTime) -> Option<Slice> {
    let begun = op.started_at.some().unwrap_or(op.enqueued_at);
    let (from, to) = between(begun, ended_at)?;
    let mut debug_annotations = vec![
        amount("bytes", op.bytes()),
        amount("seq", op.id.seq.0),
        word("communicator", op.id.comm.to_string()),
        word("algorithm", op.algorithm.as_str().to_owned()),
        amount("enqueued before, ns", op.enqueued_at.some().map_or(0, |at| begun.since_ns(at))),
    ];
    if op.id.class != OpClass::Collective {
        debug_annotations.push(amount("peer", op.id.peer.0.into()));
    }
    let event = Event {
        name: Some(format!("{} #{}", op.kind.as_str(), op.id.seq.0)),
        categories: vec!["operation".to_owned()],
        debug_annotations,
        ..Event::default()
    };
    Some(Slice { process: number(whose), track: pieces.comm(op.id.comm), from, to, event })
}

fn flow(pieces: &Pieces, whose: Whose, done: &FlowDone) -> Option<Slice> {
    let (flow, times) = (&done.flow, &done.times);
    let (from, to) = between(times.first_ready_at.some().unwrap_or(times.started_at), done.ended_at)?;
    let is_send = flow.direction == Direction::Send;
    let arrow: Vec<u64> = pieces.way(whose, done).map(|way| arrow(&way)).into_iter().collect();
    let event = Event {
        name: Some(format!("{} {}", if is_send { "to" } else { "from" }, flow.peer.0)),
        categories: vec!["flow".to_owned()],
        debug_annotations: vec![
            amount("bytes", done.bytes),
            amount("chunks", done.counters.done.into()),
            amount("seq", flow.op.seq.0),
        ],
        flow_ids: if is_send { arrow.clone() } else { Vec::new() },
        terminating_flow_ids: if is_send { Vec::new() } else { arrow },
        ..Event::default()
    };
    let track = format!("{} channel {} {}", pieces.comm(flow.op.comm), flow.channel.0, flow.direction.as_str());
    Some(Slice { process: number(whose), track, from, to, event })
}

/// A number that both ends of a flow come to: FNV-1a over what they agree on.
fn arrow(way: &Way) -> u64 {
    let parts = [way.0.0, way.1.into(), way.2, way.3.into(), way.4.0.into(), way.5.0.into()];
    let bytes = parts.iter().flat_map(|part| part.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn case(case: &CaseJson, last: u64) -> Option<Slice> {
    let time = |time: &Option<TimeJson>| time.as_ref().map_or(HostTime::NONE, |time| HostTime(time.ns));
    let (from, to) = between(time(&case.since), time(&case.closed_at).some().unwrap_or(HostTime(last)))?;
    let reasons = case.because.iter().map(|reason| word(&reason.rule, reason.text.clone()));
    let event = Event {
        name: Some(format!("case {}: {} / {}: {}", case.id, case.what, case.category, first_suspect(case))),
        categories: vec!["case".to_owned()],
        debug_annotations: reasons.collect(),
        ..Event::default()
    };
    Some(Slice { process: CASES, track: "cases".to_owned(), from, to, event })
}

fn amount(name: &str, value: u64) -> Annotation {
    Annotation { name: Some(name.to_owned()), uint_value: Some(value), ..Annotation::default() }
}

fn word(name: &str, value: String) -> Annotation {
    Annotation { name: Some(name.to_owned()), string_value: Some(value), ..Annotation::default() }
}
