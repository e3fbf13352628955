//! Which packets the kernel copies into the ring, and how many bytes of each: a program of classic BPF. Loads are relative to the
//! address header and ask the kernel for the protocol, so that links and tags of virtual LANs that a NIC took off do not matter.
use super::told::Traffic;
use libc::sock_filter;

/// Bytes kept of a packet: 14 of Ethernet, 8 of two tags, 40 of IPv6 with 24 of extensions, then 8 of UDP, 12 of the transport
/// header and 20 of what follows it at most, or 20 of TCP: 126.
pub(super) const KEPT_BYTES: u32 = 128;

/// The UDP port of RoCEv2 (InfiniBand Architecture Specification, annex A17).
const ROCE_PORT: u32 = 4791;
const ETHERTYPE_IPV4: u32 = 0x0800;
const ETHERTYPE_IPV6: u32 = 0x86dd;
/// Tags that are still in the packet: its headers are read by whoever gets it.
const TAGS: [u32; 3] = [0x8100, 0x88a8, 0x9100];
const TCP: u32 = 6;
const UDP: u32 = 17;
/// Headers of IPv6 between address and transport (hop by hop, routing, fragment, options): read by whoever gets the packet.
const EXTENSIONS: [u32; 4] = [0, 43, 44, 60];
/// Bits of a later piece of a packet in IPv4, which has no ports: it is counted as such.
const LATER_PIECE: u32 = 0x1fff;

/// Loads are of the address header from here on.
const NETWORK: i32 = libc::SKF_NET_OFF;

/// Lets nothing in.
pub(super) const CLOSED: [sock_filter; 1] =
    [sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }];

/// The program for a kind of traffic.
pub(super) fn program(traffic: Traffic) -> Vec<sock_filter> {
    let (tcp, roce) = (traffic != Traffic::Roce, traffic != Traffic::Tcp);
    let mut v4 = vec![load(libc::BPF_B, NETWORK + 9)];
    v4.extend(tcp.then(|| keep_if(TCP)).into_iter().flatten());
    if roce {
        v4.extend(unless(UDP));
        v4.push(load(libc::BPF_H, NETWORK + 6));
        v4.extend([jump(libc::BPF_JSET, LATER_PIECE, 0, 1), keep()]);
        v4.push(step(libc::BPF_LDX | libc::BPF_B | libc::BPF_MSH, offset(NETWORK)));
        v4.push(step(libc::BPF_LD | libc::BPF_H | libc::BPF_IND, offset(NETWORK + 2)));
        v4.extend(keep_if(ROCE_PORT));
    }
    v4.push(drop());
    // What the first extension says comes next; neighbours' messages have one as well.
    let mut extended = vec![load(libc::BPF_B, NETWORK + 40)];
    extended.extend(EXTENSIONS.into_iter().flat_map(keep_if));
    extended.extend([(tcp, TCP), (roce, UDP)].into_iter().filter(|wanted| wanted.0).flat_map(|(_, is)| keep_if(is)));
    extended.push(drop());
    let mut v6 = vec![load(libc::BPF_B, NETWORK + 6)];
    v6.extend(EXTENSIONS.into_iter().flat_map(|extension| block_if(extension, extended.clone())));
    v6.extend(tcp.then(|| keep_if(TCP)).into_iter().flatten());
    if roce {
        v6.extend(unless(UDP));
        v6.push(load(libc::BPF_H, NETWORK + 42));
        v6.extend(keep_if(ROCE_PORT));
    }
    v6.push(drop());
    let mut all = vec![load(libc::BPF_W, libc::SKF_AD_OFF + libc::SKF_AD_PROTOCOL)];
    all.extend(TAGS.into_iter().flat_map(keep_if));
    all.extend(block_if(ETHERTYPE_IPV4, v4));
    all.extend(block_if(ETHERTYPE_IPV6, v6));
    all.push(drop());
    all
}

fn step(code: u32, k: u32) -> sock_filter {
    sock_filter { code: code as u16, jt: 0, jf: 0, k }
}

/// A place relative to a header as the kernel takes it: negative, in 32 bits.
fn offset(at: i32) -> u32 {
    u32::from_ne_bytes(at.to_ne_bytes())
}

fn load(size: u32, at: i32) -> sock_filter {
    step(libc::BPF_LD | size | libc::BPF_ABS, offset(at))
}

fn jump(test: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: (libc::BPF_JMP | test | libc::BPF_K) as u16, jt, jf, k }
}

fn keep() -> sock_filter {
    step(libc::BPF_RET | libc::BPF_K, KEPT_BYTES)
}

fn drop() -> sock_filter {
    step(libc::BPF_RET | libc::BPF_K, 0)
}

fn keep_if(value: u32) -> [sock_filter; 2] {
    [jump(libc::BPF_JEQ, value, 0, 1), keep()]
}

/// Goes on with what follows for this value, and drops others.
fn unless(value: u32) -> [sock_filter; 2] {
    [jump(libc::BPF_JEQ, value, 1, 0), drop()]
}

/// Steps for this value only, which end themselves.
fn block_if(value: u32, steps: Vec<sock_filter>) -> Vec<sock_filter> {
    let over = u8::try_from(steps.len()).expect("a few dozen steps");
    std::iter::once(jump(libc::BPF_JEQ, value, 0, over)).chain(steps).collect()
}
