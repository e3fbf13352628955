//! A stand-in for `libibverbs.so.1`: RoCEv2 over a UDP socket, for machines without RDMA.
//!
//! It exists so that what is measured of RDMA (queue pairs, sequence numbers, volumes, losses) can be tried on any machine. A
//! device is an address of this host; what it sends are true RoCEv2 packets of UDP port 4791. docs/decisions/024-soft-roce.md
//! says what is the same as with a NIC, and what is not.
//!
//! | file | question it answers |
//! |---|---|
//! | `psn`, `wire` | what a packet is: numbers, headers, checksum |
//! | `qp` | what a reliable connection does. Reads no clock, does no IO |
//! | `regions` | what registered memory is, and who may touch it |
//! | `fault` | what is lost, passed by, held back |
//! | `net`, `pcap` | how packets reach the kernel, and a file |
//! | `cq`, `device` | what a device and its thread do |
//! | `abi`, `api` | what C callers see |
//! | `settings` | what the environment says |

#![deny(unsafe_op_in_unsafe_fn)]

pub mod abi;
mod api;
mod cq;
mod device;
pub mod fault;
mod net;
mod pcap;
pub mod psn;
pub mod qp;
mod regions;
mod settings;
pub mod wire;
