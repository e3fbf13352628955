//! Any bytes as `host_3.pt.trace.json`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mycroft_fuzz::check::check("host_3.pt.trace.json", bytes));
