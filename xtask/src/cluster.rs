//! `cargo xtask cluster`: brokers, database, servers and agents on this machine, and what happens when one of them is killed.
use crate::run::{run, target_dir};
use crate::testing::FEATURES;
use anyhow::Result;
use std::path::Path;

/// What to play.
#[derive(clap::Args)]
pub(crate) struct ClusterArgs {
    /// Kill brokers, a server, the database and an agent in turn, so many times in all, and print what came of it. Without it one
    /// fault is shown, whose server is killed.
    #[arg(long)]
    rounds: Option<u64>,
    /// From which it is drawn when, for how long, and which one.
    #[arg(long, default_value_t = 1, requires = "rounds")]
    seed: u64,
    /// Play with this topic of brokers that are there, kafka://HOST:PORT/TOPIC, instead of librdkafka's own in the program that plays. They
    /// are not killed.
    #[arg(long)]
    brokers: Option<String>,
}

/// Builds the product with a bus, and the program that plays (`crates/cli/examples/cluster`), which ends all that it starts.
pub(crate) fn cluster(root: &Path, args: &ClusterArgs) -> Result<()> {
    // As `test` builds, so that neither builds anew what the other has.
    let build = ["build", "--workspace", "--features", FEATURES, "--bin", "mycroft", "--example", "cluster"];
    run(root, "cargo", &build)?;
    let built = target_dir(root).join("debug");
    let (player, mycroft) = (built.join("examples/cluster"), built.join("mycroft"));
    let (player, mycroft) = (player.to_string_lossy(), mycroft.to_string_lossy());
    let (seed, topic) = (args.seed.to_string(), args.brokers.as_deref());
    let play = match args.rounds.map(|rounds| rounds.to_string()) {
        None => vec!["show".to_owned(), mycroft.to_string()],
        Some(rounds) => vec!["rounds".to_owned(), mycroft.to_string(), rounds, seed],
    };
    let play: Vec<&str> = play.iter().map(String::as_str).chain(topic).collect();
    run(root, &player, &play)
}
