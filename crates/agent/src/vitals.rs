//! Load of the host, from `/proc/stat` and `/proc/meminfo`.
use crate::smallfile::SmallBuffer;
use mycroft_record::{HostTime, HostVitals};
use std::path::{Path, PathBuf};

/// Reads the vitals of one host.
pub(crate) struct VitalsSampler {
    stat: PathBuf,
    meminfo: PathBuf,
    buffer: SmallBuffer,
    last: Option<CpuTicks>,
}

/// Clock ticks of all cores since boot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CpuTicks {
    busy: u64,
    total: u64,
}

impl VitalsSampler {
    /// Reads under `proc_root`, which is `/proc` outside tests.
    pub(crate) fn new(proc_root: &Path) -> VitalsSampler {
        VitalsSampler {
            stat: proc_root.join("stat"),
            meminfo: proc_root.join("meminfo"),
            buffer: SmallBuffer::new(),
            last: None,
        }
    }

    /// The vitals now, without what is a job's. The busy share is of the time since the last call, of the time since boot
    /// on the first; what cannot be read is 0.
    pub(crate) fn sample(&mut self, now: HostTime, agent_dropped: u64) -> HostVitals {
        let ticks = self.buffer.read_path(&self.stat).and_then(parse_cpu);
        let since = self.last.unwrap_or(CpuTicks { busy: 0, total: 0 });
        let cpu_busy_milli = ticks.map_or(0, |t| busy_milli(since, t));
        self.last = ticks.or(self.last);
        let memory_available_bytes = self.buffer.read_path(&self.meminfo).map_or(0, parse_available_bytes);
        HostVitals { at: now, cpu_busy_milli, memory_available_bytes, agent_dropped, cpu_wait_milli: 0 }
    }
}

/// Busy share in thousandths between two readings.
fn busy_milli(earlier: CpuTicks, later: CpuTicks) -> u32 {
    let total = later.total.saturating_sub(earlier.total);
    let busy = later.busy.saturating_sub(earlier.busy).min(total);
    match total {
        0 => 0,
        // At most 1000, since busy <= total.
        _ => (u128::from(busy) * 1000 / u128::from(total)) as u32,
    }
}

/// "cpu  user nice system idle iowait irq softirq steal guest guest_nice": guest time is already in user time.
fn parse_cpu(text: &str) -> Option<CpuTicks> {
    let mut words = text.lines().next()?.split_ascii_whitespace();
    if words.next()? != "cpu" {
        return None;
    }
    let mut fields = [0u64; 8];
    for field in &mut fields {
        match words.next() {
            Some(word) => *field = word.parse().ok()?,
            None => break,
        }
    }
    let total = fields.iter().fold(0u64, |sum, &f| sum.saturating_add(f));
    let idle = fields[3].saturating_add(fields[4]);
    Some(CpuTicks { busy: total.saturating_sub(idle), total })
}

/// The `MemAvailable` line, in bytes; 0 without one.
fn parse_available_bytes(text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kibibytes: u64 = line.and_then(|l| l.split_ascii_whitespace().next()).and_then(|w| w.parse().ok()).unwrap_or(0);
    kibibytes.saturating_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_busy_share_is_of_the_time_between_two_readings() {
        let proc = tempfile::tempdir().expect("a temporary directory");
        let write = |file: &str, text: &str| std::fs::write(proc.path().join(file), text).expect("write");
        write("stat", "cpu  100 0 100 700 100 0 0 0 50 0\ncpu0 1 2 3\n");
        write("meminfo", "MemTotal: 100 kB\nMemFree: 1 kB\nMemAvailable:   64 kB\n");
        let mut vitals = VitalsSampler::new(proc.path());
        let first = vitals.sample(HostTime(1), 3);
        assert_eq!((first.cpu_busy_milli, first.memory_available_bytes, first.agent_dropped), (200, 65536, 3));
        write("stat", "cpu  150 0 125 725 100 0 0 0 50 0\n");
        assert_eq!(vitals.sample(HostTime(2), 3).cpu_busy_milli, 750);
        for garbage in ["", "cpu", "cpu x", "intr 5", "cpu 99999999999999999999999"] {
            write("stat", garbage);
            write("meminfo", garbage);
            let sample = vitals.sample(HostTime(3), 0);
            assert_eq!((sample.cpu_busy_milli, sample.memory_available_bytes), (0, 0), "{garbage}");
        }
    }

    #[test]
    fn this_host_has_memory() {
        assert!(VitalsSampler::new(Path::new("/proc")).sample(HostTime(1), 0).memory_available_bytes > 0);
    }
}
