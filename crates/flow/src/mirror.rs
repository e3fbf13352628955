//! Packets of a mirror port or a capture: flows are what has one sender, one receiver and one queue pair or pair of ports.
use crate::key::WireFlow;
use crate::keyed::Keyed;
use crate::limits::{Grain, RESENT_MAX};
use crate::meter::{FlowId, FlowReport, Meter, Resent};
use crate::packet::{Packet, Transport};
use crate::roce::{Aeth, Opcode, Roce};
use crate::sequence::{Order, Sequence};
use alloc::vec::Vec;

/// What the headers of a flow's packets said, since it began.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Exchange {
    /// Packets, with and without payload.
    pub packets: u64,
    /// Bytes of payload: what programs sent, without headers, padding and checksums. The curve counts these.
    pub payload_bytes: u64,
    /// Bytes on the wire, from the link's header on.
    pub wire_bytes: u64,
    /// Packets whose sequence numbers are not ahead of what was seen before, whether or not they were passed over; also in `packets`.
    pub again_packets: u64,
    /// Bytes of payload of these; also in `payload_bytes` and in the curve.
    pub again_bytes: u64,
    /// Sequence numbers that were passed over (RoCE: packets, TCP: bytes): lost, or not captured.
    pub missing: u64,
    /// Negative acknowledgements other than "receiver not ready".
    pub naks: u64,
    /// "Receiver not ready".
    pub not_ready: u64,
    /// Congestion notifications.
    pub congestion: u64,
    /// Time of the first packet, nanoseconds.
    pub first_ns: u64,
    /// Time of the last packet, nanoseconds.
    pub last_ns: u64,
}

impl Exchange {
    /// Adds what is new in `now`, which has counted on from `before`.
    pub(crate) fn add(&mut self, now: &Exchange, before: &Exchange) {
        self.first_ns = if self.packets == 0 { now.first_ns } else { self.first_ns.min(now.first_ns) };
        self.last_ns = self.last_ns.max(now.last_ns);
        self.packets += now.packets - before.packets;
        self.payload_bytes += now.payload_bytes - before.payload_bytes;
        self.wire_bytes += now.wire_bytes - before.wire_bytes;
        self.again_packets += now.again_packets - before.again_packets;
        self.again_bytes += now.again_bytes - before.again_bytes;
        self.missing += now.missing - before.missing;
        self.naks += now.naks - before.naks;
        self.not_ready += now.not_ready - before.not_ready;
        self.congestion += now.congestion - before.congestion;
    }
}

/// A flow that was seen.
struct Seen {
    key: WireFlow,
    exchange: Exchange,
    requests: Sequence,
    responses: Sequence,
    /// Time of the last packet with payload that was not sent before.
    sent_ns: u64,
    /// Since the last poll.
    resent: Vec<Resent>,
}

/// A meter of the flows that pass a port.
pub struct MirrorMeter {
    index: Keyed,
    seen: Vec<Option<Seen>>,
    meter: Meter,
    unplaced_packets: u64,
    /// How many more epochs with bytes that were sent before can be told of by the next poll.
    resent_left: usize,
}

impl MirrorMeter {
    /// A meter whose table is mixed with a seed; an event each `amount_bytes` of a flow, 0 for one each packet.
    #[must_use]
    pub fn new(grain: Grain, amount_bytes: u32, seed: u64) -> MirrorMeter {
        let meter = Meter::with_amount(grain, amount_bytes);
        MirrorMeter { index: Keyed::new(seed), seen: Vec::new(), meter, unplaced_packets: 0, resent_left: RESENT_MAX }
    }

    /// Counts a packet that passed at a time in nanoseconds and had so many bytes on the wire.
    pub fn packet(&mut self, time_ns: u64, wire_bytes: u32, packet: &Packet) {
        let key = packet.key();
        let of =
            |seen: &[Option<Seen>], flow: u32| matches!(seen.get(flow as usize), Some(Some(seen)) if seen.key == key);
        let flow = match self.index.get(&key, |flow| of(&self.seen, flow)) {
            Some(flow) => FlowId(flow),
            None => match self.open(key, time_ns) {
                Some(flow) => flow,
                None => {
                    self.unplaced_packets += 1;
                    return;
                }
            },
        };
        let Some(Some(seen)) = self.seen.get_mut(flow.0 as usize) else { return };
        let order = seen.take(time_ns, wire_bytes, packet);
        if packet.payload_bytes() > 0 {
            seen.note(time_ns, packet, order, self.meter.grain(), &mut self.resent_left);
        }
        self.meter.record(flow, time_ns, packet.payload_bytes());
    }

    fn open(&mut self, key: WireFlow, time_ns: u64) -> Option<FlowId> {
        let flow = self.meter.open()?;
        if self.index.is_full() {
            refill(&mut self.index, &self.seen);
        }
        self.index.add(&key, flow.0);
        let place = flow.0 as usize;
        if self.seen.len() <= place {
            self.seen.resize_with(place + 1, || None);
        }
        let exchange = Exchange { first_ns: time_ns, last_ns: time_ns, ..Exchange::default() };
        let (requests, responses) = (Sequence::default(), Sequence::default());
        let (sent_ns, resent) = (time_ns, Vec::new());
        *self.seen.get_mut(place)? = Some(Seen { key, exchange, requests, responses, sent_ns, resent });
        Some(flow)
    }

    /// The time until which to poll before a packet of this time is counted; see [`Meter::due`].
    #[must_use]
    pub fn due(&self, time_ns: u64) -> Option<u64> {
        self.meter.due(time_ns)
    }

    /// Collects what lies before a time, each flow with its key and with what its packets said since it began.
    pub fn poll(&mut self, until_ns: u64, mut each: impl FnMut(&WireFlow, &Exchange, &FlowReport<'_>)) {
        let (seen, mut ended) = (&mut self.seen, false);
        self.meter.poll(until_ns, |report| ended |= told(seen, report, &mut each));
        self.resent_left = RESENT_MAX;
        if ended {
            refill(&mut self.index, &self.seen);
        }
    }

    /// Collects everything and ends all flows.
    pub fn finish(&mut self, mut each: impl FnMut(&WireFlow, &Exchange, &FlowReport<'_>)) {
        let seen = &mut self.seen;
        self.meter.finish(|report| {
            told(seen, report, &mut each);
        });
        refill(&mut self.index, &self.seen);
    }

    /// Packets that were not counted because there are as many flows as there may be.
    #[must_use]
    pub fn unplaced_packets(&self) -> u64 {
        self.unplaced_packets
    }

    /// Bytes that the measurement holds, table included.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        let seen = self.seen.capacity() * size_of::<Option<Seen>>();
        let resent: usize = self.seen.iter().flatten().map(|seen| seen.resent.capacity()).sum();
        self.index.memory_bytes() + seen + resent * size_of::<Resent>() + self.meter.memory_bytes()
    }
}

/// Makes the table anew from the flows that are there.
fn refill(index: &mut Keyed, seen: &[Option<Seen>]) {
    let flows = seen.iter().zip(0u32..).filter_map(|(seen, flow)| Some((&seen.as_ref()?.key, flow)));
    index.fill(flows.clone().count(), flows);
}

/// Tells one flow; true where it ended.
fn told(
    seen: &mut [Option<Seen>],
    report: &FlowReport<'_>,
    each: &mut impl FnMut(&WireFlow, &Exchange, &FlowReport<'_>),
) -> bool {
    let Some(slot) = seen.get_mut(report.flow.0 as usize) else { return false };
    if let Some(seen) = slot {
        each(&seen.key, &seen.exchange, &report.with_resent(&seen.resent));
        seen.resent.clear();
    }
    if report.has_ended {
        *slot = None;
    }
    report.has_ended
}

impl Seen {
    fn take(&mut self, time_ns: u64, wire_bytes: u32, packet: &Packet) -> Order {
        let exchange = &mut self.exchange;
        exchange.packets += 1;
        exchange.payload_bytes += u64::from(packet.payload_bytes());
        exchange.wire_bytes += u64::from(wire_bytes);
        exchange.first_ns = exchange.first_ns.min(time_ns);
        exchange.last_ns = exchange.last_ns.max(time_ns);
        let order = match &packet.transport {
            Transport::Roce(roce) => self.roce(roce),
            Transport::Tcp(tcp) if tcp.sequence_length() > 0 => {
                self.requests.see(tcp.sequence, tcp.sequence_length(), 32)
            }
            Transport::Tcp(_) => Order::Next,
        };
        match order {
            Order::Next => {}
            Order::Ahead(missing) => self.exchange.missing += u64::from(missing),
            Order::Filled | Order::Again => {
                self.exchange.again_packets += 1;
                self.exchange.again_bytes += u64::from(packet.payload_bytes());
            }
        }
        order
    }

    /// Keeps what a curve does not show of a packet with payload: that it was sent before, or how the flow went on.
    fn note(&mut self, time_ns: u64, packet: &Packet, order: Order, grain: Grain, left: &mut usize) {
        let is_new = order != Order::Again;
        let is_silent = is_new && time_ns.saturating_sub(self.sent_ns) >= grain.epoch_ns();
        self.sent_ns = if is_new { self.sent_ns.max(time_ns) } else { self.sent_ns };
        let resumes = is_silent && (order == Order::Filled || packet.goes_on(order));
        let bytes = if order == Order::Again { packet.payload_bytes() } else { 0 };
        if bytes == 0 && !resumes {
            return;
        }
        let epoch = grain.epoch(time_ns);
        match self.resent.last_mut().filter(|last| last.epoch == epoch) {
            Some(last) => {
                last.bytes = last.bytes.saturating_add(bytes);
                last.resumes |= resumes;
            }
            None if *left > 0 => {
                *left -= 1;
                self.resent.push(Resent { epoch, bytes, resumes });
            }
            None => {}
        }
    }

    /// A flow carries requests of its sender, and answers to requests of its receiver, numbered apart.
    fn roce(&mut self, roce: &Roce) -> Order {
        match roce.aeth {
            Some(Aeth::NotReady) => self.exchange.not_ready += 1,
            Some(Aeth::Nak(_)) => self.exchange.naks += 1,
            Some(Aeth::Ack) | None => {}
        }
        self.exchange.congestion += u64::from(roce.opcode == Opcode::CONGESTION);
        if roce.opcode.is_read_response() {
            // Between two answers lie the numbers of requests that have none.
            return match self.responses.see(roce.psn, 1, 24) {
                Order::Ahead(_) if roce.opcode.begins_message() => Order::Next,
                order => order,
            };
        }
        if !roce.opcode.is_ordered_request() {
            return Order::Next;
        }
        let order = self.requests.see(roce.psn, 1, 24);
        if roce.opcode.is_read_request() && order != Order::Again {
            // It takes a number for each packet of the answer, whose size is not known here.
            self.requests.forget();
        }
        order
    }
}
