//! The flows of a capture as JSON, version 1 (docs/formats/flow.md).
use super::communicators::{Communicators, CommunicatorsJson};
use super::intake::Seen;
use super::live::Live;
use super::operations;
use super::ranks::{Process, Ranks};
use super::suspects::{SuspectJson, Told};
use mycroft_agent::tap::TapGap;
use mycroft_diagnose::flow::{GAP_BOUNDS_NS, Operation as Found, Rule, kinds};
use mycroft_flow::limits::Grain;
use mycroft_flow::{Curve, Ports, WireFlow};
use serde::Serialize;
use std::collections::BTreeMap;

/// The whole answer.
#[derive(Serialize)]
pub(super) struct Answer {
    version: u32,
    epoch_ns: u64,
    unit_bytes: u64,
    packets: u64,
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    /// Packets that are in no curve, by reason.
    not_counted: BTreeMap<String, u64>,
    /// Why reading ended early.
    fault: Option<Fault>,
    /// Where an interface was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<LiveJson>,
    /// Upper bounds of the counts in `gaps` of operations; one more counts what is longer.
    #[serde(skip_serializing_if = "Option::is_none")]
    gap_bounds_ns: Option<[u64; GAP_BOUNDS_NS.len()]>,
    /// Where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    suspects: Option<Vec<SuspectJson>>,
    /// Where asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    communicators: Option<Vec<CommunicatorsJson>>,
    flows: Vec<Flow>,
}

#[derive(Serialize)]
struct Fault {
    offset: u64,
    problem: String,
}

#[derive(Serialize)]
struct LiveJson {
    interface: String,
    /// Whose times: `software` or `hardware`.
    stamps: &'static str,
    /// Times at which the ring was full.
    freezes: u64,
    /// Times at which the interface went down.
    downs: u64,
    /// Where the kernel lost packets.
    gaps: Vec<LiveGap>,
}

#[derive(Serialize)]
struct LiveGap {
    from_ns: u64,
    until_ns: u64,
    packets: u64,
}

impl LiveJson {
    fn of(live: &Live) -> LiveJson {
        let gap = |gap: &TapGap| LiveGap { from_ns: gap.from_ns, until_ns: gap.until_ns, packets: gap.packets };
        LiveJson {
            interface: live.name.clone(),
            stamps: live.stamps(),
            freezes: live.counts().freezes,
            downs: live.counts().downs,
            gaps: live.gaps().iter().map(gap).collect(),
        }
    }
}

/// A process of a job.
#[derive(Serialize)]
struct ProcessJson {
    job: String,
    host: String,
    rank: Option<u32>,
}

impl ProcessJson {
    fn of(process: &Process) -> ProcessJson {
        ProcessJson { job: process.job.clone(), host: process.host.clone(), rank: process.rank }
    }
}

#[derive(Serialize)]
struct Flow {
    /// Whose queue pairs they are, where lists say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    sender: Option<ProcessJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    receiver: Option<ProcessJson>,
    source: String,
    destination: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_pair: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination_port: Option<u16>,
    packets: u64,
    payload_bytes: u64,
    wire_bytes: u64,
    first_ns: u64,
    last_ns: u64,
    active_epochs: u64,
    gaps: u64,
    longest_gap_ns: u64,
    peak_epoch_bytes: u64,
    /// Bytes over epochs that are not empty.
    actual_bytes_per_sec: Option<f64>,
    again_packets: u64,
    again_bytes: u64,
    missing: u64,
    naks: u64,
    receiver_not_ready: u64,
    congestion_notifications: u64,
    /// Bytes that are in no epoch: carried, late, beyond the window or the memory, or more than an epoch holds.
    outside_bytes: u64,
    /// Where asked for; null where not all of the curve was kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    operations: Option<Option<Vec<Operation>>>,
}

#[derive(Serialize)]
struct Operation {
    start_ns: u64,
    end_ns: u64,
    bytes: u64,
    again_bytes: u64,
    actual_ns: u64,
    gaps: [u32; GAP_BOUNDS_NS.len() + 1],
    longest_gap_ns: u64,
    pieces: u32,
    is_complete: bool,
    /// Number of the kind, from 0: operations of like volume have the same.
    kind: usize,
}

/// What is wanted beside the flows.
pub(super) struct Also<'a> {
    /// Operations, and how they are cut.
    pub(super) rule: Option<&'a Rule>,
    pub(super) suspects: Option<&'a Told>,
    pub(super) communicators: Option<&'a Communicators>,
}

/// The answer for these flows.
pub(super) fn of(
    seen: &Seen,
    live: Option<&Live>,
    grain: Grain,
    flows: &[(&WireFlow, &Curve)],
    ranks: &Ranks,
    also: &Also<'_>,
) -> Answer {
    let Also { rule, suspects, communicators } = *also;
    Answer {
        version: 1,
        epoch_ns: grain.epoch_ns(),
        unit_bytes: grain.unit_bytes(),
        packets: seen.packets,
        first_ns: seen.span_ns.map(|span| span.0),
        last_ns: seen.span_ns.map(|span| span.1),
        not_counted: seen.left.iter().map(|(left, packets)| (left.word().to_owned(), *packets)).collect(),
        fault: seen.fault.map(|fault| Fault { offset: fault.offset, problem: fault.problem.to_string() }),
        live: live.map(LiveJson::of),
        gap_bounds_ns: rule.map(|_| GAP_BOUNDS_NS),
        suspects: suspects.map(Told::json),
        communicators: communicators.map(Communicators::json),
        flows: flows.iter().map(|(key, curve)| flow(grain, ranks, key, curve, rule)).collect(),
    }
}

fn flow(grain: Grain, ranks: &Ranks, key: &WireFlow, curve: &Curve, rule: Option<&Rule>) -> Flow {
    let (queue_pair, source_port, destination_port) = match key.ports {
        Ports::QueuePair(number) => (Some(number), None, None),
        Ports::Tcp { source, destination } => (None, Some(source), Some(destination)),
    };
    let exchange = &curve.exchange;
    let ends = ranks.ends(key, exchange.last_ns);
    Flow {
        sender: ends.sender.map(ProcessJson::of),
        receiver: ends.receiver.map(ProcessJson::of),
        source: key.source.to_string(),
        destination: key.destination.to_string(),
        queue_pair,
        source_port,
        destination_port,
        packets: exchange.packets,
        payload_bytes: exchange.payload_bytes,
        wire_bytes: exchange.wire_bytes,
        first_ns: exchange.first_ns,
        last_ns: exchange.last_ns,
        active_epochs: curve.active_epochs,
        gaps: curve.gaps,
        longest_gap_ns: curve.longest_gap_epochs * grain.epoch_ns(),
        peak_epoch_bytes: curve.peak_bytes,
        actual_bytes_per_sec: curve.actual_rate(grain),
        again_packets: exchange.again_packets,
        again_bytes: exchange.again_bytes,
        missing: exchange.missing,
        naks: exchange.naks,
        receiver_not_ready: exchange.not_ready,
        congestion_notifications: exchange.congestion,
        outside_bytes: curve.counters.outside_bytes() + curve.carried_bytes,
        operations: rule.map(|rule| operations::of(curve, grain, rule).map(|found| of_curve(&found))),
    }
}

fn of_curve(found: &[Found]) -> Vec<Operation> {
    let mut kind_of = vec![0; found.len()];
    for (number, kind) in kinds(found).iter().enumerate() {
        kind.members.iter().for_each(|member| kind_of[*member] = number);
    }
    let told = found.iter().zip(kind_of).map(|(operation, kind)| Operation {
        start_ns: operation.start_ns,
        end_ns: operation.end_ns,
        bytes: operation.bytes,
        again_bytes: operation.again_bytes,
        actual_ns: operation.actual_ns,
        gaps: operation.gaps.counts,
        longest_gap_ns: operation.gaps.longest_ns,
        pieces: operation.pieces,
        is_complete: operation.is_complete,
        kind,
    });
    told.collect()
}
