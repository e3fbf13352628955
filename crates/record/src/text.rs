//! Text from outside (names, frames, reasons of a peer, paths) on its way to a terminal or a log.
//!
//! Every such text passes [`printable`]. An escape sequence, a bell or a line break in a host name or in a file name
//! then reaches nobody's terminal and forges no line of a log.
use std::borrow::Cow;

/// The text with every character escaped that is not for print: controls (ESC, BEL, line breaks, C1), characters that
/// change the direction of text or do not show. Characters of other scripts stay as they are.
#[must_use]
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unprintable(c) { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    Cow::Owned(shown)
}

/// As [`printable`], and at most `chars_max` characters of the text, with `...` where something was cut off.
#[must_use]
pub fn printable_within(text: &str, chars_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars_max) {
        None => printable(text),
        Some((end, _)) => Cow::Owned(format!("{}...", printable(&text[..end]))),
    }
}

/// Unicode categories Cc and the invisible or direction-changing part of Cf, Zl and Zp.
fn is_unprintable(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_a_terminal_but_print() {
        assert_eq!(printable("host-1.example"), "host-1.example");
        assert_eq!(printable("a\x1b[31mred\x07\nforged: line"), "a\\u{1b}[31mred\\u{7}\\nforged: line");
        assert_eq!(printable("\u{9b}2J\u{202e}gpj.exe"), "\\u{9b}2J\\u{202e}gpj.exe");
        assert_eq!(printable("m\u{e4}dchen \u{4e2d}"), "m\u{e4}dchen \u{4e2d}", "other scripts are print");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(printable_within("abc", 3), "abc");
        assert_eq!(printable_within("\u{4e2d}\u{4e2d}\u{4e2d}d", 2), "\u{4e2d}\u{4e2d}...");
    }
}
