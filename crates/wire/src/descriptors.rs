//! File descriptors: a process takes as many as it may, and shares them out so that its disk never lacks one.
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// One agent per host: 4,096 hosts of 8 GPUs are 32,768 GPUs on one server; 4,096 threads x 1 MiB = 4 GiB of
/// address space.
const AGENTS_MAX: u64 = 4096;
/// Connections that have not shown the token yet: an agent needs one for a few round trips, so 256 admit thousands a
/// second.
const STRANGERS_MAX: u64 = 256;
/// HTTP connections that showed the token: people, a Prometheus and a few scripts.
const READERS_MAX: u64 = 256;
/// Kept for the store (23 were counted under load: log, SQLite, segments), captures' files and what a process has anyway.
const KEPT: u64 = 128;

/// Raises the limit of descriptors to what the system allows this process; what it is now.
pub fn raise() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let hard = limit.maximum.unwrap_or(u64::MAX);
    if limit.current.is_some_and(|soft| soft < hard) {
        // Refused only where the system's own limit is lower; then the old one stays.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
    }
    current()
}

/// The limit of descriptors of this process.
pub fn current() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many connections of each kind a process with so many descriptors takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shares {
    /// Agents that showed the token.
    pub agents: usize,
    /// Connections to the agents' ports that did not yet.
    pub strangers: usize,
    /// HTTP connections that showed the token.
    pub readers: usize,
    /// HTTP connections that did not.
    pub visitors: usize,
    /// The limit of descriptors makes them fewer than there would be.
    pub is_tight: bool,
}

impl Shares {
    /// The shares under a limit. Where it is low, a quarter stays for the disk, an eighth goes to readers, a sixteenth
    /// each to those who have not shown the token, and the rest, about half, to agents.
    pub fn of(limit: u64) -> Shares {
        let kept = KEPT.min(limit / 4);
        let readers = READERS_MAX.min(limit / 8);
        let strangers = STRANGERS_MAX.min(limit / 16);
        let agents = AGENTS_MAX.min(limit - kept - readers - 2 * strangers);
        let count = |share: u64| usize::try_from(share.max(1)).unwrap_or(usize::MAX);
        Shares {
            agents: count(agents),
            strangers: count(strangers),
            readers: count(readers),
            visitors: count(strangers),
            is_tight: agents < AGENTS_MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_fit_the_limit_and_the_disk_keeps_some() {
        for limit in [16, 64, 256, 1024, 4096, 5000, 65_536, u64::MAX] {
            let shares = Shares::of(limit);
            let sum = (shares.agents + shares.strangers + shares.readers + shares.visitors) as u64;
            assert!(sum + KEPT.min(limit / 4) <= limit, "{limit}: {shares:?}");
        }
        assert!(Shares::of(1024).agents >= 640, "{:?}", Shares::of(1024));
        let all = Shares { agents: 4096, strangers: 256, readers: 256, visitors: 256, is_tight: false };
        assert_eq!(Shares::of(65_536), all);
        assert!(Shares::of(1024).is_tight && !Shares::of(65_536).is_tight);
    }

    #[test]
    fn the_limit_is_raised_to_what_is_allowed() {
        let before = getrlimit(Resource::Nofile);
        let now = raise();
        assert_eq!(now, current());
        assert!(before.maximum.is_none_or(|hard| now == hard), "{before:?} became {now}");
    }
}
