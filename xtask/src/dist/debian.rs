//! The Debian package, made by `dpkg-deb`, which every Debian has.
use super::packing::{Packing, run_at};
use super::product::{ARCH, VERSION};
use super::stage;
use crate::run::output;
use anyhow::{Context as _, Result, bail};
use std::path::Path;

/// What Debian calls the machines.
const DEBIAN_ARCH: &[(&str, &str)] = &[("x86_64", "amd64"), ("aarch64", "arm64")];
/// What runs when the package comes and goes.
const SCRIPTS: &[&str] = &["postinst", "prerm", "postrm"];
/// Debian's packages of libraries that programs here may be linked with.
const PACKAGE_OF: &[(&str, &str)] = &[("libgcc_s.so.1", "libgcc-s1 | libgcc1")];

/// Makes `mycroft_VERSION_ARCH.deb` of the tree.
pub(super) fn package(packing: &Packing<'_>, tree: &Path) -> Result<()> {
    let arch = DEBIAN_ARCH.iter().find(|(ours, _)| *ours == ARCH).context("no name for this machine")?.1;
    let control = packing.work.join("control");
    for script in SCRIPTS {
        stage::put(&packing.root.join("deploy/debian").join(script), &control, 0o755)?;
    }
    std::fs::write(control.join("control"), control_file(packing, tree, arch)?)?;
    let kept: Vec<String> =
        names(&tree.join("etc/mycroft"))?.iter().map(|name| format!("/etc/mycroft/{name}\n")).collect();
    std::fs::write(control.join("conffiles"), kept.concat())?;
    let sums = output(tree, "sh", &["-c", "find usr -type f | LC_ALL=C sort | xargs md5sum --"])?;
    std::fs::write(control.join("md5sums"), sums)?;
    // `dpkg-deb` wants it inside of the tree, which others pack without it.
    let inside = tree.join("DEBIAN");
    std::fs::rename(&control, &inside)?;
    let file = packing.out.join(format!("mycroft_{VERSION}_{arch}.deb"));
    let compression = if packing.quick { "-Znone" } else { "-Zxz" };
    let args = ["--root-owner-group", compression, "--build", &tree.to_string_lossy(), &file.to_string_lossy()];
    run_at(packing, packing.root, "dpkg-deb", &args).context("the Debian package needs dpkg-deb")?;
    Ok(std::fs::remove_dir_all(&inside)?)
}

/// The file of names and dependencies.
fn control_file(packing: &Packing<'_>, tree: &Path, arch: &str) -> Result<String> {
    let kilobytes = output(tree, "du", &["-sk", "--apparent-size", "."])?;
    let Some(kilobytes) = kilobytes.split_whitespace().next() else { bail!("du printed nothing") };
    let libc = format!("libc6 (>= {})", packing.needs.glibc);
    let others = PACKAGE_OF.iter().filter(|(library, _)| packing.needs.libraries.iter().any(|name| name == library));
    let depends: Vec<&str> = std::iter::once(libc.as_str()).chain(others.map(|(_, package)| *package)).collect();
    Ok(format!(
        "Package: mycroft\n\
         Version: {VERSION}\n\
         Architecture: {arch}\n\
         Maintainer: Mycroft developers <mycroft@localhost>\n\
         Installed-Size: {kilobytes}\n\
         Depends: {}\n\
         Section: admin\n\
         Priority: optional\n\
         Homepage: {}\n\
         Description: says which rank stalls or slows a training job\n \
         The tracer is a profiler plugin of NCCL; the program is the agent of each host, the\n \
         server and the command line. Nothing is started by the installation.\n",
        depends.join(", "),
        env!("CARGO_PKG_REPOSITORY"),
    ))
}

/// Names of the files in a folder, in order.
fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
