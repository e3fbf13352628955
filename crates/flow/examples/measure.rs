//! What the measurement costs, for `cargo xtask bench flow`: `events SECONDS` prints lines `NUMBER ns  CASE` of processor time,
//! `memory` what 2,000 flows that never pause take, `granularity` which epoch shows which straggler.
#[path = "../tests/trains/mod.rs"]
mod trains;

use mycroft_flow::limits::{EPOCH_NS_DEFAULT, FULL_FLOWS, Grain, POLL_NS, QUEUE_PAIRS};
use mycroft_flow::{Link, MirrorMeter, NicMeter, Packet};
use std::hint::black_box;

/// Bytes of an event, as on a NIC.
const EVENT_BYTES: u32 = 4096;
/// Nanoseconds between two events of a port of 400 Gb/s.
const EVENT_NS: u64 = 82;
/// Events between two looks at the clock.
const BURST: usize = 1 << 16;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let seconds = arguments.get(2).and_then(|text| text.parse().ok()).unwrap_or(1.0);
    match arguments.get(1).map(String::as_str) {
        Some("memory") => memory(),
        Some("granularity") => granularity(),
        _ => events(seconds),
    }
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }
}

/// So many queue pairs anywhere in 24 bits: nearly each has a page of the table for itself.
fn queue_pairs(count: usize) -> Vec<u32> {
    let (mut random, mut pairs) = (Random(1), Vec::new());
    while pairs.len() < count {
        let queue_pair = (random.next() % QUEUE_PAIRS as u64) as u32;
        if !pairs.contains(&queue_pair) {
            pairs.push(queue_pair);
        }
    }
    pairs
}

/// Nanoseconds that this thread has run.
fn processor_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}

/// Runs bursts of events for some seconds of processor time; prints what one costs.
fn timed(case: &str, seconds: f64, mut burst: impl FnMut()) {
    burst();
    let (begun, mut events) = (processor_ns(), 0);
    loop {
        burst();
        events += BURST;
        let spent = processor_ns() - begun;
        if spent as f64 > seconds * 1e9 {
            println!("{:10.2} ns  {case}", spent as f64 / events as f64);
            return;
        }
    }
}

fn events(seconds: f64) {
    for flows in [1, 100, FULL_FLOWS] {
        let (mut meter, pairs, mut random) = (NicMeter::new(Grain::default()), queue_pairs(flows), Random(2));
        let order: Vec<u32> = (0..BURST).map(|_| pairs[random.next() as usize % pairs.len()]).collect();
        let (mut time, mut polled, mut sum) = (0, 0, 0);
        timed(&format!("event, {flows} flows"), seconds, || {
            for queue_pair in &order {
                time += EVENT_NS;
                meter.event(*queue_pair, time, EVENT_BYTES);
            }
            if time - polled >= POLL_NS {
                polled = time;
                meter.poll(time, |_, report| sum += report.epochs().map(|(_, bytes)| bytes).sum::<u64>());
            }
        });
        black_box(sum);
    }
    packets(seconds);
}

/// The same with packets of a mirror port: headers read, flows found by addresses.
fn packets(seconds: f64) {
    let frames: Vec<Vec<u8>> = queue_pairs(FULL_FLOWS).into_iter().map(frame).collect();
    let (mut meter, mut random) = (MirrorMeter::new(Grain::default(), 0, 3), Random(2));
    let order: Vec<&[u8]> = (0..BURST).map(|_| &*frames[random.next() as usize % frames.len()]).collect();
    let (mut time, mut sum) = (0, 0);
    timed(&format!("packet, {FULL_FLOWS} flows"), seconds, || {
        for frame in &order {
            time += EVENT_NS;
            if let Some(until) = meter.due(time) {
                meter.poll(until, |_, _, report| sum += report.epochs().map(|(_, bytes)| bytes).sum::<u64>());
            }
            if let Ok(packet) = Packet::parse(Link::Ethernet, frame, 4_170) {
                meter.packet(time, 4_170, &packet);
            }
        }
    });
    black_box(sum);
}

/// The first 80 bytes of an RDMA write's middle packet of 4 KB.
fn frame(queue_pair: u32) -> Vec<u8> {
    let mut bytes = vec![0xee; 12];
    bytes.extend([0x08, 0x00, 0x45, 0x02, 0x10, 0x2c, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    bytes.extend([0xc0, 0, 0x12, 0xb7, 0x10, 0x18, 0, 0, 7, 0, 0xff, 0xff]);
    bytes.extend(queue_pair.to_be_bytes());
    bytes.resize(80, 0);
    bytes
}

/// What the kernel says that this process holds, bytes.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

fn memory() {
    let before = resident_bytes();
    let (mut meter, pairs) = (NicMeter::new(Grain::default()), queue_pairs(FULL_FLOWS));
    for epoch in 0..POLL_NS / EPOCH_NS_DEFAULT {
        for queue_pair in &pairs {
            meter.event(*queue_pair, epoch * EPOCH_NS_DEFAULT, EVENT_BYTES);
        }
    }
    println!("{} bytes  counted", meter.memory_bytes());
    println!("{} bytes  resident", resident_bytes() - before);
    let (mut epochs, mut outside) = (0, 0);
    let begun = processor_ns();
    meter.poll(POLL_NS, |_, report| {
        epochs += report.epochs().count();
        outside += report.counters.outside_bytes();
    });
    println!("{} ns  poll", processor_ns() - begun);
    assert_eq!(outside, 0, "everything is in an epoch");
    meter.poll(2 * POLL_NS, |_, report| epochs += report.epochs().count());
    meter.finish(|_, report| epochs += report.epochs().count());
    println!("{epochs} epochs  told");
    println!("{} bytes  afterwards", meter.memory_bytes());
}

fn granularity() {
    for p in [1.2, 1.5, 2.0, 3.0, 5.0, 10.0, 25.0] {
        let ratios = [8, 16, 32, 64, 128, 256, 512, 1024].map(|us| trains::straggler(us * 1_000, p));
        let said: Vec<String> = ratios.iter().map(|shown| format!("{:.2}/{}", shown.ratio, shown.gaps)).collect();
        println!("p {p} {}", said.join(" "));
    }
}
