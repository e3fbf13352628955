//! The configuration file: read before a command starts, checked and shown by `mycroft config`.
//!
//! One mechanism over clap's definitions. What the file says is put in front of what was typed, as flags, unless a flag or a
//! variable says it; so clap judges all of it, and a new flag is a key without another line.
pub(crate) mod args;
mod example;
mod file;
mod keys;
mod start;
#[cfg(test)]
mod tests;

use crate::args::Args;
use crate::exit::{EXIT_FOUND, EXIT_OK};
use crate::told::print;
use crate::typed::in_one_line;
use anyhow::Result;
use args::{CheckArgs, ConfigArgs, ConfigCommand, ShowArgs};
use clap::{Command, CommandFactory, FromArgMatches};
use file::File;
use serde_json::{Value, json};
use start::Meant;
use std::ffi::OsString;
use std::fmt::Write;
use std::path::Path;
use tracing::{info, warn};

/// Why nothing is started.
pub(crate) enum Refused {
    /// Typed wrong, or help was asked for; and which flags that it names stand in the file.
    Typed(clap::Error, Vec<String>),
    /// The file.
    File(anyhow::Error),
}

/// What was typed, with what the configuration file adds.
///
/// # Errors
/// What clap refuses, or what is wrong with the file.
pub(crate) fn parse(typed: &[OsString]) -> Result<Args, Refused> {
    let root = Args::command();
    let (words, places) = start::completed(&root, typed).map_err(Refused::File)?;
    taken(root, &words).map_err(|error| {
        let said = error.to_string();
        let is_named = |place: &String| place.split(' ').next().is_some_and(|flag| said.contains(flag));
        Refused::Typed(error, places.into_iter().filter(is_named).collect())
    })
}

fn taken(mut root: Command, words: &[OsString]) -> Result<Args, clap::Error> {
    let mut matches = root.try_get_matches_from_mut(words)?;
    Args::from_arg_matches_mut(&mut matches).map_err(|error| error.format(&mut root))
}

impl ConfigArgs {
    /// Tells from where a daemon is configured, once it has a log.
    pub(crate) fn tell(&self) {
        let default = Path::new(file::DEFAULT);
        match &self.config {
            Some(path) if path == Path::new(file::NONE) => {}
            Some(path) => info!(path = %path.display(), "configured by {}", path.display()),
            None if default.exists() => {
                warn!(path = file::DEFAULT, "{} cannot be read and is not used", file::DEFAULT);
            }
            None => {}
        }
    }
}

/// `mycroft config`.
pub(crate) fn config(command: &ConfigCommand) -> Result<u8> {
    let root = Args::command();
    match command {
        ConfigCommand::Check(args) => check(&root, args),
        ConfigCommand::Show(args) => show(&root, args),
    }
}

fn show(root: &Command, args: &ShowArgs) -> Result<u8> {
    if args.example {
        print(&example::example(root))?;
        return Ok(EXIT_OK);
    }
    let mut out = String::new();
    for meant in each(root, args.file.as_deref(), &[])? {
        example::in_force(&mut out, meant.command, &meant.in_force());
    }
    print(out.trim_start())?;
    Ok(EXIT_OK)
}

/// Each command with a table, or the one that was typed.
fn each<'r>(root: &'r Command, named: Option<&Path>, started: &[OsString]) -> Result<Vec<Meant<'r>>> {
    let program = || OsString::from(root.get_name());
    let typed: Vec<Vec<OsString>> = if started.is_empty() {
        keys::commands(root).map(|command| vec![program(), command.get_name().into()]).collect()
    } else {
        vec![std::iter::once(program()).chain(started.iter().cloned()).collect()]
    };
    let mut all = Vec::new();
    for words in typed {
        match start::meant(root, &words, named)? {
            Some(meant) => all.push(meant),
            None => {
                taken(root.clone(), &words).map_err(|error| anyhow::anyhow!("{}", in_one_line(&error)))?;
                let names: Vec<&str> = keys::commands(root).map(Command::get_name).collect();
                anyhow::bail!("the file configures {}, and not this command", names.join(", "));
            }
        }
    }
    Ok(all)
}

fn check(root: &Command, args: &CheckArgs) -> Result<u8> {
    let all = each(root, args.file.as_deref(), &args.started)?;
    let file = all.iter().find_map(|meant| meant.file.as_ref());
    let mut wrongs: Vec<String> = match (file, args.started.is_empty()) {
        (Some(file), true) => file.wrongs.iter().map(|wrong| at(file, wrong)).collect(),
        (Some(file), false) => {
            let name = all[0].command.get_name();
            file.wrongs_for(name).map(|wrong| at(file, wrong)).collect()
        }
        (None, _) => Vec::new(),
    };
    for meant in &all {
        if let Err(error) = taken(root.clone(), &meant.words()) {
            let said = in_one_line(&error);
            let places = meant.places();
            let named = places.iter().filter(|place| place.split(' ').next().is_some_and(|flag| said.contains(flag)));
            let told: Vec<&str> = std::iter::once(said.as_str()).chain(named.map(String::as_str)).collect();
            wrongs.push(format!("mycroft {}: {}", meant.command.get_name(), told.join("; ")));
        }
    }
    let path = file.map(|file| file.path.display().to_string());
    if args.json {
        print(&format!("{:#}\n", as_json(path.as_deref(), &all, &wrongs)))?;
    } else {
        print(&as_text(path.as_deref(), &all, &wrongs))?;
    }
    Ok(if wrongs.is_empty() { EXIT_OK } else { EXIT_FOUND })
}

fn at(file: &File, wrong: &file::Wrong) -> String {
    format!("{}:{}: {}", file.path.display(), wrong.line, wrong.text)
}

fn as_text(path: Option<&str>, all: &[Meant<'_>], wrongs: &[String]) -> String {
    let mut out = path.map_or_else(|| format!("no file: there is no {}\n", file::DEFAULT), |path| format!("{path}\n"));
    for meant in all {
        // Writing to a String cannot fail.
        let _ = writeln!(out, "\n[{}]", meant.command.get_name());
        for one in meant.in_force() {
            let value = match (one.key.is_secret(), one.values.as_slice()) {
                (_, []) => "-".to_owned(),
                (true, _) => "(not shown)".to_owned(),
                (false, values) => values.join(" "),
            };
            let _ = writeln!(out, "  {:<18} {value:<34} {}", one.key.name, example::said(&one.source));
        }
    }
    out.push('\n');
    for wrong in wrongs {
        let _ = writeln!(out, "wrong: {wrong}");
    }
    let _ = match wrongs.len() {
        0 => writeln!(out, "ok"),
        1 => writeln!(out, "1 error"),
        many => writeln!(out, "{many} errors"),
    };
    out
}

fn as_json(path: Option<&str>, all: &[Meant<'_>], wrongs: &[String]) -> Value {
    let mut tables = serde_json::Map::new();
    for meant in all {
        let keys = meant.in_force().into_iter().map(|one| {
            let (values, source) = (if one.key.is_secret() { None } else { Some(one.values) }, &one.source);
            (one.key.name.to_owned(), json!({ "values": values, "source": example::said(source) }))
        });
        tables.insert(meant.command.get_name().to_owned(), Value::Object(keys.collect()));
    }
    json!({ "file": path, "errors": wrongs, "in_force": tables })
}
