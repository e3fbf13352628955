//! Lines of NCCL and of what is built like it, and of the kernel's driver: completions of InfiniBand in the formats of five
//! versions, ports, communicators that are made, device errors.
use super::words::{after, between, clean, count_after, number, small_after, word};
use mycroft_record::printed::{Kind, Path, Says};

/// Longest text that is kept of a line.
pub(super) const TEXT_BYTES: usize = 240;

/// Device errors that are the device's or its link's own (NVIDIA's list of Xid errors): double-bit and row-remapping memory
/// errors, NVLink, fallen off the bus, contained and uncontained memory errors, GPU system processor. Others mostly follow
/// from the program.
const HARDWARE: &[u32] = &[48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140, 143];

/// What one of these lines says; `None` where it says nothing.
pub(super) fn says(line: &str) -> Option<Says> {
    if let Some(rest) = after(line, "Got completion from peer ") {
        return Some(completion(line, rest));
    }
    if let Some(rest) = after(line, "NVRM: Xid ") {
        // The address in front holds numbers of its own.
        let number = small(after(rest, "): ")?)?;
        let kind = if HARDWARE.contains(&number) { Kind::Device } else { Kind::DeviceProgram };
        return Some(Says::Event(kind, text(line, "NVRM: Xid ")));
    }
    if line.contains("NET/IB") {
        const GONE: &[&str] = &["fatal event", "marked as failed", "Fatal error. Detected"];
        let is_port = GONE.iter().any(|words| line.contains(words)) && !line.contains("non-fatal");
        return is_port.then(|| Says::Event(Kind::Port, text(line, "NET/IB")));
    }
    let start = line.contains("Init START");
    if start || line.contains("Init COMPLETE") {
        let id = after(line, "commId ").map(|id| word(id, &[',']))?;
        let (rank, size) = (small_after(line, " rank ")?, small_after(line, " nranks ")?);
        return Some(Says::Init(id.into(), rank, size, !start));
    }
    const PEER: &[&str] = &[
        "Connection closed by remote peer",
        "ncclRemoteError",
        "ncclSystemError",
        "socketProgress",
        "Connection reset by peer",
        "ncclUnhandledCudaError",
        "ncclInternalError",
    ];
    if let Some(key) = PEER.iter().find(|key| line.contains(**key)) {
        return Some(Says::Event(Kind::PeerGone, text(line, key)));
    }
    const SIZES: &[&str] = &["Message truncated", "Mismatched collective detected"];
    SIZES.iter().find(|key| line.contains(**key)).map(|key| Says::Event(Kind::Mismatch, text(line, key)))
}

fn small(text: &str) -> Option<u32> {
    number(text).and_then(|number| u32::try_from(number).ok())
}

/// The line from `key` on, without control characters, and not without end.
pub(super) fn text(line: &str, key: &str) -> std::sync::Arc<str> {
    let at = line.find(key).unwrap_or(0);
    clean(&line[at..], TEXT_BYTES).trim_end().into()
}

/// `peer 10.2.0.5<33092> with error 12, ...`, `with status=12 ...`, `with status=IBV_WC_RETRY_EXC_ERR(12) ...`.
fn completion(line: &str, rest: &str) -> Says {
    let status = between(rest, "status=IBV_WC_", " ").and_then(|name| small(after(name, "(")?));
    let status = status.or_else(|| small_after(rest, "status=")).or_else(|| small_after(rest, "error "));
    let port =
        |key: &str| after(rest, key).map(|gid| word(gid.trim_start_matches(':').trim(), &[])).unwrap_or_default();
    let gid = |key: &str| {
        let gid = after(rest, key).map(|gid| word(gid, &[])).unwrap_or_default();
        gid.trim_start_matches("::ffff:")
    };
    Says::Path(Box::new(Path {
        status: status.unwrap_or(0),
        nic: port("hca ").into(),
        peer: word(rest, &['<']).into(),
        local: gid("localGid ").into(),
        remote: gid("remoteGids").into(),
        text: text(line, "Got completion"),
    }))
}

/// `Killed process 4711 (python)`.
pub(super) fn killed(line: &str) -> Option<Says> {
    let pid = count_after(line, "Killed process ")?;
    Some(Says::Event(Kind::HostMemory, format!("{} (process {pid})", text(line, "ut of memory")).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_of_five_versions_are_one_thing() {
        let of = |line: &str| {
            let Some(Says::Path(path)) = says(line) else { panic!("{line}") };
            (path.status, path.peer.to_string(), path.nic.to_string(), path.local.to_string(), path.remote.to_string())
        };
        let all = |status, peer: &str, nic: &str, local: &str, remote: &str| {
            (status, peer.to_owned(), nic.to_owned(), local.to_owned(), remote.to_owned())
        };
        let old = "n2:5:9 [0] transport/net_ib.cc:9 NCCL WARN NET/IB : Got completion from peer 10.2.0.5<33> with error 12, \
                   opcode 0, len 0, vendor err 129 (Recv)";
        assert_eq!(of(old), all(12, "10.2.0.5", "", "", ""));
        let gids = "NET/IBP:Got completion from peer 7.6.1.8<3> with status=5 opcode=129 len=6 vendor err 129 (Recv) localGid \
                    ::ffff:29.0.8.2 remoteGids::ffff:29.0.4.1";
        assert_eq!(of(gids), all(5, "7.6.1.8", "", "29.0.8.2", "29.0.4.1"));
        let names = "NCCL WARN NET/IB: Got completion from peer 10.1.2.3<4> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=\
                     IBV_WC_RECV_RDMA_WITH_IMM(129) vendor_err=129 localGid ::ffff:1.1.2.2 remoteGids::ffff:1.1.1.4 hca mlx5_1";
        assert_eq!(of(names), all(12, "10.1.2.3", "mlx5_1", "1.1.2.2", "1.1.1.4"));
    }

    #[test]
    fn a_device_error_is_told_from_a_programs() {
        let kind = |line: &str| match says(line) {
            Some(Says::Event(kind, _)) => Some(kind),
            _ => None,
        };
        assert_eq!(
            kind("kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=12, GPU has fallen off the bus."),
            Some(Kind::Device)
        );
        assert_eq!(kind("NVRM: Xid (PCI:0000:79:00): 13, pid='<unknown>'"), Some(Kind::DeviceProgram));
        assert_eq!(kind("NCCL WARN NET/IB : mlx5_0:1 Got async event: port active"), None);
        assert_eq!(kind("NCCL WARN NET/IB : mlx5_0:1 async fatal event: local catastrophic"), Some(Kind::Port));
        let init = "h:1:2 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 3 nranks 15 cudaDev 3 commId 0xab - Init START";
        assert_eq!(says(init), Some(Says::Init("0xab".into(), 3, 15, false)));
    }
}
