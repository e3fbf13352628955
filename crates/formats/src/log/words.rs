//! Small tools to take a line apart.

/// The text behind `key`.
pub(super) fn after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.find(key).map(|at| &text[at + key.len()..])
}

/// The number that `text` begins with, behind white space.
pub(super) fn number(text: &str) -> Option<i64> {
    let text = text.trim_start();
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    digits.get(..end)?.parse::<i64>().ok().map(|number| sign * number)
}

/// The number behind `key`.
pub(super) fn number_after(text: &str, key: &str) -> Option<i64> {
    number(after(text, key)?)
}

/// The same, not negative.
pub(super) fn count_after(text: &str, key: &str) -> Option<u64> {
    number_after(text, key).and_then(|number| u64::try_from(number).ok())
}

/// The same as a number that fits into 32 bits.
pub(super) fn small_after(text: &str, key: &str) -> Option<u32> {
    count_after(text, key).and_then(|number| u32::try_from(number).ok())
}

/// What stands between `open` and the next `close`.
pub(super) fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    let rest = after(text, open)?;
    rest.find(close).map(|end| &rest[..end])
}

/// The word that `text` begins with: up to white space or one of these.
pub(super) fn word<'a>(text: &'a str, ends: &[char]) -> &'a str {
    let text = text.trim_start();
    let end = text.find(|c: char| c.is_whitespace() || ends.contains(&c)).unwrap_or(text.len());
    &text[..end]
}

/// All numbers of a list such as `2, 5 and 7` or `3-5,9`, up to the first other word; at most `max`.
pub(super) fn list(text: &str, max: usize) -> Vec<u32> {
    let mut out = Vec::new();
    let mut rest = text.trim_start();
    while out.len() < max {
        let Some(first) = number(rest).and_then(|number| u32::try_from(number).ok()) else { break };
        rest = rest.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
        let last = rest.strip_prefix('-').and_then(|tail| {
            let last = u32::try_from(number(tail)?).ok()?;
            rest = tail.trim_start_matches(|c: char| c.is_ascii_digit());
            Some(last)
        });
        let last = last.unwrap_or(first).min(first.saturating_add(u32::try_from(max).unwrap_or(u32::MAX)));
        out.extend(first..=last.max(first));
        rest = rest.trim_start_matches([' ', ',']).trim_start_matches("and ").trim_start();
    }
    out.truncate(max);
    out
}

/// What follows a terminal sequence (ECMA-48) of which `text` begins behind the escape.
fn behind_sequence(text: &str) -> &str {
    let Some(kind) = text.chars().next() else { return text };
    let end = match kind {
        '[' => text[1..].find(|c: char| ('@'..='~').contains(&c)).map(|at| at + 2),
        // Titles and the like: up to a bell, or to the escape of the string's end, whose backslash is left then.
        ']' | 'P' | 'X' | '^' | '_' => text.find(['\u{7}', '\u{1b}']),
        // A character set: two characters. Anything else: one.
        ' '..='/' => text.char_indices().nth(2).map(|(at, _)| at),
        _ => Some(kind.len_utf8()),
    };
    &text[end.unwrap_or(text.len())..]
}

/// A text without terminal sequences and control characters, and not longer than `max` bytes.
pub(super) fn clean(text: &str, max: usize) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        rest = &rest[c.len_utf8()..];
        if c == '\u{1b}' {
            rest = behind_sequence(rest);
        } else if c == '\t' {
            out.push(' ');
        } else if !c.is_control() {
            out.push(c);
        }
        if out.len() >= max {
            break;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_sequences_leave_nothing() {
        for (text, left) in [
            ("\u{1b}[31mred\u{1b}[0m", "red"),
            ("\u{1b}]0;my title\u{7}step 4", "step 4"),
            ("\u{1b}]8;;http://x\u{1b}\\link\u{1b}]8;;\u{1b}\\", "link"),
            ("\u{1b}(Bplain\u{1b}7", "plain"),
            ("cut \u{1b}]0;never ends", "cut "),
            ("cut \u{1b}[12", "cut "),
            ("a\tb\u{8}c", "a bc"),
        ] {
            assert_eq!(clean(text, 100), left, "{text:?}");
        }
    }

    #[test]
    fn numbers_words_and_lists_are_found() {
        assert_eq!(number_after("last completed work: -1.", "completed work:"), Some(-1));
        assert_eq!(number_after("work: x", "work:"), None);
        assert_eq!(number("99999999999999999999"), None);
        assert_eq!(between("hca mlx5_1 x", "hca ", " "), Some("mlx5_1"));
        assert_eq!(word(" a.b,c", &[',']), "a.b");
        assert_eq!(list("2, 5 and 7 failed", 8), [2, 5, 7]);
        assert_eq!(list("3-5,9: Killed", 8), [3, 4, 5, 9]);
        assert_eq!(list("0-4294967295", 4), [0, 1, 2, 3]);
        assert_eq!(list("none", 4), Vec::<u32>::new());
    }

    #[test]
    fn escapes_are_taken_out() {
        assert_eq!(clean("\u{1b}[36m(Worker pid=7)\u{1b}[0m\tx\u{7}\u{1b}", 99), "(Worker pid=7) x");
        assert_eq!(clean("\u{1b}[", 9), "");
        assert_eq!(clean("abcdef", 3), "abc");
    }
}
