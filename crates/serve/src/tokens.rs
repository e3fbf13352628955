//! Tokens by name: each for one agent, reader, operator or admin. The server's folder keeps their sums, never the tokens.
use mycroft_wire::Doorkeeper;
use mycroft_wire::sync::lock;
use mycroft_wire::trusted::{self, Holds};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};
use tracing::warn;

/// The file in the server's folder.
const FILE: &str = "tokens.json";
/// Bytes of a token: 192 random bits, as 48 hex digits. A sum of so many cannot be turned back by guessing, so it needs no salt.
const RANDOM_BYTES: usize = 24;
/// Longest name of a token.
const NAME_CHARS_MAX: usize = 64;
/// Most tokens of a server: some for each of 10,000 hosts, 3 MB, which the file's reader takes.
const TOKENS_MAX: usize = 16_384;

/// What a token lets its holder do; each but the first may do what the one before may.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Sends records of one host, and reads nothing.
    Agent,
    /// Reads.
    Reader,
    /// Also writes notes, silences alerts, and takes stacks and dumps.
    Operator,
    /// Also acts, where the server was started to: plans, gates, validations.
    Admin,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Agent => "agent",
            Role::Reader => "reader",
            Role::Operator => "operator",
            Role::Admin => "admin",
        })
    }
}

/// A token, without the token.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamedToken {
    /// Unique among those of a server.
    pub name: String,
    /// What it is good for.
    pub role: Role,
    /// The host of an agent; nobody else has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The jobs that its holder sees; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<String>,
    /// When it was made, seconds since 1970.
    pub made_s: u64,
    /// SHA-256 of the token, in hex.
    sha256: String,
}

/// Why a token was not made or revoked.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file or its folder.
    #[error("{path}: {source}")]
    Io {
        /// Which.
        path: String,
        /// Why.
        source: io::Error,
    },
    /// The file holds something else.
    #[error("{path} is not a list of tokens: {source}")]
    Broken {
        /// Which.
        path: String,
        /// Why.
        source: serde_json::Error,
    },
    /// What was asked for is not possible.
    #[error("{0}")]
    Refused(String),
}

/// The tokens of a server; read again when the file has changed, so that a revocation holds at once.
pub struct TokenBook {
    path: PathBuf,
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    stamp: Option<Stamp>,
    tokens: Vec<Arc<NamedToken>>,
}

/// Changes with every change of the file: it is replaced, never written.
type Stamp = (u64, u64, i64, i64);

impl TokenBook {
    /// Tokens of the server whose store is this folder. Nothing is read yet.
    pub fn of(store: &Path) -> TokenBook {
        TokenBook { path: store.join(FILE), known: Mutex::default() }
    }

    /// All tokens, by name.
    ///
    /// # Errors
    /// The folder is another user's; the file cannot be read or understood; others may change it.
    pub fn list(&self) -> Result<Vec<NamedToken>, TokenError> {
        self.check_owner()?;
        self.read()
    }

    fn read(&self) -> Result<Vec<NamedToken>, TokenError> {
        let bytes = match trusted::read(&self.path, Holds::Secret) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(self.io(source)),
        };
        serde_json::from_slice(&bytes)
            .map_err(|source| TokenError::Broken { path: self.path.display().to_string(), source })
    }

    /// Makes a token, which is told this once.
    ///
    /// # Errors
    /// The name is taken or not fit; the role wants a host or wants none; the file cannot be written.
    pub fn add(&self, name: &str, role: Role, host: Option<String>, jobs: Vec<String>) -> Result<String, TokenError> {
        let refused = |text: &str| Err(TokenError::Refused(text.to_owned()));
        let is_fit = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || name.len() > NAME_CHARS_MAX || !name.chars().all(is_fit) {
            return refused("a name has 1 to 64 letters, digits and . _ -");
        }
        match (role, &host) {
            (Role::Agent, None) => return refused("an agent's token is for one host: say which with --host"),
            (Role::Agent, Some(_)) if !jobs.is_empty() => {
                return refused("an agent sends all jobs of its host: no --jobs");
            }
            (Role::Reader | Role::Operator | Role::Admin, Some(_)) => {
                return refused("--host is for the role agent: others are known by their token alone");
            }
            _ => {}
        }
        let mut random = [0; RANDOM_BYTES];
        let told = SystemRandom::new().fill(&mut random);
        told.map_err(|_| TokenError::Refused("this machine gives no random numbers".to_owned()))?;
        let token = hex(&random);
        let made_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let made = NamedToken { name: name.to_owned(), role, host, jobs, made_s, sha256: sum(&token) };
        self.change(|tokens| {
            if tokens.iter().any(|token| token.name == made.name) {
                return Err(TokenError::Refused(format!("there is a token {name} already: revoke it first")));
            }
            if tokens.len() >= TOKENS_MAX {
                return Err(TokenError::Refused(format!("there are {TOKENS_MAX} tokens: revoke some")));
            }
            tokens.push(made);
            Ok(())
        })?;
        Ok(token)
    }

    /// Takes a token back. Requests with it are refused from now on, and connections of agents when they begin anew.
    ///
    /// # Errors
    /// There is none of this name; the file cannot be written.
    pub fn revoke(&self, name: &str) -> Result<(), TokenError> {
        self.change(|tokens| {
            let before = tokens.len();
            tokens.retain(|token| token.name != name);
            if tokens.len() < before { Ok(()) } else { Err(TokenError::Refused(format!("there is no token {name}"))) }
        })
    }

    /// Whose token this is.
    pub(crate) fn find(&self, token: &[u8]) -> Option<Arc<NamedToken>> {
        let stamp = std::fs::metadata(&self.path).ok().map(|m| (m.ino(), m.size(), m.mtime(), m.mtime_nsec()));
        let mut known = lock(&self.known);
        if known.stamp != stamp || stamp.is_none() {
            known.tokens = self.read().map_or_else(
                |error| {
                    warn!(%error, "tokens by name are not used: {error}");
                    Vec::new()
                },
                |tokens| tokens.into_iter().map(Arc::new).collect(),
            );
            known.stamp = stamp;
        }
        let shown = std::str::from_utf8(token).ok().map(sum)?;
        known.tokens.iter().find(|token| token.sha256 == shown).cloned()
    }

    /// Replaces the file by a changed one, alone.
    fn change(&self, act: impl FnOnce(&mut Vec<NamedToken>) -> Result<(), TokenError>) -> Result<(), TokenError> {
        let alone =
            File::open(self.folder()).and_then(|folder| folder.lock().map(|()| folder)).map_err(|e| self.io(e))?;
        let mut tokens = self.list()?;
        act(&mut tokens)?;
        tokens.sort_by(|a, b| a.name.cmp(&b.name));
        let text = serde_json::to_vec_pretty(&tokens)
            .map_err(|source| TokenError::Broken { path: self.path.display().to_string(), source })?;
        self.replace(&alone, &text).map_err(|e| self.io(e))
    }

    /// Another file in its place, for its owner only.
    fn replace(&self, folder: &File, text: &[u8]) -> io::Result<()> {
        let beside = self.path.with_extension("new");
        let _ = std::fs::remove_file(&beside);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        file.write_all(text)?;
        file.sync_all()?;
        std::fs::rename(&beside, &self.path)?;
        folder.sync_all()
    }

    /// A file of another user would not be believed, neither here nor by the server.
    fn check_owner(&self) -> Result<(), TokenError> {
        let owner = std::fs::metadata(self.folder()).map_err(|e| self.io(e))?.uid();
        let own = std::fs::metadata("/proc/self").map_err(|e| self.io(e))?.uid();
        if owner == own {
            return Ok(());
        }
        let folder = self.folder().display();
        let text = format!("{folder} belongs to user {owner}: run this as that user, with sudo -u '#{owner}'");
        Err(TokenError::Refused(text))
    }

    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("."))
    }

    fn io(&self, source: io::Error) -> TokenError {
        TokenError::Io { path: self.path.display().to_string(), source }
    }
}

impl Doorkeeper for TokenBook {
    fn admits(&self, token: &str, host: &str) -> Option<Result<String, String>> {
        let found = self.find(token.as_bytes())?;
        Some(match (&found.host, found.role) {
            (Some(own), Role::Agent) if own == host => Ok(found.name.clone()),
            (Some(own), Role::Agent) => Err(format!("the token {} is for an agent of host {own}", found.name)),
            _ => Err(format!(
                "the token {} has the role {}: an agent needs one with the role agent",
                found.name, found.role
            )),
        })
    }
}

fn sum(token: &str) -> String {
    hex(digest(&SHA256, token.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_told_once_and_kept_as_its_sum() {
        let dir = tempfile::tempdir().expect("a folder");
        let book = TokenBook::of(dir.path());
        assert_eq!(book.list().expect("none"), []);
        assert_eq!(book.find(b"nobody's"), None);
        let token = book.add("ada", Role::Reader, None, vec!["train".to_owned()]).expect("made");
        let text = std::fs::read_to_string(dir.path().join(FILE)).expect("written");
        assert!(token.len() == 2 * RANDOM_BYTES && !text.contains(&token), "{text}");
        assert_eq!(std::fs::metadata(dir.path().join(FILE)).expect("there").mode() & 0o777, 0o600);
        let found = book.find(token.as_bytes()).expect("it is ada's");
        assert_eq!(
            (found.name.as_str(), found.role, &found.jobs[..]),
            ("ada", Role::Reader, &["train".to_owned()][..])
        );
        assert_eq!(book.find(found.sha256.as_bytes()), None, "the sum is no token");
        // Another process revokes it.
        TokenBook::of(dir.path()).revoke("ada").expect("it is there");
        assert_eq!(book.find(token.as_bytes()), None);
        assert!(book.revoke("ada").is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let book = TokenBook::of(dir.path());
        let host = || Some("h1".to_owned());
        let why = |outcome: Result<String, TokenError>| outcome.expect_err("refused").to_string();
        assert!(why(book.add("", Role::Reader, None, Vec::new())).contains("name"));
        assert!(why(book.add("a b", Role::Reader, None, Vec::new())).contains("name"));
        assert!(why(book.add("a", Role::Agent, None, Vec::new())).contains("--host"));
        assert!(why(book.add("a", Role::Agent, host(), vec!["j".to_owned()])).contains("--jobs"));
        assert!(why(book.add("a", Role::Admin, host(), Vec::new())).contains("--host"));
        book.add("a", Role::Agent, host(), Vec::new()).expect("made");
        let foreign = tempfile::tempdir().expect("a folder");
        if std::os::unix::fs::chown(foreign.path(), Some(12_345), None).is_ok() {
            assert!(
                why(TokenBook::of(foreign.path()).add("a", Role::Admin, None, Vec::new())).contains("sudo -u '#12345'")
            );
        }
        assert!(why(book.add("a", Role::Reader, None, Vec::new())).contains("already"));
    }

    #[test]
    fn an_agents_token_is_good_for_its_host_only() {
        let dir = tempfile::tempdir().expect("a folder");
        let book = TokenBook::of(dir.path());
        let agent = book.add("h1", Role::Agent, Some("h1".to_owned()), Vec::new()).expect("made");
        let admin = book.add("root", Role::Admin, None, Vec::new()).expect("made");
        assert_eq!(book.admits(&agent, "h1"), Some(Ok("h1".to_owned())));
        let refused = |token: &str, host: &str| book.admits(token, host).expect("known").expect_err("refused");
        assert!(refused(&agent, "h2").contains("host h1"));
        assert!(refused(&admin, "h1").contains("role admin"));
        assert_eq!(book.admits("x", "h1"), None);
    }

    #[test]
    fn a_file_that_cannot_be_believed_lets_nobody_in() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().expect("a folder");
        let book = TokenBook::of(dir.path());
        let token = book.add("ada", Role::Reader, None, Vec::new()).expect("made");
        assert!(book.find(token.as_bytes()).is_some());
        let path = dir.path().join(FILE);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).expect("ours");
        assert_eq!(TokenBook::of(dir.path()).find(token.as_bytes()), None);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).expect("ours");
        std::fs::write(&path, "[{}]").expect("written");
        assert_eq!(book.find(token.as_bytes()), None);
        assert!(book.add("b", Role::Reader, None, Vec::new()).is_err(), "what is not understood is not replaced");
    }
}
