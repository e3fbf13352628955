//! `mycroft flow --interface` and `mycroft flow top` on the loopback interface of a network namespace of its own, and on captures.
#[allow(dead_code, unreachable_pub, reason = "shared with the reader's tests")]
#[path = "../../formats/tests/captures/mod.rs"]
mod captures;
mod common;
#[path = "../../flow/tests/frames/mod.rs"]
mod frames;
#[path = "../../agent/tests/own_network/mod.rs"]
mod own_network;

use captures::{Order, Written};
use common::{Going, PATIENCE, end, is_root, line_with, mycroft, refusal, say, until};
use frames::{ethernet, host, ip, reth, roce, tcp, write_only};
use own_network::in_own_network;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The UDP port of RoCEv2.
const ROCE_PORT: u16 = 4791;
/// Payload of an RDMA write in these tests, bytes.
const PAYLOAD: usize = 1000;
const SECOND_NS: u64 = 1_000_000_000;

/// RDMA writes over the loopback interface: each has come when `send` returns.
struct Writer {
    sender: UdpSocket,
    receiver: UdpSocket,
}

impl Writer {
    fn new() -> Writer {
        let receiver = UdpSocket::bind(("127.0.0.1", ROCE_PORT)).expect("a namespace of its own has the port free");
        receiver.set_read_timeout(Some(PATIENCE)).expect("set");
        let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        sender.connect(("127.0.0.1", ROCE_PORT)).expect("connected");
        Writer { sender, receiver }
    }

    fn send(&self, queue_pair: u32, psn: u32) {
        let bytes = roce(0x0a, queue_pair, psn, &reth(PAYLOAD as u32), PAYLOAD);
        self.sender.send(&bytes).expect("sent");
        assert_eq!(self.receiver.recv(&mut [0; 2048]).expect("it came"), bytes.len());
    }
}

fn measuring(args: &[&str]) -> Going {
    let mut going = Going::start(mycroft(&[&["flow", "--interface", "lo"], args].concat()));
    line_with(&mut going.stderr, "measuring lo");
    going
}

#[test]
fn what_passes_the_loopback_interface_is_counted_once_and_to_the_byte() {
    in_own_network("what_passes_the_loopback_interface_is_counted_once_and_to_the_byte", || {
        let writer = Writer::new();
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let port = u64::from(listener.local_addr().expect("an address").port());
        let going = measuring(&["--json"]);
        for psn in (0..500).filter(|psn| *psn != 7) {
            writer.send(0x21, psn);
        }
        (0..200).chain([199]).for_each(|psn| writer.send(0x22, psn));
        let mut sender = TcpStream::connect(listener.local_addr().expect("an address")).expect("connected");
        let (mut receiver, _) = listener.accept().expect("accepted");
        for _ in 0..50 {
            sender.write_all(&[7; 20_000]).expect("sent");
            receiver.read_exact(&mut [0; 20_000]).expect("came");
        }
        going.signal("INT");
        let (status, stdout, stderr) = going.wait();
        assert!(status.success(), "{status}: {stderr}");
        let told: serde_json::Value = serde_json::from_str(&stdout).expect("JSON");
        assert_eq!(told["not_counted"], serde_json::json!({}), "{told}");
        assert_eq!(
            told["live"],
            serde_json::json!({"interface": "lo", "stamps": "software", "freezes": 0, "downs": 0, "gaps": []})
        );
        let flows = told["flows"].as_array().expect("flows");
        let flow = |field: &str, value: u64| flows.iter().find(|flow| flow[field] == value).expect("the flow").clone();
        let (one, two, three) = (flow("queue_pair", 0x21), flow("queue_pair", 0x22), flow("destination_port", port));
        let of = |flow: &serde_json::Value| {
            ["packets", "payload_bytes", "missing", "again_packets"]
                .map(|field| flow[field].as_u64().expect("a number"))
        };
        assert_eq!(of(&one), [499, 499 * PAYLOAD as u64, 1, 0], "{one}");
        assert_eq!(of(&two), [201, 201 * PAYLOAD as u64, 0, 1], "{two}");
        assert_eq!(three["payload_bytes"], 1_000_000, "{three}");
        assert_eq!(flows.len(), 3, "acknowledgements have no payload: {told}");
    });
}

#[test]
fn packets_that_come_while_nobody_reads_are_told_as_a_gap() {
    in_own_network("packets_that_come_while_nobody_reads_are_told_as_a_gap", || {
        let writer = Writer::new();
        let going = measuring(&["--ring-bytes", "262144", "--traffic", "roce"]);
        writer.send(1, 0);
        going.signal("STOP");
        until("the command stands still", || {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", going.pid())).ok()?;
            stat.rsplit_once(") ")?.1.starts_with('T').then_some(())
        });
        (1..4_000).for_each(|psn| writer.send(1, psn));
        going.signal("CONT");
        going.signal("INT");
        let (status, stdout, stderr) = going.wait();
        assert!(status.success(), "{status}: {stderr}");
        let before = |word: &str| -> u64 {
            let line = stdout.lines().find(|line| line.contains(word)).unwrap_or_else(|| panic!("{word}: {stdout}"));
            line.split([' ', ',']).find_map(|word| word.parse().ok()).expect("a number")
        };
        let lost = before("lost by whoever captured");
        assert!(lost > 2_000, "{stdout}");
        assert_eq!(before("epochs of 32 us") + lost, 4_000, "{stdout}");
        assert_eq!(before("gap: "), lost, "{stdout}");
        assert!(stdout.contains("the ring was full ") && stdout.contains("times: software"), "{stdout}");
    });
}

#[test]
fn the_top_of_an_interface_shows_what_is_sent_now() {
    in_own_network("the_top_of_an_interface_shows_what_is_sent_now", || {
        let writer = Writer::new();
        let mut going = Going::start(mycroft(&["flow", "top", "--interface", "lo"]));
        let (is_seen, begun) = (AtomicBool::new(false), Instant::now());
        let text = std::thread::scope(|scope| {
            scope.spawn(|| {
                for psn in 0.. {
                    writer.send(0x31, psn);
                    if is_seen.load(Ordering::Relaxed) || begun.elapsed() > PATIENCE {
                        break;
                    }
                }
            });
            let line = line_with(&mut going.stdout, "qp 0x000031");
            is_seen.store(true, Ordering::Relaxed);
            line
        });
        assert!(text.contains("b/s") && text.contains(" now "), "{text}");
        going.signal("INT");
        let (status, _, stderr) = going.wait();
        assert!(status.success(), "{status}: {stderr}");
    });
}

/// Without the right to look at packets the command says what was tried, and what to do.
#[test]
fn who_may_not_look_at_packets_is_told_how_to() {
    let said = if is_root() {
        let inside = mycroft(&["flow", "--interface", "lo"]);
        let mut command = Command::new("setpriv");
        command.arg("--bounding-set=-net_raw").arg(inside.get_program()).args(inside.get_args());
        let said = end(command);
        assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
        said.stderr
    } else {
        refusal(&["flow", "--interface", "lo"])
    };
    assert_eq!(said.lines().count(), 1, "{said}");
    for part in ["AF_PACKET", "interface lo", "Operation not permitted", "CAP_NET_RAW", "setcap", "sudo", "tcpdump"] {
        assert!(said.contains(part), "no {part} in {said}");
    }
}

/// Two and a half seconds: a queue pair that sends each millisecond and repeats and leaves out some, one that sends half as often and ends
/// after a second, and TCP that begins in the third.
fn capture() -> Vec<u8> {
    let begin = 1_700_000_000 * SECOND_NS;
    let mut packets = Vec::new();
    let mut add = |time_ns: u64, frame: Vec<u8>| {
        let wire_bytes = frame.len() as u32;
        packets.push(Written { time_ns: begin + time_ns, interface: 0, bytes: frame[..80].to_vec(), wire_bytes });
    };
    for number in 0..2_500u64 {
        let psn = if number < 2_000 { number as u32 } else { number as u32 + 3 };
        add(number * 1_000_000, write_only(1, 2, 0x11, psn, 4096));
        if number % 100 == 50 {
            add(number * 1_000_000 + 10_000, write_only(1, 2, 0x11, psn, 4096));
        }
        if number < 1_000 && number % 2 == 0 {
            add(number * 1_000_000 + 500_000, write_only(2, 1, 0x12, number as u32 / 2, 4096));
        }
        if number >= 2_000 {
            let segment = tcp(5000, 80, number as u32 * 1448, 0x10, 1448);
            add(number * 1_000_000 + 700_000, ethernet(&ip(host(3), host(4), 6, &segment), 0));
        }
    }
    Order { is_big: false }.pcap(true, &packets)
}

#[test]
fn the_top_of_a_capture_is_its_last_second_and_its_seconds_as_they_come() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("two.pcap");
    std::fs::write(&file, capture()).expect("written");
    let file = file.display().to_string();
    let said = say(&["flow", "top", &file, "--once"]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures/flow_top.txt");
    if std::env::var_os("MYCROFT_UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, &said.stdout).expect("written");
    }
    assert_eq!(said.stdout, std::fs::read_to_string(&golden).expect("the golden text"), "{}", said.stdout);
    let said = say(&["flow", "top", &file, "--speed", "0"]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""));
    let frames: Vec<&str> = said.stdout.trim_end().split("\n\n").collect();
    assert_eq!(frames.len(), 3, "two whole seconds and what follows: {}", said.stdout);
    assert_eq!(format!("{}\n", frames[2]), std::fs::read_to_string(&golden).expect("the golden text"));
    let rows = |frame: &str| -> Vec<String> {
        frame.lines().skip(2).map(|line| line.split_once("10.0.0").expect("a flow").1.to_owned()).collect()
    };
    let (one, two, three) = (".1 -> 10.0.0.2 qp 0x000011", ".2 -> 10.0.0.1 qp 0x000012", ".3:5000 -> 10.0.0.4:80 tcp");
    assert_eq!(rows(frames[0]), [one, two]);
    assert_eq!(rows(frames[2]), [one, three, two], "what ended is last");
    let said = say(&["flow", "top", &file, "--speed", "0", "--top", "1"]);
    assert!(said.stdout.trim_end().ends_with("and 2 more"), "{}", said.stdout);
}
