//! What the kernel says that threads and processes have used.
use std::time::{Duration, Instant};

/// Processor time that this thread has used, or wall time where the kernel does not tell.
pub(crate) fn by_thread(since: Instant) -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let ns = text.split_whitespace().next().and_then(|ns| ns.parse().ok());
    ns.map_or_else(|| since.elapsed(), Duration::from_nanos)
}

/// Processor time that this process has used, threads that ended included.
pub(crate) fn by_process() -> Duration {
    of_process("self")
}

/// Processor time that a process has used; zero where the kernel does not tell.
pub(crate) fn of_process(pid: &str) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name may contain blanks; user and system time are the 12th and 13th field after it, in hundredths of seconds.
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    Duration::from_millis(fields.filter_map(|field| field.parse::<u64>().ok()).sum::<u64>() * 10)
}

/// Resident memory of a process, bytes; 0 where nobody tells.
pub(crate) fn memory_of(pid: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}
