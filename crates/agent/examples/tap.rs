//! What a tap takes, for `cargo xtask bench flow`. It runs in a network namespace of its own (`unshare -rn`): small RDMA writes go out
//! of one end of a cable, and the other end is measured as `mycroft flow --interface` does. `SECONDS` prints lines `NUMBER ns  CASE`
//! of the reader's processor time for each packet, and then how many were offered and lost.
use mycroft_agent::tap::{Tap, TapConfig, TapCounts, TapPacket, Traffic};
use mycroft_flow::limits::Grain;
use mycroft_flow::{Curves, Link, MirrorMeter, Packet};
use rustix::time::{ClockId, clock_gettime};
use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Packets that fill two thirds of the ring: 200,000 of 216 bytes in 64 MiB.
const FILL: u32 = 200_000;
/// Times that the ring is filled for a case.
const FILLS: u64 = 5;
/// Queue pairs that take turns.
const QUEUE_PAIRS: u32 = 64;
/// Bytes of payload.
const PAYLOAD: usize = 64;
/// Longest wait of the reader for packets.
const LOOK: Duration = Duration::from_millis(10);

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1.0);
    cable();
    for case in ["ring and filter", "ring, headers, meter"] {
        filled(case);
    }
    live(Duration::from_secs_f64(seconds));
}

/// Two interfaces joined; what is sent to 10.99.0.2 goes out of one.
fn cable() {
    for words in [
        "link add mtap0 type veth peer name mtap1",
        "addr add 10.99.0.1/24 dev mtap0",
        "link set mtap0 up",
        "link set mtap1 up",
        "neigh add 10.99.0.2 lladdr 02:00:00:00:00:02 dev mtap0",
    ] {
        let status = Command::new("ip").args(words.split(' ')).status().expect("ip runs");
        assert!(status.success(), "ip {words}");
    }
}

fn tap() -> Tap {
    Tap::open(&TapConfig { traffic: Traffic::Roce, is_promiscuous: true, ..TapConfig::new("mtap1") }).expect("a tap")
}

/// RDMA writes in one packet each.
struct Sender(UdpSocket, Vec<u8>);

impl Sender {
    fn new() -> Sender {
        let socket = UdpSocket::bind("10.99.0.1:0").expect("a socket");
        socket.connect("10.99.0.2:4791").expect("connected");
        let mut bytes = vec![0; 12 + 16 + PAYLOAD + 4];
        bytes[..4].copy_from_slice(&[0x0a, 0, 0xff, 0xff]);
        Sender(socket, bytes)
    }

    fn send(&mut self, number: u32) {
        self.1[4..8].copy_from_slice(&(number % QUEUE_PAIRS).to_be_bytes());
        self.1[8..12].copy_from_slice(&(number / QUEUE_PAIRS % (1 << 24)).to_be_bytes());
        self.0.send(&self.1).expect("sent");
    }
}

/// What `mycroft flow` does with a packet.
struct Reader {
    meter: MirrorMeter,
    curves: Curves,
    link: Link,
}

impl Reader {
    fn new(tap: &Tap) -> Reader {
        let link = Link::from_number(tap.link()).expect("a link that is read");
        Reader { meter: MirrorMeter::new(Grain::default(), 0, 1), curves: Curves::default(), link }
    }

    fn take(&mut self, packet: &TapPacket<'_>) {
        let Ok(headers) = Packet::parse(self.link, packet.bytes, packet.wire_bytes) else { return };
        if let Some(until) = self.meter.due(packet.time_ns) {
            self.meter.poll(until, |key, exchange, report| self.curves.take(key, exchange, report));
        }
        self.meter.packet(packet.time_ns, packet.wire_bytes, &headers);
    }
}

/// Processor time of this thread, nanoseconds. (`schedstat` is as coarse as the kernel's tick, a third of a fill.)
fn processor_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    (time.tv_sec * 1_000_000_000 + time.tv_nsec).try_into().expect("not negative")
}

/// Packets that lie in the ring, read at once.
fn filled(case: &str) {
    let (mut tap, mut sender) = (tap(), Sender::new());
    let mut reader = Reader::new(&tap);
    let (is_bare, mut bytes, mut spent_ns) = (case == "ring and filter", 0, 0);
    for fill in 1..=FILLS {
        (0..FILL).for_each(|number| sender.send(number));
        let begun = processor_ns();
        while tap.counts().packets + tap.counts().drops < fill * u64::from(FILL) {
            tap.take(LOOK, |packet| {
                if is_bare {
                    bytes += u64::from(packet.wire_bytes) + u64::from(packet.bytes[0]);
                } else {
                    reader.take(packet);
                }
            })
            .expect("taken");
        }
        spent_ns += processor_ns() - begun;
    }
    println!("{:10.2} ns  live, {case}", spent_ns as f64 / tap.counts().packets as f64);
    std::hint::black_box(bytes);
}

/// A sender as fast as it can beside the reader.
fn live(time: Duration) {
    let mut tap = tap();
    let mut reader = Reader::new(&tap);
    let (is_over, sent, begun) = (AtomicBool::new(false), AtomicU64::new(0), Instant::now());
    let (took, spent) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut sender = Sender::new();
            for number in 0.. {
                sender.send(number);
                if number % 64 == 0 && begun.elapsed() >= time {
                    sent.store(u64::from(number) + 1, Ordering::Relaxed);
                    break;
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
        let before = processor_ns();
        while !is_over.load(Ordering::Relaxed) {
            tap.take(LOOK, |packet| reader.take(packet)).expect("taken");
        }
        let took = begun.elapsed();
        tap.finish(|packet| reader.take(packet)).expect("taken");
        (took, processor_ns() - before)
    });
    let TapCounts { packets, drops, .. } = tap.counts();
    println!("{:.0} packets per second offered", sent.load(Ordering::Relaxed) as f64 / took.as_secs_f64());
    println!("{packets} packets taken");
    println!("{drops} packets lost");
    println!("{:.1} percent of a core", spent as f64 / took.as_nanos() as f64 * 100.0);
}
