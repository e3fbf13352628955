//! Any bytes as `comm_lib_trace_rank_3`.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| mycroft_fuzz::check::check("comm_lib_trace_rank_3", bytes));
