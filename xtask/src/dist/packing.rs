//! What every packer is given.
use super::elf::Needs;
use crate::run::run;
use anyhow::Result;
use std::path::Path;

/// What every packer needs to know.
pub(super) struct Packing<'a> {
    /// The checkout.
    pub(super) root: &'a Path,
    /// The folder that is handed out: the programs are in it.
    pub(super) out: &'a Path,
    /// A folder for what is staged; removed at the end.
    pub(super) work: &'a Path,
    /// What the programs need.
    pub(super) needs: &'a Needs,
    /// Seconds since 1970 of the last commit: the time of every file.
    pub(super) time: &'a str,
    /// Compress next to nothing.
    pub(super) quick: bool,
}

/// Runs a command with the time of the last commit for tools that write times into what they make.
pub(super) fn run_at(packing: &Packing<'_>, folder: &Path, program: &str, args: &[&str]) -> Result<()> {
    let time = format!("SOURCE_DATE_EPOCH={}", packing.time);
    run(folder, "env", &[&[time.as_str(), program], args].concat())
}
