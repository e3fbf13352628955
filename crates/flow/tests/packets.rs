//! Headers of frames: what is read of each, what is skipped and why, and that no bytes make the parser panic.
mod frames;

use frames::{ethernet, host, ip, reth, roce, tcp, udp, write_only};
use mycroft_flow::limits::Grain;
use mycroft_flow::{Aeth, Curve, Curves, Exchange, Link, MirrorMeter, Opcode, Packet, Ports, Roce, Skipped, Transport};
use proptest::prelude::*;
use std::net::IpAddr;

fn parse(frame: &[u8]) -> Result<Packet, Skipped> {
    Packet::parse(Link::Ethernet, frame, frame.len() as u32)
}

fn parsed_roce(inner: &[u8]) -> Roce {
    let packet = parse(&ethernet(&ip(host(1), host(2), 17, &udp(inner)), 0)).expect("RoCEv2");
    match packet.transport {
        Transport::Roce(roce) => roce,
        Transport::Tcp(_) => panic!("not TCP"),
    }
}

#[test]
fn a_write_tells_its_length_and_payload() {
    let first = parsed_roce(&roce(6, 0x12_3456, 0xff_fffe, &reth(1 << 20), 1024));
    assert_eq!((first.queue_pair, first.psn, first.payload_bytes), (0x12_3456, 0xff_fffe, 1024));
    assert_eq!(first.reth.map(|reth| reth.length_bytes), Some(1 << 20));
    let last = parsed_roce(&roce(8, 7, 0, &[], 1023));
    assert_eq!((last.payload_bytes, last.padding_bytes, last.reth), (1023, 1, None));
    let middle = parsed_roce(&roce(7, 7, 0, &[], 4096));
    assert_eq!(middle.payload_bytes, 4096);
}

#[test]
fn each_kind_has_its_headers() {
    // Opcode, bytes of headers after the first: InfiniBand Architecture Specification, volume 1, table 38.
    let kinds = [(0, 0), (3, 4), (5, 4), (11, 20), (12, 16), (13, 4), (14, 0), (16, 4), (18, 12), (20, 28), (23, 4)];
    for (opcode, bytes) in kinds.into_iter().chain([(0x2a, 16), (0x64, 8), (0x65, 12), (0xaa, 20), (0xb1, 4)]) {
        let read = parsed_roce(&roce(opcode, 9, 1, &vec![0; bytes], 64));
        assert_eq!(read.payload_bytes, 64, "opcode {opcode:#x}");
    }
    let congestion = parsed_roce(&roce(0x81, 9, 0, &[0; 16], 0));
    assert_eq!((congestion.opcode, congestion.payload_bytes), (Opcode::CONGESTION, 0));
    let extended = parsed_roce(&roce(0xaa, 9, 1, &[&[0; 4][..], &reth(77)].concat(), 4));
    assert_eq!(extended.reth.map(|reth| reth.length_bytes), Some(77), "after the shared queue's header");
}

#[test]
fn acknowledgements_say_yes_wait_or_no() {
    let said = |syndrome: u8| parsed_roce(&roce(0x11, 9, 1, &[syndrome, 0, 0, 1], 0)).aeth;
    assert_eq!(said(0x1f), Some(Aeth::Ack));
    assert_eq!(said(0x2e), Some(Aeth::NotReady));
    assert_eq!(said(0x60), Some(Aeth::Nak(0)));
}

#[test]
fn tags_versions_and_links() {
    let inner = udp(&roce(0x0a, 5, 1, &reth(100), 100));
    let (a, b): (IpAddr, IpAddr) = ("fd00::1".parse().expect("v6"), "fd00::2".parse().expect("v6"));
    let v6 = ip(a, b, 17, &inner);
    let packet = parse(&ethernet(&v6, 2)).expect("two tags");
    assert_eq!((packet.source, packet.destination, packet.payload_bytes()), (a, b, 100));
    assert_eq!(Packet::parse(Link::Ip, &v6, v6.len() as u32), Ok(packet));
    let cooked: Vec<u8> = [&[0; 14][..], &[0x86, 0xdd], &v6].concat();
    assert_eq!(Packet::parse(Link::Cooked, &cooked, cooked.len() as u32), Ok(packet));
    let cooked: Vec<u8> = [&[0x86, 0xdd][..], &[0; 18], &v6].concat();
    assert_eq!(Packet::parse(Link::Cooked2, &cooked, cooked.len() as u32), Ok(packet));
    // A destination option before UDP.
    let mut with_option = v6.clone();
    with_option[6] = 60;
    with_option[4..6].copy_from_slice(&(inner.len() as u16 + 8).to_be_bytes());
    with_option.splice(40..40, [17, 0, 1, 4, 0, 0, 0, 0]);
    assert_eq!(parse(&ethernet(&with_option, 0)), Ok(packet));
}

#[test]
fn a_cut_capture_counts_as_much_as_a_whole_one() {
    let frame = write_only(1, 2, 5, 1, 4096);
    let whole = parse(&frame).expect("whole");
    let cut = Packet::parse(Link::Ethernet, &frame[..14 + 20 + 8 + 12 + 16], frame.len() as u32);
    assert_eq!(cut, Ok(whole));
    let shorter = Packet::parse(Link::Ethernet, &frame[..14 + 20 + 8 + 12 + 15], frame.len() as u32);
    assert_eq!(shorter, Err(Skipped::Truncated));
}

#[test]
fn tcp_by_its_ports_and_other_traffic_not() {
    let packet = parse(&ethernet(&ip(host(1), host(2), 6, &tcp(1000, 2000, 77, 0x10, 500)), 0)).expect("TCP");
    assert_eq!(packet.key().ports, Ports::Tcp { source: 1000, destination: 2000 });
    assert_eq!(packet.payload_bytes(), 500);
    let mut dns = udp(&[0; 30]);
    dns[2..4].copy_from_slice(&[0, 53]);
    assert_eq!(parse(&ethernet(&ip(host(1), host(2), 17, &dns), 0)), Err(Skipped::OtherTraffic));
    let mut piece = ip(host(1), host(2), 6, &tcp(1, 2, 3, 0, 8));
    piece[7] = 1;
    assert_eq!(parse(&ethernet(&piece, 0)), Err(Skipped::Fragment));
    assert_eq!(parse(&[0xee; 60]), Err(Skipped::NotIp));
    let unknown = udp(&roce(0x1f, 1, 1, &[], 64));
    assert_eq!(parse(&ethernet(&ip(host(1), host(2), 17, &unknown), 0)), Err(Skipped::Malformed));
    let short = udp(&[0x0a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1]);
    assert_eq!(parse(&ethernet(&ip(host(1), host(2), 17, &short), 0)), Err(Skipped::Malformed));
}

/// What a mirror tells of the flow to host 2 with queue pair 5.
fn exchange_of(frames: &[Vec<u8>]) -> (Exchange, u64) {
    let mut meter = MirrorMeter::new(Grain::default(), 0, 1);
    for (frame, time) in frames.iter().zip(0u64..) {
        let packet = parse(frame).expect("a packet");
        meter.packet(time * 100_000, frame.len() as u32, &packet);
    }
    let mut found = None;
    meter.finish(|key, exchange, report| {
        if key.destination == host(2) && key.ports == Ports::QueuePair(5) {
            found = Some((*exchange, report.epochs().map(|(_, bytes)| bytes).sum()));
        }
    });
    found.expect("the flow")
}

#[test]
fn what_is_sent_again_or_missing_is_counted_apart() {
    let psns = [0xff_ffff, 0, 1, 4, 5, 4, 5, 6];
    let frames: Vec<Vec<u8>> = psns.iter().map(|psn| write_only(1, 2, 5, *psn, 1024)).collect();
    let (exchange, in_curve) = exchange_of(&frames);
    assert_eq!((exchange.packets, exchange.payload_bytes, in_curve), (8, 8192, 8192));
    assert_eq!((exchange.again_packets, exchange.again_bytes, exchange.missing), (2, 2048, 2));
    assert_eq!((exchange.first_ns, exchange.last_ns), (0, 700_000));
}

proptest! {
    /// A sender that goes back to what was lost before the mirror: what is not sent again is each packet once, as far as it came.
    #[test]
    fn each_packet_is_counted_once_though_some_are_lost_before_the_mirror(
        lost in prop::collection::vec(prop::bool::weighted(0.1), 300),
        window in 1u32..20,
        first in prop::sample::select(vec![0u32, 0xff_fff0]),
    ) {
        const COUNT: u32 = 120;
        let mut meter = MirrorMeter::new(Grain::default(), 0, 1);
        let (mut next, mut acked, mut sends) = (0u32, 0u32, 0u64);
        let mut lost = lost.into_iter();
        while acked < COUNT {
            // Of a flow whose first packet never came nobody knows that there was one.
            let is_lost = lost.next().unwrap_or(false) && sends > 0;
            if !is_lost {
                let frame = write_only(1, 2, 5, (first + next) & 0xff_ffff, 1024);
                meter.packet(sends * 1_000, frame.len() as u32, &parse(&frame).expect("a packet"));
                acked += u32::from(next == acked);
            }
            sends += 1;
            next += 1;
            if next >= COUNT.min(acked + window) {
                next = acked;
            }
        }
        let (mut fresh, mut resent) = (0, 0);
        let mut curves = Curves::default();
        meter.finish(|key, exchange, report| curves.take(key, exchange, report));
        for epoch in curves.flows().values().flat_map(Curve::epochs) {
            fresh += epoch.bytes - epoch.again_bytes;
            resent += epoch.again_bytes;
        }
        prop_assert_eq!(fresh, u64::from(COUNT) * 1024);
        let exchange = curves.flows().values().next().expect("a flow").exchange;
        prop_assert_eq!(fresh + resent, exchange.payload_bytes);
    }
}

#[test]
fn a_flow_that_goes_on_after_a_silence_is_told_from_one_that_begins() {
    let ms = 1_000_000;
    // First packet of a write, its second and last; the last again; a write; and one of which the end comes late, after its beginning again.
    let packets = [
        (0, 6, 0, false),
        (2 * ms, 7, 1, true),
        (2 * ms + 1_000, 8, 2, false),
        (4 * ms, 8, 2, false),
        (6 * ms, 10, 3, false),
        (8 * ms, 6, 4, false),
        (10 * ms, 6, 4, false),
        (10 * ms + 1_000, 8, 5, true),
    ];
    let mut meter = MirrorMeter::new(Grain::default(), 0, 1);
    for (time, opcode, psn, _) in packets {
        let with_reth: &[u8] = if matches!(opcode, 6 | 10) { &[0; 16] } else { &[] };
        let frame = ethernet(&ip(host(1), host(2), 17, &udp(&roce(opcode, 5, psn, with_reth, 1024))), 0);
        meter.packet(time, frame.len() as u32, &parse(&frame).expect("a packet"));
    }
    let mut curves = Curves::default();
    meter.finish(|key, exchange, report| curves.take(key, exchange, report));
    let resumed: Vec<bool> = curves.flows().values().flat_map(Curve::epochs).map(|epoch| epoch.resumes).collect();
    assert_eq!(resumed, [false, true, false, false, false, true]);
}

#[test]
fn requests_and_answers_are_numbered_apart() {
    let frame = |opcode, psn, extension: &[u8], payload| {
        ethernet(&ip(host(1), host(2), 17, &udp(&roce(opcode, 5, psn, extension, payload))), 0)
    };
    let frames = [
        frame(0x0a, 100, &reth(64), 64),
        frame(0x0c, 101, &reth(1 << 20), 0),
        frame(0x0a, 357, &reth(64), 64),
        frame(0x0d, 7, &[0; 4], 1024),
        frame(0x0f, 8, &[0; 4], 1024),
        frame(0x11, 100, &[0; 4], 0),
        frame(0x10, 40, &[0; 4], 1024),
        frame(0x0a, 358, &reth(64), 64),
        frame(0x81, 0, &[0; 16], 0),
        frame(0x11, 9, &[0x60, 0, 0, 0], 0),
        frame(0x11, 9, &[0x21, 0, 0, 0], 0),
    ];
    let (exchange, _) = exchange_of(&frames);
    assert_eq!((exchange.again_packets, exchange.missing), (0, 0));
    assert_eq!((exchange.naks, exchange.not_ready, exchange.congestion), (1, 1, 1));
}

#[test]
fn many_flows_are_found_again_and_forgotten() {
    let mut meter = MirrorMeter::new(Grain::default(), 0, 7);
    let send = |meter: &mut MirrorMeter, time, flows: std::ops::Range<u32>| {
        for flow in flows {
            let frame = write_only(1, 2, flow, 0, 64);
            meter.packet(time, frame.len() as u32, &parse(&frame).expect("a packet"));
        }
    };
    send(&mut meter, 0, 0..3000);
    send(&mut meter, 100, 0..3000);
    let mut seen = 0;
    meter.poll(1_000_000_000, |_, exchange, _| {
        assert_eq!(exchange.packets, 2);
        seen += 1;
    });
    send(&mut meter, 1_000_000_001, 2990..3000);
    meter.poll(2_000_000_000, |_, _, _| {});
    send(&mut meter, 2_000_000_001, 2990..3010);
    let mut packets = Vec::new();
    meter.finish(|_, exchange, _| packets.push(exchange.packets));
    packets.sort_unstable();
    assert_eq!((seen, packets), (3000, [vec![1; 10], vec![4; 10]].concat()));
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        wire in any::<u32>(),
        link in prop_oneof![Just(Link::Ethernet), Just(Link::Ip), Just(Link::Cooked), Just(Link::Cooked2)],
    ) {
        if let Ok(packet) = Packet::parse(link, &bytes, wire) {
            prop_assert!(packet.payload_bytes() <= wire);
        }
    }

    #[test]
    fn no_change_of_a_good_frame_makes_it_panic_or_counts_more_than_was_there(
        at in 0usize..120, value in any::<u8>(), cut in 0usize..200, kind in 0usize..3,
    ) {
        let good = match kind {
            0 => write_only(1, 2, 5, 9, 64),
            1 => ethernet(&ip(host(1), host(2), 6, &tcp(1, 2, 3, 0, 60)), 1),
            _ => ethernet(&ip("::1".parse().expect("v6"), "::2".parse().expect("v6"), 17, &udp(&roce(0, 1, 2, &[], 60))), 0),
        };
        let mut frame = good.clone();
        let place = at % frame.len();
        frame[place] = value;
        let kept = &frame[..cut.min(frame.len())];
        if let Ok(packet) = Packet::parse(Link::Ethernet, kept, frame.len() as u32) {
            prop_assert!(packet.payload_bytes() as usize <= frame.len());
        }
    }
}

#[test]
fn the_corpus_is_read_as_its_files_are_named() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/packet");
    let mut read = Vec::new();
    for file in std::fs::read_dir(folder).expect("the corpus") {
        let file = file.expect("a file");
        let bytes = std::fs::read(file.path()).expect("readable");
        let name = file.file_name().into_string().expect("ASCII");
        read.push((name, parse(&bytes).map(|packet| packet.payload_bytes())));
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                let _ = parse(&changed);
                let _ = parse(&changed[..at]);
            }
        }
    }
    read.sort();
    let expected = [
        ("ack", Ok(0)),
        ("cnp", Ok(0)),
        ("dns", Err(Skipped::OtherTraffic)),
        ("nak", Ok(0)),
        ("read_request", Ok(0)),
        ("send_v6", Ok(32)),
        ("tcp", Ok(40)),
        ("write_first", Ok(64)),
        ("write_last", Ok(61)),
        ("xrc", Ok(64)),
    ];
    assert_eq!(read, expected.map(|(name, payload)| (name.to_owned(), payload)));
}

#[test]
fn a_flow_that_comes_again_is_one_curve() {
    let mut meter = MirrorMeter::new(Grain::default(), 0, 1);
    let mut curves = Curves::with_points(4);
    let epoch = Grain::default().epoch_ns();
    // Epochs 0, 1, 4, then three seconds of silence, then two more; of five with bytes four are kept.
    for (at, psn) in [(0, 0), (1, 1), (4, 2), (100_000, 3), (100_001, 3)] {
        let time_ns = at * epoch + 5;
        if let Some(until) = meter.due(time_ns) {
            meter.poll(until, |key, exchange, report| curves.take(key, exchange, report));
            meter.poll(until, |key, exchange, report| curves.take(key, exchange, report));
        }
        let frame = write_only(1, 2, 5, psn, 3200);
        meter.packet(time_ns, frame.len() as u32, &parse(&frame).expect("a packet"));
    }
    meter.finish(|key, exchange, report| curves.take(key, exchange, report));
    assert_eq!(curves.flows().len(), 1);
    let curve = curves.flows().values().next().expect("one");
    assert_eq!((curve.exchange.packets, curve.exchange.payload_bytes, curve.epoch_bytes), (5, 16_000, 16_000));
    assert_eq!((curve.exchange.first_ns, curve.exchange.last_ns), (5, 100_001 * epoch + 5));
    assert_eq!((curve.active_epochs, curve.gaps, curve.longest_gap_epochs), (5, 2, 99_995));
    assert_eq!((curve.points.len(), curve.unkept_epochs, curve.peak_bytes), (4, 1, 3200));
    assert_eq!(curve.exchange.again_packets, 1);
    let rate = curve.actual_rate(Grain::default()).expect("bytes");
    assert!((rate - 1e8).abs() < 1.0, "3,200 bytes in 32 us: {rate}");
}
