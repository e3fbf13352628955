//! Tracebacks of Python in a log into which several ranks print: their lines may lie between each other's.
use super::nccl::TEXT_BYTES;
use super::table;
use super::words::{after, clean};
use mycroft_record::Rank;
use mycroft_record::dump::Frame;
use mycroft_record::printed::Kind;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Tracebacks that are open at one time: ranks of a few hosts.
const OPEN_MAX: usize = 64;
/// Frames that are kept, the innermost: enough to see what a call came from.
const FRAMES_MAX: usize = 24;
/// Lines after which a traceback without an end is given up: 200 frames.
const LINES_MAX: u32 = 400;

/// The open tracebacks, by rank.
#[derive(Default)]
pub(super) struct Tracebacks {
    open: BTreeMap<Option<Rank>, Open>,
}

#[derive(Default)]
struct Open {
    /// Outermost first.
    frames: Vec<Frame>,
    lines: u32,
}

impl Tracebacks {
    pub(super) fn is_open(&self) -> bool {
        !self.open.is_empty()
    }

    pub(super) fn is_inside(&self, rank: Option<Rank>) -> bool {
        self.open.contains_key(&rank)
    }

    /// Takes a line of a rank. At the end of a traceback: what it is evidence for, its last line, its frames.
    pub(super) fn line(&mut self, rank: Option<Rank>, text: &str) -> Option<(Kind, Arc<str>, Vec<Frame>)> {
        if text.contains("Traceback (most recent call last)") {
            if self.open.len() < OPEN_MAX {
                self.open.insert(rank, Open::default());
            }
            return None;
        }
        self.open.retain(|_, open| {
            open.lines += 1;
            open.lines <= LINES_MAX
        });
        let open = self.open.get_mut(&rank)?;
        if let Some(frame) = frame(text) {
            if open.frames.len() == FRAMES_MAX {
                open.frames.remove(0);
            }
            open.frames.push(frame);
            return None;
        }
        if text.starts_with([' ', '\t', '~', '^']) || text.is_empty() {
            return None;
        }
        let name = text.split([':', ' ']).next().unwrap_or_default();
        let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._".contains(&byte))
            && name.starts_with(|c: char| c.is_ascii_alphabetic());
        let mut frames = self.open.remove(&rank)?.frames;
        if !is_name || frames.is_empty() {
            return None;
        }
        frames.reverse();
        Some((table::of_exception(text), clean(text, TEXT_BYTES).into(), frames))
    }
}

/// `  File "/app/train.py", line 26, in main`.
fn frame(text: &str) -> Option<Frame> {
    let rest = text.trim_start().strip_prefix("File \"")?;
    let (file, rest) = rest.split_once("\", line ")?;
    let (line, name) = rest.split_once(", in ").unwrap_or((rest, ""));
    let short = |text: &str| Arc::from(clean(text.trim_end(), TEXT_BYTES));
    Some(Frame { name: short(name), file: short(file), line: line.trim().parse().ok()? })
}

/// A line without what launchers and log shippers put in front.
pub(super) fn body(line: &str) -> &str {
    let mut rest = line;
    loop {
        let before = rest.len();
        let trimmed = rest.trim_start();
        for open in ["[rank", "[default", "[1,"] {
            if let Some(end) = trimmed.strip_prefix(open).and(trimmed.find("]")) {
                let tail = &trimmed[end + 1..];
                let tail = tail.strip_prefix("<stdout>").or_else(|| tail.strip_prefix("<stderr>")).unwrap_or(tail);
                let tail = tail.strip_prefix(':').unwrap_or(tail);
                rest = tail.strip_prefix(' ').unwrap_or(tail);
            }
        }
        if let Some(tail) = dated(trimmed) {
            rest = tail.strip_prefix(' ').unwrap_or(tail);
        }
        if trimmed.starts_with('(')
            && let Some((head, tail)) = trimmed.split_once(')')
            && head.contains("pid=")
        {
            rest = tail.strip_prefix(' ').unwrap_or(tail);
        }
        if let Some((digits, tail)) = trimmed.split_once(": ")
            && !digits.is_empty()
            && digits.bytes().all(|byte| byte.is_ascii_digit())
        {
            rest = tail;
        }
        if let Some(tail) = trimmed.strip_prefix("| ").and_then(|tail| after(tail, " | ")) {
            rest = tail;
        }
        if rest.len() == before {
            return rest;
        }
    }
}

/// What stands behind a date and a time, as log shippers put them in front: `2026-07-14 11:09:58,201`, `2026-07-14T11:09:58Z`.
fn dated(text: &str) -> Option<&str> {
    const FORM: &[u8] = b"0000-00-00 00:00:00";
    let head = text.as_bytes().get(..FORM.len())?;
    let fits = |(byte, form): (&u8, &u8)| match form {
        b'0' => byte.is_ascii_digit(),
        b' ' => matches!(byte, b' ' | b'T' | b'_'),
        other => byte == other,
    };
    head.iter().zip(FORM).all(fits).then_some(())?;
    let tail = text.get(FORM.len()..)?;
    Some(tail.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | 'Z' | '+')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ranks_print_into_each_other() {
        let mut open = Tracebacks::default();
        let mut found = Vec::new();
        for line in [
            "[rank0]: Traceback (most recent call last):",
            "[rank1]: Traceback (most recent call last):",
            "[rank0]:   File \"/app/a.py\", line 7, in step",
            "[rank1]:   File \"/app/b.py\", line 8, in load",
            "[rank0]:     loss.backward()",
            "[rank1]: KeyError: 'x'",
            "[rank0]: RuntimeError: CUDA out of memory",
        ] {
            let rank = super::super::head::head(line).rank;
            found.extend(open.line(rank, body(line)).map(|(kind, text, frames)| (rank, kind, text, frames)));
        }
        assert!(!open.is_open());
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].0, found[0].1, &*found[0].2), (Some(Rank(1)), Kind::Exception, "KeyError: 'x'"));
        assert_eq!((found[1].1, &*found[1].3[0].name, found[1].3[0].line), (Kind::DeviceMemory, "step", 7));
    }

    #[test]
    fn prefixes_come_off_in_any_order() {
        for line in [
            "(W pid=7) [rank3]:   File",
            "[1,3]<stderr>:  File",
            " 12: [rank3]:   File",
            "  | 2024 | [rank3]:   File",
            "2026-07-14 11:09:58,201 [rank3]:   File",
            "2026-07-14T11:09:58.2Z [rank3]:   File",
        ] {
            assert!(body(line).trim_start().starts_with("File"), "{line}: {}", body(line));
        }
    }
}
