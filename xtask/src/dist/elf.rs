//! What programs and libraries need of a machine, as `objdump` shows it, and how large they may be.
use super::product::{LIBRARIES, PROGRAM};
use crate::run::output;
use anyhow::{Context as _, Result};
use std::fmt;
use std::path::Path;

/// The newest C library that may be needed: RHEL 8, Debian 10 and Ubuntu 18.10 have it.
pub(super) const GLIBC_MAX: Glibc = Glibc(2, 28);
/// Most bytes of the program: what `scp` to a thousand hosts takes without a thought.
const PROGRAM_BYTES_MAX: u64 = 25 << 20;
/// Most bytes of a library: it is mapped into each rank.
const LIBRARY_BYTES_MAX: u64 = 3 << 20;
/// Libraries that every Linux with glibc has.
const EVERYWHERE: &[&str] =
    &["libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libgcc_s.so.1", "ld-linux"];

/// A version of glibc.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Glibc(pub(super) u32, pub(super) u32);

impl fmt::Display for Glibc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// What a file needs of the machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Needs {
    /// The oldest C library that has all its symbols.
    pub(super) glibc: Glibc,
    /// Libraries that it is linked with.
    pub(super) libraries: Vec<String>,
}

/// What all files of a folder that are handed out need together.
pub(super) fn needs_of_all(folder: &Path) -> Result<Needs> {
    let mut all = Needs { glibc: Glibc(2, 0), libraries: Vec::new() };
    for file in std::iter::once(&PROGRAM).chain(LIBRARIES) {
        let needs = needs(&folder.join(file))?;
        all.glibc = all.glibc.max(needs.glibc);
        all.libraries.extend(needs.libraries);
    }
    all.libraries.sort();
    all.libraries.dedup();
    Ok(all)
}

/// What is too large, or needs what old machines have not. Prints a line for each file.
pub(super) fn violations(folder: &Path, for_old: bool) -> Result<Vec<String>> {
    let mut violations = Vec::new();
    for file in std::iter::once(&PROGRAM).chain(LIBRARIES) {
        let path = folder.join(file);
        let bytes = path.metadata().with_context(|| format!("no {}", path.display()))?.len();
        let needs = needs(&path)?;
        let (glibc, megabytes) = (needs.glibc, bytes as f64 / f64::from(1 << 20));
        eprintln!("{file}: {megabytes:.1} MiB, glibc {glibc}, {}", needs.libraries.join(" "));
        let most = if *file == PROGRAM { PROGRAM_BYTES_MAX } else { LIBRARY_BYTES_MAX };
        if bytes > most {
            violations.push(format!("{file}: {megabytes:.1} MiB, more than {} MiB", most >> 20));
        }
        if for_old && glibc > GLIBC_MAX {
            violations.push(format!("{file}: needs glibc {glibc}, later than {GLIBC_MAX}"));
        }
        let is_foreign = |name: &&String| !EVERYWHERE.iter().any(|known| name.starts_with(known));
        for name in needs.libraries.iter().filter(is_foreign) {
            violations.push(format!("{file}: needs {name}, which not every machine has"));
        }
    }
    Ok(violations)
}

fn needs(path: &Path) -> Result<Needs> {
    let parent = path.parent().unwrap_or(Path::new("/"));
    let told =
        output(parent, "objdump", &["-p", &path.to_string_lossy()]).context("Debian: apt-get install binutils")?;
    Ok(needs_told(&told))
}

/// From the private headers as `objdump -p` prints them.
fn needs_told(told: &str) -> Needs {
    let libraries =
        told.lines().filter_map(|line| line.trim().strip_prefix("NEEDED")).map(|name| name.trim().to_owned());
    // Of the versions that are asked for, not of those that a library defines.
    let asked = told.split_once("Version References:").map_or("", |(_, rest)| rest);
    let glibc = asked.split_whitespace().filter_map(version).max().unwrap_or(Glibc(2, 0));
    Needs { glibc, libraries: libraries.collect() }
}

/// `GLIBC_2.28`, and a name for a way of relocating that came with 2.36.
fn version(symbol: &str) -> Option<Glibc> {
    let rest = symbol.strip_prefix("GLIBC_")?;
    if rest == "ABI_DT_RELR" {
        return Some(Glibc(2, 36));
    }
    let mut numbers = rest.split('.').map(str::parse::<u32>);
    Some(Glibc(numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_counts_and_only_what_is_asked_for() {
        let told = "  NEEDED               libc.so.6\n  NEEDED               libm.so.6\n\nVersion definitions:\n1 0x01 0x0 GLIBC_2.99\n\n\
                    Version References:\n  required from libc.so.6:\n    0x069691b8 0x00 02 GLIBC_2.28\n    \
                    0x09691a75 0x00 03 GLIBC_2.2.5\n    0x0 0x00 04 GLIBC_PRIVATE\n";
        let needs = needs_told(told);
        assert_eq!(
            (needs.glibc, needs.libraries),
            (Glibc(2, 28), vec!["libc.so.6".to_owned(), "libm.so.6".to_owned()])
        );
        let relocated = format!("{told}    0x0fd0e42 0x00 05 GLIBC_ABI_DT_RELR\n");
        assert_eq!(needs_told(&relocated).glibc, Glibc(2, 36));
        assert_eq!(needs_told("").glibc, Glibc(2, 0));
    }

    #[test]
    fn this_program_needs_a_c_library() {
        let own = std::env::current_exe().expect("a program");
        let needs = needs(&own).expect("objdump reads it");
        assert!(needs.glibc > Glibc(2, 0) && needs.libraries.iter().any(|name| name == "libc.so.6"), "{needs:?}");
    }
}
