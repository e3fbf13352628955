//! Two connections in a world of their own: memory is vectors, the network is a schedule of losses and delays.
use super::*;
use crate::psn;
use crate::wire::{Nak, Reth, Verb};
use proptest::prelude::*;
use std::cell::RefCell;
use std::collections::BTreeMap;

const MTU: u32 = 64;
/// The key of both memories.
const KEY: u32 = 7;
const TIMEOUT_NS: u64 = 50_000;
/// How long a packet travels.
const TRIP_NS: u64 = 1_000;

/// Memory from address 0 on.
struct Bytes(RefCell<Vec<u8>>);

impl Bytes {
    fn new(len: usize, seed: u8) -> Bytes {
        Bytes(RefCell::new((0..len).map(|at| (at as u8).wrapping_mul(31).wrapping_add(seed)).collect()))
    }

    fn range(&self, piece: Piece) -> Option<std::ops::Range<usize>> {
        let range = piece.address as usize..piece.address as usize + piece.bytes as usize;
        (piece.key == KEY && range.end <= self.0.borrow().len()).then_some(range)
    }
}

impl Memory for Bytes {
    fn append(&self, piece: Piece, out: &mut Vec<u8>) -> bool {
        self.range(piece).inspect(|range| out.extend_from_slice(&self.0.borrow()[range.clone()])).is_some()
    }
    fn fill(&self, piece: Piece, bytes: &[u8]) -> bool {
        self.range(piece).inspect(|range| self.0.borrow_mut()[range.clone()].copy_from_slice(bytes)).is_some()
    }
    fn may_write(&self, piece: Piece) -> bool {
        self.range(piece).is_some()
    }
    fn write(&self, piece: Piece, bytes: &[u8]) -> bool {
        self.fill(piece, bytes)
    }
}

/// What happens to a packet.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Passes,
    Lost,
    Late(u64),
    Twice,
}

/// The next packet of either kind.
fn next(end: &mut Connection, now_ns: u64, memory: &Bytes, out: &mut Vec<u8>) -> bool {
    end.answer(out) || end.transmit(now_ns, memory, out)
}

struct World {
    ends: [Connection; 2],
    memories: [Bytes; 2],
    now_ns: u64,
    flying: BTreeMap<(u64, u64), (usize, Vec<u8>)>,
    fates: Vec<Fate>,
    packets: u64,
    done: [Vec<Completion>; 2],
}

impl World {
    fn new(fates: Vec<Fate>, retry: Retry) -> World {
        let config = |send_psn, receive_psn| Config {
            peer: 1,
            mtu_bytes: MTU,
            receive_psn,
            send_psn,
            retry,
            not_ready_code: 1,
            may_write: true,
        };
        let ends = [config(psn::MASK - 3, 9), config(9, psn::MASK - 3)].map(|config| {
            let mut end = Connection::default();
            end.become_state(State::ReadyToReceive, config);
            end.become_state(State::ReadyToSend, config);
            end
        });
        let memories = [Bytes::new(1 << 16, 1), Bytes::new(1 << 16, 101)];
        let done = [Vec::new(), Vec::new()];
        World { ends, memories, now_ns: 0, flying: BTreeMap::new(), fates, packets: 0, done }
    }

    fn patient(fates: Vec<Fate>) -> World {
        World::new(fates, Retry { timeout_ns: Some(TIMEOUT_NS), count: u8::MAX, not_ready: 7 })
    }

    fn launch(&mut self, to: usize, packet: Vec<u8>) {
        let number = self.packets;
        self.packets += 1;
        let due = self.now_ns + TRIP_NS;
        match self.fates.get(number as usize).copied().unwrap_or(Fate::Passes) {
            Fate::Lost => {}
            Fate::Late(by) => drop(self.flying.insert((due + by, number), (to, packet))),
            Fate::Passes => drop(self.flying.insert((due, number), (to, packet))),
            Fate::Twice => {
                self.flying.insert((due, number), (to, packet.clone()));
                self.flying.insert((due + TRIP_NS, number), (to, packet));
            }
        }
    }

    /// Until nothing moves, or `limit` packets have gone.
    fn run(&mut self, limit: u64) {
        loop {
            for side in 0..2 {
                let mut packet = Vec::new();
                while next(&mut self.ends[side], self.now_ns, &self.memories[side], &mut packet) {
                    self.launch(1 - side, std::mem::take(&mut packet));
                    assert!(self.packets < limit, "too many packets");
                }
                while let Some(done) = self.ends[side].next_completion() {
                    self.done[side].push(done);
                }
            }
            let deadline = self.ends.iter().filter_map(Connection::deadline_ns).min();
            let due = self.flying.keys().next().map(|(at, _)| *at);
            let Some(next) = deadline.into_iter().chain(due).min() else { return };
            self.now_ns = self.now_ns.max(next);
            while let Some(entry) = self.flying.first_entry().filter(|entry| entry.key().0 <= self.now_ns) {
                let (to, packet) = entry.remove();
                let packet = Packet::parse(&packet).unwrap();
                self.ends[to].receive(self.now_ns, &packet, &self.memories[to]);
            }
            self.ends.iter_mut().for_each(|end| end.elapse(self.now_ns));
        }
    }

    fn ids(&self, side: usize, status: Status) -> Vec<u64> {
        self.done[side].iter().filter(|done| done.status == status).map(|done| done.id).collect()
    }
}

fn write(id: u64, from: u64, to: u64, bytes: u32) -> Send {
    Send {
        id,
        request: Request::Write { address: to, key: KEY },
        data: Data::Pieces(vec![Piece { address: from, bytes, key: KEY }]),
        immediate: Some((id as u32).to_be_bytes()),
        signaled: true,
    }
}

fn receive(id: u64) -> Receive {
    Receive { id, pieces: Vec::new() }
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        6 => Just(Fate::Passes),
        2 => Just(Fate::Lost),
        2 => (1u64..40_000).prop_map(Fate::Late),
        1 => Just(Fate::Twice),
    ]
}

proptest! {
    /// Whatever is lost, late or doubled: all data arrives, each completion comes once and in order.
    #[test]
    fn everything_arrives_once_and_in_order(
        fates in prop::collection::vec(fate(), 0..400),
        sizes in prop::collection::vec(prop_oneof![Just(0u32), 1..=3 * MTU, 1..6_000u32], 1..12),
        sends in prop::collection::vec(any::<bool>(), 12),
        posted in 0usize..12,
    ) {
        let mut world = World::patient(fates);
        let mut at = 0u64;
        let mut copied = Vec::new();
        for (id, (&bytes, &as_send)) in sizes.iter().zip(&sends).enumerate() {
            let id = id as u64;
            let mut send = write(id, at, at, bytes);
            let mut receive = receive(100 + id);
            if as_send {
                send.request = Request::Send;
                let half = bytes / 2;
                receive.pieces = vec![
                    Piece { address: at, bytes: half, key: KEY },
                    Piece { address: at + u64::from(half), bytes: bytes - half, key: KEY },
                ];
            }
            world.ends[0].post_send(send);
            if (id as usize) < posted {
                world.ends[1].post_receive(receive);
            } else {
                copied.push(receive);
            }
            at += u64::from(bytes);
        }
        if !copied.is_empty() {
            // The sender finds no receive for a while.
            for _ in 0..40 {
                let mut packet = Vec::new();
                while next(&mut world.ends[0], world.now_ns, &world.memories[0], &mut packet) {
                    world.launch(1, std::mem::take(&mut packet));
                }
                world.now_ns += 2 * TRIP_NS;
                while let Some(entry) = world.flying.first_entry().filter(|entry| entry.key().0 <= world.now_ns) {
                    let (to, packet) = entry.remove();
                    world.ends[to].receive(world.now_ns, &Packet::parse(&packet).unwrap(), &world.memories[to]);
                    while world.ends[to].answer(&mut Vec::new()) {}
                }
            }
            copied.into_iter().for_each(|receive| world.ends[1].post_receive(receive));
        }
        world.run(100_000);
        let count = sizes.len() as u64;
        prop_assert_eq!(world.ids(0, Status::Success), (0..count).collect::<Vec<_>>());
        prop_assert_eq!(world.ids(1, Status::Success), (100..100 + count).collect::<Vec<_>>());
        for (done, bytes) in world.done[1].iter().zip(&sizes) {
            prop_assert_eq!(done.bytes, *bytes);
            prop_assert_eq!(done.immediate, Some(((done.id - 100) as u32).to_be_bytes()));
        }
        let (sent, got) = (world.memories[0].0.borrow(), world.memories[1].0.borrow());
        prop_assert_eq!(&sent[..at as usize], &got[..at as usize]);
        prop_assert!(got[at as usize..] == Bytes::new(1 << 16, 101).0.borrow()[at as usize..]);
    }
}

#[test]
fn a_lost_packet_is_sent_again_from_there() {
    let mut world = World::patient(vec![Fate::Passes, Fate::Lost]);
    world.ends[0].post_send(Send { immediate: None, ..write(1, 0, 0, 4 * MTU) });
    world.run(100);
    // Four, a refusal, three again, an answer.
    assert_eq!(world.packets, 9);
    assert!(world.now_ns < TIMEOUT_NS, "without waiting");
    assert_eq!(world.ids(0, Status::Success), [1]);
}

#[test]
fn nobody_answers() {
    let retry = Retry { timeout_ns: Some(TIMEOUT_NS), count: 3, not_ready: 7 };
    let mut world = World::new(vec![Fate::Lost; 1000], retry);
    world.ends[0].post_receive(receive(50));
    (0..3).for_each(|id| world.ends[0].post_send(write(id, 0, 0, 1)));
    world.run(1000);
    assert_eq!(world.ids(0, Status::RetryExceeded), [0]);
    assert_eq!(world.ids(0, Status::Flushed), [1, 2, 50]);
    assert_eq!(world.packets, 3 * 4, "the first time, and three times again");
    assert_eq!(world.now_ns, 4 * TIMEOUT_NS);
    assert_eq!(world.ends[0].state(), State::Error);
    assert_eq!(world.ends[0].next_event(), Some(Event::Fatal));
    world.ends[0].post_send(write(9, 0, 0, 1));
    world.ends[0].post_receive(receive(51));
    world.run(1000);
    assert_eq!(world.ids(0, Status::Flushed), [1, 2, 50, 9, 51]);
    assert_eq!(world.ends[0].next_event(), None);
}

#[test]
fn no_receive_is_posted() {
    let retry = Retry { timeout_ns: None, count: 0, not_ready: 2 };
    let mut world = World::new(Vec::new(), retry);
    world.ends[0].post_send(write(1, 0, 0, 10));
    world.run(100);
    assert_eq!(world.ids(0, Status::NotReadyExceeded), [1]);
    assert_eq!(world.packets, 3 * 2);
    assert!(world.now_ns >= 2 * rnr_ns(1), "it waits between");
}

#[test]
fn memory_of_others_is_refused() {
    let mut world = World::patient(Vec::new());
    let mut wrong = write(2, 0, 0, 10);
    wrong.request = Request::Write { address: 0, key: KEY + 1 };
    world.ends[1].post_receive(receive(100));
    world.ends[0].post_send(Send { immediate: None, ..write(1, 0, 0, 10) });
    world.ends[0].post_send(wrong);
    world.run(100);
    assert_eq!(world.ids(0, Status::Success), [1]);
    assert_eq!(world.ids(0, Status::RemoteAccess), [2]);
    assert_eq!(world.ids(1, Status::Flushed), [100]);
    assert_eq!(world.ends[1].next_event(), Some(Event::Access));
    assert_eq!(world.ends.each_ref().map(Connection::state), [State::Error; 2]);
}

#[test]
fn a_receive_that_is_too_short() {
    let mut world = World::patient(Vec::new());
    let pieces = vec![Piece { address: 0, bytes: 9, key: KEY }];
    world.ends[1].post_receive(Receive { id: 100, pieces });
    world.ends[0].post_send(Send { request: Request::Send, ..write(1, 0, 0, 10) });
    world.run(100);
    assert_eq!(world.ids(1, Status::LocalLength), [100]);
    assert_eq!(world.ids(0, Status::RemoteInvalid), [1]);
}

#[test]
fn own_memory_that_is_not_registered() {
    let mut world = World::patient(Vec::new());
    let mut wrong = write(2, 0, 0, 10);
    wrong.data = Data::Pieces(vec![Piece { address: 0, bytes: 10, key: 99 }]);
    [write(1, 0, 0, 1), wrong, write(3, 0, 0, 1)].into_iter().for_each(|send| world.ends[0].post_send(send));
    world.run(100);
    assert_eq!(world.ids(0, Status::LocalProtection), [2]);
    assert_eq!(world.ids(0, Status::Flushed), [1, 3]);
}

#[test]
fn a_message_in_the_wrong_order_is_refused() {
    let mut world = World::patient(Vec::new());
    let reth = Some(Reth { address: 0, key: KEY, bytes: 2 * MTU });
    let kind = |verb, part, reth| Kind::Request { verb, part, reth, immediate: None };
    let config = *world.ends[1].config();
    let payload = [0; MTU as usize];
    let packet = Packet {
        queue_pair: 1,
        psn: config.receive_psn,
        asks: true,
        kind: kind(Verb::Write, Part::First, reth),
        payload: &payload,
    };
    world.ends[1].receive(0, &packet, &world.memories[1]);
    assert_eq!(world.ends[1].state(), State::ReadyToSend);
    let wrong = Packet { psn: psn::add(packet.psn, 1), kind: kind(Verb::Send, Part::Middle, None), ..packet };
    world.ends[1].receive(0, &wrong, &world.memories[1]);
    assert_eq!(world.ends[1].next_event(), Some(Event::InvalidRequest));
    let mut out = Vec::new();
    assert!(world.ends[1].answer(&mut out));
    let Kind::Acknowledge { answer, messages: 0 } = Packet::parse(&out).unwrap().kind else { panic!("no answer") };
    assert_eq!(answer, crate::wire::Answer::Nak(Nak::InvalidRequest));
}
