//! Text as PostgreSQL takes it: all but NUL, which a name of a job may hold in SQLite.

/// Stands before `0` for NUL, and before `1` for itself. No name that a person gives holds it.
const ESCAPE: char = '\u{1}';

/// As it is written.
pub(super) fn kept(text: &str) -> String {
    if !text.contains(['\0', ESCAPE]) {
        return text.to_owned();
    }
    let each = text.chars().map(|c| match c {
        '\0' => format!("{ESCAPE}0"),
        ESCAPE => format!("{ESCAPE}1"),
        other => other.to_string(),
    });
    each.collect()
}

/// As it was.
pub(super) fn told(text: String) -> String {
    if !text.contains(ESCAPE) {
        return text;
    }
    let mut chars = text.chars();
    let mut whole = String::with_capacity(text.len());
    while let Some(c) = chars.next() {
        match (c == ESCAPE).then(|| chars.next()) {
            None => whole.push(c),
            Some(Some('0')) => whole.push('\0'),
            Some(_) => whole.push(ESCAPE),
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_comes_back() {
        for text in ["", "train", "a\0b", "\0", "\u{1}", "\u{1}0", "\0\u{1}\u{1}1\0", "caf\u{e9}"] {
            let kept = kept(text);
            assert!(!kept.contains('\0'), "{kept:?}");
            assert_eq!(told(kept), text);
        }
    }
}
