//! How much memory the control group of this process still allows: pages of a tmpfs count against it, and running into
//! the limit would kill the job.
use crate::fixed::FixedPath;
use crate::sys::read_text;

/// Where control groups (version 2) are mounted.
const MOUNT: &str = "/sys/fs/cgroup";
/// Levels of control groups looked at; deeper trees are not made by any scheduler.
const MAX_DEPTH: usize = 16;
/// Bytes read of a file of numbers: memory.stat has some 60 lines of 30 bytes, and what is looked for is in the first 30.
const FILE_BYTES: usize = 4096;

/// Bytes this process may still allocate by the tightest limit of its control groups, `u64::MAX` without one.
pub(crate) fn room_bytes() -> u64 {
    let mut buffer = [0; FILE_BYTES];
    let own = read_text(c"/proc/self/cgroup", &mut buffer).unwrap_or("");
    room_under(MOUNT.as_bytes(), own_group(own))
}

/// Path of the version 2 group in the text of /proc/self/cgroup: the line "0::/path".
fn own_group(text: &str) -> &str {
    text.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or("")
}

fn room_under(mount: &[u8], group: &str) -> u64 {
    let mut room = u64::MAX;
    let Some(mut path) = FixedPath::new(mount) else { return room };
    let whole = group.is_empty() || path.push(b"/") && path.push(group.as_bytes());
    if !whole {
        return room;
    }
    for _ in 0..MAX_DEPTH {
        room = room.min(room_of(&mut path).unwrap_or(u64::MAX));
        let parent = path.as_bytes().iter().rposition(|&byte| byte == b'/').unwrap_or(0);
        if parent < mount.len() {
            break;
        }
        path.truncate(parent);
    }
    room
}

/// Room in one group: its limit less what it uses, where file cache does not count because the kernel gives it back.
fn room_of(group: &mut FixedPath) -> Option<u64> {
    let mut buffer = [0; FILE_BYTES];
    let limit: u64 = read_in(group, "/memory.max", &mut buffer)?.trim().parse().ok()?;
    let used: u64 = read_in(group, "/memory.current", &mut buffer)?.trim().parse().ok()?;
    let stat = read_in(group, "/memory.stat", &mut buffer).unwrap_or("");
    let cache = |name: &str| -> u64 {
        let value = stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
        value.unwrap_or(0)
    };
    let cached = cache("active_file ").saturating_add(cache("inactive_file "));
    Some(limit.saturating_sub(used.saturating_sub(cached)))
}

fn read_in<'a>(group: &mut FixedPath, file: &str, buffer: &'a mut [u8]) -> Option<&'a str> {
    let len = group.as_bytes().len();
    let text = if group.push(file.as_bytes()) { read_text(group.as_c_str(), buffer).ok() } else { None };
    group.truncate(len);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "miri has no directories here")]
    fn the_tightest_group_above_counts_and_file_cache_does_not() {
        let mount = tempfile::tempdir().expect("temporary directory");
        let inner = mount.path().join("slurm/job7");
        std::fs::create_dir_all(&inner).expect("groups");
        let put = |file: &str, text: &str| std::fs::write(mount.path().join(file), text).expect("file");
        assert_eq!(room_under(mount.path().as_os_str().as_encoded_bytes(), "slurm/job7"), u64::MAX, "no limits at all");
        put("slurm/job7/memory.max", "max\n");
        put("slurm/job7/memory.current", "900\n");
        assert_eq!(
            room_under(mount.path().as_os_str().as_encoded_bytes(), "slurm/job7"),
            u64::MAX,
            "an unlimited group"
        );
        put("slurm/memory.max", "1000\n");
        put("slurm/memory.current", "900\n");
        assert_eq!(room_under(mount.path().as_os_str().as_encoded_bytes(), "slurm/job7"), 100, "the limit above");
        put("slurm/memory.stat", "anon 500\nactive_file 100\ninactive_file 200\n");
        assert_eq!(
            room_under(mount.path().as_os_str().as_encoded_bytes(), "slurm/job7"),
            400,
            "file cache is given back"
        );
        assert_eq!(own_group("1:cpu:/x\n0::/slurm/job7\n"), "slurm/job7");
        assert_eq!(own_group("0::/\n"), "");
    }
}
