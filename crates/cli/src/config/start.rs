//! From what was typed to what is meant: the file adds what neither a flag nor a variable says.
use super::file::{self, DEFAULT, Entry, File};
use super::keys::{self, CONFIG, Key, Kind};
use anyhow::{Result, bail};
use clap::parser::ValueSource;
use clap::{ArgMatches, Command};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Where a value comes from, strongest first.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Source {
    Flag,
    /// The variable of this name.
    Environment(String),
    /// This line of the file.
    File(usize),
    Default,
}

/// What a key is, and why.
pub(super) struct InForce<'c> {
    pub(super) key: Key<'c>,
    /// Empty: nothing, and no default.
    pub(super) values: Vec<String>,
    pub(super) source: Source,
}

/// A command that the file configures, as it was typed and with what the file adds.
pub(super) struct Meant<'r> {
    pub(super) command: &'r Command,
    /// What flags and variables say.
    said: ArgMatches,
    pub(super) file: Option<File>,
    program: OsString,
    rest: Vec<OsString>,
}

/// What was typed after the file had its say; `typed` itself where the file has none in it.
///
/// # Errors
/// The file cannot be read, or something in it is wrong.
pub(super) fn completed(root: &Command, typed: &[OsString]) -> Result<(Vec<OsString>, Vec<String>)> {
    let Some(meant) = meant(root, typed, None)? else { return Ok((typed.to_vec(), Vec::new())) };
    if let Some(file) = &meant.file {
        let mut wrongs = file.wrongs_for(meant.command.get_name());
        if let Some(first) = wrongs.next() {
            let path = file.path.display();
            let more = match wrongs.count() {
                0 => String::new(),
                more => format!(" (and {more} more: `mycroft config check {path}` lists them)"),
            };
            bail!("{path}:{}: {}{more}", first.line, first.text);
        }
    }
    Ok((meant.words(), meant.places()))
}

/// The command that was typed, where the file can configure it. `None` also where clap will refuse what was typed, or print help.
///
/// # Errors
/// The file cannot be read.
pub(super) fn meant<'r>(root: &'r Command, typed: &[OsString], named: Option<&Path>) -> Result<Option<Meant<'r>>> {
    let [program, name, rest @ ..] = typed else { return Ok(None) };
    let Some(command) = name.to_str().and_then(|name| keys::command(root, name)) else { return Ok(None) };
    let Ok(said) = keys::free_command(command).try_get_matches_from(rest) else { return Ok(None) };
    let own = said.get_one::<PathBuf>(CONFIG).map(PathBuf::as_path);
    // Who names a file to a command that looks into files means that one, whatever the variable says.
    let file = file::load(named.or(own), root)?;
    Ok(Some(Meant { command, said, file, program: program.clone(), rest: rest.to_vec() }))
}

impl Meant<'_> {
    fn entries(&self) -> &[Entry] {
        self.file.as_ref().map_or(&[], |file| file.entries(self.command.get_name()))
    }

    /// Whether a flag or a variable says it.
    fn is_said(&self, id: &str) -> bool {
        matches!(self.said.value_source(id), Some(ValueSource::CommandLine | ValueSource::EnvVariable))
    }

    /// Keys of the file that neither a flag nor a variable says.
    fn added(&self) -> impl Iterator<Item = &Entry> {
        let keys: Vec<(&str, &str)> =
            keys::keys(self.command).map(|key| (key.name, key.arg.get_id().as_str())).collect();
        self.entries()
            .iter()
            .filter(move |entry| keys.iter().any(|(name, id)| *name == entry.name && !self.is_said(id)))
    }

    /// What would have been typed without a file.
    pub(super) fn words(&self) -> Vec<OsString> {
        let mut words = vec![self.program.clone(), self.command.get_name().into()];
        // So that the command can say where it was configured.
        let is_default = self.file.as_ref().is_some_and(|file| file.path == Path::new(DEFAULT));
        if is_default && !self.is_said(CONFIG) {
            words.push(format!("--{CONFIG}={DEFAULT}").into());
        }
        words.extend(self.added().flat_map(|entry| entry.words.iter().map(OsString::from)));
        words.extend(self.rest.iter().cloned());
        words
    }

    /// Which flags stand in the file and where, as `--flag: line N`.
    pub(super) fn places(&self) -> Vec<String> {
        let Some(file) = &self.file else { return Vec::new() };
        self.added().map(|entry| format!("--{} is from {}:{}", entry.name, file.path.display(), entry.line)).collect()
    }

    /// Each key with what is in force.
    pub(super) fn in_force(&self) -> Vec<InForce<'_>> {
        keys::keys(self.command).map(|key| self.one(key)).collect()
    }

    fn one<'c>(&self, key: Key<'c>) -> InForce<'c> {
        let id = key.arg.get_id().as_str();
        let from_file = self.added().find(|entry| entry.name == key.name);
        if let Some(entry) = from_file {
            return InForce { key, values: entry.values.clone(), source: Source::File(entry.line) };
        }
        let values = match key.kind {
            Kind::Flag => vec![self.said.get_flag(id).to_string()],
            _ => {
                let raw = self.said.get_raw(id).into_iter().flatten();
                raw.map(|value| value.to_string_lossy().into_owned()).collect()
            }
        };
        let variable = || key.arg.get_env().unwrap_or_default().to_string_lossy().into_owned();
        let source = match self.said.value_source(id) {
            Some(ValueSource::CommandLine) => Source::Flag,
            Some(ValueSource::EnvVariable) => Source::Environment(variable()),
            _ => Source::Default,
        };
        InForce { key, values, source }
    }
}
