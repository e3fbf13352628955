//! Jobs whose rank processes are the test binary again.
use mycroft_sim::Scenario;
use mycroft_testbed::{LaunchConfig, RankArgs, Running, Testbed, Tracer, rank_main};
use std::ffi::OsString;

/// Runs one test of this binary with further arguments after it.
pub(crate) fn this_binary(test: &str) -> Vec<OsString> {
    let me = std::env::current_exe().unwrap().into_os_string();
    vec![me, "--exact".into(), test.into(), "--nocapture".into(), "--".into()]
}

/// The process of one rank, when the launcher appended its arguments; the test `rank_process` of a binary is this.
pub(crate) fn be_a_rank() {
    let arguments: Vec<String> = std::env::args().collect();
    if let Ok(args) = RankArgs::parse(&arguments) {
        tracing_subscriber::fmt().with_ansi(false).with_writer(std::io::stderr).init();
        std::process::exit(rank_main(&args));
    }
}

/// Starts a job without the tracer.
pub(crate) fn launch(scenario: Scenario) -> Running {
    let config = LaunchConfig { tracer: Tracer::Off, ..LaunchConfig::new(scenario, this_binary("rank_process")) };
    Testbed::launch(config).unwrap()
}
