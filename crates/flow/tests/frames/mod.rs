//! Frames made byte by byte, for tests of whoever reads them.
#![allow(dead_code)]
use std::net::{IpAddr, Ipv4Addr};

/// The address 10.0.0.`last`.
pub(crate) fn host(last: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, last))
}

/// A RoCEv2 packet: transport header, what follows it, payload, padding and checksum.
pub(crate) fn roce(opcode: u8, queue_pair: u32, psn: u32, extension: &[u8], payload: usize) -> Vec<u8> {
    let padding = (4 - payload % 4) % 4;
    let mut bytes = vec![opcode, (padding as u8) << 4, 0xff, 0xff];
    bytes.extend(queue_pair.to_be_bytes());
    bytes.extend(psn.to_be_bytes());
    bytes.extend(extension);
    bytes.resize(bytes.len() + payload + padding + 4, 0x5a);
    bytes
}

/// A header of an RDMA write or of a read's request.
pub(crate) fn reth(length: u32) -> Vec<u8> {
    let mut bytes = vec![0; 12];
    bytes.extend(length.to_be_bytes());
    bytes
}

/// A UDP datagram to the port of RoCEv2.
pub(crate) fn udp(inner: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0xc0, 0, 0x12, 0xb7];
    bytes.extend((inner.len() as u16 + 8).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(inner);
    bytes
}

/// A TCP segment.
pub(crate) fn tcp(source: u16, destination: u16, sequence: u32, flags: u8, payload: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend(source.to_be_bytes());
    bytes.extend(destination.to_be_bytes());
    bytes.extend(sequence.to_be_bytes());
    bytes.extend([0, 0, 0, 0, 5 << 4, flags, 0, 0, 0, 0, 0, 0]);
    bytes.resize(bytes.len() + payload, 0x5a);
    bytes
}

/// An IP packet of version 4 or 6, by its addresses.
pub(crate) fn ip(source: IpAddr, destination: IpAddr, protocol: u8, inner: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            bytes.extend([0x45, 0]);
            bytes.extend((inner.len() as u16 + 20).to_be_bytes());
            bytes.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            bytes.extend([0x60, 0, 0, 0]);
            bytes.extend((inner.len() as u16).to_be_bytes());
            bytes.extend([protocol, 64]);
            bytes.extend(source.octets());
            bytes.extend(destination.octets());
        }
        _ => panic!("addresses of one version"),
    }
    bytes.extend(inner);
    bytes
}

/// An Ethernet frame with so many tags of virtual LANs.
pub(crate) fn ethernet(inner: &[u8], tags: usize) -> Vec<u8> {
    let mut bytes = vec![0xee; 12];
    for _ in 0..tags {
        bytes.extend([0x81, 0x00, 0x00, 0x07]);
    }
    bytes.extend(if inner[0] >> 4 == 6 { [0x86, 0xdd] } else { [0x08, 0x00] });
    bytes.extend(inner);
    bytes
}

/// An RDMA write in one packet, as a frame from host to host.
pub(crate) fn write_only(from: u8, to: u8, queue_pair: u32, psn: u32, payload: usize) -> Vec<u8> {
    let inner = roce(0x0a, queue_pair, psn, &reth(payload as u32), payload);
    ethernet(&ip(host(from), host(to), 17, &udp(&inner)), 0)
}
