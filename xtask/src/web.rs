//! `cargo xtask web`: the tests of the pages in a real browser, and the browser they need.
use crate::run::{answers, run};
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// What to do with the pages.
#[derive(clap::Args)]
pub(crate) struct WebArgs {
    /// Keep the pages' screenshots and prints in this folder, to look at.
    #[arg(long, value_name = "DIR")]
    shots: Option<PathBuf>,
}

/// Names under which distributions install Chromium (`crates/serve/tests/page/browser.rs` looks for the same).
const BROWSERS: &[&str] = &["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// Debian's browser, and a font, without which there is no text to measure.
const APT_PACKAGES: &[&str] = &["chromium", "fonts-dejavu-core"];

/// Runs the tests of the pages.
pub(crate) fn web(root: &Path, args: &WebArgs) -> Result<()> {
    install_browser(root);
    let mut command = vec!["test", "-p", "mycroft-serve", "--test", "page", "--", "--nocapture"];
    let Some(folder) = &args.shots else { return run(root, "cargo", &command) };
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let folder = folder.canonicalize().with_context(|| format!("cannot find {}", folder.display()))?;
    let variable = format!("MYCROFT_SHOTS={}", folder.display());
    command.splice(0..0, [variable.as_str(), "cargo"]);
    run(root, "env", &command)
}

/// Installs a browser where there is none. Where that is not possible the tests say that they were skipped: a page
/// cannot be looked at there, and nothing else depends on it.
pub(crate) fn install_browser(root: &Path) {
    if BROWSERS.iter().any(|program| answers("sh", &["-c", &format!("command -v {program}")])) {
        return;
    }
    let mut install = vec!["install", "-y", "-qq", "--no-install-recommends"];
    install.extend(APT_PACKAGES);
    let installed = run(root, "apt-get", &["update", "-qq"]).and_then(|()| run(root, "apt-get", &install));
    if let Err(error) = installed {
        eprintln!("no browser, so the tests of the pages will be skipped: {error:#}");
    }
}
