//! Plays one trace of profiler calls into the plugin and says what the segment then holds (`docs/formats/calls.md`).
//!
//! `calls FILE.jsonl` prints a line a deviation and a summary; it exits 0 exactly when there is no deviation.
#![allow(missing_docs, unreachable_pub)]
mod check;
#[path = "../../tests/driver/mod.rs"]
mod driver;
mod play;
mod trace;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(file) = std::env::args_os().nth(1) else {
        eprintln!("usage: calls FILE.jsonl (with MYCROFT_DIR naming a folder for the segment)");
        return ExitCode::from(2);
    };
    match check::check(Path::new(&file)) {
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
        Ok(outcome) => {
            outcome.deviations.iter().for_each(|deviation| println!("deviation\t{deviation}"));
            println!("summary\t{}", outcome.summary);
            if outcome.deviations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
    }
}
