//! What a device sends, as a file that `mycroft flow`, tcpdump and Wireshark read: the old format of libpcap, with
//! nanoseconds, packets from the IPv4 header on.
use crate::wire::{NETWORK_BYTES, network_header};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddrV4;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// The format's mark for times in nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;
/// `LINKTYPE_IPV4`.
const LINK: u32 = 228;
/// Bytes of the longest packet.
const SNAP: u32 = 65_535;
/// Time to live in the headers: what Linux begins with.
const LIFETIME: u8 = 64;
/// Bytes that a file takes at most; later packets are left out. A minute of 17 MB/s.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// A file that is written.
#[derive(Debug)]
pub(crate) struct Pcap {
    file: BufWriter<File>,
    bytes: u64,
}

impl Pcap {
    /// Begins a file.
    ///
    /// # Errors
    /// It cannot be made or written.
    pub(crate) fn create(path: &Path) -> io::Result<Pcap> {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(&MAGIC.to_le_bytes())?;
        file.write_all(&[2, 0, 4, 0])?;
        file.write_all(&[0; 8])?;
        file.write_all(&SNAP.to_le_bytes())?;
        file.write_all(&LINK.to_le_bytes())?;
        file.flush()?;
        Ok(Pcap { file, bytes: 24 })
    }

    /// Adds a packet: what follows the UDP header, with the checksum.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn add(&mut self, from: SocketAddrV4, to: SocketAddrV4, packet: &[u8]) -> io::Result<()> {
        let total = (NETWORK_BYTES + packet.len()) as u32;
        if self.bytes + u64::from(total) + 16 > FILE_BYTES_MAX {
            return Ok(());
        }
        self.bytes += u64::from(total) + 16;
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        for word in [at.as_secs() as u32, at.subsec_nanos(), total, total] {
            self.file.write_all(&word.to_le_bytes())?;
        }
        self.file.write_all(&network_header(from, to, packet.len(), LIFETIME))?;
        self.file.write_all(packet)
    }

    /// Writes what is still in memory.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
