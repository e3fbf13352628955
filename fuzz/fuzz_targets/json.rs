//! Any bytes as `trace_3.json`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mycroft_fuzz::check::check("trace_3.json", bytes));
