//! Hosts as loopback addresses 127.0.0.x. Their interfaces are virtual: a directory that looks like
//! `/sys/class/net`, kept up to date from the counters of the fault control block.
use super::{NIC, make_private_dir};
use crate::error::TestbedError;
use mycroft_sim::Scenario;
use mycroft_testbed_nccl::control::{ControlFile, HostRecord};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tracing::warn;

/// How often the virtual interfaces are refreshed: as often as an agent samples.
const REFRESH: Duration = Duration::from_millis(100);

/// The address of a host. 127.0.0.1 is left to the rest of the machine.
pub fn address(index: u32) -> Ipv4Addr {
    let number = index + 1;
    Ipv4Addr::new(127, 0, (number / 250) as u8, (number % 250 + 1) as u8)
}

/// Where a host's virtual interfaces are.
pub fn nic_root(run_dir: &Path, host: &str) -> PathBuf {
    run_dir.join("nic").join(host)
}

/// The virtual interfaces of a run and the thread that refreshes them.
#[derive(Debug)]
pub struct Loopback {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Loopback {
    /// Makes the directories and starts the thread.
    ///
    /// # Errors
    /// A directory or the thread cannot be made.
    pub fn create(scenario: &Scenario, run_dir: &Path, control: &Arc<ControlFile>) -> Result<Loopback, TestbedError> {
        let mut nics = Vec::new();
        for index in 0..scenario.hosts {
            let dir = nic_root(run_dir, &scenario.host_name(index)).join(NIC);
            nics.push(VirtualNic::create(dir, scenario.nic_bytes_per_sec)?);
        }
        let control = Arc::clone(control);
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("mtb-nics".into())
            .spawn(move || {
                let mut last = Instant::now();
                while stopped.recv_timeout(REFRESH) == Err(mpsc::RecvTimeoutError::Timeout) {
                    let elapsed = last.elapsed();
                    last = Instant::now();
                    for (index, nic) in nics.iter_mut().enumerate() {
                        nic.refresh(control.host(index), elapsed);
                    }
                }
            })
            .map_err(|source| TestbedError::Spawn { program: "a thread".to_owned(), source })?;
        Ok(Loopback { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // A panic in there has been printed; there is nothing to add.
            let _ = thread.join();
        }
    }
}

/// One virtual interface: files with the names and forms of sysfs.
#[derive(Debug)]
struct VirtualNic {
    dir: PathBuf,
    up: bool,
    changes: u64,
    /// Bytes of other traffic so far, each way.
    background: u64,
    /// Bytes per second that `speed` says.
    speed: u64,
    written: (u64, u64),
    warned: AtomicBool,
}

/// As `speed` files say it.
fn megabits(bytes_per_sec: u64) -> u64 {
    (bytes_per_sec.saturating_mul(8) / 1_000_000).max(1)
}

impl VirtualNic {
    fn create(dir: PathBuf, bytes_per_sec: u64) -> Result<VirtualNic, TestbedError> {
        make_private_dir(&dir.join("statistics"))?;
        let nic = VirtualNic {
            dir,
            up: true,
            speed: bytes_per_sec,
            changes: 1,
            background: 0,
            written: (0, 0),
            warned: AtomicBool::new(false),
        };
        for (file, text) in [
            ("operstate", "up".to_owned()),
            ("carrier", "1".to_owned()),
            ("carrier_changes", nic.changes.to_string()),
            ("speed", megabits(bytes_per_sec).to_string()),
            ("type", "1".to_owned()),
            ("mtu", "1500".to_owned()),
            ("address", "02:00:00:00:00:01".to_owned()),
        ] {
            nic.write(file, &text)?;
        }
        for counter in ["tx_bytes", "rx_bytes", "tx_errors", "rx_errors", "tx_dropped", "rx_dropped"] {
            nic.write(&format!("statistics/{counter}"), "0")?;
        }
        Ok(nic)
    }

    /// Replaces a file as a whole, so that a reader never sees half of it.
    fn write(&self, file: &str, text: &str) -> Result<(), TestbedError> {
        let path = self.dir.join(file);
        let part = self.dir.join(".part");
        std::fs::write(&part, format!("{text}\n"))
            .and_then(|()| std::fs::rename(&part, &path))
            .map_err(|source| TestbedError::file("write", path, source))
    }

    fn refresh(&mut self, record: &HostRecord, elapsed: Duration) {
        let outcome = self.try_refresh(record, elapsed);
        if let (Err(error), false) = (outcome, self.warned.swap(true, Ordering::Relaxed)) {
            warn!(path = %self.dir.display(), %error, "virtual NIC: {error}");
        }
    }

    fn try_refresh(&mut self, record: &HostRecord, elapsed: Duration) -> Result<(), TestbedError> {
        // A NIC that was narrowed says so, as one that has trained down to a lower rate does.
        let limits = [&record.link_bytes_per_sec, &record.egress_bytes_per_sec, &record.ingress_bytes_per_sec];
        let rates = limits.into_iter().map(|limit| limit.load(Ordering::Relaxed)).filter(|rate| *rate > 0);
        let speed = rates.min().unwrap_or(self.speed);
        if speed != self.speed {
            self.speed = speed;
            self.write("speed", &megabits(speed).to_string())?;
        }
        let up = !record.is_down();
        if up != self.up {
            self.up = up;
            self.changes += 1;
            self.write("operstate", if up { "up" } else { "down" })?;
            self.write("carrier", if up { "1" } else { "0" })?;
            self.write("carrier_changes", &self.changes.to_string())?;
        }
        if up {
            let rate = record.background_bytes_per_sec.load(Ordering::Relaxed);
            self.background += (u128::from(rate) * elapsed.as_nanos() / 1_000_000_000) as u64;
        }
        let tx = record.tx_bytes.load(Ordering::Relaxed) + self.background;
        let rx = record.rx_bytes.load(Ordering::Relaxed) + self.background;
        if (tx, rx) != self.written {
            self.write("statistics/tx_bytes", &tx.to_string())?;
            self.write("statistics/rx_bytes", &rx.to_string())?;
            self.written = (tx, rx);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_virtual_nic_shows_link_and_traffic() {
        let dir = tempfile::tempdir().unwrap();
        let control = ControlFile::create(&dir.path().join("control"), 1, 1).unwrap();
        let record = control.host(0);
        let mut nic = VirtualNic::create(dir.path().join(NIC), 50_000_000).unwrap();
        let read = |file: &str| std::fs::read_to_string(dir.path().join(NIC).join(file)).unwrap().trim().to_owned();
        assert_eq!((read("operstate").as_str(), read("speed").as_str()), ("up", "400"));
        record.tx_bytes.store(7000, Ordering::Relaxed);
        record.background_bytes_per_sec.store(1_000_000, Ordering::Relaxed);
        nic.refresh(record, Duration::from_millis(500));
        assert_eq!((read("statistics/tx_bytes"), read("statistics/rx_bytes")), ("507000".into(), "500000".into()));
        record.nic_down.store(1, Ordering::Relaxed);
        nic.refresh(record, Duration::from_millis(500));
        assert_eq!((read("operstate").as_str(), read("carrier").as_str()), ("down", "0"));
        assert_eq!(read("carrier_changes"), "2");
        assert_eq!(read("statistics/rx_bytes"), "500000");
    }

    #[test]
    fn addresses_are_loopback_and_not_the_usual_one() {
        assert!((0..64).map(address).all(|a| a.is_loopback() && a != Ipv4Addr::LOCALHOST));
    }
}
