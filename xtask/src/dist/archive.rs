//! The archive, for machines without a package for them, and the sums of everything.
use super::packing::{Packing, run_at};
use super::product::{ARCH, VERSION};
use crate::run::output;
use anyhow::{Context as _, Result};
use std::path::Path;

/// File of the sums, as `sha256sum --check` reads it.
const SUMS: &str = "SHA256SUMS";

/// `mycroft-VERSION-ARCH-linux.tar.zst`: `bin`, `lib/mycroft`, `share` and `etc` in one folder, which may lie anywhere.
pub(super) fn archive(packing: &Packing<'_>, tree: &Path) -> Result<()> {
    let name = format!("mycroft-{VERSION}-{ARCH}-linux");
    let file = packing.out.join(format!("{name}.tar.zst")).to_string_lossy().into_owned();
    let zstd =
        if packing.quick { "--use-compress-program=zstd -1 -T0 -q" } else { "--use-compress-program=zstd -19 -T0 -q" };
    // What lies below usr/ moves up.
    let rename = format!("--transform=s,^\\./usr/,{name}/,;s,^\\./,{name}/,");
    let time = format!("--mtime=@{}", packing.time);
    let how =
        ["--create", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", zstd, &time, &rename, "--file", &file];
    let folders = ["./etc", "./usr/bin", "./usr/lib", "./usr/share"];
    let args = [&how[..], &folders].concat();
    run_at(packing, tree, "tar", &args).context("tar and zstd are needed (Debian: apt-get install zstd)")
}

/// Writes the sums of all files in the folder.
pub(super) fn sums(root: &Path, out: &Path) -> Result<()> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(out)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.retain(|name| name != SUMS);
    names.sort();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let folder = if out.is_absolute() { out.to_owned() } else { root.join(out) };
    let told = output(&folder, "sha256sum", &[&["--"], &names[..]].concat())?;
    Ok(std::fs::write(out.join(SUMS), told)?)
}
