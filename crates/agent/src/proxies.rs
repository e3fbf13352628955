//! Whether NCCL's progress (proxy) threads of a process turn: they do without pause while flows are in flight, so that one that
//! does not run is held by somebody, and the device behind it is not the one that stopped.
use crate::smallfile::SmallBuffer;
use crate::waits::{Thread, WaitSampler};
use mycroft_record::{HostTime, ProxyHeld};
use std::collections::BTreeMap;
use std::path::Path;

/// What NCCL calls its progress threads (`ncclSetThreadName` in `proxy.cc`, all versions with profiler plugins).
const NAME: &str = "NCCL Progress";

/// What is known of the progress threads of one process.
#[derive(Default)]
pub(crate) struct Proxies {
    /// Whether a thread is one; each is asked once.
    known: BTreeMap<Thread, bool>,
    looked_at: HostTime,
    /// Flows were in flight then.
    had_flows: bool,
    /// As told last, where they are held.
    held: Option<ProxyHeld>,
}

impl Proxies {
    /// Looks once a second; what there is to tell. `has_flows`: something is in flight now.
    pub(crate) fn look(
        &mut self,
        proc_root: &Path,
        threads: &[Thread],
        waits: &WaitSampler,
        has_flows: bool,
        now: HostTime,
        buffer: &mut SmallBuffer,
    ) -> Option<ProxyHeld> {
        let before = std::mem::replace(&mut self.looked_at, now);
        let mut still = Vec::new();
        let had_flows = std::mem::replace(&mut self.had_flows, has_flows);
        let mut turns = !has_flows || !had_flows || !before.is_some();
        for &thread in threads {
            let path = || proc_root.join(format!("{}/task/{}", thread.0, thread.1));
            let is_progress = |buffer: &mut SmallBuffer| {
                buffer.read_path(&path().join("comm")).is_some_and(|name| name.starts_with(NAME))
            };
            if !*self.known.entry(thread).or_insert_with(|| is_progress(buffer)) {
                continue;
            }
            match waits.is_still(thread) {
                Some(true) => still.push(path()),
                _ => turns = true,
            }
        }
        if turns || still.is_empty() {
            return self.held.take().map(|held| ProxyHeld { at: now, threads: 0, ..held });
        }
        let state = still.first().and_then(|path| buffer.read_path(&path.join("stat")).and_then(state)).unwrap_or(0);
        let since = self.held.map_or(before, |held| held.since);
        self.held = Some(ProxyHeld { at: now, since, threads: still.len() as u32, state });
        self.held
    }
}

/// The letter of the state in a `stat` file: after the name in parentheses, which may hold anything.
fn state(text: &str) -> Option<u32> {
    let (_, fields) = text.rsplit_once(')')?;
    fields.trim_start().bytes().next().map(u32::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Process {
        proc: tempfile::TempDir,
        waits: WaitSampler,
        proxies: Proxies,
        buffer: SmallBuffer,
        second: u64,
    }

    impl Process {
        fn new(threads: &[(u32, &str)]) -> Process {
            let proc = tempfile::tempdir().expect("a temporary directory");
            for (tid, name) in threads {
                let dir = proc.path().join(format!("7/task/{tid}"));
                std::fs::create_dir_all(&dir).expect("a directory");
                std::fs::write(dir.join("comm"), format!("{name}\n")).expect("write");
                std::fs::write(dir.join("stat"), format!("{tid} (a) R (b) D 1")).expect("write");
            }
            let waits = WaitSampler::new(proc.path());
            Process { waits, proc, proxies: Proxies::default(), buffer: SmallBuffer::new(), second: 0 }
        }

        /// A second later, with what each thread has run by now.
        fn look(&mut self, ran: &[(u32, u64)], has_flows: bool) -> Option<(u64, u32, u32)> {
            for (tid, ran) in ran {
                let path = self.proc.path().join(format!("7/task/{tid}/schedstat"));
                std::fs::write(path, format!("{ran} 5 1")).expect("write");
            }
            self.second += 1;
            let threads: Vec<Thread> = ran.iter().map(|(tid, _)| (7, *tid)).collect();
            self.waits.milli(threads.iter().copied(), &mut self.buffer);
            let now = HostTime(self.second);
            let told = self.proxies.look(self.proc.path(), &threads, &self.waits, has_flows, now, &mut self.buffer);
            self.waits.next_round();
            told.map(|held| (held.since.0, held.threads, held.state))
        }
    }

    #[test]
    fn held_is_who_does_not_run_with_flows_in_flight() {
        let mut process = Process::new(&[(7, "python"), (8, "NCCL Progress 0")]);
        assert_eq!(process.look(&[(7, 10), (8, 10)], true), None, "nothing to compare with");
        assert_eq!(process.look(&[(7, 10), (8, 20)], true), None, "a main thread may sleep");
        assert_eq!(process.look(&[(7, 10), (8, 20)], true), Some((2, 1, u32::from(b'D'))));
        assert_eq!(process.look(&[(7, 10), (8, 20)], true), Some((2, 1, u32::from(b'D'))), "told again, since then");
        assert_eq!(process.look(&[(7, 10), (8, 21)], true), Some((2, 0, u32::from(b'D'))), "it runs again");
        assert_eq!(process.look(&[(7, 10), (8, 22)], true), None);
        assert_eq!(process.look(&[(7, 10), (8, 22)], false), None, "with nothing in flight it sleeps by right");
    }

    #[test]
    fn one_that_turns_is_enough() {
        // Each communicator has a thread, and only those with something in flight turn.
        let mut process = Process::new(&[(8, "NCCL Progress 0"), (9, "NCCL Progress 1")]);
        assert_eq!(process.look(&[(8, 10), (9, 10)], true), None);
        assert_eq!(process.look(&[(8, 10), (9, 20)], true), None);
        assert_eq!(process.look(&[(8, 10), (9, 20)], true), Some((2, 2, u32::from(b'D'))));
    }

    #[test]
    fn a_process_without_such_threads_has_none_held() {
        let mut process = Process::new(&[(7, "python")]);
        assert_eq!(process.look(&[(7, 10)], true), None);
        assert_eq!(process.look(&[(7, 10)], true), None);
    }
}
