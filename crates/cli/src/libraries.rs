//! Where the tracer's library is.
use anyhow::{Result, bail};
use std::path::PathBuf;

/// The tracer, a NCCL profiler plugin.
pub(crate) const TRACER: &str = "libmycroft_nccl.so";

/// Finds a library in MYCROFT_LIB_DIR, beside the executable, in its deps folder, or in ../lib.
pub(crate) fn find(name: &str) -> Result<PathBuf> {
    let mut places = Vec::new();
    if let Some(dir) = std::env::var_os("MYCROFT_LIB_DIR") {
        places.push(PathBuf::from(dir));
    }
    if let Some(dir) = std::env::current_exe()?.parent() {
        places.extend([dir.to_path_buf(), dir.join("deps"), dir.join("../lib"), dir.join("../lib/mycroft")]);
    }
    for place in &places {
        let path = place.join(name);
        if path.is_file() {
            return Ok(path.canonicalize()?);
        }
    }
    let looked: Vec<String> = places.iter().map(|place| place.display().to_string()).collect();
    bail!("{name} not found in {}: build it with `cargo build --workspace`, or set MYCROFT_LIB_DIR", looked.join(", "))
}
