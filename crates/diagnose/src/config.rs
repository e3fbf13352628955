//! Every threshold of the brain, with its default and where the default comes from.
use mycroft_record::{NANOS_PER_MS, NANOS_PER_SEC};

/// Thresholds and limits. `Config::default()` is what the product runs with.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Shortest time without progress that is called a stall, nanoseconds.
    pub stall_floor_ns: u64,
    /// The same before a baseline of healthy iterations exists, nanoseconds.
    pub stall_warmup_ns: u64,
}

impl Default for Config {
    fn default() -> Config {
        Config { stall_floor_ns: 900 * NANOS_PER_MS, stall_warmup_ns: 10 * NANOS_PER_SEC }
    }
}
