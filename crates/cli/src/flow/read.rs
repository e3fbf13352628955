//! A capture from a file or pipe.
use super::intake::{Intake, Left, Seen};
use anyhow::{Context, Result};
use mycroft_flow::Curves;
use mycroft_flow::limits::Grain;
use mycroft_formats::{CaptureFault, CaptureReader, CapturedPacket};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Bytes asked of a file at a time.
const PIECE_BYTES: usize = 1 << 18;

/// How reading a capture ended.
pub(super) struct Ended {
    /// Where and why it ended early.
    pub(super) fault: Option<CaptureFault>,
    /// Packets without a time, which were not shown.
    pub(super) untimed: u64,
    /// Packets that whoever captured lost, as the capture says.
    pub(super) dropped: u64,
}

/// Shows each packet of a capture to its end, to where it is wrong, or until `each` says that it is enough.
pub(super) fn packets(path: &Path, mut each: impl FnMut(&CapturedPacket<'_>) -> bool) -> Result<Ended> {
    let mut input: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(File::open(path).with_context(|| format!("{}: cannot be opened", path.display()))?)
    };
    let (mut reader, mut goes_on) = (CaptureReader::default(), true);
    let mut piece = vec![0; PIECE_BYTES];
    let fault = loop {
        let count = match input.read(&mut piece) {
            Ok(0) => break reader.end().err(),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error).with_context(|| format!("{}: cannot be read", path.display())),
        };
        if let Err(fault) = reader.read(&piece[..count], |packet| goes_on = goes_on && each(packet)) {
            break Some(fault);
        }
        if !goes_on {
            break None;
        }
    };
    Ok(Ended { fault, untimed: reader.untimed_packets(), dropped: reader.dropped_packets() })
}

/// Reads a capture to its end, or to where it is wrong.
pub(super) fn read(path: &Path, grain: Grain) -> Result<Seen> {
    let mut intake = Intake::new(grain, Curves::default());
    let ended = packets(path, |packet| {
        intake.take(packet);
        true
    })?;
    intake.leave(Left::Untimed, ended.untimed);
    intake.leave(Left::Dropped, ended.dropped);
    let mut seen = intake.finish();
    seen.fault = ended.fault;
    seen.packets += ended.untimed;
    Ok(seen)
}
