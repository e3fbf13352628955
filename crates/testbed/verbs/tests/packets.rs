//! Two processes exchange data; what each puts on the wire is read by Mycroft's own parser, and volumes are compared.

mod common;

use common::*;
use mycroft_flow::{Aeth, Link, Opcode, Packet, Ports, Roce, Transport};
use mycroft_formats::{CaptureReader, CapturedPacket};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// Messages of the sender, and their sizes: two of several packets, one of one.
const MESSAGES: [usize; 4] = [3 * 1024 + 5, 1024, 0, 200_000];
/// Most bytes of data in a packet here.
const MTU: usize = 1024;

/// The other end, in a process of its own.
struct Other {
    child: Child,
    says: BufReader<ChildStdout>,
    hears: ChildStdin,
}

impl Other {
    fn start(role: &str, address: &str, faults: &str, folder: &Path) -> Other {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["child", "--exact", "--nocapture", "--test-threads=1"])
            .env("VERBS_ROLE", role)
            .env("MYCROFT_VERBS_ADDRESS", address)
            .env("MYCROFT_VERBS_FAULTS", faults)
            .env("MYCROFT_VERBS_MTU", MTU.to_string())
            .env("MYCROFT_VERBS_PCAP", folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (hears, says) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Other { child, says, hears }
    }

    /// The numbers of the next line that begins with `word`.
    fn says(&mut self, word: &str) -> Vec<u64> {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.says.read_line(&mut line).unwrap() > 0, "it ended before it said {word}");
            if let Some((_, rest)) = line.split_once(&format!("{word}:")) {
                return rest.split_whitespace().map(|text| text.parse().unwrap()).collect();
            }
        }
    }

    fn tell(&mut self, numbers: &[u64]) {
        let text: Vec<String> = numbers.iter().map(u64::to_string).collect();
        writeln!(self.hears, "{}", text.join(" ")).unwrap();
    }

    fn end(mut self) -> u32 {
        let mut rest = String::new();
        self.says.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success(), "{rest}");
        self.child.id()
    }
}

fn heard() -> Vec<u64> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.split_whitespace().map(|text| text.parse().unwrap()).collect()
}

/// Not a test by itself: what the two processes run.
#[test]
fn child() {
    let Ok(role) = std::env::var("VERBS_ROLE") else { return };
    let nic = Nic::alone();
    let qp = nic.pair();
    let (total, target) = (MESSAGES.iter().sum(), nic.buffer(vec![0; MESSAGES.iter().sum()]));
    println!("me:{} {} {}", number(qp), target.bytes.as_ptr() as u64, target.key());
    let peer = heard();
    let octets: Vec<u8> = peer[..4].iter().map(|octet| *octet as u8).collect();
    let gid = std::net::Ipv4Addr::new(octets[0], octets[1], octets[2], octets[3]).to_ipv6_mapped().octets();
    // Where nothing is lost, nothing is to be sent twice because the machine is busy: 4 s.
    let is_whole = std::env::var("MYCROFT_VERBS_FAULTS").unwrap().starts_with(',');
    let patience = if is_whole { Patience { timeout: 20, ..USUAL } } else { USUAL };
    ready_with(qp, (mycroft_testbed_verbs::abi::Gid { raw: gid }, peer[4] as u32), patience, 3);
    if role == "receiver" {
        (0..MESSAGES.len() as u64).for_each(|id| assert_eq!(post_receive(qp, id, None), 0));
        println!("ready:");
        let got = nic.poll(MESSAGES.len());
        assert!(got.iter().zip(MESSAGES).all(|(wc, bytes)| wc.status == 0 && wc.byte_len as usize == bytes));
        assert!(target.bytes == pattern(total, 77));
        // Answers may be lost too: the sender says when it has all.
        println!("done:");
        heard();
    } else {
        println!("ready:");
        heard();
        let source = nic.buffer(pattern(total, 77));
        let mut at = 0;
        for (id, bytes) in MESSAGES.into_iter().enumerate() {
            let mut sge = source.sge();
            (sge.addr, sge.length) = (sge.addr + at as u64, bytes as u32);
            let mut wr = write(id as u64, &mut sge, &source);
            (wr.remote_addr, wr.rkey) = (peer[5] + at as u64, peer[6] as u32);
            assert_eq!(post(qp, &mut wr), 0);
            at += bytes;
        }
        assert!(nic.poll(MESSAGES.len()).iter().all(|wc| wc.status == 0));
    }
    destroy(qp);
    drop(target);
    nic.close();
}

/// What a process put on the wire: nothing but RoCEv2.
fn sent(folder: &Path, address: &str, process: u32) -> Vec<(Packet, Roce)> {
    let bytes = std::fs::read(folder.join(format!("{address}.{process}.pcap"))).unwrap();
    let mut reader = CaptureReader::default();
    let mut packets = Vec::new();
    let each = |packet: &CapturedPacket<'_>| {
        let link = Link::from_number(packet.link).unwrap();
        let parsed = Packet::parse(link, packet.bytes, packet.wire_bytes).unwrap();
        let Transport::Roce(roce) = parsed.transport else { panic!("{parsed:?}") };
        packets.push((parsed, roce));
    };
    reader.read(&bytes, each).unwrap();
    reader.end().unwrap();
    packets
}

/// A packet and what of it is RoCEv2.
type Seen = (Packet, Roce);

/// Runs both processes; the sender's packets, the receiver's packets, and the receiver's queue pair.
fn run(first: usize, faults: &str) -> (Vec<Seen>, Vec<Seen>, u32) {
    let folder = tempfile::tempdir().unwrap();
    let addresses = [address(first), address(first + 1)];
    let mut sender = Other::start("sender", &addresses[0], &format!("{faults},seed=3"), folder.path());
    let mut receiver = Other::start("receiver", &addresses[1], &format!("{faults},seed=4"), folder.path());
    let (one, other) = (sender.says("me"), receiver.says("me"));
    let octets = |address: &str| -> Vec<u64> { address.split('.').map(|text| text.parse().unwrap()).collect() };
    sender.tell(&[octets(&addresses[1]), other.clone()].concat());
    receiver.tell(&[octets(&addresses[0]), one].concat());
    sender.says("ready");
    receiver.says("ready");
    sender.tell(&[0]);
    receiver.says("done");
    let sender = sender.end();
    receiver.tell(&[0]);
    let receiver = receiver.end();
    let by_sender = sent(folder.path(), &addresses[0], sender);
    (by_sender, sent(folder.path(), &addresses[1], receiver), other[0] as u32)
}

#[test]
fn each_packet_is_rocev2_and_volumes_are_what_was_sent() {
    let (requests, answers, pair) = run(0, "");
    let mut at = 0;
    for (count, bytes) in MESSAGES.iter().map(|bytes| (bytes.div_ceil(MTU).max(1), *bytes)) {
        let message = &requests[at..at + count];
        assert_eq!(message.iter().map(|(_, roce)| roce.payload_bytes as usize).sum::<usize>(), bytes);
        let reth = message[0].1.reth.unwrap();
        assert_eq!(reth.length_bytes as usize, bytes);
        assert!(message[1..].iter().all(|(_, roce)| roce.reth.is_none() && !roce.opcode.begins_message()));
        assert!(message.iter().all(|(packet, roce)| {
            packet.key().ports == Ports::QueuePair(pair) && roce.opcode.is_ordered_request()
        }));
        // 11: write, only, with immediate data; 9: write, last, with immediate data.
        assert_eq!(message[count - 1].1.opcode, Opcode(if count == 1 { 11 } else { 9 }));
        assert!(message[count - 1].1.asks_for_ack);
        at += count;
    }
    assert_eq!(at, requests.len(), "nothing was sent twice");
    assert!(requests.iter().enumerate().all(|(at, (_, roce))| roce.psn == at as u32));
    assert!(answers.iter().all(|(_, roce)| roce.opcode == Opcode::ACKNOWLEDGE && roce.aeth == Some(Aeth::Ack)));
    assert_eq!(answers.last().unwrap().1.psn, requests.len() as u32 - 1);
}

#[test]
fn what_is_lost_is_sent_again_and_counted_once_by_number() {
    let (requests, answers, _) = run(2, "drop=0.02,reorder=0.03");
    let numbers: BTreeSet<u32> = requests.iter().map(|(_, roce)| roce.psn).collect();
    let packets: usize = MESSAGES.iter().map(|bytes| bytes.div_ceil(MTU).max(1)).sum();
    assert_eq!(numbers, (0..packets as u32).collect());
    assert!(requests.len() > packets, "some were lost");
    let refused = answers.iter().filter(|(_, roce)| matches!(roce.aeth, Some(Aeth::Nak(0)))).count();
    assert!(refused > 0, "the receiver asked for some of them");
    let mut seen = BTreeSet::new();
    let first = requests.iter().filter(|(_, roce)| seen.insert(roce.psn));
    assert_eq!(first.map(|(_, roce)| roce.payload_bytes as usize).sum::<usize>(), MESSAGES.iter().sum::<usize>());
}
