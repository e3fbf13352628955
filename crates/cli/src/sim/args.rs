//! Flags of `mycroft sim`.
use crate::args_testbed::ShapeArgs;
use clap::{Subcommand, value_parser};
use mycroft_sim::{DpMode, Family, Schedule};
use std::path::PathBuf;

/// Most threads: each holds a simulation and a brain.
const JOBS_MAX: u64 = 256;

#[derive(Subcommand, Debug)]
pub(crate) enum SimCommand {
    /// Simulates one job, diagnoses it, and scores the verdict against the truth (exit 0 exactly when correct).
    ///
    /// Flags override the fields of the file. The same scenario gives the same records and the same report on any
    /// machine; with --out the records are kept, and `mycroft replay DIR` gives that report again.
    #[command(after_help = "Examples:
  mycroft sim run scenarios/gpu-hang-16.toml
  mycroft sim run --ranks 1024 --tp 8 --pp 4 --fault gpu-power@host3:rank25,severity=3 --seed 7
  mycroft sim run --swarm 17 --family pulse --out /tmp/run-17")]
    Run(SimRunArgs),
    /// Plays scenarios drawn from seeds and scores every verdict (exit 0 exactly when nothing failed).
    ///
    /// Even the options of a scenario (shape, sizes, algorithm, jitter, clocks, fault, place, severity) come from its
    /// seed. Each failing seed is listed with the command that plays it again.
    #[command(after_help = "Examples:
  mycroft sim score --seeds 0..1000 --write docs/results/accuracy.md
  mycroft sim score --seeds 0..100 --family healthy --json
  mycroft sim score --families slow,steady --seeds 0..1000 --write slow.md --lines slow.jsonl --svg slow.svg")]
    Score(ScoreArgs),
    /// Writes a labelled corpus of training anomalies: records in Parquet, the truth in JSON.
    ///
    /// For detectors of any kind. The same seeds give the same bytes.
    #[command(after_help = "Example: mycroft sim corpus --out corpus --seeds 0..200")]
    Corpus(CorpusArgs),
    /// Plays a job with faults twice, without plans and with them carried out, and says what they win back.
    ///
    /// Plans are made from what is measured of the simulated job, not from its faults; the job goes on as the plan has it.
    /// Without a scenario: the traces of FALCON's figures 15, 17 and 20.
    #[command(after_help = "Examples:
  mycroft sim act --write docs/results/mitigation-acted.md
  mycroft sim act two-faults.toml --split-cost 1 --move-cost 10 --restart-cost 600")]
    Act(ActArgs),
}

#[derive(clap::Args, Debug, Clone)]
pub(crate) struct ActArgs {
    /// Scenario file with the faults and a duration; healthy for its first ten iterations or so.
    pub(crate) scenario: Option<PathBuf>,
    /// Seconds of the job that another division of micro-batches costs.
    #[arg(long, default_value_t = 5.0, requires = "scenario")]
    pub(crate) split_cost: f64,
    /// Seconds for which the job pauses while hosts change places.
    #[arg(long, default_value_t = 60.0, requires = "scenario")]
    pub(crate) move_cost: f64,
    /// Seconds that a checkpoint and a restart cost.
    #[arg(long, default_value_t = 1800.0, requires = "scenario")]
    pub(crate) restart_cost: f64,
    /// Write the page to this file, too.
    #[arg(long, value_name = "FILE", conflicts_with = "scenario")]
    pub(crate) write: Option<PathBuf>,
}

/// Seeds from the first up to but not including the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Seeds {
    /// The first.
    pub(crate) first: u64,
    /// One beyond the last.
    pub(crate) end: u64,
}

/// Most seeds of one command: a million.
const SEEDS_MAX: u64 = 1_000_000;
/// Greatest seed: JSON readers keep integers up to 2^53.
const SEED_MAX: u64 = 1 << 53;

impl std::str::FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> Result<Seeds, String> {
        const FORM: &str = "expected A..B (from A up to but not including B) or one seed";
        let number = |digits: &str| digits.parse::<u64>().map_err(|_| FORM.to_owned());
        let (first, end) = match text.split_once("..") {
            Some((first, end)) => (number(first)?, number(end)?),
            None => number(text).map(|one| (one, one.saturating_add(1)))?,
        };
        if first >= end {
            return Err(format!("no seed in it; {FORM}"));
        }
        if end > SEED_MAX || end - first > SEEDS_MAX {
            return Err(format!("expected at most {SEEDS_MAX} seeds, all below {SEED_MAX}"));
        }
        Ok(Seeds { first, end })
    }
}

impl std::fmt::Display for Seeds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}..{}", self.first, self.end)
    }
}

#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct SimRunArgs {
    /// Scenario file; flags override its fields.
    pub(crate) scenario: Option<PathBuf>,
    /// The scenario that `mycroft sim score` draws from this seed.
    #[arg(long, value_name = "SEED", conflicts_with = "scenario", value_parser = value_parser!(u64).range(..SEED_MAX))]
    pub(crate) swarm: Option<u64>,
    /// Family of --swarm; without it the seed chooses.
    #[arg(long, requires = "swarm")]
    pub(crate) family: Option<Family>,
    /// Ranks in all: hosts of 8, tensor parallel over a host, data parallel over the rest, unless told otherwise.
    #[arg(long, conflicts_with = "hosts")]
    pub(crate) ranks: Option<u32>,
    #[command(flatten)]
    pub(crate) shape: ShapeArgs,
    /// Context parallel size.
    #[arg(long)]
    pub(crate) cp: Option<u32>,
    /// Expert parallel size; with --moe.
    #[arg(long)]
    pub(crate) ep: Option<u32>,
    /// How gradients are combined: reduce-scatter, all-reduce or fsdp.
    #[arg(long)]
    pub(crate) dp_mode: Option<DpMode>,
    /// Order of the micro-batches: one-f-one-b or interleaved.
    #[arg(long)]
    pub(crate) schedule: Option<Schedule>,
    /// Chunks of layers per stage, for the interleaved schedule.
    #[arg(long)]
    pub(crate) virtual_stages: Option<u32>,
    /// Fault (repeatable): KIND@hostN[:rankR][,severity=X][,after=S][,lasts=S][,ramp=S][,every=S], or `none`; replaces
    /// those of the file. An unknown kind is answered with the list.
    #[arg(long)]
    pub(crate) fault: Vec<String>,
    /// Seconds of healthy training before the faults.
    #[arg(long)]
    pub(crate) after: Option<f64>,
    /// Seconds of training in all.
    #[arg(long)]
    pub(crate) duration: Option<f64>,
    /// Seed of every random choice.
    #[arg(long, value_parser = value_parser!(u64).range(..SEED_MAX))]
    pub(crate) seed: Option<u64>,
    /// Keep the records (a recording that `mycroft replay` reads), truth.json and scenario.toml in this new folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(clap::Args, Debug)]
pub(crate) struct ScoreArgs {
    /// Seeds: A..B, from A up to but not including B; or one.
    #[arg(long, value_name = "A..B", default_value = "0..100")]
    pub(crate) seeds: Seeds,
    /// Only this family of scenarios: healthy, mycroft, pulse, falcon, flight-recorder, infrastructure or compound;
    /// without it each seed chooses.
    #[arg(long)]
    pub(crate) family: Option<Family>,
    /// Several families, each with all seeds, in tables by what a fault costs, by kind and by onset: slow, steady.
    #[arg(long, value_name = "FAMILY,..", value_delimiter = ',', conflicts_with_all = ["family", "keep"])]
    pub(crate) families: Vec<Family>,
    /// With --families: one JSON object for each seed, a line each.
    #[arg(long, value_name = "FILE", requires = "families")]
    pub(crate) lines: Option<PathBuf>,
    /// With --families: recall against cost as a picture (SVG).
    #[arg(long, value_name = "FILE", requires = "families")]
    pub(crate) svg: Option<PathBuf>,
    /// Scenarios at a time; default: one for each processor.
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=JOBS_MAX))]
    pub(crate) jobs: Option<u64>,
    /// Keep records, truth and scenario of each failing seed under this folder.
    #[arg(long, value_name = "DIR")]
    pub(crate) keep: Option<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the result as a page (Markdown) too.
    #[arg(long, value_name = "FILE")]
    pub(crate) write: Option<PathBuf>,
}

#[derive(clap::Args, Debug)]
pub(crate) struct CorpusArgs {
    /// New folder to fill.
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Seeds: A..B, from A up to but not including B; or one.
    #[arg(long, value_name = "A..B", default_value = "0..100")]
    pub(crate) seeds: Seeds,
    /// Only this family of scenarios: healthy, mycroft, pulse, falcon, flight-recorder, infrastructure or compound;
    /// without it each seed chooses.
    #[arg(long)]
    pub(crate) family: Option<Family>,
    /// Scenarios at a time; default: one for each processor.
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..=JOBS_MAX))]
    pub(crate) jobs: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_seeds() {
        assert_eq!("3..7".parse(), Ok(Seeds { first: 3, end: 7 }));
        assert_eq!("17".parse(), Ok(Seeds { first: 17, end: 18 }));
        assert_eq!("3..7".parse::<Seeds>().unwrap().to_string(), "3..7");
        for wrong in ["", "..", "7..7", "8..7", "a..b", "-1..3", "1..", "0..2000000", "9007199254740993"] {
            assert!(wrong.parse::<Seeds>().unwrap_err().contains("expected"), "{wrong}");
        }
    }
}
