//! Captures in every variant and in pieces of any size, cut anywhere, and as any bytes.
#[allow(unreachable_pub, reason = "the command's tests and the fuzz targets use it from other crates")]
mod captures;
#[allow(unreachable_pub, dead_code, reason = "the fuzz targets use it from another crate")]
mod promise;

use captures::{Order, Written};
use mycroft_formats::{CaptureFault, CaptureProblem, CaptureReader};
use proptest::prelude::*;

#[global_allocator]
static ALLOCATOR: promise::Counting = promise::Counting;

/// Time, bytes on the wire and what was kept, of each packet, and how it ended.
type Read = (Vec<(u64, u32, Vec<u8>)>, Result<(), CaptureFault>);

fn read(file: &[u8], piece: usize) -> Read {
    let mut reader = CaptureReader::default();
    let mut packets = Vec::new();
    let mut ended = Ok(());
    for piece in file.chunks(piece.max(1)) {
        ended = reader.read(piece, |packet| packets.push((packet.time_ns, packet.wire_bytes, packet.bytes.to_vec())));
        if ended.is_err() {
            break;
        }
    }
    (packets, ended.and_then(|()| reader.end()))
}

fn packets() -> impl Strategy<Value = Vec<Written>> {
    let bytes = prop::collection::vec(any::<u8>(), 0..90);
    let packet = (0u64..4_000_000_000_000_000_000, 0u32..3, bytes, 0u32..9000);
    let packet = packet.prop_map(|(time_ns, interface, bytes, more)| {
        let wire_bytes = bytes.len() as u32 + more;
        Written { time_ns, interface, bytes, wire_bytes }
    });
    prop::collection::vec(packet, 0..12)
}

proptest! {
    #[test]
    fn the_older_format_in_both_orders_and_units(
        packets in packets(), is_big in any::<bool>(), is_nano in any::<bool>(), piece in 1usize..200,
    ) {
        let (read, ended) = read(&Order { is_big }.pcap(is_nano, &packets), piece);
        let unit = if is_nano { 1 } else { 1000 };
        let written: Vec<_> =
            packets.iter().map(|p| (p.time_ns / unit * unit, p.wire_bytes, p.bytes.clone())).collect();
        prop_assert_eq!(read, written);
        prop_assert_eq!(ended, Ok(()));
    }

    #[test]
    fn the_newer_format_with_several_interfaces_and_sections(
        packets in packets(), is_big in any::<bool>(), piece in 1usize..200, again in any::<bool>(),
    ) {
        let order = Order { is_big };
        let mut file = Vec::new();
        for _ in 0..=usize::from(again) {
            file.extend(order.section());
            // Microseconds by default, nanoseconds, and 2^-20 s from a second before 1970 on.
            file.extend([order.interface(None, 0), order.interface(Some(9), 0)].concat());
            file.extend(order.interface(Some(0x80 | 20), -1));
            file.extend(order.block(4, b"names, which are passed over"));
            for packet in &packets {
                let ticks = match packet.interface {
                    0 => packet.time_ns / 1000,
                    1 => packet.time_ns,
                    _ => (u128::from(packet.time_ns + 1_000_000_000) * (1 << 20) / 1_000_000_000) as u64,
                };
                file.extend(order.packet(packet, ticks));
            }
        }
        let (read, ended) = read(&file, piece);
        prop_assert_eq!(ended, Ok(()));
        prop_assert_eq!(read.len(), packets.len() * (1 + usize::from(again)));
        for (read, written) in read.iter().zip(packets.iter().cycle()) {
            let off = written.time_ns - read.0;
            prop_assert!(off < [1000, 1, 1000][written.interface as usize], "{} ns off", off);
            prop_assert_eq!((&read.2, read.1), (&written.bytes, written.wire_bytes));
        }
    }

    #[test]
    fn a_capture_that_is_cut_keeps_what_was_read_and_says_where(
        packets in packets(), cut in 0usize..1500, is_new in any::<bool>(), piece in 1usize..200,
    ) {
        let order = Order { is_big: false };
        let mut file = if is_new { order.section() } else { order.pcap(true, &[]) };
        if is_new {
            file.extend([order.interface(Some(9), 0), order.interface(Some(9), 0), order.interface(Some(9), 0)].concat());
        }
        let mut ends = vec![file.len()];
        for packet in &packets {
            let whole = order.pcap(true, std::slice::from_ref(packet));
            file.extend(if is_new { order.packet(packet, packet.time_ns) } else { whole[24..].to_vec() });
            ends.push(file.len());
        }
        let kept = cut.clamp(ends[0], file.len());
        let (read, ended) = read(&file[..kept], piece);
        let whole = ends.iter().filter(|end| **end <= kept).count() - 1;
        prop_assert_eq!(read.len(), whole);
        if ends.contains(&kept) {
            prop_assert_eq!(ended, Ok(()));
        } else {
            let fault = CaptureFault { offset: ends[whole] as u64, problem: CaptureProblem::CutShort };
            prop_assert_eq!(ended, Err(fault));
        }
    }

    #[test]
    fn any_bytes_end_with_packets_or_a_fault(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        promise::capture(&bytes);
        promise::capture(&[&Order { is_big: true }.section()[..], &bytes].concat());
        promise::capture(&[&Order { is_big: false }.pcap(false, &[])[..], &bytes].concat());
    }
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let order = Order { is_big: false };
    let fault = |file: &[u8]| read(file, 7).1.expect_err("wrong").to_string();
    assert_eq!(fault(b"{\"version\": \"2.5\", \"entries\": []}"), "at byte 0: neither pcap nor pcapng");
    assert_eq!(fault(b""), "at byte 0: neither pcap nor pcapng");
    let packet = Written { time_ns: 5, interface: 3, bytes: vec![1; 60], wire_bytes: 60 };
    let mut file = order.pcap(false, std::slice::from_ref(&packet));
    file.extend([0xff; 40]);
    assert_eq!(fault(&file), "at byte 100: a length of 4294967295 bytes, which no record has");
    file[4] = 9;
    assert_eq!(fault(&file), "at byte 0: a version that is not read: 9.4");
    let head = [order.section(), order.interface(Some(9), 0)].concat();
    let with = |more: &[u8]| [&head, more].concat();
    let at = head.len();
    assert_eq!(
        fault(&with(&order.packet(&packet, 5))),
        format!("at byte {at}: interface 3, which is not described before")
    );
    assert_eq!(
        fault(&with(&order.interface(Some(39), 0))),
        format!("at byte {at}: times in a unit that is not read: 0x27")
    );
    let mut torn = order.block(4, &[0; 8]);
    torn[16] = 24;
    assert_eq!(fault(&with(&torn)), format!("at byte {at}: lengths that contradict each other"));
}

#[test]
fn losses_and_packets_without_a_time_are_told() {
    let order = Order { is_big: true };
    let file = [
        order.section(),
        order.interface(None, 0),
        order.block(3, &[0; 20]),
        order.statistics(0, 4),
        order.statistics(0, 7),
        order.section(),
        order.interface(None, 0),
        order.statistics(0, 2),
    ]
    .concat();
    let mut reader = CaptureReader::default();
    reader.read(&file, |_| panic!("no packet has a time")).expect("whole");
    assert_eq!((reader.untimed_packets(), reader.dropped_packets()), (1, 9));
}

#[test]
fn the_corpus_keeps_the_promises_whatever_byte_is_changed() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/capture");
    let mut files = 0;
    for file in std::fs::read_dir(folder).expect("the corpus") {
        let bytes = std::fs::read(file.expect("a file").path()).expect("readable");
        promise::capture(&bytes);
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = bytes.clone();
                changed[at] = value;
                promise::capture(&changed);
            }
        }
        files += 1;
    }
    assert!(files >= 4, "{files} files");
}
