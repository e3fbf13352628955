//! Whether a file is a NCCL profiler plugin, by what its ELF headers and its dynamic symbols say: it is not loaded.
use object::{Architecture, Object, ObjectKind};
use std::collections::BTreeSet;
use std::path::Path;

/// Versions of NCCL's profiler interface, whose tables a plugin exports as `ncclProfiler_vN`.
pub(crate) const VERSIONS: std::ops::RangeInclusive<u32> = 1..=7;

/// The machine that this program is built for.
const OWN: Architecture = if cfg!(target_arch = "aarch64") { Architecture::Aarch64 } else { Architecture::X86_64 };

/// Versions of the profiler interface that the file exports, ascending.
///
/// # Errors
/// Why NCCL could not load it, or would take nothing from it.
pub(crate) fn versions(path: &Path) -> Result<Vec<u32>, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    of_bytes(&bytes)
}

fn of_bytes(bytes: &[u8]) -> Result<Vec<u32>, String> {
    let file = object::File::parse(bytes).map_err(|_| "is no ELF file".to_owned())?;
    if file.architecture() != OWN || !file.is_64() {
        return Err(format!("is for another machine ({:?}, this one is {OWN:?})", file.architecture()));
    }
    if file.kind() != ObjectKind::Dynamic {
        return Err("is no shared library".to_owned());
    }
    let exports = file.exports().map_err(|error| format!("has no readable symbols: {error}"))?;
    let names: BTreeSet<Vec<u8>> =
        exports.flatten().filter_map(|export| export.name().name().map(<[u8]>::to_vec)).collect();
    let found = |version: &u32| names.contains(format!("ncclProfiler_v{version}").as_bytes());
    let versions: Vec<u32> = VERSIONS.filter(found).collect();
    if versions.is_empty() { Err("exports no ncclProfiler_vN".to_owned()) } else { Ok(versions) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_plugin_is_told() {
        let text = b"ncclProfiler_v1 ncclProfiler_v2 ncclProfiler_v3 ncclProfiler_v4 ncclProfiler_v6 ncclProfiler_v7";
        assert_eq!(of_bytes(text), Err("is no ELF file".to_owned()));
        assert_eq!(of_bytes(b""), Err("is no ELF file".to_owned()));
        let own = std::fs::read("/proc/self/exe").expect("this test's own program");
        assert!(of_bytes(&own).is_err(), "a program, and without the symbols");
        let mut foreign = own.clone();
        // e_machine, two bytes at 18 of the ELF header: 243 is RISC-V.
        foreign[18..20].copy_from_slice(&243_u16.to_le_bytes());
        assert!(of_bytes(&foreign).expect_err("of another machine").contains("another machine"));
        assert!(of_bytes(&own[..own.len() / 2]).is_err(), "cut short");
    }
}
