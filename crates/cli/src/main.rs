//! The `mycroft` command: from what was typed to what is run. No logic worth testing lives here.
#![forbid(unsafe_code)]

mod actions;
mod api;
mod args;
mod args_testbed;
mod autopsy;
mod backup;
mod bus;
mod cases;
mod check;
mod collect;
mod config;
mod daemon;
mod demo;
mod doctor;
mod dump;
mod exit;
mod export;
mod files;
mod fleet;
mod flow;
mod keys;
mod libraries;
mod lines;
mod live;
mod log;
mod meta;
mod mitigate;
mod overhead;
mod pages;
mod peculiar;
mod plugin;
mod progress;
mod reach;
mod recorded;
mod records;
mod regain;
mod replay;
mod secure;
mod segment_dir;
mod sim;
mod stop;
mod switched;
mod table;
mod testbed;
mod times;
mod token;
mod tokens;
mod told;
mod torch;
mod typed;
mod validate;
mod watch;
mod whole;

use args::Command;
use args_testbed::TestbedCommand;
use config::Refused;
use exit::{EXIT_ERROR, EXIT_OK};
use log::in_one_line;
use sim::args::SimCommand;
use std::ffi::OsString;
use std::process::ExitCode;

/// A server takes batches on one thread and drops them on another, millions of records a second (docs/decisions/009).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let typed: Vec<OsString> = std::env::args_os().collect();
    let args = match config::parse(&typed) {
        Ok(args) => args,
        Err(Refused::Typed(error, places)) => return refuse(&error, &places),
        Err(Refused::File(error)) => return failed(&error),
    };
    let outcome = match args.command {
        Command::Demo(args) => {
            log::begin_testbed();
            demo::demo(&args)
        }
        Command::Testbed { command } => {
            log::begin_testbed();
            real(command)
        }
        Command::Sim { command } => match command {
            SimCommand::Run(args) => sim::run(&args),
            SimCommand::Score(args) => sim::score(&args),
            SimCommand::Corpus(args) => sim::corpus(&args),
            SimCommand::Act(args) => sim::act(&args),
        },
        Command::Agent(args) => daemon::agent(&args),
        Command::Serve(args) => daemon::serve(&args),
        Command::Validate(args) => validate::validate(&args),
        Command::Hold(args) => validate::hold(&args),
        Command::Collect(args) => collect::collect(&args),
        Command::Cases(args) => cases::cases(&args),
        Command::Mitigate(args) => mitigate::mitigate(&args),
        Command::Actions(args) => actions::actions(&args),
        Command::Autopsy(args) => autopsy::autopsy(&args),
        Command::Flow(args) => flow::flow(&args),
        Command::Watch(args) => watch::watch(&args),
        Command::Replay(args) => replay::replay(&args),
        Command::Export(args) => export::export(&args),
        Command::Backup(args) => backup::backup(&args),
        Command::Config { command } => config::config(&command),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::Dump(args) => dump::dump(&args),
        Command::Token { command } => tokens::token(command),
        Command::Completions { shell } => pages::completions(shell),
        Command::Man { dir } => pages::man(&dir),
        Command::Spy { pids } => {
            mycroft_agent::spy(&pids);
            Ok(EXIT_OK)
        }
    };
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(error) if is_closed_pipe(&error) => ExitCode::from(EXIT_OK),
        Err(error) => failed(&error),
    }
}

fn failed(error: &anyhow::Error) -> ExitCode {
    eprintln!("mycroft: {}", in_one_line(error));
    ExitCode::from(EXIT_ERROR)
}

/// Real jobs on this machine.
fn real(command: TestbedCommand) -> anyhow::Result<u8> {
    match command {
        TestbedCommand::Run(args) => testbed::run(&args),
        TestbedCommand::Torch(args) => torch::asked(&args).and_then(|(job, how)| testbed::play(job, how, args.json)),
        TestbedCommand::Table(args) => table::table(&args),
        TestbedCommand::Overhead(args) => overhead::overhead(&args),
        TestbedCommand::Mitigate(args) => regain::regain(&args),
        TestbedCommand::Clean => testbed::clean(),
        TestbedCommand::Rank(args) => testbed::rank(&args),
    }
}

/// Help and version as clap prints them; what was typed wrong in one line, with where flags stand that nobody typed.
fn refuse(error: &clap::Error, places: &[String]) -> ExitCode {
    if !error.render().to_string().starts_with("error:") {
        // Asked for help, or typed nothing. A closed pipe is nothing to complain about.
        let _ = error.print();
        return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(EXIT_ERROR));
    }
    let said: Vec<&str> = places.iter().map(String::as_str).chain(["see --help"]).collect();
    eprintln!("mycroft: {}; {}", typed::in_one_line(error), said.join("; "));
    ExitCode::from(EXIT_ERROR)
}

/// Whether whoever reads standard output has seen enough, as `head` does. (Sockets have errors of their own types.)
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}
