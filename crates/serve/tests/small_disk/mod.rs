//! A disk that is soon full.
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A disk of 6 MiB, unmounted when dropped.
pub(crate) struct SmallDisk(pub(crate) PathBuf);

impl SmallDisk {
    /// Mounts it in a folder; `None`, with a line that says so: this user may not.
    pub(crate) fn mount(dir: &Path) -> Option<SmallDisk> {
        let at = dir.join("disk");
        std::fs::create_dir(&at).expect("a folder");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=6m", "mycroft-test"]).arg(&at).output();
        match mounted {
            Ok(output) if output.status.success() => Some(SmallDisk(at)),
            _ => {
                println!("skipped: this user may not mount a tmpfs");
                None
            }
        }
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }

    /// Fills it up to the last byte.
    pub(crate) fn fill(&self) {
        let mut filler = std::fs::OpenOptions::new().append(true).create(true).open(self.filler()).expect("a file");
        for size in [64 * 1024, 4096, 1] {
            while filler.write_all(&vec![0; size]).is_ok() {}
        }
    }

    /// Gives the room back.
    pub(crate) fn free(&self) {
        std::fs::remove_file(self.filler()).expect("removed");
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).output();
    }
}
