//! How much memory the control group of this process still allows: pages of a tmpfs count against it, and running into
//! the limit would kill the job.
use std::path::{Path, PathBuf};

/// Where control groups (version 2) are mounted.
const MOUNT: &str = "/sys/fs/cgroup";
/// Levels of control groups looked at; deeper trees are not made by any scheduler.
const MAX_DEPTH: usize = 16;

/// Bytes this process may still allocate by the tightest limit of its control groups, `u64::MAX` without one.
pub(crate) fn room_bytes() -> u64 {
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    room_under(Path::new(MOUNT), own_group(&own))
}

/// Path of the version 2 group in the text of /proc/self/cgroup: the line "0::/path".
fn own_group(text: &str) -> &str {
    text.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or("")
}

fn room_under(mount: &Path, group: &str) -> u64 {
    let mut path: PathBuf = mount.join(group);
    let mut room = u64::MAX;
    for _ in 0..MAX_DEPTH {
        let number = |file: &str| std::fs::read_to_string(path.join(file)).ok()?.trim().parse::<u64>().ok();
        if let (Some(limit), Some(used)) = (number("memory.max"), number("memory.current")) {
            room = room.min(limit.saturating_sub(used));
        }
        if path == mount || !path.pop() {
            break;
        }
    }
    room
}
