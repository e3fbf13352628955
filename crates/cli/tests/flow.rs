//! `mycroft flow`: captures made here, as files and pipes, whole, cut and foreign.
#[allow(dead_code, unreachable_pub, reason = "shared with the reader's tests")]
#[path = "../../formats/tests/captures/mod.rs"]
mod captures;
mod common;
#[path = "../../flow/tests/frames/mod.rs"]
mod frames;

use captures::{Order, Written};
use common::{Said, end, mycroft, say};
use frames::write_only;
use std::io::Write;
use std::process::{Command, Stdio};

/// Bytes of a slice that goes out at once, and of its packets.
const SLICE: u64 = 1 << 20;
const PACKET: u64 = 4096;
/// Nanoseconds between the slices of a ring, of which the slowest way sets the pace.
const PACE_NS: u64 = 90_000;

/// Hosts 1 to 4 in a ring, so many slices each; the way from host 3 has half the rate.
fn ring(slices: u64) -> Vec<Written> {
    ring_from(0, slices)
}

/// The same of queue pairs that have sent so many slices before.
fn ring_from(sent: u64, slices: u64) -> Vec<Written> {
    let mut packets = Vec::new();
    for (slice, from) in (0..slices).flat_map(|slice| (1..=4u8).map(move |from| (slice, from))) {
        let gap_ns = if from == 3 { 328 } else { 164 };
        for number in 0..SLICE / PACKET {
            let psn = ((sent + slice) * (SLICE / PACKET) + number) as u32;
            let frame = write_only(from, from % 4 + 1, 0x100 + u32::from(from), psn, PACKET as usize);
            let wire_bytes = frame.len() as u32;
            let time_ns = 1_700_000_000_000_000_000 + slice * PACE_NS + number * gap_ns;
            packets.push(Written { time_ns, interface: 0, bytes: frame[..80].to_vec(), wire_bytes });
        }
    }
    packets.sort_by_key(|packet| packet.time_ns);
    packets
}

/// Runs the command with a capture as its standard input.
fn piped(args: &[&str], bytes: &[u8]) -> Said {
    let mut input = tempfile::tempfile().expect("a file");
    input.write_all(bytes).expect("written");
    std::io::Seek::rewind(&mut input).expect("rewound");
    let mut command = mycroft(&[&["flow", "-"], args].concat());
    command.stdin(Stdio::from(input));
    end(command)
}

#[test]
fn the_slow_way_of_a_ring_shows_at_microseconds_and_not_at_milliseconds() {
    let file = Order { is_big: false }.pcap(true, &ring(12));
    let rates = |epoch: &str| -> Vec<(String, f64)> {
        let said = piped(&["--json", "--epoch", epoch], &file);
        assert_eq!(said.code, Some(0), "{said:?}");
        let flows = said.json()["flows"].as_array().expect("flows").clone();
        assert_eq!(flows.len(), 4);
        let rate = |flow: &serde_json::Value| {
            assert_eq!(flow["payload_bytes"], 12 * SLICE);
            assert_eq!(flow["outside_bytes"], 0);
            (flow["source"].as_str().expect("text").to_owned(), flow["actual_bytes_per_sec"].as_f64().expect("a rate"))
        };
        flows.iter().map(rate).collect()
    };
    let slow = |rates: &[(String, f64)]| -> f64 {
        let of = |is_slow: bool| rates.iter().filter(move |rate| (rate.0 == "10.0.0.3") == is_slow).map(|rate| rate.1);
        of(true).fold(0.0, f64::max) / of(false).fold(f64::INFINITY, f64::min)
    };
    assert!(slow(&rates("8us")) < 0.6, "half the rate: {:?}", rates("8us"));
    assert!(slow(&rates("32us")) < 0.85, "{:?}", rates("32us"));
    assert!(slow(&rates("1024us")) > 0.99, "a millisecond hides it: {:?}", rates("1024us"));
}

#[test]
fn a_table_for_people_and_a_picture() {
    let folder = tempfile::tempdir().expect("a folder");
    let (capture, picture) = (folder.path().join("ring.pcapng"), folder.path().join("rates.svg"));
    let order = Order { is_big: true };
    let mut file = [order.section(), order.interface(Some(9), 0)].concat();
    for packet in ring(2) {
        file.extend(order.packet(&packet, packet.time_ns));
    }
    file.extend(order.statistics(0, 3));
    std::fs::write(&capture, file).expect("written");
    let args = ["flow", &capture.to_string_lossy(), "--svg", &picture.to_string_lossy(), "--top", "2"];
    let said = end(mycroft(&args));
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stdout.starts_with("2048 packets in "), "{}", said.stdout);
    assert!(said.stdout.contains("4 flows, epochs of 32 us"), "{}", said.stdout);
    assert!(said.stdout.contains("10.0.0.1 -> 10.0.0.2 qp 0x000101"), "{}", said.stdout);
    assert!(!said.stdout.contains("10.0.0.3 ->"), "two are shown: {}", said.stdout);
    assert!(said.stdout.contains("packets not counted: 3, lost by whoever captured"), "{}", said.stdout);
    let svg = std::fs::read_to_string(&picture).expect("a picture");
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert_eq!(svg.matches("while it sends").count(), 2);
}

#[test]
fn a_damaged_capture_is_shown_up_to_there() {
    let file = Order { is_big: false }.pcap(false, &ring(1));
    let said = piped(&[], &file[..file.len() - 50]);
    assert_eq!(said.code, Some(2));
    assert!(said.stdout.starts_with("1023 packets in "), "{}", said.stdout);
    let at = file.len() - 96;
    assert_eq!(
        said.stderr,
        format!("mycroft: -: at byte {at}: the file ends within a record; what came before it is shown\n")
    );
    let said = piped(&["--json"], &file[..file.len() - 50]);
    assert_eq!((said.code, said.json()["fault"]["offset"].as_u64()), (Some(2), Some(at as u64)));
    let said = piped(&[], b"{\"entries\": []}");
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("at byte 0: neither pcap nor pcapng"), "{}", said.stderr);
}

#[test]
fn what_is_typed_wrong_is_told_in_a_line() {
    let wrong = |args: &[&str], part: &str| {
        let said = end(mycroft(args));
        assert_eq!(said.code, Some(2), "{said:?}");
        assert!(said.stderr.contains(part) && said.stderr.lines().count() == 1, "{}", said.stderr);
    };
    wrong(&["flow", "-", "--epoch", "1s"], "give a time from 1us to 10ms");
    wrong(&["flow", "/nowhere/at.pcap"], "/nowhere/at.pcap: cannot be opened");
    wrong(&["flow"], "required arguments were not provided");
}

#[test]
fn a_pipe_is_read_as_it_comes() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    let file = Order { is_big: false }.pcap(true, &ring(2));
    let said = std::thread::scope(|scope| {
        scope.spawn(|| std::fs::write(&pipe, &file).expect("read to its end"));
        end(mycroft(&["flow", &pipe.to_string_lossy()]))
    });
    assert_eq!(said.code, Some(0), "{said:?}");
    assert!(said.stdout.starts_with("2048 packets in "), "{}", said.stdout);
}

/// Three iterations of a ring, each of a large and, 20 ms later, a small operation.
fn training() -> Vec<Written> {
    let mut packets = Vec::new();
    for (iteration, slices) in (0..3u64).flat_map(|iteration| [(iteration, 12), (iteration, 4)]) {
        let begin = iteration * 50_000_000 + if slices == 4 { 20_000_000 } else { 0 };
        let sent = iteration * 16 + if slices == 4 { 12 } else { 0 };
        let ring = ring_from(sent, slices).into_iter();
        packets.extend(ring.map(|packet| Written { time_ns: packet.time_ns + begin, ..packet }));
    }
    packets.sort_by_key(|packet| packet.time_ns);
    packets
}

#[test]
fn operations_are_found_in_the_curves_with_their_gaps() {
    let file = Order { is_big: false }.pcap(true, &training());
    let said = piped(&["--operations", "--json"], &file);
    assert_eq!(said.code, Some(0), "{said:?}");
    let flows = said.json()["flows"].as_array().expect("flows").clone();
    for flow in &flows {
        let operations = flow["operations"].as_array().expect("operations");
        let told = operations.iter().map(|one| (one["bytes"].as_u64(), one["kind"].as_u64()));
        let expected = [(12 * SLICE, 0), (4 * SLICE, 1)].map(|(bytes, kind)| (Some(bytes), Some(kind)));
        assert_eq!(told.collect::<Vec<_>>(), [expected, expected, expected].concat());
        let gaps: u64 =
            operations[0]["gaps"].as_array().expect("counts").iter().filter_map(|count| count.as_u64()).sum();
        assert!(if flow["source"] == "10.0.0.3" { gaps == 0 } else { gaps >= 5 }, "{flow}");
    }
    let said = piped(&["--operations", "--volume", &(16 * SLICE).to_string(), "--top", "1"], &file);
    assert!(said.stdout.contains(": 3 operations of 1 kind\n"), "both are one: {}", said.stdout);
    assert!(said.stdout.contains("  A: 3 times 16.8 MB, each 49.984 ms"), "{}", said.stdout);
    assert!(said.stdout.contains("in 2 pieces"), "{}", said.stdout);
    // Two calls in turn, of four ranks: 12 and 4 slices to the next one each.
    let calls = format!("AllReduce:ring:{}:4,AllGather:ring:{}:4", 8 * SLICE, 4 * SLICE / 3);
    let said = piped(&["--operations", "--expect", &calls, "--top", "1"], &file);
    assert!(said.stdout.contains(": 6 operations of 2 kinds\n"), "{}", said.stdout);
    assert!(!said.stdout.contains("less than expected"), "{}", said.stdout);
    let said = end(mycroft(&["flow", "-", "--gap", "2ms"]));
    assert_eq!(said.code, Some(2), "it says nothing without --operations or --suspects: {said:?}");
}

/// What the script captured of one of its loads; none where packets may not be looked at.
fn captured(folder: &tempfile::TempDir, load: &str) -> Option<(String, String)> {
    let file = folder.path().join("lo.pcap");
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/loopback_capture.py");
    let made = Command::new("python3").arg(script).arg(&file).arg(load).output().expect("python3 runs");
    if made.status.code() == Some(77) {
        eprintln!("skipped: packets may not be looked at here (CAP_NET_RAW)");
        return None;
    }
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    Some((file.display().to_string(), String::from_utf8_lossy(&made.stdout).trim().to_owned()))
}

#[test]
fn the_slow_way_of_a_ring_is_the_one_suspect() {
    let mut packets = Vec::new();
    for iteration in 0..8u64 {
        let later = |packet: Written| Written { time_ns: packet.time_ns + iteration * 50_000_000, ..packet };
        packets.extend(ring_from(iteration * 12, 12).into_iter().map(later));
    }
    let file = Order { is_big: false }.pcap(true, &packets);
    let said = piped(&["--suspects", "--epoch", "8us"], &file);
    assert_eq!(said.code, Some(0), "{said:?}");
    let told = said.stdout.split_once("\n1 suspect\n").unwrap_or_else(|| panic!("{}", said.stdout)).1;
    assert!(told.starts_with("  10.0.0.3 sends slowly: "), "{told}");
    assert!(told.contains(" of 3 others, in 8 operations: its NIC, PCIe or link, or the path to 10.0.0.4"), "{told}");
    let said = piped(&["--suspects", "--epoch", "1024us"], &file);
    assert!(said.stdout.contains("\nno sender is slower than its peers"), "hidden: {}", said.stdout);
    let told = &piped(&["--communicators", "--epoch", "8us"], &file).stdout;
    let of =
        "  data parallel: 1 group of 4 ranks, by what usually crosses hosts\n    10.0.0.1 10.0.0.2 10.0.0.3 10.0.0.4\n";
    assert!(told.contains("\ncommunicators, by who sends to whom") && told.ends_with(of), "{told}");
    let said = piped(&["--communicators", "--epoch", "8us", "--json"], &file).json();
    let one = &said["communicators"][0];
    assert_eq!(
        (&one["use"], &one["ranks"], &one["is_exact"]),
        (&"data parallel".into(), &4.into(), &true.into()),
        "{said}"
    );
    assert_eq!(one["groups"][0].as_array().map(Vec::len), Some(4), "{said}");
}

/// TCP of the kernel around a ring, one rank of which sends at half the rate.
#[test]
fn the_slow_sender_of_a_real_ring_is_named() {
    let folder = tempfile::tempdir().expect("a directory");
    let Some((file, _)) = captured(&folder, "ring") else { return };
    let said = say(&["flow", &file, "--suspects", "--epoch", "5ms", "--gap", "40ms", "--json"]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    let told = said.json();
    let suspects = told["suspects"].as_array().expect("suspects");
    let slow: Vec<_> = suspects.iter().filter(|suspect| suspect["sign"] == "slow").collect();
    assert_eq!(slow.len(), 1, "{suspects:?}");
    assert_eq!(
        (&slow[0]["source"], &slow[0]["destinations"]),
        (&"127.0.0.13".into(), &serde_json::json!(["127.0.0.14"]))
    );
    let rates = slow[0]["actual_bytes_per_sec"].as_array().expect("two rates");
    let share = rates[0].as_f64().expect("a rate") / rates[1].as_f64().expect("a rate");
    assert!((0.4..0.8).contains(&share), "half: {suspects:?}");
    assert!(suspects.iter().all(|suspect| suspect["source"] == "127.0.0.13"), "nobody else: {suspects:?}");
}

/// Packets that the kernel made, with headers cut at 128 bytes and pieces larger than a packet: each byte is in the curve or told as
/// passed over, and the bursts are operations.
#[test]
fn real_tcp_is_counted_to_the_byte() {
    let folder = tempfile::tempdir().expect("a directory");
    let Some((file, port)) = captured(&folder, "bursts") else { return };
    let port: u64 = port.parse().expect("a port");
    let said = say(&["flow", &file, "--operations", "--json"]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    let told = said.json();
    let flows = told["flows"].as_array().expect("flows");
    let flow = flows.iter().find(|flow| flow["destination_port"] == port).expect("the flow");
    let number = |name: &str| flow[name].as_u64().expect(name);
    assert_eq!(number("payload_bytes") + number("missing"), 50 * 20_000, "{flow}");
    assert_eq!(number("again_packets"), 0, "{flow}");
    let operations = flow["operations"].as_array().expect("operations").len();
    assert!((40..=50).contains(&operations), "{operations} of 50 bursts, some of which may have met");
}
