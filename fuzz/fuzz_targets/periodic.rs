//! Any bytes as `stacks_20261121_092309.txt`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mycroft_fuzz::check::check("stacks_20261121_092309.txt", bytes));
