//! House tools: `cargo xtask test` (everything a change must pass), `demo`, `tidy` (edges and house rules), `bench`, `cluster` (servers
//! on a bus, killed), `web` (the pages in a browser), `torch` (PyTorch on the testbed), `dist` (what is handed out).
#![forbid(unsafe_code)]

mod bench;
mod calls;
mod cluster;
mod dist;
mod run;
mod testing;
mod tidy;
mod tools;
mod torch;
mod web;

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// House tools of Mycroft.
#[derive(Parser)]
#[command(name = "cargo xtask", max_term_width = 110)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build everything, then run format, house rules, lints and all tests. Installs what is missing.
    Test(testing::TestArgs),
    /// Build everything and run `mycroft demo`; what follows is passed on (try `-- --fault gpu-power`).
    Demo {
        /// Arguments for `mycroft demo`.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Check crate edges and house rules.
    Tidy(tidy::TidyArgs),
    /// Measure: prints ratios side by side and writes docs/results.
    Bench(bench::BenchArgs),
    /// Play traces of profiler calls into the tracer and print a table; exit 0 only when all are right.
    Calls(calls::CallsArgs),
    /// Run brokers, database, two servers and four agents on this machine, and kill them.
    Cluster(cluster::ClusterArgs),
    /// Run the tests of the pages in a real browser, installing one where there is none.
    Web(web::WebArgs),
    /// Install Python with torch into the target folder, for the PyTorch programs of the testbed.
    Torch(torch::TorchArgs),
    /// Build what is handed out into target/dist: programs for an old C library, archive, Debian package, Python wheel.
    Dist(dist::DistArgs),
}

fn main() -> anyhow::Result<()> {
    let root = repo_root();
    match Args::parse().command {
        Command::Test(args) => {
            web::install_browser(&root);
            torch::install_for_tests(&root);
            testing::test(&root, &args)
        }
        Command::Demo { args } => testing::demo(&root, &args),
        Command::Tidy(args) => tidy::tidy(&root, &args),
        Command::Bench(args) => bench::bench(&root, &args),
        Command::Calls(args) => calls::calls(&root, &args),
        Command::Cluster(args) => cluster::cluster(&root, &args),
        Command::Web(args) => web::web(&root, &args),
        Command::Torch(args) => torch::torch(&root, &args),
        Command::Dist(args) => dist::dist(&root, &args),
    }
}

/// The checkout's root: the parent of this crate.
fn repo_root() -> PathBuf {
    let mut path = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    path.pop();
    path
}
