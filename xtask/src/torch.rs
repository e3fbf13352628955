//! `cargo xtask torch`: a Python with torch for the testbed's programs, in the target folder; and docs/results/torch.md.
mod page;
mod results;

use crate::run::{answers, run, target_dir};
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};

/// The torch that the programs are written for. Its wheel is 539 MB and unpacks to 1.4 GB; NVIDIA's libraries, gigabytes
/// more, are not installed.
const TORCH: &str = "torch==2.15.0";

/// What torch imports, and NumPy, which it warns without.
const PACKAGES: &[&str] =
    &["numpy", "filelock", "typing-extensions", "setuptools>=77", "sympy", "networkx", "jinja2", "fsspec"];

/// Of NVIDIA's wheels the small ones whose code runs when torch loads: 17 MB.
const RUNTIMES: &[&str] = &["nvidia-cuda-runtime==13.*", "nvidia-cuda-cupti==13.*", "nvidia-cufile==1.*"];

/// `MYCROFT_TORCH=0` in the environment: `cargo xtask test` installs no torch, and the tests that need it say so.
const ENV_TORCH: &str = "MYCROFT_TORCH";

/// What to do besides installing.
#[derive(clap::Args)]
pub(crate) struct TorchArgs {
    /// Play programs x faults, healthy jobs and the tracer's cost, and write docs/results/torch.md: an hour and a half.
    /// What was played lies in target/torch/results; what is there is not played again.
    #[arg(long)]
    results: bool,
    /// Write the page of what has been played so far.
    #[arg(long)]
    page: bool,
}

/// Installs, and does what was asked for.
pub(crate) fn torch(root: &Path, args: &TorchArgs) -> Result<()> {
    if args.page {
        return page::write(root, &results::dir(root));
    }
    install(root)?;
    if args.results {
        results::play(root)?;
        page::write(root, &results::dir(root))?;
    }
    Ok(())
}

/// For `cargo xtask test`: tests that need torch are skipped where it cannot be had, and nothing else depends on it.
pub(crate) fn install_for_tests(root: &Path) {
    if std::env::var(ENV_TORCH).is_ok_and(|value| value == "0") {
        eprintln!("{ENV_TORCH}=0: torch is not installed; where it is not there already its tests are skipped");
    } else if let Err(error) = install(root) {
        eprintln!("no torch, so the tests of PyTorch programs will be skipped: {error:#}");
    }
}

/// The interpreter of the virtual environment.
pub(crate) fn python(root: &Path) -> PathBuf {
    target_dir(root).join("torch/venv/bin/python")
}

/// Makes the virtual environment; nothing when it is there and whole.
fn install(root: &Path) -> Result<()> {
    let (python, done) = (python(root), target_dir(root).join("torch/installed"));
    let wanted = format!("{TORCH}\n");
    if std::fs::read_to_string(&done).is_ok_and(|text| text == wanted) && imports(&python) {
        return Ok(());
    }
    let venv = python.ancestors().nth(2).context("the interpreter lies in a folder")?.to_owned();
    if !answers(&python.to_string_lossy(), &["-m", "pip", "--version"]) {
        run(root, "python3", &["-m", "venv", "--clear", &venv.to_string_lossy()])
            .context("no virtual environment: Python 3.10 or later with venv is needed (Debian: python3-venv)")?;
    }
    // In this order, so that pip does not list what torch would bring.
    pip(root, &python, PACKAGES)?;
    pip(root, &python, &["--no-deps", TORCH])?;
    if !imports(&python) {
        pip(root, &python, &[&["--no-deps"], RUNTIMES].concat())?;
        stub(root, &python)?;
    }
    if !imports(&python) {
        bail!(
            "torch does not load: see `{} -c 'import torch'`; delete {} to begin anew",
            python.display(),
            venv.display()
        );
    }
    std::fs::write(&done, wanted).with_context(|| format!("cannot write {}", done.display()))
}

fn imports(python: &Path) -> bool {
    answers(&python.to_string_lossy(), &["-c", "import torch, numpy"])
}

fn pip(root: &Path, python: &Path, packages: &[&str]) -> Result<()> {
    let args = ["-m", "pip", "install", "--quiet", "--no-cache-dir", "--disable-pip-version-check"];
    run(root, &python.to_string_lossy(), &[&args, packages].concat())
        .context("pip failed: it needs a package index (PIP_INDEX_URL) and 2.5 GB of disk")
}

/// Empty libraries in place of NVIDIA's, for a CUDA build of torch that computes on processors only.
fn stub(root: &Path, python: &Path) -> Result<()> {
    let asked = ["-c", "import sysconfig; print(sysconfig.get_path('purelib'))"];
    let packages = crate::run::output(root, &python.to_string_lossy(), &asked)?;
    run(root, "sh", &["testbed/flight_recorder/stub_cuda.sh", packages.trim()])
        .context("the stand-ins for CUDA could not be made: they need gcc and readelf")
}
