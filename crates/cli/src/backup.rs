//! `mycroft backup`: a copy of a server's store while the server goes on.
use crate::exit::EXIT_OK;
use crate::told::print;
use anyhow::{Result, bail};
use std::path::PathBuf;

#[derive(clap::Args, Debug)]
pub(crate) struct BackupArgs {
    /// The store, as `mycroft serve --store` names it.
    #[arg(long, env = "MYCROFT_STORE", value_name = "DIR")]
    store: PathBuf,
    /// Folder to make: a store again, for `mycroft serve --store`, `mycroft replay` and `mycroft export`.
    out: PathBuf,
}

/// Copies it.
pub(crate) fn backup(args: &BackupArgs) -> Result<u8> {
    if !mycroft_store::is_store(&args.store) {
        bail!("{} holds no store: name what `mycroft serve --store` was given", args.store.display());
    }
    let done = mycroft_store::back_up(&args.store, &args.out)?;
    let mib = done.bytes >> 20;
    print(&format!("{} files, {mib} MiB and the cases, in {}\n", done.files, args.out.display()))?;
    Ok(EXIT_OK)
}
