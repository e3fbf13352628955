//! The value of a record: what a server needs of the agent's hello, and one frame of the wire (`docs/formats/bus.md`).
use mycroft_record::HostTime;
use mycroft_wire::codec;

/// First bytes of a value.
const MAGIC: [u8; 4] = *b"MYCK";
/// The version that this release writes, and the only one that it reads.
const VERSION: u16 = 1;
/// Longest text; longer ones are cut by the sender.
const TEXT_BYTES_MAX: usize = 1024;
/// Magic 4, version 2, length of the head 2, four numbers of 8.
const FIXED_BYTES: usize = 40;

/// The value of a record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// Random number of the agent, drawn when it began to send; with the sequence it names the record.
    pub agent: u64,
    /// Tells machines apart; 0: not said.
    pub machine: u64,
    /// Of the agent's records, from 1, rising. One that is sent again has the same.
    pub sequence: u64,
    /// When it was given to the broker's client, by the agent's clock.
    pub sent: HostTime,
    /// Name of the host.
    pub host: String,
    /// The agent's program and version.
    pub software: String,
    /// One frame of the wire, with batches of one job.
    pub frame: Vec<u8>,
}

/// Bytes that are no value of a record.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum BadEntry {
    /// Something else wrote it.
    #[error("it is no record of Mycroft: it does not begin with \"MYCK\"; another program writes to this topic")]
    Foreign,
    /// Of another release.
    #[error("it is of version {found}, this release reads {VERSION}; use the newer release")]
    Version {
        /// Its version.
        found: u16,
    },
    /// It ends too early, or holds no text where one belongs.
    #[error("it is damaged")]
    Damaged,
}

impl Entry {
    /// The value as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let texts = [cut(&self.host), cut(&self.software)];
        let head = FIXED_BYTES + texts.iter().map(|text| 2 + text.len()).sum::<usize>();
        let mut out = Vec::with_capacity(head + self.frame.len());
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        // Two texts of 1 KiB at most: it fits 16 bits.
        out.extend_from_slice(&(head as u16).to_le_bytes());
        for number in [self.agent, self.machine, self.sequence, self.sent.0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for text in texts {
            out.extend_from_slice(&(text.len() as u16).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        out.extend_from_slice(&self.frame);
        out
    }

    /// The value of a record; the frame is not opened.
    ///
    /// # Errors
    /// It is none, or of another release.
    pub fn decode(bytes: &[u8]) -> Result<Entry, BadEntry> {
        let Some(rest) = bytes.strip_prefix(&MAGIC) else { return Err(BadEntry::Foreign) };
        let (version, rest) = number16(rest).ok_or(BadEntry::Damaged)?;
        if version != VERSION {
            return Err(BadEntry::Version { found: version });
        }
        let (head, _) = number16(rest).ok_or(BadEntry::Damaged)?;
        let (head, frame) = bytes.split_at_checked(usize::from(head)).ok_or(BadEntry::Damaged)?;
        // Of one version all heads hold the same; what a later release of it adds stands behind.
        let mut rest = head.get(8..).ok_or(BadEntry::Damaged)?;
        let mut numbers = [0; 4];
        for number in &mut numbers {
            let (bytes, behind) = rest.split_first_chunk::<8>().ok_or(BadEntry::Damaged)?;
            (*number, rest) = (u64::from_le_bytes(*bytes), behind);
        }
        let mut text = || {
            let (length, behind) = number16(rest)?;
            let (text, behind) = behind.split_at_checked(usize::from(length))?;
            rest = behind;
            std::str::from_utf8(text).ok().map(str::to_owned)
        };
        let (host, software) = (text().ok_or(BadEntry::Damaged)?, text().ok_or(BadEntry::Damaged)?);
        if frame.len() > codec::MAX_FRAME_BYTES {
            return Err(BadEntry::Damaged);
        }
        let [agent, machine, sequence, sent] = numbers;
        Ok(Entry { agent, machine, sequence, sent: HostTime(sent), host, software, frame: frame.to_vec() })
    }
}

fn number16(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (number, rest) = bytes.split_first_chunk::<2>()?;
    Some((u16::from_le_bytes(*number), rest))
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            agent: 0x0102_0304_0506_0708,
            machine: 9,
            sequence: 77,
            sent: HostTime(1_700_000_000_000_000_000),
            host: "host0".to_owned(),
            software: "mycroft 0.1.0".to_owned(),
            frame: b"MYCB...".to_vec(),
        }
    }

    /// The byte map of `docs/formats/bus.md`.
    #[test]
    fn a_value_is_a_head_and_a_frame() {
        let bytes = entry().encode();
        assert_eq!(&bytes[..8], b"MYCK\x01\x00\x3e\x00");
        assert_eq!(bytes[8..16], 0x0102_0304_0506_0708u64.to_le_bytes());
        assert_eq!(bytes[24..32], 77u64.to_le_bytes());
        assert_eq!(&bytes[40..47], b"\x05\x00host0");
        assert_eq!(&bytes[62..], b"MYCB...");
        assert_eq!(Entry::decode(&bytes), Ok(entry()));
    }

    #[test]
    fn what_is_no_value_is_told_and_no_length_is_believed() {
        let bytes = entry().encode();
        assert_eq!(Entry::decode(b"{\"a\": 1}"), Err(BadEntry::Foreign));
        assert_eq!(Entry::decode(b""), Err(BadEntry::Foreign));
        for end in 4..62 {
            assert_eq!(Entry::decode(&bytes[..end]), Err(BadEntry::Damaged), "{end}");
        }
        let mut newer = bytes.clone();
        newer[4] = 2;
        assert_eq!(Entry::decode(&newer), Err(BadEntry::Version { found: 2 }));
        for at in 6..62 {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xff;
            // Not all of it can be seen, but none of it ends the process.
            drop(Entry::decode(&damaged));
        }
    }

    #[test]
    fn what_a_newer_head_adds_is_passed_over() {
        let mut bytes = entry().encode();
        bytes.splice(62..62, *b"more");
        bytes[6] += 4;
        assert_eq!(Entry::decode(&bytes), Ok(entry()));
    }

    #[test]
    fn a_long_name_is_cut_between_letters() {
        let long = Entry { host: "\u{fc}".repeat(600), ..entry() };
        let told = Entry::decode(&long.encode()).expect("a value");
        assert_eq!(told.host, "\u{fc}".repeat(512));
    }
}
