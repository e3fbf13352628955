//! The shared secret of server, agents and readers: given, or in a file that only its owner reads.
use anyhow::{Context, Result, bail};
use mycroft_wire::trusted::{self, Holds};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Bytes of a made token: 192 random bits, as 48 hex digits.
const RANDOM_BYTES: usize = 24;

/// Flags of everything that shows or asks for the token.
#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct TokenArgs {
    /// Token of the server. Seen by whoever lists processes: --token-file keeps it private.
    #[arg(long, env = "MYCROFT_TOKEN", hide_env_values = true, conflicts_with = "token_file")]
    pub(crate) token: Option<String>,
    /// File that holds the token of the server.
    #[arg(long, env = "MYCROFT_TOKEN_FILE", value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

/// Flags of what shows or asks for the token of who may act.
#[derive(clap::Args, Debug, Clone, Default)]
pub(crate) struct ActTokenArgs {
    /// File that holds the token of who may act, which is not the readers'.
    #[arg(long, env = "MYCROFT_ACT_TOKEN_FILE", value_name = "FILE")]
    pub(crate) act_token_file: Option<PathBuf>,
}

impl ActTokenArgs {
    /// The token; `None` where no file is named.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn read(&self) -> Result<Option<String>> {
        let told = |path: &PathBuf| read(path).with_context(|| format!("--act-token-file {}", path.display()));
        self.act_token_file.as_ref().map(told).transpose()
    }

    /// As `read`; a file that is not there is made with a new token.
    ///
    /// # Errors
    /// When the file cannot be made or read.
    pub(crate) fn read_or_make(&self) -> Result<Option<String>> {
        if let Some(path) = &self.act_token_file {
            make(path).with_context(|| format!("--act-token-file {}", path.display()))?;
        }
        self.read()
    }
}

impl TokenArgs {
    /// The token; `None` where none is set.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn read(&self) -> Result<Option<String>> {
        match (&self.token, &self.token_file) {
            (Some(token), _) => Ok(Some(token.clone())),
            (None, None) => Ok(None),
            (None, Some(path)) => read(path).with_context(|| format!("--token-file {}", path.display())).map(Some),
        }
    }

    /// As `read`; a file that is not there is made with a new token. The second says whether it was.
    ///
    /// # Errors
    /// When the file cannot be made or read.
    pub(crate) fn read_or_make(&self) -> Result<(Option<String>, bool)> {
        let made = match &self.token_file {
            Some(path) => make(path).with_context(|| format!("--token-file {}", path.display()))?,
            None => false,
        };
        Ok((self.read()?, made))
    }
}

/// A secret in a file that nobody else may change.
///
/// # Errors
/// When it cannot be read, or is not safe there.
pub(crate) fn secret(path: &Path) -> Result<String> {
    let bytes = trusted::read(path, Holds::Secret)?;
    Ok(std::str::from_utf8(&bytes).context("is not text")?.trim().to_owned())
}

/// As `secret`, of a token, which is never empty.
///
/// # Errors
/// As `secret`, and when it is empty.
pub(crate) fn read(path: &Path) -> Result<String> {
    let token = secret(path)?;
    if token.is_empty() {
        bail!("is empty; remove it and `mycroft serve --token-file` makes a new one");
    }
    Ok(token)
}

/// Makes the file, readable by its owner only. False: it is there already.
fn make(path: &Path) -> Result<bool> {
    let mut file = match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
        Err(error) => return Err(error.into()),
    };
    let mut random = [0; RANDOM_BYTES];
    File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut random)).context("/dev/urandom")?;
    let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    writeln!(file, "{token}")?;
    file.sync_all()?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_made_once_private_and_read_by_all() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("token");
        let args = TokenArgs { token: None, token_file: Some(path.clone()) };
        assert!(args.read().is_err(), "an agent makes none");
        let (made, is_new) = args.read_or_make().expect("made");
        assert!(is_new && made.as_ref().is_some_and(|token| token.len() == 2 * RANDOM_BYTES));
        assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
        assert_eq!(args.read_or_make().expect("kept"), (made.clone(), false));
        assert_eq!(args.read().expect("read"), made);
        std::fs::write(&path, "\n").expect("written");
        assert!(args.read().is_err(), "an empty file is no token");
        std::fs::write(&path, "0123456789abcdef").expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).expect("ours");
        let refused = format!("{:#}", args.read().expect_err("others may change it"));
        assert!(refused.contains("--token-file") && refused.contains("chmod go-w"), "{refused}");
    }
}
