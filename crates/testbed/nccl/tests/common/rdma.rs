//! Ranks that talk over RDMA, on the stand-in for `libibverbs.so.1`.

use super::World;
use mycroft_flow::limits::Grain;
use mycroft_flow::{Curves, Link, MirrorMeter, Packet};
use mycroft_formats::{CaptureReader, CapturedPacket};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Once;

/// Devices that the tests of a process share out.
const DEVICES: usize = 16;

/// Address `index` of this process: of 127/8, by the process's number.
pub fn address(index: usize) -> IpAddr {
    let process = std::process::id();
    format!("127.{}.{}.{}", 1 + (process >> 8 & 0x7f), process & 0xff, 1 + index).parse().unwrap()
}

/// A world whose ranks have devices from `first` on. The first call says what the process's devices are like.
pub fn world(ranks: usize, first: usize, settings: &[(&str, &str)]) -> World {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let beside = std::env::current_exe().unwrap();
        let name = "libmycroft_testbed_verbs.so";
        let library = beside.ancestors().map(|folder| folder.join(name)).find(|path| path.is_file()).unwrap();
        let addresses: Vec<String> = (0..DEVICES).map(|index| address(index).to_string()).collect();
        // SAFETY: done once, before the libraries read the environment; no other test code touches it.
        unsafe {
            std::env::set_var("MYCROFT_TESTBED_NET", "verbs");
            std::env::set_var("NCCL_IBVERBS_LIB", library);
            std::env::set_var("MYCROFT_VERBS_ADDRESS", addresses.join(","));
            settings.iter().for_each(|(name, value)| std::env::set_var(name, value));
        }
    });
    let addresses = (first..first + ranks).map(address).collect();
    World { addresses, ..World::new(ranks, ranks) }
}

/// What the device of an address has sent so far.
fn capture(folder: &Path, address: IpAddr) -> Vec<u8> {
    std::fs::read(folder.join(format!("{address}.{}.pcap", std::process::id()))).unwrap_or_default()
}

/// The flows that the device of an address has sent so far, as Mycroft's own meter shows them.
pub fn curves(folder: &Path, address: IpAddr, grain: Grain) -> Curves {
    let (mut meter, mut curves) = (MirrorMeter::new(grain, 0, 1), Curves::default());
    let each = |packet: &CapturedPacket<'_>| {
        let parsed = Packet::parse(Link::from_number(packet.link).unwrap(), packet.bytes, packet.wire_bytes).unwrap();
        if let Some(until) = meter.due(packet.time_ns) {
            meter.poll(until, |key, exchange, report| curves.take(key, exchange, report));
        }
        meter.packet(packet.time_ns, packet.wire_bytes, &parsed);
    };
    CaptureReader::default().read(&capture(folder, address), each).unwrap();
    meter.finish(|key, exchange, report| curves.take(key, exchange, report));
    curves
}
