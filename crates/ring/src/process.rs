//! Who a process is, so that a process id that was given out again is not taken for its predecessor.
use crate::error::{CreateError, Errno};
use crate::fixed::FixedText;
use crate::sys::read_text;
use std::ffi::CStr;
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

/// Bytes of a stat file: 52 numbers of at most 20 digits and a name of 64 bytes are 1.2 KB.
const STAT_BYTES: usize = 2048;
/// Bytes of "/proc/PID/stat" with its end.
const STAT_PATH_BYTES: usize = 32;
/// Our own stat file, whatever pid namespace /proc is of.
const OWN_STAT: &CStr = c"/proc/self/stat";
/// Hexadecimal digits of a boot id.
const BOOT_ID_DIGITS: usize = 32;

/// Stat of a process.
///
/// # Errors
/// ENOENT when there is no such process, EINVAL when the file is not as proc(5) says.
pub(crate) fn stat(pid: u32) -> Result<ProcStat, Errno> {
    stat_at(FixedText::<STAT_PATH_BYTES>::printed(format_args!("/proc/{pid}/stat")).as_c_str())
}

fn stat_at(path: &CStr) -> Result<ProcStat, Errno> {
    let mut buffer = [0; STAT_BYTES];
    let bytes = crate::sys::read_small(path, &mut buffer)?;
    // The name may hold any bytes; what counts is behind it.
    let behind = bytes.iter().rposition(|&byte| byte == b')').map_or(&[][..], |at| &bytes[at..]);
    std::str::from_utf8(behind).ok().and_then(parse_stat).ok_or(Errno(libc::EINVAL))
}

/// Boot id of this host.
///
/// # Errors
/// /proc is not mounted or holds no boot id.
pub fn boot_id() -> io::Result<[u8; 16]> {
    Ok(read_boot_id()?)
}

pub(crate) fn read_boot_id() -> Result<[u8; 16], Errno> {
    let mut buffer = [0; 64];
    let text = read_text(BOOT_ID_FILE, &mut buffer)?;
    let mut digits = FixedText::<{ BOOT_ID_DIGITS + 1 }>::EMPTY;
    let fits = text.trim().bytes().filter(|&byte| byte != b'-').all(|byte| digits.push(&[byte]));
    let number = std::str::from_utf8(digits.as_bytes()).ok().and_then(|text| u128::from_str_radix(text, 16).ok());
    number.filter(|_| fits).map(u128::to_be_bytes).ok_or(Errno(libc::EINVAL))
}

/// Where the kernel keeps the boot id.
const BOOT_ID_FILE: &CStr = c"/proc/sys/kernel/random/boot_id";

/// The user whose rights this process has.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: takes nothing, touches nothing, cannot fail.
    unsafe { libc::geteuid() }
}

/// Inode number of this process's pid namespace, 0 if not known.
pub fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino())
}

impl Identity {
    /// This process.
    ///
    /// # Errors
    /// A file in /proc could not be read.
    pub fn current() -> Result<Identity, CreateError> {
        let failed = |path| move |source| CreateError::Identity { path, source };
        let stat = stat_at(OWN_STAT).map_err(failed("/proc/self/stat"))?;
        let boot_id = read_boot_id().map_err(failed("/proc/sys/kernel/random/boot_id"))?;
        Ok(Identity { pid: std::process::id(), start_time: stat.start_time, boot_id, pid_namespace: pid_namespace() })
    }

    /// Whether the process still runs.
    pub fn liveness(&self) -> Liveness {
        if read_boot_id().is_ok_and(|now| now != self.boot_id) {
            return Liveness::Dead;
        }
        if self.pid_namespace != 0 && self.pid_namespace != pid_namespace() {
            return Liveness::Unknown;
        }
        match stat(self.pid) {
            Ok(now) if now.start_time != self.start_time => Liveness::Dead,
            Ok(ProcStat { state: 'Z' | 'X' | 'x', .. }) => Liveness::Zombie,
            Ok(_) => Liveness::Alive,
            // A process that ends while its file is being read gives ESRCH.
            Err(Errno(libc::ENOENT | libc::ESRCH)) => Liveness::Dead,
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
