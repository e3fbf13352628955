//! `cargo xtask dist`: everything that is handed out, in target/dist. Builds for an old C library, packs (archive, Debian
//! package, .rpm, Python wheel, files of a container image, Helm chart), lists the contents, and checks sizes and the C library needed.
mod archive;
mod build;
mod chart;
mod debian;
mod elf;
mod packing;
mod product;
mod rpm;
mod sbom;
mod stage;
mod wheel;

use crate::run::{output, run};
use anyhow::{Context as _, Result, bail};
use packing::Packing;
use product::{LIBRARIES, PROGRAM};
use std::path::{Path, PathBuf};

/// What to pack, and where to.
#[derive(clap::Args)]
pub(crate) struct DistArgs {
    /// Pack the programs of this folder instead of building them; limits are told and not enforced.
    #[arg(long, value_name = "DIR")]
    from: Option<PathBuf>,
    /// Folder to write, which must be empty or absent; default target/dist, which is written anew.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Build with this machine's own linker. The result needs this machine's C library or a later one.
    #[arg(long, conflicts_with = "from")]
    native: bool,
    /// Compress next to nothing: for tests.
    #[arg(long)]
    quick: bool,
    /// Build and pack nothing: check sizes and C library of what lies in the folder.
    #[arg(long, conflicts_with_all = ["from", "native", "quick"])]
    check: bool,
}

/// Builds, packs and checks.
pub(crate) fn dist(root: &Path, args: &DistArgs) -> Result<()> {
    let out = args.out.clone().unwrap_or_else(|| root.join("target/dist"));
    let out = std::path::absolute(out)?;
    if args.check {
        let violations = elf::violations(&out, true)?;
        return if violations.is_empty() { Ok(()) } else { bail!("{}", violations.join("\n")) };
    }
    let from = match &args.from {
        Some(from) => std::path::absolute(from)?,
        None => build::build(root, args.native)?,
    };
    begin(&out, args.out.is_some())?;
    for file in std::iter::once(&PROGRAM).chain(LIBRARIES) {
        let (source, copy) = (from.join(file), out.join(file));
        std::fs::copy(&source, &copy).with_context(|| format!("cannot copy {}", source.display()))?;
    }
    let violations = elf::violations(&out, !args.native)?;
    pack(root, &out, args.quick)?;
    tell(&out, args.native)?;
    match (violations.is_empty(), args.from.is_some()) {
        (true, _) => Ok(()),
        (false, true) => {
            eprintln!("not for handing out:\n{}", violations.join("\n"));
            Ok(())
        }
        (false, false) => bail!("{}", violations.join("\n")),
    }
}

/// The folder to write: made anew where it is ours, empty where somebody named it.
fn begin(out: &Path, was_named: bool) -> Result<()> {
    if out.exists() && !was_named {
        std::fs::remove_dir_all(out).with_context(|| format!("cannot empty {}", out.display()))?;
    }
    std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    if std::fs::read_dir(out)?.next().is_some() {
        bail!("{} is not empty: --out takes a folder of its own", out.display());
    }
    Ok(())
}

/// Makes all packages of the programs in `out`.
fn pack(root: &Path, out: &Path, quick: bool) -> Result<()> {
    let work = out.join("staged");
    let needs = elf::needs_of_all(out)?;
    let time = output(root, "git", &["log", "-1", "--format=%ct"]).unwrap_or_else(|_| "0".to_owned());
    let packing = Packing { root, out, work: &work, needs: &needs, time: time.trim(), quick };
    std::fs::write(out.join(sbom::NAME), sbom::of_checkout(root)?)?;
    let staged = stage::stage(&packing)?;
    archive::archive(&packing, &staged)?;
    debian::package(&packing, &staged)?;
    rpm::package(&packing, &staged)?;
    wheel::wheel(&packing)?;
    container(&packing)?;
    chart::chart(&packing)?;
    std::fs::remove_dir_all(&work)?;
    archive::sums(root, out)
}

/// The files of a container image beside the programs: the folder is what the image is built from.
fn container(packing: &Packing<'_>) -> Result<()> {
    std::fs::copy(packing.root.join("deploy/container/Dockerfile"), packing.out.join("Dockerfile"))?;
    Ok(())
}

/// Lists what was made, and says which machines it runs on.
fn tell(out: &Path, native: bool) -> Result<()> {
    run(out, "ls", &["-lh", "--time-style=+"])?;
    let needs = elf::needs_of_all(out)?;
    let how = if native { ": built with this machine's own linker" } else { "" };
    eprintln!("{}: needs glibc {} or later{how}", out.display(), needs.glibc);
    Ok(())
}
