//! How long the job's threads wait for a processor, from `/proc/PID/task/TID/schedstat`: FALCON's CPU satisfaction
//! (Figure 2), as the kernel counts it.
use crate::smallfile::SmallBuffer;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Threads looked at, of all traced processes: 8 processes of 32 at about 8 us are 2 ms a second, 0.2 % of a core.
const THREADS_MAX: usize = 256;

/// A thread by its process's number and its own.
pub(crate) type Thread = (u32, u32);

/// What the kernel counted of a thread since its start, nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counted {
    ran: u64,
    waited: u64,
}

/// Compares what the kernel counts of threads from one look to the next.
pub(crate) struct WaitSampler {
    proc_root: PathBuf,
    before: BTreeMap<Thread, Counted>,
    now: BTreeMap<Thread, Counted>,
}

impl WaitSampler {
    /// Reads under `proc_root`, which is `/proc` outside tests.
    pub(crate) fn new(proc_root: &Path) -> WaitSampler {
        WaitSampler { proc_root: proc_root.to_owned(), before: BTreeMap::new(), now: BTreeMap::new() }
    }

    /// How long these threads together waited since the last round, in thousandths of the time in which they were ready
    /// to run; 0 where none was, none is known from before, or the kernel does not count.
    pub(crate) fn milli(&mut self, threads: impl Iterator<Item = Thread>, buffer: &mut SmallBuffer) -> u32 {
        let (mut ran, mut waited) = (0u64, 0u64);
        for thread in threads {
            if self.now.len() >= THREADS_MAX {
                break;
            }
            let path = self.proc_root.join(format!("{}/task/{}/schedstat", thread.0, thread.1));
            let Some(counted) = buffer.read_path(&path).and_then(parse) else { continue };
            self.now.insert(thread, counted);
            if let Some(before) = self.before.get(&thread) {
                ran = ran.saturating_add(counted.ran.saturating_sub(before.ran));
                waited = waited.saturating_add(counted.waited.saturating_sub(before.waited));
            }
        }
        let ready = u128::from(ran) + u128::from(waited);
        // At most 1000, since waited <= ready.
        (u128::from(waited) * 1000).checked_div(ready).unwrap_or(0) as u32
    }

    /// Whether the kernel counted for this thread, in the round that goes on, that it neither ran nor waited for a processor
    /// since the last; `None` where it was not looked at in both.
    pub(crate) fn is_still(&self, thread: Thread) -> Option<bool> {
        Some(self.before.get(&thread)? == self.now.get(&thread)?)
    }

    /// Ends a round: threads that were not looked at in it are forgotten.
    pub(crate) fn next_round(&mut self) {
        self.before = std::mem::take(&mut self.now);
    }
}

/// "ran waited timeslices": nanoseconds, nanoseconds, count.
fn parse(text: &str) -> Option<Counted> {
    let mut words = text.split_ascii_whitespace();
    Some(Counted { ran: words.next()?.parse().ok()?, waited: words.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_is_of_what_all_threads_were_ready_for_since_the_last_round() {
        let proc = tempfile::tempdir().expect("a temporary directory");
        let write = |pid: u32, tid: u32, text: &str| {
            let dir = proc.path().join(format!("{pid}/task/{tid}"));
            std::fs::create_dir_all(&dir).expect("a directory");
            std::fs::write(dir.join("schedstat"), text).expect("write");
        };
        let mut waits = WaitSampler::new(proc.path());
        let mut buffer = SmallBuffer::new();
        let mut look = |threads: &[Thread]| {
            let milli = waits.milli(threads.iter().copied(), &mut buffer);
            waits.next_round();
            milli
        };
        write(7, 7, "1000 50 3");
        write(7, 8, "500 50 3");
        let both = [(7, 7), (7, 8)];
        assert_eq!(look(&both), 0, "nothing to compare with");
        write(7, 7, "1300 150 4");
        write(7, 8, "500 650 4");
        assert_eq!(look(&both), 700, "700 of 1000");
        assert_eq!(look(&[(7, 8)]), 0, "neither ran nor waited");
        write(7, 7, "9999 9999 9");
        assert_eq!(look(&both), 0, "forgotten, so nothing is known of the time between");
        for garbage in ["", "1", "x y z", "99999999999999999999999 1 1"] {
            write(7, 7, garbage);
            assert_eq!(look(&[(7, 7), (7, 9)]), 0, "{garbage}");
        }
        write(7, 7, "18446744073709551615 0 0");
        write(7, 8, "18446744073709551615 18446744073709551615 0");
        look(&both);
        write(7, 7, "0 0 0");
        assert_eq!(look(&both), 0, "counters that fall are another thread's");
    }

    #[test]
    fn this_kernel_counts() {
        let pid = std::process::id();
        let mut waits = WaitSampler::new(Path::new("/proc"));
        assert!(waits.milli([(pid, pid)].into_iter(), &mut SmallBuffer::new()) <= 1000);
        assert_eq!(waits.now.contains_key(&(pid, pid)), Path::new("/proc/self/schedstat").exists());
    }
}
