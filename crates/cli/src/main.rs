//! The `mycroft` command: from what was typed to what is run. No logic worth testing lives here.
#![forbid(unsafe_code)]

mod api;
mod args;
mod cases;
mod daemon;
mod demo;
mod doctor;
mod libraries;
mod live;
mod overhead;
mod replay;
mod stop;
mod table;
mod testbed;
mod watch;

use args::{Args, Command, TestbedCommand};
use clap::Parser;
use std::process::ExitCode;

/// Exit code: done, and nothing is wrong.
pub(crate) const EXIT_OK: u8 = 0;
/// Exit code: done, and something was found (an open case, a wrong verdict, a failed check).
pub(crate) const EXIT_FOUND: u8 = 1;
/// Exit code: it could not be done; one line on standard error says what and where.
pub(crate) const EXIT_ERROR: u8 = 2;
/// Exit code after Ctrl-C, as shells expect (128 + SIGINT).
pub(crate) const EXIT_INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let args = Args::parse();
    let outcome = match args.command {
        Command::Demo(args) => demo::demo(&args),
        Command::Testbed { command } => match command {
            TestbedCommand::Run(args) => testbed::run(&args),
            TestbedCommand::Table(args) => table::table(&args),
            TestbedCommand::Overhead(args) => overhead::overhead(&args),
            TestbedCommand::Clean => testbed::clean(),
            TestbedCommand::Rank(args) => testbed::rank(&args),
        },
        Command::Agent(args) => daemon::agent(&args),
        Command::Serve(args) => daemon::serve(&args),
        Command::Cases(args) => cases::cases(&args),
        Command::Watch(args) => watch::watch(&args),
        Command::Replay(args) => replay::replay(&args),
        Command::Doctor(args) => doctor::doctor(&args),
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("mycroft: {error:#}");
            ExitCode::from(EXIT_ERROR)
        }
    }
}
