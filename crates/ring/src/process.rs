//! Who a process is, so that a process id that was given out again is not taken for its predecessor.
use std::io;
use std::os::unix::fs::MetadataExt;

/// Identity of this process, as the segment header keeps it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Process id.
    pub pid: u32,
    /// Start time, clock ticks since boot.
    pub start_time: u64,
    /// Boot id.
    pub boot_id: [u8; 16],
    /// Inode of the pid namespace, 0 if not known.
    pub pid_namespace: u64,
}

/// Whether a process still runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Liveness {
    /// It runs (or is stopped).
    Alive,
    /// It ended and its parent has not noticed.
    Zombie,
    /// It is gone, or another process has its id, or the host was booted since.
    Dead,
    /// It lives in another pid namespace, or /proc does not tell.
    Unknown,
}

/// What /proc/PID/stat says that matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcStat {
    /// State letter (field 3), e.g. `R`, `S`, `T`, `Z`.
    pub state: char,
    /// Start time (field 22), clock ticks since boot.
    pub start_time: u64,
}

/// Field 22 counted from field 3, the first after the command name in parentheses.
const START_TIME_AFTER_NAME: usize = 22 - 3;

/// Parses the text of a stat file; the command name may hold blanks and parentheses.
pub fn parse_stat(text: &str) -> Option<ProcStat> {
    let (_, after_name) = text.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let start_time = fields.nth(START_TIME_AFTER_NAME - 1)?.parse().ok()?;
    Some(ProcStat { state, start_time })
}

/// Stat of a process.
///
/// # Errors
/// `NotFound` when there is no such process, `InvalidData` when the file is not as proc(5) says.
pub fn stat(pid: u32) -> io::Result<ProcStat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    parse_stat(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat: {text:?}")))
}

/// Boot id of this host.
///
/// # Errors
/// /proc is not mounted or holds no boot id.
pub fn boot_id() -> io::Result<[u8; 16]> {
    let text = std::fs::read_to_string(BOOT_ID_FILE)?;
    let digits: String = text.trim().chars().filter(|&c| c != '-').collect();
    u128::from_str_radix(&digits, 16)
        .map(u128::to_be_bytes)
        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, format!("{text:?}: {e}")))
}

/// Where the kernel keeps the boot id.
pub const BOOT_ID_FILE: &str = "/proc/sys/kernel/random/boot_id";

/// Inode number of this process's pid namespace, 0 if not known.
pub fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino())
}

impl Identity {
    /// This process.
    ///
    /// # Errors
    /// The file in /proc that could not be read, and why.
    pub fn current() -> Result<Identity, (String, io::Error)> {
        let pid = std::process::id();
        let stat = stat(pid).map_err(|e| (format!("/proc/{pid}/stat"), e))?;
        let boot_id = boot_id().map_err(|e| (BOOT_ID_FILE.to_owned(), e))?;
        Ok(Identity { pid, start_time: stat.start_time, boot_id, pid_namespace: pid_namespace() })
    }

    /// Whether the process still runs.
    pub fn liveness(&self) -> Liveness {
        if boot_id().is_ok_and(|now| now != self.boot_id) {
            return Liveness::Dead;
        }
        if self.pid_namespace != 0 && self.pid_namespace != pid_namespace() {
            return Liveness::Unknown;
        }
        match stat(self.pid) {
            Ok(now) if now.start_time != self.start_time => Liveness::Dead,
            Ok(ProcStat { state: 'Z' | 'X' | 'x', .. }) => Liveness::Zombie,
            Ok(_) => Liveness::Alive,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Liveness::Dead,
            // A process that ends while its file is being read gives ESRCH.
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Liveness::Dead,
            Err(_) => Liveness::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_survives_a_spiteful_command_name() {
        let mut text = String::from("42 (a) b (c)) T");
        for field in 4..=52 {
            text.push_str(&format!(" {field}"));
        }
        assert_eq!(parse_stat(&text), Some(ProcStat { state: 'T', start_time: 22 }));
        assert_eq!(parse_stat("42 (x) R 1 2"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no /proc")]
    fn this_process_is_alive_and_a_later_one_of_its_id_is_not_it() {
        let me = Identity::current().expect("own identity");
        assert_eq!(me.liveness(), Liveness::Alive);
        assert_eq!(Identity { start_time: me.start_time + 1, ..me }.liveness(), Liveness::Dead);
        assert_eq!(Identity { boot_id: [7; 16], ..me }.liveness(), Liveness::Dead);
        assert_eq!(Identity { pid_namespace: 1, ..me }.liveness(), Liveness::Unknown);
    }
}
