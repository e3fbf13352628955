//! Files of captured packets, pcap and pcapng, read in pieces as they come from a file or a pipe. Both byte orders, times in
//! micro- or nanoseconds or what an interface says, several interfaces and sections.
//!
//! <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-05.html>, <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-03.html>
mod field;
mod pcap;
mod pcapng;
mod told;

use pcap::Classic;
use pcapng::Blocks;
use told::Step;
pub use told::{CaptureProblem, CapturedPacket};

/// Bytes that tell which format it is, and its byte order.
const MAGIC_BYTES: usize = 12;

/// Why a capture is not read further.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("at byte {offset}: {problem}")]
pub struct CaptureFault {
    /// Where the record or block begins that is wrong.
    pub offset: u64,
    /// What is wrong with it.
    pub problem: CaptureProblem,
}

enum Format {
    Classic(Classic),
    Blocks(Box<Blocks>),
}

/// Reads a capture piece by piece; holds one record at a time.
#[derive(Default)]
pub struct CaptureReader {
    format: Option<Format>,
    /// The beginning of a record that goes on in the next piece.
    held: Vec<u8>,
    /// Where in the file `held`, or the next piece, begins.
    offset: u64,
    failed: Option<CaptureFault>,
}

impl CaptureReader {
    /// Takes the next piece and tells its packets, in the order of the file.
    ///
    /// # Errors
    /// What cannot be read, and where it begins. Packets before it were told, and no more are.
    pub fn read(&mut self, piece: &[u8], mut each: impl FnMut(&CapturedPacket<'_>)) -> Result<(), CaptureFault> {
        if let Some(fault) = self.failed {
            return Err(fault);
        }
        let mut held = std::mem::take(&mut self.held);
        let outcome = if held.is_empty() {
            let taken = self.records(piece, &mut each);
            taken.map(|taken| held.extend_from_slice(piece.get(taken..).unwrap_or_default()))
        } else {
            held.extend_from_slice(piece);
            let taken = self.records(&held, &mut each);
            taken.map(|taken| drop(held.drain(..taken.min(held.len()))))
        };
        self.held = held;
        outcome.inspect_err(|fault| self.failed = Some(*fault))
    }

    /// Says whether the capture ended where a record did.
    ///
    /// # Errors
    /// It ended within one, or was none.
    pub fn end(&self) -> Result<(), CaptureFault> {
        match (self.failed, &self.format) {
            (Some(fault), _) => Err(fault),
            (None, None) => Err(CaptureFault { offset: 0, problem: CaptureProblem::NotACapture }),
            (None, Some(_)) if self.held.is_empty() => Ok(()),
            (None, Some(_)) => Err(CaptureFault { offset: self.offset, problem: CaptureProblem::CutShort }),
        }
    }

    /// Packets without a time (simple packet blocks): they are in no place of a curve and are not told.
    #[must_use]
    pub fn untimed_packets(&self) -> u64 {
        match &self.format {
            Some(Format::Blocks(blocks)) => blocks.untimed_packets(),
            _ => 0,
        }
    }

    /// Packets that whoever captured says were lost (interface statistics of pcapng; pcap says nothing of it).
    #[must_use]
    pub fn dropped_packets(&self) -> u64 {
        match &self.format {
            Some(Format::Blocks(blocks)) => blocks.dropped_packets(),
            _ => 0,
        }
    }

    /// Reads whole records from the beginning of `bytes`; says how many bytes they were.
    fn records(&mut self, bytes: &[u8], each: &mut impl FnMut(&CapturedPacket<'_>)) -> Result<usize, CaptureFault> {
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            match self.record(rest) {
                Ok(Step::More) => return Ok(at),
                Ok(Step::Took(bytes, packet)) => {
                    if let Some(packet) = packet {
                        each(&packet);
                    }
                    at += bytes;
                    self.offset += bytes as u64;
                }
                Err(problem) => return Err(CaptureFault { offset: self.offset, problem }),
            }
        }
    }

    fn record<'a>(&mut self, bytes: &'a [u8]) -> Result<Step<'a>, CaptureProblem> {
        match &mut self.format {
            Some(Format::Classic(classic)) => classic.record(bytes),
            Some(Format::Blocks(blocks)) => blocks.block(bytes),
            None => {
                let Some(magic) = bytes.get(..MAGIC_BYTES) else { return Ok(Step::More) };
                if pcapng::is_section(magic) {
                    self.format = Some(Format::Blocks(Box::default()));
                    return Ok(Step::Took(0, None));
                }
                let Some(header) = bytes.get(..pcap::HEADER_BYTES) else {
                    return if pcap::is_header(magic) { Ok(Step::More) } else { Err(CaptureProblem::NotACapture) };
                };
                self.format = Some(Format::Classic(Classic::new(header)?));
                Ok(Step::Took(pcap::HEADER_BYTES, None))
            }
        }
    }
}
