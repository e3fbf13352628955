//! A configuration file with all keys, written from clap's definitions of them.
use super::keys::{self, Key, Kind};
use super::start::{InForce, Source};
use clap::Command;
use std::fmt::Write;

/// Columns of a comment.
const WIDTH: usize = 100;

/// What stands above the first table.
const HEAD: &str = "\
# Configuration of mycroft: flags of its commands, by their names (- or _). `mycroft COMMAND --help` says the same.
# What holds: a flag, else its variable, else this file, else the default.
# `mycroft config check` says what is in force and from where. Commands read this file when they start.
# The units of systemd set MYCROFT_STORE and MYCROFT_TOKEN_FILE, which go before this file; server.env and agent.env change them.
";

/// All keys as comments with their defaults.
pub(super) fn example(root: &Command) -> String {
    let mut out = HEAD.to_owned();
    for command in keys::commands(root) {
        table(&mut out, command);
        for key in keys::keys(command) {
            comments(&mut out, key);
            default(&mut out, key);
        }
    }
    out
}

/// Keys of a command with what is in force; what is a default is a comment.
pub(super) fn in_force(out: &mut String, command: &Command, all: &[InForce<'_>]) {
    table(out, command);
    for one in all {
        comments(out, one.key);
        match &one.source {
            Source::Default => default(out, one.key),
            source if one.key.is_secret() => {
                line(out, &format!("#{} = is set, and not shown ({})", one.key.name, said(source)));
            }
            source => line(out, &format!("{} = {} # {}", one.key.name, value(one.key, &one.values), said(source))),
        }
    }
}

/// From where, as a person says it.
pub(super) fn said(source: &Source) -> String {
    match source {
        Source::Flag => "flag".to_owned(),
        Source::Environment(name) => format!("environment, {name}"),
        Source::File(line) => format!("file, line {line}"),
        Source::Default => "default".to_owned(),
    }
}

fn table(out: &mut String, command: &Command) {
    line(out, &format!("\n[{}]", command.get_name()));
}

fn line(out: &mut String, text: &str) {
    // Writing to a String cannot fail.
    let _ = writeln!(out, "{text}");
}

fn comments(out: &mut String, key: Key<'_>) {
    line(out, "");
    let help = key.arg.get_help().map(ToString::to_string).unwrap_or_default();
    let mut about = help.split_whitespace().collect::<Vec<_>>().join(" ");
    if !about.ends_with('.') {
        about.push('.');
    }
    let possible = key.arg.get_possible_values();
    if key.kind == Kind::Text && !possible.is_empty() {
        let names: Vec<&str> = possible.iter().map(|value| value.get_name()).collect();
        let _ = write!(about, " One of {}.", names.join(", "));
    }
    if let Some(name) = key.arg.get_env() {
        let _ = write!(about, " Variable {}.", name.to_string_lossy());
    }
    let mut written = String::from("#");
    for word in about.split(' ') {
        if written.len() + 1 + word.len() > WIDTH {
            line(out, &written);
            "#".clone_into(&mut written);
        }
        written.push(' ');
        written.push_str(word);
    }
    line(out, &written);
}

/// The default as a comment, ready to be changed; where there is none, what kind of value it is.
fn default(out: &mut String, key: Key<'_>) {
    let mut values: Vec<String> =
        key.arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if values.is_empty() {
        let names = key.arg.get_value_names().unwrap_or_default();
        values.push(names.first().map_or_else(|| key.name.to_uppercase().replace('-', "_"), ToString::to_string));
    }
    if key.kind == Kind::Flag {
        values = vec!["false".to_owned()];
    }
    line(out, &format!("#{} = {}", key.name, value(key, &values)));
}

/// In TOML.
fn value(key: Key<'_>, values: &[String]) -> String {
    let one = |value: &String| match key.kind {
        Kind::Flag | Kind::Integer => value.clone(),
        Kind::Text => toml::Value::String(value.clone()).to_string(),
    };
    let all: Vec<String> = values.iter().map(one).collect();
    if key.is_list { format!("[{}]", all.join(", ")) } else { all.concat() }
}
