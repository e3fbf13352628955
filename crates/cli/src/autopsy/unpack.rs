//! What a file holds: a dump, stacks or a log as it is; or such files packed (`.gz`, `.zst`, `.tar`, `.tar.gz`, `.tar.zst`).
//!
//! Found out by content. Nothing is written anywhere; what a package expands to is bounded, and refused by name beyond that.
use super::whole::{FILE_BYTES_MAX, read_whole};
use crate::files::{Found, opened};
use flate2::bufread::MultiGzDecoder;
use mycroft_formats::{LogReader, Naming, Piece, looks_like_log, read};
use mycroft_record::dump::Unusable;
use std::io::{BufReader, Read};

/// What a package may expand to: 1,024 dumps of 0.5 MB and logs of some GB. Deflate reaches 1,032 : 1, zstd more.
const EXPANDED_MAX: u64 = 16 << 30;
/// Files in an archive: 100,000 ranks with a dump and a stack file each.
const MEMBERS_MAX: usize = 1 << 18;
/// Packages in packages: `.tar` in `.gz`, with `.gz` in it.
const DEPTH_MAX: u32 = 4;
/// A longer text is read as a stream, and not held: by its beginning it is known what it is.
const HELD_MAX: u64 = 16 << 20;
/// One read of a stream.
const READ_BYTES: usize = 256 << 10;
/// What tells one kind of file from another: the mark of a tar lies at byte 257.
const MARK_BYTES: usize = 512;

/// What one reading may still expand to.
struct Limit<'a> {
    naming: &'a Naming,
    left: u64,
}

/// Reads one file that was found.
pub(super) fn piece(file: &Found, naming: &Naming, bytes: &mut Vec<u8>) -> Piece {
    let unread = |why| Piece::Unread(Unusable { rank: naming.rank(&file.name), source: (&*file.name).into(), why });
    let (mut handle, size) = match opened(file) {
        Ok(opened) => opened,
        Err(why) => return unread(why),
    };
    let mut mark = Vec::new();
    if let Err(error) = handle.by_ref().take(MARK_BYTES as u64).read_to_end(&mut mark) {
        return unread(format!("cannot be read: {error}"));
    }
    let plain = packed(&mark).is_none();
    if plain && size <= HELD_MAX && !file.is_input() {
        bytes.clear();
        bytes.extend_from_slice(&mark);
        let rest = size.saturating_sub(mark.len() as u64);
        return match read_whole(handle, rest, bytes) {
            Ok(()) => read(&file.name, bytes, naming),
            Err(why) => unread(why),
        };
    }
    let mut limit = Limit { naming, left: EXPANDED_MAX };
    let whole = mark.as_slice().chain(handle);
    match limit.source(&file.name, Box::new(whole), DEPTH_MAX) {
        Ok(piece) => piece,
        Err(why) => unread(why),
    }
}

/// How something is packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Packed {
    Gzip,
    Zstd,
    Tar,
}

fn packed(mark: &[u8]) -> Option<Packed> {
    match mark {
        [0x1f, 0x8b, 8, ..] => Some(Packed::Gzip),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Some(Packed::Zstd),
        _ if mark.get(257..262) == Some(b"ustar") => Some(Packed::Tar),
        _ => None,
    }
}

impl Limit<'_> {
    fn source(&mut self, name: &str, mut from: Box<dyn Read + '_>, depth: u32) -> Result<Piece, String> {
        let mut mark = Vec::new();
        from.by_ref().take(MARK_BYTES as u64).read_to_end(&mut mark).map_err(cannot)?;
        let kind = packed(&mark);
        if kind.is_some() && depth == 0 {
            return Err(format!("packed more than {DEPTH_MAX} times"));
        }
        let whole = BufReader::with_capacity(READ_BYTES, std::io::Cursor::new(mark).chain(from));
        match kind {
            None => self.plain(name, whole),
            Some(Packed::Gzip) => {
                let inner = name.strip_suffix(".gz").or_else(|| name.strip_suffix(".tgz")).unwrap_or(name);
                self.source(inner, Box::new(MultiGzDecoder::new(whole)), depth - 1)
            }
            Some(Packed::Zstd) => {
                let inner = name.strip_suffix(".zst").unwrap_or(name);
                let decoder = zstd::stream::read::Decoder::with_buffer(whole).map_err(cannot)?;
                self.source(inner, Box::new(decoder), depth - 1)
            }
            Some(Packed::Tar) => self.archive(name, whole, depth - 1),
        }
    }

    /// A file that is not packed: held where it is short, streamed where it is a long log.
    fn plain(&mut self, name: &str, mut from: impl Read) -> Result<Piece, String> {
        let most = HELD_MAX.min(self.left);
        let mut bytes = Vec::new();
        from.by_ref().take(most).read_to_end(&mut bytes).map_err(cannot)?;
        self.left -= bytes.len() as u64;
        if (bytes.len() as u64) < most {
            return Ok(read(name, &bytes, self.naming));
        }
        if looks_like_log(&bytes) {
            return self.log(name, &bytes, from);
        }
        let most = (FILE_BYTES_MAX - HELD_MAX).min(self.left);
        let more = from.by_ref().take(most + 1).read_to_end(&mut bytes).map_err(cannot)? as u64;
        if more > most {
            return Err(self.too_long());
        }
        self.left -= more;
        Ok(read(name, &bytes, self.naming))
    }

    fn too_long(&self) -> String {
        format!("expands beyond {} MiB, or {} MiB in one file: not read", EXPANDED_MAX >> 20, FILE_BYTES_MAX >> 20)
    }

    fn log(&mut self, name: &str, head: &[u8], mut from: impl Read) -> Result<Piece, String> {
        let mut reader = LogReader::new(name, self.naming);
        reader.feed(head);
        let mut piece = vec![0; READ_BYTES];
        loop {
            let count = from.read(&mut piece).map_err(cannot)?;
            if count == 0 {
                break;
            }
            self.left = self.left.checked_sub(count as u64).ok_or_else(|| self.too_long())?;
            reader.feed(&piece[..count]);
        }
        Ok(reader.finish().map_or_else(
            || Piece::Ignored(name.to_owned(), "a log, and no line of it tells anything".to_owned()),
            |log| Piece::Log(Box::new(log)),
        ))
    }

    /// The regular files of an archive; links, devices and folders in it are passed over.
    fn archive(&mut self, name: &str, mut from: impl Read, depth: u32) -> Result<Piece, String> {
        let mut pieces = Vec::new();
        let mut long = None;
        loop {
            let mut header = [0; MARK_BYTES];
            let mut got = 0;
            while got < header.len() {
                match from.read(&mut header[got..]).map_err(cannot)? {
                    0 => break,
                    count => got += count,
                }
            }
            if got < header.len() || header.iter().all(|byte| *byte == 0) {
                return Ok(Piece::Several(pieces));
            }
            let Some(size) = octal(&header[124..136]) else { return Err("an archive with a broken header".to_owned()) };
            let padded = size.div_ceil(MARK_BYTES as u64) * MARK_BYTES as u64;
            let mut member = from.by_ref().take(padded);
            match header[156] {
                b'L' if size <= 4096 => {
                    let mut bytes = Vec::new();
                    member.by_ref().take(size).read_to_end(&mut bytes).map_err(cannot)?;
                    long = Some(text(&bytes));
                }
                b'0' | 0 if pieces.len() < MEMBERS_MAX => {
                    let path = long.take().unwrap_or_else(|| path_of(&header));
                    let path = path.trim_start_matches("./").trim_start_matches('/').to_owned();
                    let content: Box<dyn Read + '_> = Box::new(member.by_ref().take(size));
                    let shown = format!("{name}/{path}");
                    pieces.push(self.source(&path, content, depth).unwrap_or_else(|why| {
                        Piece::Unread(Unusable { rank: self.naming.rank(&path), source: (&*shown).into(), why })
                    }));
                }
                b'0' | 0 => return Err(format!("more than {MEMBERS_MAX} files in one archive")),
                _ => long = None,
            }
            // What is left of the member, and its padding.
            let skipped = std::io::copy(&mut member, &mut std::io::sink()).map_err(cannot)?;
            self.left = self.left.checked_sub(skipped).ok_or_else(|| self.too_long())?;
        }
    }
}

fn cannot(error: std::io::Error) -> String {
    format!("cannot be read: {error}")
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Prefix and name of a header of POSIX 1003.1-1988.
fn path_of(header: &[u8; MARK_BYTES]) -> String {
    let (name, prefix) = (text(&header[..100]), text(&header[345..500]));
    if prefix.is_empty() || &header[257..263] != b"ustar\0" { name } else { format!("{prefix}/{name}") }
}

fn octal(field: &[u8]) -> Option<u64> {
    let text = text(field);
    u64::from_str_radix(text.trim().trim_matches('\0'), 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_formats::Naming;
    use std::io::Write;

    const LINE: &[u8] = b"[rank1]:[E812 10:31:00.1 P.cpp:6] [Rank 1] Watchdog caught collective operation timeout: \
        WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001 milliseconds\n";

    fn member(name: &str, content: &[u8]) -> Vec<u8> {
        let mut header = [0; MARK_BYTES];
        header[..name.len()].copy_from_slice(name.as_bytes());
        let size = format!("{:011o}", content.len());
        header[124..135].copy_from_slice(size.as_bytes());
        header[156] = b'0';
        header[257..263].copy_from_slice(b"ustar\0");
        let mut out = header.to_vec();
        out.extend_from_slice(content);
        out.resize(out.len().next_multiple_of(MARK_BYTES), 0);
        out
    }

    fn of(name: &str, bytes: &[u8]) -> Result<Piece, String> {
        let naming = Naming::default();
        Limit { naming: &naming, left: 1 << 30 }.source(name, Box::new(bytes), DEPTH_MAX)
    }

    fn gz(bytes: &[u8]) -> Vec<u8> {
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        out.write_all(bytes).expect("memory");
        out.finish().expect("memory")
    }

    #[test]
    fn packages_are_told_by_their_content() {
        let tar = [member("logs/rank_1.log", LINE), vec![0; 1024]].concat();
        let zst = zstd::stream::encode_all(tar.as_slice(), 1).expect("memory");
        for (name, bytes) in [("a", tar.clone()), ("a.tgz", gz(&tar)), ("b.tar.zst", zst)] {
            let Ok(Piece::Several(pieces)) = of(name, &bytes) else { panic!("{name}") };
            let [Piece::Log(log)] = pieces.as_slice() else { panic!("{name}: {pieces:?}") };
            assert_eq!((&*log.source, log.lines.len()), ("logs/rank_1.log", 1));
        }
        let Ok(Piece::Log(log)) = of("job.log.gz", &gz(LINE)) else { panic!("gz") };
        assert_eq!(&*log.source, "job.log");
    }

    #[test]
    fn what_expands_without_end_is_refused() {
        let naming = Naming::default();
        let bomb = gz(&vec![b'x'; 4 << 20]);
        let mut limit = Limit { naming: &naming, left: 1 << 20 };
        let why = limit.source("bomb.gz", Box::new(bomb.as_slice()), DEPTH_MAX).expect_err("it is longer");
        assert!(why.contains("expands beyond"), "{why}");
        let mut nested = LINE.to_vec();
        for _ in 0..=DEPTH_MAX {
            nested = gz(&nested);
        }
        assert!(of("nested.gz", &nested).expect_err("deep").contains("packed more than"));
        assert!(of("cut.gz", &gz(LINE)[..40]).is_err());
    }
}
