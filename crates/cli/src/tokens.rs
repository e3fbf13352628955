//! `mycroft token`: tokens by name for a server's agents and readers.
use crate::exit::EXIT_OK;
use crate::told::{json, print, to_the_second};
use anyhow::{Context, Result};
use clap::{Subcommand, ValueEnum};
use mycroft_record::text::printable;
use mycroft_record::{HostTime, NANOS_PER_SEC};
use mycroft_serve::api::TimeJson;
use mycroft_serve::tokens::{NewToken, Role, TokenBook};
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where the tokens are.
#[derive(clap::Args, Debug)]
pub(crate) struct StoreArgs {
    /// The store of the server, on its machine, as `mycroft serve --store` names it.
    #[arg(long, env = "MYCROFT_STORE", value_name = "DIR")]
    store: PathBuf,
}

#[derive(Subcommand, Debug)]
pub(crate) enum TokenCommand {
    /// Makes a token and prints it, this once.
    Add(AddArgs),
    /// Lists tokens: names, roles, hosts and jobs, never the tokens.
    List {
        #[command(flatten)]
        store: StoreArgs,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Takes a token back: requests with it are refused from now on; an agent is when it connects again.
    Revoke {
        /// The token's name.
        name: String,
        #[command(flatten)]
        store: StoreArgs,
    },
}

#[derive(clap::Args, Debug)]
pub(crate) struct AddArgs {
    /// Name of the token, by which it is listed and revoked.
    name: String,
    /// What it is good for.
    #[arg(long, value_enum)]
    role: RoleArg,
    /// The only host whose records an agent may send with it, as `mycroft agent --host` or the host's name says.
    #[arg(long)]
    host: Option<String>,
    /// The only jobs that its holder sees; default all.
    #[arg(long, value_delimiter = ',', value_name = "JOB")]
    jobs: Vec<String>,
    /// How long it holds (12h, 30d), by the clock of the server's machine; default: until it is revoked.
    #[arg(long = "for", value_name = "TIME", value_parser = crate::times::holding)]
    holds: Option<Duration>,
    /// File to write it to instead of printing it, readable by its owner only.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    store: StoreArgs,
}

/// Roles, as they are typed.
#[derive(ValueEnum, Clone, Copy, Debug)]
enum RoleArg {
    /// Sends records of one host, and reads nothing.
    Agent,
    /// Reads.
    Reader,
    /// Also writes notes, silences alerts, and takes stacks and dumps.
    Operator,
    /// Also acts, where the server was started with --act-dir and --act-token-file.
    Admin,
}

impl From<RoleArg> for Role {
    fn from(role: RoleArg) -> Role {
        match role {
            RoleArg::Agent => Role::Agent,
            RoleArg::Reader => Role::Reader,
            RoleArg::Operator => Role::Operator,
            RoleArg::Admin => Role::Admin,
        }
    }
}

/// Runs what was typed.
pub(crate) fn token(command: TokenCommand) -> Result<u8> {
    match command {
        TokenCommand::Add(args) => add(args),
        TokenCommand::List { store, json } => list(&store, json),
        TokenCommand::Revoke { name, store } => {
            TokenBook::of(&store.store).revoke(&name)?;
            print(&format!("{name} is revoked\n"))?;
            Ok(EXIT_OK)
        }
    }
}

fn add(args: AddArgs) -> Result<u8> {
    // Before the token is made: one that nobody can read would only be in the way.
    let out = args.out.clone();
    let file = out.as_ref().map(|path| {
        let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        opened.with_context(|| format!("--out {}", path.display()))
    });
    let mut file = file.transpose()?;
    let AddArgs { name, role, host, jobs, holds, out: _, store: StoreArgs { store } } = args;
    let made = TokenBook::of(&store).add(NewToken { name, role: role.into(), host, jobs, holds });
    match (made, &mut file) {
        (Ok(token), Some(file)) => writeln!(file, "{token}")?,
        (Ok(token), None) => print(&format!("{token}\n"))?,
        (Err(error), _) => {
            if let Some(path) = &out {
                let _ = std::fs::remove_file(path);
            }
            return Err(error.into());
        }
    }
    Ok(EXIT_OK)
}

fn list(store: &StoreArgs, as_json: bool) -> Result<u8> {
    let tokens = TokenBook::of(&store.store).list()?;
    let at = |seconds: u64| TimeJson::exact(HostTime(seconds.saturating_mul(NANOS_PER_SEC))).text;
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    if as_json {
        let shown = |token: &mycroft_serve::tokens::NamedToken| {
            serde_json::json!({
                "name": token.name, "role": token.role, "host": token.host, "jobs": token.jobs, "made_at": at(token.made_s),
                "expires_at": token.expires_s.map(at), "is_expired": token.is_expired(now_s),
            })
        };
        let all: Vec<_> = tokens.iter().map(shown).collect();
        print(&format!("{}\n", json(&serde_json::json!({ "tokens": all }))?))?;
        return Ok(EXIT_OK);
    }
    let clock = |seconds: u64| to_the_second(&at(seconds));
    let mut out = String::new();
    for token in &tokens {
        let what = match &token.host {
            Some(host) => format!("host {}", printable(host)),
            None if token.jobs.is_empty() => "all jobs".to_owned(),
            None => format!("jobs {}", printable(&token.jobs.join(", "))),
        };
        let until = match token.expires_s.map(clock) {
            None => String::new(),
            Some(when) if token.is_expired(now_s) => format!(", EXPIRED {when}"),
            Some(when) => format!(", expires {when}"),
        };
        let (role, made) = (token.role.to_string(), clock(token.made_s));
        out.push_str(&format!("{:<24} {role:<9} {what}, made {made}{until}\n", token.name));
    }
    print(if out.is_empty() { "no tokens by name\n" } else { &out })?;
    Ok(EXIT_OK)
}
