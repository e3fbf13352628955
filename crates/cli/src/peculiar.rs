//! What the doctor says of the versions of NCCL and RCCL that it meets: the table of `mycroft_record::nccl`.
use crate::check::{Check, ok, warn};
use mycroft_record::nccl::{Effect, Library, NcclVersion, Peculiarity, peculiarities};
use std::collections::BTreeSet;

/// The first version of NCCL that has plugins of profilers.
pub(crate) const FIRST_WITH_PROFILER: u32 = 22_300;
/// What to do where NCCL has none.
pub(crate) const BEFORE_PLUGINS: &str = "NCCL 2.23 or later (PyTorch from 2.7 on brings one); until then \
     LD_PRELOAD=/path/libmycroft_preload.so and RANK in the job: its calls are recorded";

/// What is seen of a version without plugins of profilers.
pub(crate) fn calls_only(version: NcclVersion) -> String {
    format!("NCCL {version} has no profiler plugins: calls alone are recorded, no operation's progress")
}

/// A line for each peculiarity of the NCCL versions met in traced processes. Nothing where no version is known.
pub(crate) fn of_versions(met: &BTreeSet<NcclVersion>) -> Vec<Check> {
    met.iter()
        .filter(|version| version.0 != 0)
        .flat_map(|version| {
            if version.0 < FIRST_WITH_PROFILER {
                return vec![warn("NCCL version", calls_only(*version), BEFORE_PLUGINS)];
            }
            let known: Vec<Check> = peculiarities(Library::Nccl, *version).map(|known| line(known, *version)).collect();
            if known.is_empty() { vec![ok("NCCL version", format!("{version}: nothing to mind"))] } else { known }
        })
        .collect()
}

/// What to mind where a process has loaded AMD's library, whose version only the process itself can ask for.
pub(crate) fn of_maps(maps: &str) -> Vec<Check> {
    if !maps.contains("librccl.so") {
        return Vec::new();
    }
    let text = |known: &Peculiarity| format!("RCCL before {}: {}", known.before, known.what);
    let of_rccl = |known: &&Peculiarity| known.library == Library::Rccl;
    mycroft_record::nccl::PECULIARITIES
        .iter()
        .filter(of_rccl)
        .map(|known| warn("RCCL version", text(known), known.remedy))
        .collect()
}

/// A peculiarity that a version has.
pub(crate) fn line(known: &Peculiarity, version: NcclVersion) -> Check {
    let what = match known.effect {
        Effect::NotVisible(_) => "not visible",
        Effect::FlowsNotObserved => "not observed",
        _ => "NCCL version",
    };
    let found = format!("{} {version}: {}", known.library, known.what);
    // What cannot be mended is told and nothing to do.
    if known.remedy.is_empty() { ok(what, found) } else { warn(what, found, known.remedy) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Grade;

    fn lines(codes: &[u32]) -> Vec<(Grade, &'static str)> {
        let met = codes.iter().map(|code| NcclVersion(*code)).collect();
        of_versions(&met).into_iter().map(|check| (check.grade, check.what)).collect()
    }

    #[test]
    fn each_version_has_its_lines() {
        assert_eq!(lines(&[0]), []);
        assert_eq!(lines(&[22_105]), [(Grade::Warn, "NCCL version")]);
        let before_plugins = of_versions(&BTreeSet::from([NcclVersion(22_105)]));
        assert!(
            before_plugins[0].found.starts_with("NCCL 2.21.5 has no profiler plugins"),
            "{}",
            before_plugins[0].found
        );
        assert!(before_plugins[0].fix.contains("libmycroft_preload.so"), "{}", before_plugins[0].fix);
        assert_eq!(lines(&[22_602]), [(Grade::Ok, "NCCL version")]);
        assert_eq!(lines(&[22_705]), [(Grade::Ok, "not observed")]);
        assert_eq!(lines(&[22_907]), [(Grade::Warn, "not visible")]);
        assert_eq!(lines(&[23_102]), [(Grade::Warn, "NCCL version")]);
    }

    #[test]
    fn amds_library_is_told_by_what_is_loaded() {
        assert!(of_maps("7f00 r-xp /usr/lib/libnccl.so.2").is_empty());
        let told = of_maps("7f00 r-xp /opt/rocm/lib/librccl.so.1");
        assert!(told.len() == 1 && told[0].found.starts_with("RCCL before 2.27.7: "), "{:?}", told[0].found);
    }
}
