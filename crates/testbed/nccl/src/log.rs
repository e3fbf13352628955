//! NCCL_DEBUG: one line on stderr, only when asked for (warnings at WARN and above, information at INFO).

use std::io::Write;
use std::sync::OnceLock;

fn level() -> u8 {
    static LEVEL: OnceLock<u8> = OnceLock::new();
    *LEVEL.get_or_init(|| match std::env::var("NCCL_DEBUG").unwrap_or_default().to_ascii_uppercase().as_str() {
        "VERSION" => 1,
        "WARN" => 2,
        "INFO" => 3,
        "TRACE" => 5,
        _ => 0,
    })
}

/// Says what went wrong, at NCCL_DEBUG=WARN.
pub(crate) fn warn(message: &str) {
    line(2, "WARN", message);
}

/// Says what happened, at NCCL_DEBUG=INFO.
pub(crate) fn info(message: &str) {
    line(3, "INFO", message);
}

fn line(needed: u8, word: &str, message: &str) {
    if level() >= needed {
        let _ = writeln!(std::io::stderr(), "{}: NCCL(testbed) {word} {message}", std::process::id());
    }
}
