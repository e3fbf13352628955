//! Every threshold of the brain, with its default and where the default comes from.
use mycroft_record::{NANOS_PER_MS, NANOS_PER_SEC};

/// Thresholds and limits. `Config::default()` is what the product runs with; the paper's constants are kept where the
/// job's own spread has not tightened them.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Shortest time without progress that is called a stall. 0.9 s + 0.1 s sample + 0.1 s ship + 0.1 s transit leaves
    /// 0.8 s of the promised 2 s.
    pub stall_floor_ns: u64,
    /// The same before a baseline of healthy iterations exists: first iterations compile, allocate and connect.
    pub stall_warmup_ns: u64,
    /// Without a baseline, ranks that have not come, or whose devices compute, are waited for for so long: ranks start up to half a
    /// minute apart, load data and compile, and iterations may be as long.
    pub stall_start_ns: u64,
    /// A stall is this many times the longest healthy wait.
    pub stall_wait_factor: u64,
    /// A rank whose agent has not looked for this long, against the newest look of all, has no data: unknown.
    pub no_data_after_ns: u64,
    /// Iterations that make a baseline.
    pub baseline_min: usize,
    /// Iteration time over the baseline median that is slow, at least. The paper's value is 2.0 (interval doubles).
    pub slow_factor_floor: f64,
    /// How many median absolute deviations over the median are slow. Four are 2.7 sigma of a normal spread; three such
    /// iterations of four by chance are one in a million, and a case needs a component that explains them besides.
    pub slow_mads: f64,
    /// Slow iterations among the last `slow_window` that trigger.
    pub slow_needed: usize,
    /// See `slow_needed`.
    pub slow_window: usize,
    /// The paper's straggler rule (section 4.3), used while no iteration is known to be healthy.
    pub paper_slow_factor: f64,
    /// An iteration longer than usual by this is a pause. Below the 1 s of the paper's section 5.2, because a 1 s sleep
    /// hides partly behind other waiting.
    pub pause_ns: u64,
    /// Longest stage of a step that shows a pause in a flow.
    pub pause_stage_us: u32,
    /// Pauses within this time belong together.
    pub pause_window_ns: u64,
    /// A stall that resolves itself sooner than this, alone in `pause_window_ns`, is a transient and no case.
    pub transient_ns: u64,
    /// Healthy iterations after which a slowdown is over.
    pub recover_iterations: usize,
    /// Sampled ranks (paper section 4.3: at most 10).
    pub sampled_ranks: usize,
    /// NIC bytes over the job's own bytes that mean other traffic.
    pub foreign_traffic_factor: f64,
    /// A rank that enters this much later than its peers is late (paper section 5.2: one second).
    pub late_ns: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            stall_floor_ns: 900 * NANOS_PER_MS,
            stall_warmup_ns: 10 * NANOS_PER_SEC,
            stall_start_ns: 60 * NANOS_PER_SEC,
            stall_wait_factor: 3,
            no_data_after_ns: 1_500 * NANOS_PER_MS,
            baseline_min: 3,
            slow_factor_floor: 1.25,
            slow_mads: 4.0,
            slow_needed: 3,
            slow_window: 4,
            paper_slow_factor: 2.0,
            pause_ns: 700 * NANOS_PER_MS,
            pause_stage_us: 500_000,
            pause_window_ns: 60 * NANOS_PER_SEC,
            transient_ns: 2 * NANOS_PER_SEC,
            recover_iterations: 5,
            sampled_ranks: 10,
            foreign_traffic_factor: 2.0,
            late_ns: NANOS_PER_SEC,
        }
    }
}
