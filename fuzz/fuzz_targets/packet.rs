//! Any bytes as a packet of each link, and what was read of it into a meter.
#![no_main]
use mycroft_flow::limits::Grain;
use mycroft_flow::{Link, MirrorMeter, Packet};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let wire_bytes = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut meter = MirrorMeter::new(Grain::default(), 0, 1);
    let mut counted = 0;
    for link in [Link::Ethernet, Link::Ip, Link::Cooked, Link::Cooked2] {
        // A whole packet, and one of which the capture kept the beginning.
        for wire_bytes in [wire_bytes, wire_bytes.saturating_add(4096)] {
            if let Ok(packet) = Packet::parse(link, bytes, wire_bytes) {
                assert!(packet.payload_bytes() <= wire_bytes, "more payload than packet");
                meter.packet(0, wire_bytes, &packet);
                counted += u64::from(packet.payload_bytes());
            }
        }
    }
    let mut told = 0;
    meter.finish(|_, exchange, _| told += exchange.payload_bytes);
    assert_eq!(told, counted);
});
