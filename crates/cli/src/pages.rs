//! What is made of the command line's own description: completions for shells, and man pages.
use crate::args::Args;
use crate::exit::EXIT_OK;
use crate::told::print;
use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;
use std::path::Path;

/// Prints completions.
pub(crate) fn completions(shell: Shell) -> Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "mycroft", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(EXIT_OK)
}

/// Writes man pages.
pub(crate) fn man(dir: &Path) -> Result<u8> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    clap_mangen::generate_to(Args::command(), dir).with_context(|| format!("cannot write into {}", dir.display()))?;
    Ok(EXIT_OK)
}
