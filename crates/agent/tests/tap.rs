//! A tap on interfaces of a network namespace that each test has for itself: what was sent is what is counted, once. Where such a
//! namespace cannot be made the tests say so and pass.
mod own_network;

use mycroft_agent::tap::{RING_BYTES_MIN, Stamp, Tap, TapConfig, TapError, Traffic};
use own_network::{in_own_network, ip};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// The UDP port of RoCEv2.
const ROCE_PORT: u16 = 4791;
/// Longest that a test waits for a packet which is on its way.
const PATIENCE: Duration = Duration::from_secs(30);

/// A packet as these tests look at it: bytes on the wire, queue pair and sequence number, whether it left.
type Told = (u32, u32, u32, bool);

/// What follows the UDP header: an RDMA write in one packet.
fn write_only(queue_pair: u32, psn: u32, payload: usize) -> Vec<u8> {
    let mut bytes = vec![0x0a, 0, 0xff, 0xff];
    bytes.extend(queue_pair.to_be_bytes());
    bytes.extend(psn.to_be_bytes());
    bytes.resize(12 + 16 + payload + 4, 0x5a);
    bytes
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four"))
}

/// Reads an untagged frame of IPv4 and UDP.
fn told(bytes: &[u8], wire_bytes: u32, is_outgoing: bool) -> Told {
    assert_eq!((bytes[12], bytes[13], bytes[14], bytes[23]), (8, 0, 0x45, 17), "Ethernet, IPv4, UDP: {bytes:?}");
    assert!(bytes.len() <= 128, "{} bytes kept", bytes.len());
    (wire_bytes, word(bytes, 46), word(bytes, 50), is_outgoing)
}

fn drain(tap: &mut Tap) -> Vec<Told> {
    let mut all = Vec::new();
    tap.finish(|packet| all.push(told(packet.bytes, packet.wire_bytes, packet.is_outgoing))).expect("drained");
    all
}

/// Two sockets of 127.0.0.1: one that sends, and the receiver at the port of RoCEv2.
fn pair() -> (UdpSocket, UdpSocket) {
    let receiver = UdpSocket::bind(("127.0.0.1", ROCE_PORT)).expect("a namespace of its own has the port free");
    receiver.set_read_timeout(Some(PATIENCE)).expect("set");
    let sender = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    sender.connect(("127.0.0.1", ROCE_PORT)).expect("connected");
    (sender, receiver)
}

/// Sends a packet and waits until it has come: it has passed the tap then.
fn pass(sender: &UdpSocket, receiver: &UdpSocket, bytes: &[u8]) {
    let mut buffer = vec![0; 1 << 16];
    sender.send(bytes).expect("sent");
    assert_eq!(receiver.recv(&mut buffer).expect("it came"), bytes.len());
}

#[test]
fn each_packet_of_the_loopback_interface_is_shown_once_and_others_are_not() {
    in_own_network("each_packet_of_the_loopback_interface_is_shown_once_and_others_are_not", || {
        let (sender, receiver) = pair();
        let other = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        other.set_read_timeout(Some(PATIENCE)).expect("set");
        let mut tap = Tap::open(&TapConfig::new("lo")).expect("a tap");
        assert_eq!(tap.link(), 1);
        let mut expected = Vec::new();
        for psn in 0..300 {
            let (queue_pair, payload) = (0x11 + psn % 3, 100 + 40 * psn as usize);
            pass(&sender, &receiver, &write_only(queue_pair, psn, payload));
            expected.push((14 + 20 + 8 + 12 + 16 + payload as u32 + 4, queue_pair, psn, false));
            sender.send_to(b"not RoCE", other.local_addr().expect("an address")).expect("sent");
            other.recv(&mut [0; 64]).expect("it came");
        }
        assert_eq!(drain(&mut tap), expected);
        let counts = tap.counts();
        assert_eq!((counts.packets, counts.drops, counts.left_behind), (300, 0, 0), "{counts:?}");
        assert_eq!(counts.hardware_stamps, 0, "loopback has no clock: {counts:?}");
        assert!(tap.gaps().is_empty());
    });
}

#[test]
fn packets_of_ipv6_are_taken_with_and_without_extensions() {
    in_own_network("packets_of_ipv6_are_taken_with_and_without_extensions", || {
        let receiver = UdpSocket::bind(("::1", ROCE_PORT)).expect("a namespace of its own has the port free");
        receiver.set_read_timeout(Some(PATIENCE)).expect("set");
        let sender = UdpSocket::bind("[::1]:0").expect("a socket");
        sender.connect(("::1", ROCE_PORT)).expect("connected");
        let mut tap = Tap::open(&TapConfig::new("lo")).expect("a tap");
        for psn in 0..20 {
            pass(&sender, &receiver, &write_only(3, psn, 64));
        }
        // Larger than the interface's packets: pieces, each with an extension that says so.
        ip("link set lo mtu 1500");
        pass(&sender, &receiver, &write_only(3, 20, 4000));
        let (mut whole, mut pieces) = (Vec::new(), 0);
        tap.finish(|packet| match packet.bytes[20] {
            17 => whole.push((packet.wire_bytes, word(packet.bytes, 66), word(packet.bytes, 70))),
            44 => pieces += 1,
            next => panic!("next header {next}"),
        })
        .expect("drained");
        let expected: Vec<_> = (0..20).map(|psn| (14 + 40 + 8 + 12 + 16 + 64 + 4, 3, psn)).collect();
        assert_eq!((whole, pieces), (expected, 3));
    });
}

#[test]
fn bytes_of_tcp_are_what_was_sent_and_its_times_are_of_now() {
    in_own_network("bytes_of_tcp_are_what_was_sent_and_its_times_are_of_now", || {
        let wall =
            || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_nanos();
        let begun = wall();
        let mut tap = Tap::open(&TapConfig { traffic: Traffic::Tcp, ..TapConfig::new("lo") }).expect("a tap");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let port = listener.local_addr().expect("an address").port();
        let mut sender = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        let (mut receiver, _) = listener.accept().expect("accepted");
        let (udp, at) = pair();
        for _ in 0..50 {
            sender.write_all(&[7; 20_000]).expect("sent");
            receiver.read_exact(&mut [0; 20_000]).expect("came");
            pass(&udp, &at, &write_only(1, 1, 64));
        }
        let mut bytes = BTreeMap::<u16, u64>::new();
        tap.finish(|packet| {
            assert_eq!((packet.bytes[23], packet.stamp), (6, Stamp::Software), "TCP only");
            assert!((begun..=wall()).contains(&u128::from(packet.time_ns)), "{}", packet.time_ns);
            let headers = 14 + 20 + u32::from(packet.bytes[46] >> 4) * 4;
            let to = u16::from_be_bytes([packet.bytes[36], packet.bytes[37]]);
            *bytes.entry(to).or_default() += u64::from(packet.wire_bytes - headers);
        })
        .expect("drained");
        assert_eq!(bytes.get(&port), Some(&1_000_000), "{bytes:?}");
        assert_eq!(bytes.values().sum::<u64>(), 1_000_000, "acknowledgements carry nothing: {bytes:?}");
    });
}

#[test]
fn what_a_small_ring_has_no_room_for_is_counted_and_told_as_a_gap() {
    in_own_network("what_a_small_ring_has_no_room_for_is_counted_and_told_as_a_gap", || {
        let (sender, receiver) = pair();
        let mut tap = Tap::open(&TapConfig { ring_bytes: RING_BYTES_MIN, ..TapConfig::new("lo") }).expect("a tap");
        let mut shown = Vec::new();
        for psn in 0..5_000 {
            pass(&sender, &receiver, &write_only(9, psn, 64));
        }
        tap.take(Duration::ZERO, |packet| shown.push((packet.time_ns, word(packet.bytes, 50)))).expect("taken");
        let burst = tap.counts();
        assert!(burst.drops > 3_000 && burst.freezes > 0, "256 KiB hold some 1,200 of 216 bytes: {burst:?}");
        for psn in 5_000..5_100 {
            pass(&sender, &receiver, &write_only(9, psn, 64));
        }
        tap.finish(|packet| shown.push((packet.time_ns, word(packet.bytes, 50)))).expect("drained");
        let counts = tap.counts();
        assert_eq!((counts.packets + counts.drops, counts.left_behind), (5_100, 0), "{counts:?}");
        assert_eq!(counts.packets, shown.len() as u64);
        assert!(shown.is_sorted_by(|a, b| a.1 < b.1), "in order, none twice");
        let after = shown.iter().find(|(_, psn)| *psn >= 5_000).expect("later packets found room");
        let [gap] = tap.gaps() else { panic!("{:?}", tap.gaps()) };
        assert_eq!((gap.packets, gap.until_ns), (counts.drops, after.0), "it ends at the first packet after it");
    });
}

#[test]
fn both_ends_of_a_cable_show_a_packet_once_each() {
    in_own_network("both_ends_of_a_cable_show_a_packet_once_each", || {
        ip("link add mtap0 type veth peer name mtap1");
        ip("addr add 10.99.0.1/24 dev mtap0");
        ip("link set mtap0 up");
        ip("link set mtap1 up");
        ip("neigh add 10.99.0.2 lladdr 02:00:00:00:00:02 dev mtap0");
        let roce = |name: &str| TapConfig { traffic: Traffic::Roce, ..TapConfig::new(name) };
        let mut near = Tap::open(&roce("mtap0")).expect("a tap");
        let mut far = Tap::open(&TapConfig { is_promiscuous: true, ..roce("mtap1") }).expect("a tap");
        let sender = UdpSocket::bind("10.99.0.1:0").expect("a socket");
        sender.connect(("10.99.0.2", ROCE_PORT)).expect("connected");
        for psn in 0..200 {
            sender.send(&write_only(5, psn, 256)).expect("sent");
        }
        let sent: Vec<Told> = (0..200).map(|psn| (14 + 20 + 8 + 12 + 16 + 256 + 4, 5, psn, true)).collect();
        assert_eq!(drain(&mut near), sent, "as they leave");
        let (begun, mut came) = (Instant::now(), Vec::new());
        while came.len() < 200 && begun.elapsed() < PATIENCE {
            far.take(Duration::from_millis(10), |packet| {
                came.push(told(packet.bytes, packet.wire_bytes, packet.is_outgoing));
            })
            .expect("taken");
        }
        came.extend(drain(&mut far));
        let expected: Vec<Told> = sent.iter().map(|told| (told.0, told.1, told.2, false)).collect();
        assert_eq!(came, expected, "as they come, for another host");
        ip("link set mtap0 down");
        let begun = Instant::now();
        while near.counts().downs == 0 && begun.elapsed() < PATIENCE {
            near.take(Duration::from_millis(10), |_| {}).expect("an interface that is down is no error");
        }
        assert!(near.counts().downs > 0);
    });
}

#[test]
fn what_cannot_be_tapped_is_said_with_what_to_do() {
    in_own_network("what_cannot_be_tapped_is_said_with_what_to_do", || {
        let error = |config: &TapConfig| Tap::open(config).err().expect("refused").to_string();
        let said = error(&TapConfig::new("nowhere0"));
        assert!(said.contains("interface nowhere0: No such device") && said.contains("ip -br link"), "{said}");
        let said = error(&TapConfig { ring_bytes: 4096, ..TapConfig::new("lo") });
        assert_eq!(said, "a ring of 4096 bytes: give 262144 to 1073741824");
        assert!(matches!(Tap::open(&TapConfig::new("a\0b")), Err(TapError::NoInterface { .. })));
    });
}
