//! Where segments are unless somebody said otherwise.
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// /dev/shm/mycroft-UID, where the tracer writes unless MYCROFT_DIR says otherwise.
pub(crate) fn default_segment_dir() -> PathBuf {
    PathBuf::from(format!("/dev/shm/mycroft-{}", uid()))
}

/// The user that this program runs as.
pub(crate) fn uid() -> u32 {
    std::fs::metadata("/proc/self").map_or(0, |metadata| metadata.uid())
}
