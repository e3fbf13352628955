//! Builds for the oldest C library that is promised, with zig as the linker: it brings the symbol versions of every glibc.
use super::elf::GLIBC_MAX;
use super::product::{ARCH, LIBRARIES, PROGRAM};
use crate::run::{answers, run, target_dir};
use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};

/// The linker and what lets cargo use it, from pip.
const TOOLS: &[&str] = &["ziglang==0.17.1", "cargo-zigbuild==0.24.1"];
/// Cargo's profile: optimized across crates, and stripped.
const PROFILE: &str = "dist";
/// The packages whose products are handed out.
const PACKAGES: &[&str] =
    &["-p", "mycroft-cli", "-p", "mycroft-nccl", "-p", "mycroft-preload", "-p", "mycroft-testbed-nccl"];

/// Pieces that are kept for the next build make the program larger.
const WHOLE: &str = "CARGO_INCREMENTAL=0";

/// Builds the program and the libraries; gives their folder.
pub(super) fn build(root: &Path, native: bool) -> Result<PathBuf> {
    let profile = ["--locked", "--profile", PROFILE];
    if native {
        eprintln!("built with this machine's own linker: what comes out needs this machine's glibc or a later one");
        run(root, "env", &[&[WHOLE, "cargo", "build"], &profile[..], PACKAGES].concat())?;
        return Ok(target_dir(root).join(PROFILE));
    }
    let bin = install(root).context(
        "no zig, so nothing can be built for an old C library; `cargo xtask dist --native` builds for this machine's",
    )?;
    let target = format!("{ARCH}-unknown-linux-gnu");
    // Cargo finds `cargo-zigbuild` on the PATH, and that finds zig.
    let path = format!("PATH={}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let for_old = format!("{target}.{GLIBC_MAX}");
    let cargo = [path.as_str(), WHOLE, "cargo", "zigbuild", "--target", &for_old];
    run(root, "env", &[&cargo, &profile[..], PACKAGES].concat())?;
    let folder = target_dir(root).join(target).join(PROFILE);
    for file in std::iter::once(&PROGRAM).chain(LIBRARIES) {
        folder.join(file).metadata().with_context(|| format!("the build left no {file}"))?;
    }
    Ok(folder)
}

/// Puts the tools into the target folder; gives the folder of their programs.
fn install(root: &Path) -> Result<PathBuf> {
    let venv = target_dir(root).join("tools/zig");
    let (bin, done) = (venv.join("bin"), venv.join("installed"));
    let wanted = TOOLS.join("\n");
    let python = bin.join("python").to_string_lossy().into_owned();
    if std::fs::read_to_string(&done).is_ok_and(|text| text == wanted)
        && answers(&python, &["-m", "ziglang", "version"])
    {
        return Ok(bin);
    }
    run(root, "python3", &["-m", "venv", "--clear", &venv.to_string_lossy()])
        .context("no virtual environment: Python with venv is needed (Debian: python3-venv)")?;
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
    run(root, &python, &[&pip, TOOLS].concat()).context("pip failed: it needs a package index and 500 MB of disk")?;
    std::fs::write(&done, wanted)?;
    Ok(bin)
}
