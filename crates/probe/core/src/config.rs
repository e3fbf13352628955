//! Configuration by environment; with nothing set everything has a default that works.
use mycroft_ring::FixedPath;
use mycroft_ring::layout::NAME_BYTES;
use mycroft_ring::raw::Text;
use std::ffi::CStr;

/// Segment size when nobody told: the ring's own default, this rank's share of the paper's 512 MB for a host.
pub const DEFAULT_SEGMENT_BYTES: u64 = 0;
/// Directory whose per-user subdirectory holds the segments.
const SHM_DIR: &str = "/dev/shm";
/// Job name when neither `MYCROFT_JOB` nor a launcher gives one.
pub const DEFAULT_JOB: &str = "default";
/// Longest text taken from the environment for a name, bytes.
const MAX_NAME_BYTES: usize = 255;

/// Names that go into the segment's header, cut as they are there.
pub type Name = Text<NAME_BYTES>;

/// Whether kernel-channel events are asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelEvents {
    /// On, except where NCCL makes them expensive (2.31.x).
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// What the environment says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// `MYCROFT_OFF=1`: do nothing.
    pub off: bool,
    /// `MYCROFT_DIR`: where segments live; default `/dev/shm/mycroft-UID`. Empty where it is longer than a path can be.
    pub dir: FixedPath,
    /// `MYCROFT_SEGMENT_BYTES`.
    pub segment_bytes: u64,
    /// `MYCROFT_JOB`, else `SLURM_JOB_ID`, `TORCHELASTIC_RUN_ID`, else "default".
    pub job: Name,
    /// `MYCROFT_HOST`, else the host name.
    pub host: Name,
    /// `MYCROFT_RANK`, else `RANK`, `SLURM_PROCID`, `OMPI_COMM_WORLD_RANK`.
    pub rank: Option<u32>,
    /// `MYCROFT_WORLD_SIZE`, else `WORLD_SIZE`, `SLURM_NTASKS`, `OMPI_COMM_WORLD_SIZE`; 0 if not told.
    pub world_size: u32,
    /// `LOCAL_RANK`, else `SLURM_LOCALID`, `OMPI_COMM_WORLD_LOCAL_RANK`; `u32::MAX` if not told.
    pub local_rank: u32,
    /// `MYCROFT_GPU`, -1 if not told.
    pub gpu: i32,
}

/// A variable of the process's environment. (`std::env` copies it to the heap, however long it is.)
fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: a C string.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    // SAFETY: NULL or a C string; a program that changes its environment while NCCL initialises would also change it under
    // NCCL's own feet.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

/// A variable that is not empty, as it is.
fn path_variable(name: &CStr) -> Option<&'static CStr> {
    variable(name).filter(|value| !value.is_empty())
}

/// `MYCROFT_CHAIN_PLUGIN`: another profiler plugin to load and feed.
pub fn chain_plugin() -> Option<&'static CStr> {
    path_variable(c"MYCROFT_CHAIN_PLUGIN")
}

/// `MYCROFT_KERNEL_EVENTS` = auto, on, off.
pub fn kernel_events() -> KernelEvents {
    kernel_events_of(text(&variable, &[c"MYCROFT_KERNEL_EVENTS"]))
}

fn kernel_events_of(text: Option<&str>) -> KernelEvents {
    match text {
        Some("on" | "1") => KernelEvents::On,
        Some("off" | "0") => KernelEvents::Off,
        _ => KernelEvents::Auto,
    }
}

/// `MYCROFT_CALLS` = on, off: whether the preloaded library records calls; `None` where it decides by NCCL's version.
pub fn call_records() -> Option<bool> {
    match text(&variable, &[c"MYCROFT_CALLS"]) {
        Some("on" | "1") => Some(true),
        Some("off" | "0") => Some(false),
        _ => None,
    }
}

/// Where segments live.
pub fn segment_dir() -> FixedPath {
    dir_of(path_variable(c"MYCROFT_DIR"))
}

fn dir_of(told: Option<&CStr>) -> FixedPath {
    // SAFETY: getuid has no preconditions and cannot fail.
    let uid = unsafe { libc::getuid() };
    match told {
        Some(path) => FixedPath::new(path.to_bytes()).unwrap_or(FixedPath::EMPTY),
        None => FixedPath::printed(format_args!("{SHM_DIR}/mycroft-{uid}")),
    }
}

/// The first of these variables that holds a text: not empty, not too long, UTF-8.
fn text<'a>(lookup: &impl Fn(&CStr) -> Option<&'a CStr>, names: &[&CStr]) -> Option<&'a str> {
    names.iter().find_map(|name| {
        let value = lookup(name)?.to_str().ok()?.trim();
        (!value.is_empty() && value.len() <= MAX_NAME_BYTES).then_some(value)
    })
}

impl Config {
    /// Reads the process's environment.
    pub fn from_env() -> Config {
        Config::from_lookup(variable)
    }

    /// Reads any environment; what does not parse counts as not set, because a typing error must not end a job.
    pub fn from_lookup<'a>(lookup: impl Fn(&CStr) -> Option<&'a CStr>) -> Config {
        let text = |names: &[&CStr]| text(&lookup, names);
        let number = |names: &[&CStr]| names.iter().find_map(|name| text(&[name])?.parse::<u32>().ok());
        Config {
            off: text(&[c"MYCROFT_OFF"]).is_some_and(|value| value != "0"),
            dir: dir_of(lookup(c"MYCROFT_DIR").filter(|value| !value.is_empty())),
            segment_bytes: text(&[c"MYCROFT_SEGMENT_BYTES"])
                .and_then(|value| value.parse().ok())
                .unwrap_or(DEFAULT_SEGMENT_BYTES),
            job: Name::new(text(&[c"MYCROFT_JOB", c"SLURM_JOB_ID", c"TORCHELASTIC_RUN_ID"]).unwrap_or(DEFAULT_JOB)),
            host: text(&[c"MYCROFT_HOST"]).map_or_else(host_name, Name::new),
            rank: number(&[c"MYCROFT_RANK", c"RANK", c"SLURM_PROCID", c"OMPI_COMM_WORLD_RANK"]),
            world_size: number(&[c"MYCROFT_WORLD_SIZE", c"WORLD_SIZE", c"SLURM_NTASKS", c"OMPI_COMM_WORLD_SIZE"])
                .unwrap_or(0),
            local_rank: number(&[c"LOCAL_RANK", c"SLURM_LOCALID", c"OMPI_COMM_WORLD_LOCAL_RANK"]).unwrap_or(u32::MAX),
            gpu: text(&[c"MYCROFT_GPU"]).and_then(|value| value.parse().ok()).unwrap_or(-1),
        }
    }
}

/// The host's name as `gethostname` gives it, "unknown-host" if it cannot be read.
fn host_name() -> Name {
    let mut buffer = [0u8; 256];
    // SAFETY: the buffer is writable for its whole length; one byte is kept for the terminator.
    let code = unsafe { libc::gethostname(buffer.as_mut_ptr().cast(), buffer.len() - 1) };
    let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(0);
    match std::str::from_utf8(&buffer[..end]) {
        Ok(name) if code == 0 && !name.is_empty() => Name::new(name),
        _ => Name::new("unknown-host"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(pairs: &'static [(&'static CStr, &'static CStr)]) -> Config {
        Config::from_lookup(|name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| *value))
    }

    #[test]
    fn nothing_set_gives_working_defaults() {
        let config = config(&[]);
        assert!(!config.off);
        assert_eq!(config.job.as_str(), "default");
        assert_eq!(config.rank, None);
        assert_eq!(config.gpu, -1);
        assert_eq!(kernel_events_of(None), KernelEvents::Auto);
        assert!(config.dir.as_path().starts_with(SHM_DIR));
        assert!(!config.host.as_str().is_empty());
    }

    #[test]
    fn own_variables_come_before_the_launchers() {
        let config = config(&[
            (c"MYCROFT_RANK", c"3"),
            (c"RANK", c"9"),
            (c"SLURM_JOB_ID", c"77"),
            (c"WORLD_SIZE", c"16"),
            (c"MYCROFT_OFF", c"1"),
        ]);
        assert_eq!(config.rank, Some(3));
        assert_eq!(config.job.as_str(), "77");
        assert_eq!(config.world_size, 16);
        assert!(config.off);
        assert_eq!(kernel_events_of(Some("off")), KernelEvents::Off);
    }

    #[test]
    fn nonsense_counts_as_not_set() {
        let config = config(&[(c"MYCROFT_RANK", c"seven"), (c"RANK", c"7"), (c"MYCROFT_SEGMENT_BYTES", c"-1")]);
        assert_eq!(config.rank, Some(7));
        assert_eq!(config.segment_bytes, DEFAULT_SEGMENT_BYTES);
    }
}
