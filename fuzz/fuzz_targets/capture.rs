//! Any bytes as a capture, whole and in pieces.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mycroft_fuzz::check::capture(bytes));
