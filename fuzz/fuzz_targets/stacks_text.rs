//! Any bytes as `rank_3.txt`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mycroft_fuzz::check::check("rank_3.txt", bytes));
