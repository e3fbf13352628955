//! What a file is: a text, packed or not, or a dump. Nothing else is taken, since nobody could tell the secrets in it.
use crate::files::{Found, opened};
use flate2::read::MultiGzDecoder;
use mycroft_formats::{Naming, Piece, read};
use std::io::{Cursor, Read, Seek};
use std::path::{Component, Path};

/// Bytes that tell what a file is.
const MARK_BYTES: u64 = 8 << 10;
/// Largest dump: what an agent takes of a rank.
const DUMP_BYTES_MAX: u64 = 64 << 20;

/// A file that is taken.
pub(super) enum Content {
    /// Of torch's Flight Recorder: function names, file names and shapes.
    Dump(Vec<u8>),
    /// Whatever stands in it.
    Text(Box<dyn Read>),
}

/// Opens a file: its name in the package and what is in it.
///
/// # Errors
/// Why it is left out, in words.
pub(super) fn content(found: &Found, naming: &Naming) -> Result<(String, Content), String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    let (mut file, _) = opened(found)?;
    let mark = mark(&mut file).map_err(cannot)?;
    file.rewind().map_err(cannot)?;
    let name = inside(&found.name);
    let plain = |suffix: &str| name.strip_suffix(suffix).unwrap_or(&name).to_owned();
    match mark[..] {
        [0x80, ..] => {
            let mut bytes = Vec::new();
            file.take(DUMP_BYTES_MAX).read_to_end(&mut bytes).map_err(cannot)?;
            is_dump(&name, &bytes, naming).then_some((name, Content::Dump(bytes))).ok_or_else(other)
        }
        [0x1f, 0x8b, 8, ..] => text(plain(".gz"), MultiGzDecoder::new(file)).map_err(cannot)?,
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            text(plain(".zst"), zstd::Decoder::<'static, _>::new(file).map_err(cannot)?).map_err(cannot)?
        }
        _ => text(name, file).map_err(cannot)?,
    }
}

/// Whether a file is a Flight Recorder dump, as `mycroft autopsy` reads it.
pub(super) fn is_dump(name: &str, bytes: &[u8], naming: &Naming) -> bool {
    bytes.first() == Some(&0x80) && matches!(read(name, bytes, naming), Piece::Dump(_) | Piece::CutShort(..))
}

fn text(name: String, mut from: impl Read + 'static) -> std::io::Result<Result<(String, Content), String>> {
    let mark = mark(&mut from)?;
    if mark.contains(&0) {
        return Ok(Err(other()));
    }
    Ok(Ok((name, Content::Text(Box::new(Cursor::new(mark).chain(from))))))
}

fn other() -> String {
    "neither text nor a dump: left out".to_owned()
}

fn mark(from: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut mark = Vec::new();
    from.take(MARK_BYTES).read_to_end(&mut mark).map(|_| mark)
}

/// A path without what leads out of a folder.
fn inside(path: &str) -> String {
    let parts = Path::new(path).components().filter_map(|part| match part {
        Component::Normal(part) => Some(part.to_string_lossy()),
        _ => None,
    });
    parts.collect::<Vec<_>>().join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_package_lead_nowhere_else() {
        for (path, name) in
            [("/var/log/a", "var/log/a"), ("../../etc/x", "etc/x"), ("a/./b/..//c", "a/b/c"), ("..", "")]
        {
            assert_eq!(inside(path), name);
        }
    }
}
