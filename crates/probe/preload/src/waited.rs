//! How long the threads of this process have waited for a processor, from `/proc/self/task/TID/schedstat`.
use std::fs::{read_dir, read_to_string};

/// Nanoseconds that all threads that are there have waited for a processor since they began; 0 where Linux does not tell.
pub(crate) fn waited_ns() -> u64 {
    let tasks = read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.filter_map(|task| delay_ns(&read_to_string(task.path().join("schedstat")).ok()?)).sum()
}

/// The second of: nanoseconds on a processor, nanoseconds in its queue, how often.
fn delay_ns(schedstat: &str) -> Option<u64> {
    schedstat.split_ascii_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_the_queue_is_the_second_number() {
        assert_eq!((delay_ns("180772 100725 2\n"), delay_ns("7"), delay_ns("")), (Some(100_725), None, None));
    }
}
