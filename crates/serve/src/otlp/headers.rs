//! Header lines that a collector wants to see, from a file that nobody else reads.
use std::fmt;
use std::str::FromStr;

/// Most header lines: a key and a tenant are two.
const HEADERS_MAX: usize = 16;
/// Longest value: a signed token takes 2 KB.
const VALUE_BYTES_MAX: usize = 8_192;
/// What this program and its HTTP client say themselves.
const OURS: [&str; 8] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "transfer-encoding",
    "user-agent",
];

/// Headers of each POST to a collector, such as `Authorization: Bearer KEY`. Values are secrets: they do not show.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct OtlpHeaders(Vec<(String, String)>);

impl OtlpHeaders {
    /// Names and values.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

impl fmt::Debug for OtlpHeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl FromStr for OtlpHeaders {
    type Err = String;

    /// Lines `Name: value`; empty ones and those that begin with `#` are passed over. An error names a line and shows nothing of it.
    fn from_str(text: &str) -> Result<OtlpHeaders, String> {
        let mut lines = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            lines.push(header(line).map_err(|why| format!("line {number} {why}"))?);
        }
        if lines.len() > HEADERS_MAX {
            return Err(format!("has more than {HEADERS_MAX} headers"));
        }
        Ok(OtlpHeaders(lines))
    }
}

fn header(line: &str) -> Result<(String, String), &'static str> {
    let (name, value) = line.split_once(':').ok_or("is not `Name: value`")?;
    let value = value.trim();
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_') {
        return Err("has no name of letters, digits, - and _ before the colon");
    }
    if OURS.contains(&name.to_ascii_lowercase().as_str()) {
        return Err("names a header that mycroft sets itself");
    }
    if value.is_empty() || value.len() > VALUE_BYTES_MAX || !value.bytes().all(|b| b.is_ascii_graphic() || b == b' ') {
        return Err("has no value of printable ASCII characters (8,192 at most) behind the colon");
    }
    Ok((name.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_headers_and_values_do_not_show() {
        let text = "# the collector's key\n\nAuthorization: Bearer s3cret:x y\r\nx-scope-orgid:7\n";
        let headers: OtlpHeaders = text.parse().expect("right");
        let lines: Vec<_> = headers.lines().collect();
        assert_eq!(lines, [("Authorization", "Bearer s3cret:x y"), ("x-scope-orgid", "7")]);
        assert_eq!(format!("{headers:?}"), r#"["Authorization", "x-scope-orgid"]"#);
    }

    #[test]
    fn what_is_no_header_is_refused_by_its_line_and_not_shown() {
        for (text, words) in [
            ("s3cret", "line 1 is not"),
            ("# x\n: s3cret", "line 2 has no name"),
            ("a b: s3cret", "line 1 has no name"),
            ("key:", "line 1 has no value"),
            ("key: s3cret\u{fc}", "line 1 has no value"),
            ("key: s3cret\u{b}x", "line 1 has no value"),
            ("Content-Type: s3cret", "mycroft sets"),
            (&"key: s3cret\n".repeat(17), "more than 16"),
            (&format!("key: s3cret{}", "x".repeat(8_192)), "line 1 has no value"),
        ] {
            let refused = text.parse::<OtlpHeaders>().expect_err("must be refused");
            assert!(refused.contains(words) && !refused.contains("s3cret"), "{text}: {refused}");
        }
    }
}
