//! The Python wheel that carries the program and the libraries, put together by `python/platform_wheel.py`.
use super::packing::{Packing, run_at};
use super::product::{ARCH, LIBRARIES, PROGRAM};
use super::sbom;
use anyhow::{Context as _, Result};

/// Makes `mycroft-VERSION-py3-none-manylinux_GLIBC_ARCH.whl`.
pub(super) fn wheel(packing: &Packing<'_>) -> Result<()> {
    let glibc = packing.needs.glibc;
    let platform = format!("manylinux_{}_{}_{ARCH}", glibc.0, glibc.1);
    let list = packing.out.join(sbom::NAME).to_string_lossy().into_owned();
    let mut args = vec!["python/platform_wheel.py", "--platform", &platform, "--sbom", &list];
    if packing.quick {
        args.push("--stored");
    }
    let out = packing.out.to_string_lossy().into_owned();
    let files: Vec<String> = std::iter::once(&PROGRAM)
        .chain(LIBRARIES)
        .map(|file| packing.out.join(file).to_string_lossy().into_owned())
        .collect();
    args.extend(["--out", &out]);
    args.extend(files.iter().map(String::as_str));
    run_at(packing, packing.root, "python3", &args).context("the wheel needs Python 3.9 or later")
}
