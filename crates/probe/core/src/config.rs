//! Configuration by environment; with nothing set everything has a default that works.
use std::ffi::OsString;
use std::path::PathBuf;

/// Segment size when nobody told: the ring's own default, this rank's share of the paper's 512 MB for a host.
pub const DEFAULT_SEGMENT_BYTES: u64 = 0;
/// Directory whose per-user subdirectory holds the segments.
const SHM_DIR: &str = "/dev/shm";
/// Job name when neither `MYCROFT_JOB` nor a launcher gives one.
pub const DEFAULT_JOB: &str = "default";
/// Longest text taken from the environment for a name, bytes.
const MAX_NAME_BYTES: usize = 255;

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
    /// `MYCROFT_DIR`: where segments live; default `/dev/shm/mycroft-UID`.
    pub dir: PathBuf,
    /// `MYCROFT_SEGMENT_BYTES`.
    pub segment_bytes: u64,
    /// `MYCROFT_JOB`, else `SLURM_JOB_ID`, `TORCHELASTIC_RUN_ID`, else "default".
    pub job: String,
    /// `MYCROFT_HOST`, else the host name.
    pub host: String,
    /// `MYCROFT_RANK`, else `RANK`, `SLURM_PROCID`, `OMPI_COMM_WORLD_RANK`.
    pub rank: Option<u32>,
    /// `MYCROFT_WORLD_SIZE`, else `WORLD_SIZE`, `SLURM_NTASKS`, `OMPI_COMM_WORLD_SIZE`; 0 if not told.
    pub world_size: u32,
    /// `LOCAL_RANK`, else `SLURM_LOCALID`, `OMPI_COMM_WORLD_LOCAL_RANK`; `u32::MAX` if not told.
    pub local_rank: u32,
    /// `MYCROFT_GPU`, -1 if not told.
    pub gpu: i32,
    /// `MYCROFT_KERNEL_EVENTS` = auto, on, off.
    pub kernel_events: KernelEvents,
    /// `MYCROFT_CHAIN_PLUGIN`: another profiler plugin to load and feed.
    pub chain_plugin: Option<PathBuf>,
}

impl Config {
    /// Reads the process's environment.
    pub fn from_env() -> Config {
        Config::from_lookup(|name| std::env::var_os(name))
    }

    /// Reads any environment; what does not parse counts as not set, because a typing error must not end a job.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<OsString>) -> Config {
        let text = |names: &[&str]| {
            names.iter().find_map(|name| {
                let value = lookup(name)?.into_string().ok()?;
                let value = value.trim();
                (!value.is_empty() && value.len() <= MAX_NAME_BYTES).then(|| value.to_owned())
            })
        };
        let number = |names: &[&str]| names.iter().find_map(|name| text(&[name])?.parse::<u32>().ok());
        let path = |name: &str| lookup(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        // SAFETY: getuid has no preconditions and cannot fail.
        let uid = unsafe { libc::getuid() };
        Config {
            off: text(&["MYCROFT_OFF"]).is_some_and(|value| value != "0"),
            dir: path("MYCROFT_DIR").unwrap_or_else(|| PathBuf::from(format!("{SHM_DIR}/mycroft-{uid}"))),
            segment_bytes: text(&["MYCROFT_SEGMENT_BYTES"])
                .and_then(|value| value.parse().ok())
                .unwrap_or(DEFAULT_SEGMENT_BYTES),
            job: text(&["MYCROFT_JOB", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"]).unwrap_or_else(|| DEFAULT_JOB.into()),
            host: text(&["MYCROFT_HOST"]).unwrap_or_else(host_name),
            rank: number(&["MYCROFT_RANK", "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"]),
            world_size: number(&["MYCROFT_WORLD_SIZE", "WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE"])
                .unwrap_or(0),
            local_rank: number(&["LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"]).unwrap_or(u32::MAX),
            gpu: text(&["MYCROFT_GPU"]).and_then(|value| value.parse().ok()).unwrap_or(-1),
            kernel_events: match text(&["MYCROFT_KERNEL_EVENTS"]).as_deref() {
                Some("on" | "1") => KernelEvents::On,
                Some("off" | "0") => KernelEvents::Off,
                _ => KernelEvents::Auto,
            },
            chain_plugin: path("MYCROFT_CHAIN_PLUGIN"),
        }
    }
}

/// The host's name as `gethostname` gives it, "unknown-host" if it cannot be read.
fn host_name() -> String {
    let mut buffer = [0u8; 256];
    // SAFETY: the buffer is writable for its whole length; one byte is kept for the terminator.
    let code = unsafe { libc::gethostname(buffer.as_mut_ptr().cast(), buffer.len() - 1) };
    let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(0);
    match std::str::from_utf8(&buffer[..end]) {
        Ok(name) if code == 0 && !name.is_empty() => name.to_owned(),
        _ => "unknown-host".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn config(pairs: &[(&str, &str)]) -> Config {
        let map: BTreeMap<String, OsString> =
            pairs.iter().map(|(name, value)| ((*name).to_owned(), OsString::from(value))).collect();
        Config::from_lookup(|name| map.get(name).cloned())
    }

    #[test]
    fn nothing_set_gives_working_defaults() {
        let config = config(&[]);
        assert!(!config.off);
        assert_eq!(config.job, "default");
        assert_eq!(config.rank, None);
        assert_eq!(config.gpu, -1);
        assert_eq!(config.kernel_events, KernelEvents::Auto);
        assert!(config.dir.starts_with(SHM_DIR));
        assert!(!config.host.is_empty());
    }

    #[test]
    fn own_variables_come_before_the_launchers() {
        let config = config(&[
            ("MYCROFT_RANK", "3"),
            ("RANK", "9"),
            ("SLURM_JOB_ID", "77"),
            ("WORLD_SIZE", "16"),
            ("MYCROFT_OFF", "1"),
            ("MYCROFT_KERNEL_EVENTS", "off"),
        ]);
        assert_eq!(config.rank, Some(3));
        assert_eq!(config.job, "77");
        assert_eq!(config.world_size, 16);
        assert!(config.off);
        assert_eq!(config.kernel_events, KernelEvents::Off);
    }

    #[test]
    fn nonsense_counts_as_not_set() {
        let config = config(&[("MYCROFT_RANK", "seven"), ("RANK", "7"), ("MYCROFT_SEGMENT_BYTES", "-1")]);
        assert_eq!(config.rank, Some(7));
        assert_eq!(config.segment_bytes, DEFAULT_SEGMENT_BYTES);
    }
}
