//! Bytes as text.

/// The bytes as text; what is no UTF-8 becomes `?`, byte by byte, so that a text never grows. Controls stay: whoever
/// prints a text escapes them (`mycroft_record::text::printable`).
pub(crate) fn valid(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| '?'));
    }
    text
}
