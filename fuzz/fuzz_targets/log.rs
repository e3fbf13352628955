//! Any bytes as `job.log`, whole and in pieces.
#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    mycroft_fuzz::check::check("job.log", bytes);
    mycroft_fuzz::check::in_pieces("job.log", bytes);
});
