//! Tokens by name: each for one agent, reader, operator or admin. The server's folder keeps their sums, never the tokens.
#[cfg(test)]
mod tests;

use mycroft_wire::Doorkeeper;
use mycroft_wire::sync::lock;
use mycroft_wire::trusted::{self, Holds};
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
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
    /// From when on it is refused, by the clock of the server's machine, seconds since 1970; `None`: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_s: Option<u64>,
    /// SHA-256 of the token, in hex.
    sha256: String,
}

impl NamedToken {
    /// Whether it is refused at that time, seconds since 1970.
    pub fn is_expired(&self, now_s: u64) -> bool {
        self.expires_s.is_some_and(|expires_s| now_s >= expires_s)
    }
}

/// What is asked for of a new token.
#[derive(Clone, Debug)]
pub struct NewToken {
    /// Its name.
    pub name: String,
    /// What it is good for.
    pub role: Role,
    /// The host of an agent.
    pub host: Option<String>,
    /// The jobs that its holder sees; empty: all.
    pub jobs: Vec<String>,
    /// How long it holds; `None`: until it is revoked.
    pub holds: Option<Duration>,
}

/// A token that somebody shows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Shown {
    /// It is this one.
    Good(Arc<NamedToken>),
    /// It was this one, which holds no more.
    Expired(Arc<NamedToken>),
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
    /// Of which was told that they have expired.
    told: BTreeSet<String>,
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
    pub fn add(&self, asked: NewToken) -> Result<String, TokenError> {
        let NewToken { name, role, host, jobs, holds } = asked;
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
        let made_s = now_s();
        let expires_s = holds.map(|holds| made_s.saturating_add(holds.as_secs()));
        let made = NamedToken { name, role, host, jobs, made_s, expires_s, sha256: sum(&token) };
        self.change(|tokens| {
            if tokens.iter().any(|token| token.name == made.name) {
                let name = &made.name;
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

    /// Takes a token back. Requests with it are refused from now on, and what stands of it ends: connections of agents within
    /// seconds, readers that wait for events with the next one, or with the next comment.
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

    /// Whose token this is. One that has expired is told in the log, once.
    pub(crate) fn find(&self, token: &[u8]) -> Option<Shown> {
        self.find_sum(&std::str::from_utf8(token).ok().map(sum)?)
    }

    fn find_sum(&self, shown: &str) -> Option<Shown> {
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
            known.told.clear();
        }
        let found = known.tokens.iter().find(|token| token.sha256 == shown).cloned()?;
        if !found.is_expired(now_s()) {
            return Some(Shown::Good(found));
        }
        if known.told.insert(found.name.clone()) {
            let name = &found.name;
            warn!(name, "the token {name} has expired and is shown still: make another one (`mycroft token`)");
        }
        Some(Shown::Expired(found))
    }

    /// Whether a token that was found holds still.
    pub(crate) fn holds(&self, token: &NamedToken) -> bool {
        matches!(self.find_sum(&token.sha256), Some(Shown::Good(_)))
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
        let found = match self.find(token.as_bytes())? {
            Shown::Good(found) => found,
            Shown::Expired(found) => {
                let name = &found.name;
                return Some(Err(format!(
                    "the token {name} has expired; make another one on the server's machine: `mycroft token revoke {name}`, \
                     then `mycroft token add {name}`"
                )));
            }
        };
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

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn sum(token: &str) -> String {
    hex(digest(&SHA256, token.as_bytes()).as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
