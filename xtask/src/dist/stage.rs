//! The tree of files as they lie on a machine after an installation: archive and packages are made of it.
use super::packing::Packing;
use super::product::{LIBRARIES, PROGRAM};
use super::sbom;
use crate::run::output;
use anyhow::{Context as _, Result};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Files of the checkout: where they are, the folder they go to, and their mode. A name with a slash at its end is a folder,
/// whose files go there.
const FILES: &[(&str, &str, u32)] = &[
    ("deploy/systemd/mycroft-server.service", "usr/lib/systemd/system", 0o644),
    ("deploy/systemd/mycroft-agent.service", "usr/lib/systemd/system", 0o644),
    ("deploy/systemd/mycroft-agent@.service", "usr/lib/systemd/system", 0o644),
    ("deploy/systemd/mycroft.conf", "usr/lib/sysusers.d", 0o644),
    ("deploy/systemd/server.env", "etc/mycroft", 0o644),
    ("deploy/systemd/agent.env", "etc/mycroft", 0o644),
    ("deploy/nccl.conf", "etc/mycroft", 0o644),
    ("deploy/slurm/", "usr/share/mycroft/slurm", 0o755),
    ("deploy/prometheus/", "usr/share/mycroft/prometheus", 0o644),
    ("deploy/grafana/", "usr/share/mycroft/grafana", 0o644),
    ("docs/runbook/", "usr/share/doc/mycroft/runbook", 0o644),
    ("README.md", "usr/share/doc/mycroft", 0o644),
    ("CHANGELOG.md", "usr/share/doc/mycroft", 0o644),
    ("LICENSE", "usr/share/doc/mycroft", 0o644),
];

/// Makes the tree; gives its folder.
pub(super) fn stage(packing: &Packing<'_>) -> Result<PathBuf> {
    let tree = packing.work.join("tree");
    put(&packing.out.join(PROGRAM), &tree.join("usr/bin"), 0o755)?;
    for library in LIBRARIES {
        put(&packing.out.join(library), &tree.join("usr/lib/mycroft"), 0o644)?;
    }
    put(&packing.out.join(sbom::NAME), &tree.join("usr/share/doc/mycroft"), 0o644)?;
    for (source, folder, mode) in FILES {
        let (path, folder) = (packing.root.join(source), tree.join(folder));
        if !source.ends_with('/') {
            put(&path, &folder, *mode)?;
            continue;
        }
        for entry in std::fs::read_dir(&path).with_context(|| format!("cannot list {source}"))? {
            put(&entry?.path(), &folder, *mode)?;
        }
    }
    pages(packing, &tree)?;
    written(packing, &["config", "show", "--example"], &tree.join("etc/mycroft"), "mycroft.toml")?;
    Ok(tree)
}

/// What the program prints, as a file.
fn written(packing: &Packing<'_>, args: &[&str], folder: &Path, name: &str) -> Result<()> {
    make(folder)?;
    let (program, path) = (packing.out.join(PROGRAM).to_string_lossy().into_owned(), folder.join(name));
    std::fs::write(&path, output(packing.root, &program, args)?)?;
    Ok(std::fs::set_permissions(&path, PermissionsExt::from_mode(0o644))?)
}

/// Man pages and completions, as the program itself writes them.
fn pages(packing: &Packing<'_>, tree: &Path) -> Result<()> {
    let program = packing.out.join(PROGRAM).to_string_lossy().into_owned();
    let pages = tree.join("usr/share/man/man1");
    output(packing.root, &program, &["man", &pages.to_string_lossy()])?;
    for entry in std::fs::read_dir(&pages)? {
        std::fs::set_permissions(entry?.path(), PermissionsExt::from_mode(0o644))?;
    }
    for (shell, folder, name) in [
        ("bash", "usr/share/bash-completion/completions", "mycroft"),
        ("zsh", "usr/share/zsh/vendor-completions", "_mycroft"),
        ("fish", "usr/share/fish/vendor_completions.d", "mycroft.fish"),
    ] {
        written(packing, &["completions", shell], &tree.join(folder), name)?;
    }
    Ok(())
}

/// Copies a file into a folder, with this mode whatever the mask of who builds.
pub(super) fn put(file: &Path, folder: &Path, mode: u32) -> Result<()> {
    make(folder)?;
    let copy = folder.join(file.file_name().context("a file has a name")?);
    std::fs::copy(file, &copy).with_context(|| format!("cannot copy {}", file.display()))?;
    Ok(std::fs::set_permissions(&copy, PermissionsExt::from_mode(mode))?)
}

/// Makes a folder and those above it, open to all readers.
fn make(folder: &Path) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(above) = folder.parent() {
        make(above)?;
    }
    std::fs::create_dir(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755))?)
}
