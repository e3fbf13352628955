//! The job: a Megatron-like training loop that each rank process runs (Mycroft section 7.1's workload in small).
//!
//! TP AllReduces in every layer forward and backward, activations and gradients between pipeline stages in 1F1B order,
//! expert exchanges as grouped uneven sends where asked for, then gradients over DP. Compute is a kernel of a set
//! duration on the emulated device. The host enqueues a whole iteration ahead and synchronizes once at its end, as
//! training loops do. Every iteration checks elements of what was received.
pub mod change;
pub mod groups;
pub mod step;
mod weights;

use crate::board::Board;
use crate::error::TestbedError;
use crate::library::{NCCL_SONAME, Nccl};
use change::Change;
use groups::Groups;
use mycroft_sim::{Random, Scenario};
use mycroft_testbed_nccl::control::ControlFile;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tracing::error;

/// Name of the scenario's file in the run directory.
pub(crate) const PLAN_FILE: &str = "scenario.json";
/// Name of the fault control block in the run directory.
pub(crate) const CONTROL_FILE: &str = "control";
/// Name of the board in the run directory.
pub(crate) const BOARD_FILE: &str = "board";
/// How often a rank whose collectives broke looks whether it may end.
const PARKED_POLL: Duration = Duration::from_millis(100);
/// How long a rank that is done waits for the others: a few slow iterations.
const LEAVE_LIMIT: Duration = Duration::from_secs(20);
/// How often it looks meanwhile.
const LEAVE_POLL: Duration = Duration::from_millis(2);

/// Exit code of a rank whose job ended in order.
pub const EXIT_CLEAN: i32 = 0;
/// Exit code of a rank that could not start or whose collectives broke.
pub const EXIT_FAILED: i32 = 1;
/// Exit code of a rank that received wrong data.
pub const EXIT_WRONG_DATA: i32 = 3;

/// What a rank process needs to know; the rest lies in the run directory.
#[derive(Clone, Debug)]
pub struct RankArgs {
    /// Directory that the launcher made.
    pub run_dir: PathBuf,
    /// Global rank.
    pub rank: u32,
}

impl RankArgs {
    /// Reads the arguments that the launcher appended to the rank command: `--run-dir DIR --rank N`. Anything before
    /// them is skipped. The error names what is missing.
    ///
    /// # Errors
    /// Names the argument that is missing or cannot be read.
    pub fn parse(arguments: &[String]) -> Result<RankArgs, String> {
        let value = |name: &str| {
            let at = arguments.iter().position(|argument| argument == name);
            at.and_then(|at| arguments.get(at + 1)).ok_or_else(|| format!("{name} is missing: the launcher gives it"))
        };
        let rank = value("--rank")?;
        let rank = rank.parse().map_err(|_| format!("--rank {rank}: expected a number"))?;
        Ok(RankArgs { run_dir: value("--run-dir")?.into(), rank })
    }
}

/// Runs one rank until the launcher stops the job; gives the exit code. What goes wrong is told with `tracing`.
pub fn rank_main(args: &RankArgs) -> i32 {
    match run(args) {
        Ok(()) => EXIT_CLEAN,
        Err(error) => {
            error!(rank = args.rank, %error, "rank {}: {error}", args.rank);
            match error {
                TestbedError::WrongData { .. } => EXIT_WRONG_DATA,
                _ => EXIT_FAILED,
            }
        }
    }
}

fn run(args: &RankArgs) -> Result<(), TestbedError> {
    let scenario = read_plan(&args.run_dir)?;
    let board = Board::open(&args.run_dir.join(BOARD_FILE))?;
    let control_path = args.run_dir.join(CONTROL_FILE);
    let control =
        ControlFile::open(&control_path).map_err(|source| TestbedError::file("open", control_path, source))?;
    let nccl = Nccl::load(&args.run_dir.join(NCCL_SONAME))?;
    if scenario.start_skew_ms > 0 {
        let skew = Random::stream(scenario.seed, u64::from(args.rank)).below(scenario.start_skew_ms);
        std::thread::sleep(Duration::from_millis(skew));
    }
    let mut place = Place::first(&nccl, &scenario, args)?;
    let mut job = step::Job::new(&nccl, &scenario, args.rank, place.number)?;
    let rank = args.rank as usize;
    let mut iteration = 0u64;
    while !board.is_stopped(iteration) {
        if let Some((on, _)) = board.switch(iteration) {
            nccl.give_events(on);
        }
        let (begun, processor) = (Instant::now(), processor_ns());
        if let Some(change) = board.change(iteration).filter(|change| *change != place.change) {
            place = place.changed(&nccl, &scenario, args, change, &mut job)?;
        }
        let outcome = job.iteration(&place.groups, iteration).and_then(|()| place.groups.healthy(&nccl));
        if let Err(error) = outcome {
            if matches!(error, TestbedError::WrongData { .. }) {
                return Err(error);
            }
            return park(&board, iteration, error);
        }
        iteration += 1;
        let micros = u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX);
        board.finish(rank, micros, u32::try_from(processor_ns() - processor).unwrap_or(u32::MAX));
        control.rank(rank).iteration.store(iteration, Ordering::Relaxed);
        let due = scenario.checkpoint_every;
        if due > 0 && iteration.is_multiple_of(u64::from(due)) {
            std::thread::sleep(Duration::from_millis(scenario.checkpoint_ms));
        }
    }
    wait_for_peers(&board);
    place.groups.leave(&nccl)
}

/// Where in the layout a rank is.
struct Place {
    number: u32,
    groups: Groups,
    /// Number and content of the change of the job that put it there.
    change: u64,
    of: Change,
}

impl Place {
    fn first(nccl: &Nccl, scenario: &Scenario, args: &RankArgs) -> Result<Place, TestbedError> {
        let groups = Groups::join(nccl, scenario, &args.run_dir, args.rank, 0)?;
        Ok(Place { number: args.rank, groups, change: 0, of: Change::none(scenario) })
    }

    /// Carries out change `number` of the job, as all ranks do before the same iteration. Where positions change, weights move
    /// through memory to who takes the position, and communicators are made anew.
    fn changed<'a>(
        mut self,
        nccl: &'a Nccl,
        scenario: &'a Scenario,
        args: &RankArgs,
        number: u64,
        job: &mut step::Job<'a>,
    ) -> Result<Place, TestbedError> {
        let change = Change::read(&args.run_dir, number)?;
        if change.positions != self.of.positions {
            let moved = weights::Moved { run_dir: &args.run_dir, number, channels: scenario.channels };
            let weights = moved.through(nccl, args.rank, (&self.of, &change), job.take_weights())?;
            self.groups.leave(nccl)?;
            self.number = change.positions[args.rank as usize];
            self.groups = Groups::join(nccl, scenario, &args.run_dir, self.number, number)?;
            *job = step::Job::new(nccl, scenario, args.rank, self.number)?;
            job.give_weights(weights);
        }
        job.divide(&change.micro_batches);
        Ok(Place { change: number, of: change, ..self })
    }
}

/// Processor time of this process so far, all threads, nanoseconds.
fn processor_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of this frame; every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32).as_nanos() as u64
}

/// Training loops meet in a barrier before they tear communicators down; so do these ranks, on the board.
fn wait_for_peers(board: &Board) {
    let begun = Instant::now();
    while !board.all_stopped() && begun.elapsed() < LEAVE_LIMIT {
        std::thread::sleep(LEAVE_POLL);
    }
}

/// A rank whose peer died does what most training jobs do: it hangs until somebody ends it.
fn park(board: &Board, iteration: u64, error: TestbedError) -> Result<(), TestbedError> {
    error!(iteration, %error, "iteration {iteration}: {error}; waiting to be ended");
    while !board.is_stopped(u64::MAX - 1) {
        std::thread::sleep(PARKED_POLL);
    }
    Err(error)
}

fn read_plan(run_dir: &Path) -> Result<Scenario, TestbedError> {
    let path = run_dir.join(PLAN_FILE);
    let text = std::fs::read(&path).map_err(|source| TestbedError::file("read", &path, source))?;
    serde_json::from_slice(&text).map_err(|error| TestbedError::file("understand", &path, error.into()))
}
