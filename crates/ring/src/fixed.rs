//! Text kept in place, ended by a zero byte, so that the job's side can make paths and messages without the heap.
use std::ffi::{CStr, OsStr};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes of a path with its end: Linux's PATH_MAX.
pub const PATH_BYTES: usize = 4096;

/// A path.
pub type FixedPath = FixedText<PATH_BYTES>;

/// Bytes without a zero among them, and a zero byte behind them: at most `N` with that.
#[derive(Clone, Copy)]
pub struct FixedText<const N: usize> {
    len: usize,
    bytes: [u8; N],
}

impl<const N: usize> FixedText<N> {
    /// No text yet.
    pub const EMPTY: FixedText<N> = FixedText { len: 0, bytes: [0; N] };

    /// These bytes; `None` if they do not fit or hold a zero.
    pub fn new(bytes: &[u8]) -> Option<FixedText<N>> {
        let mut text = FixedText::EMPTY;
        text.push(bytes).then_some(text)
    }

    /// What `arguments` print, cut where the room ends.
    pub fn printed(arguments: fmt::Arguments<'_>) -> FixedText<N> {
        let mut text = FixedText::EMPTY;
        // Fails where the room ends, and keeps what fits.
        let _ = fmt::Write::write_fmt(&mut text, arguments);
        text
    }

    /// Adds bytes; false, and nothing is added, if they do not fit or hold a zero.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let end = self.len.saturating_add(bytes.len());
        if end >= N || bytes.contains(&0) {
            return false;
        }
        self.bytes[self.len..end].copy_from_slice(bytes);
        self.len = end;
        true
    }

    /// Cuts the text to its first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len {
            self.bytes[len..self.len].fill(0);
            self.len = len;
        }
    }

    /// The bytes, without the zero.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// For a system call.
    pub fn as_c_str(&self) -> &CStr {
        CStr::from_bytes_with_nul(&self.bytes[..=self.len]).unwrap_or(c"")
    }

    /// As a path.
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(self.as_bytes()))
    }
}

impl<const N: usize> fmt::Write for FixedText<N> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.push(text.as_bytes()) {
            return Ok(());
        }
        let mut fits = text.len().min(N.saturating_sub(self.len + 1));
        while !text.is_char_boundary(fits) {
            fits -= 1;
        }
        self.push(&text.as_bytes()[..fits]);
        Err(fmt::Error)
    }
}

impl<const N: usize> fmt::Display for FixedText<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().utf8_chunks().try_for_each(|chunk| {
            f.write_str(chunk.valid())?;
            f.write_str(if chunk.invalid().is_empty() { "" } else { "\u{fffd}" })
        })
    }
}

impl<const N: usize> fmt::Debug for FixedText<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<const N: usize> PartialEq for FixedText<N> {
    fn eq(&self, other: &FixedText<N>) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl<const N: usize> Eq for FixedText<N> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_does_not_fit_is_refused_or_cut_at_a_character() {
        assert_eq!(FixedText::<4>::new(b"abc").expect("fits").as_c_str(), c"abc");
        assert!(FixedText::<4>::new(b"abcd").is_none(), "no room for the zero");
        assert!(FixedText::<8>::new(b"a\0b").is_none());
        assert_eq!(FixedText::<6>::printed(format_args!("{}-{}", 12, 345)).as_bytes(), b"12-34");
        assert_eq!(FixedText::<3>::printed(format_args!("a\u{e9}")).as_bytes(), b"a");
        let mut path = FixedPath::new(b"/a/bc").expect("fits");
        path.truncate(2);
        assert_eq!(path.as_c_str(), c"/a");
        assert_eq!(FixedText::<8>::new(b"a\xff").expect("fits").to_string(), "a\u{fffd}");
    }
}
