//! Keys of the configuration file, as clap's definitions of the commands give them: nothing is listed twice.
use crate::typed::in_one_line;
use clap::builder::Resettable;
use clap::error::{ContextKind, ContextValue};
use clap::{Arg, ArgAction, Command};
use std::any::TypeId;

/// The flag that names the file; a command that has it has a table.
pub(super) const CONFIG: &str = "config";

/// What a value is in TOML.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Flag,
    Integer,
    Text,
}

impl Kind {
    /// As a person calls it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Kind::Flag => "true or false",
            Kind::Integer => "an integer",
            Kind::Text => "a string",
        }
    }
}

/// One flag of a command, as a key of its table.
#[derive(Clone, Copy)]
pub(super) struct Key<'c> {
    pub(super) arg: &'c Arg,
    /// The flag's long name, which is the key.
    pub(super) name: &'c str,
    pub(super) kind: Kind,
    /// May be given several times.
    pub(super) is_list: bool,
}

/// Commands with a table in the file.
pub(super) fn commands(root: &Command) -> impl Iterator<Item = &Command> {
    root.get_subcommands().filter(|command| command.get_arguments().any(|arg| arg.get_long() == Some(CONFIG)))
}

/// The command of this name, where it has a table.
pub(super) fn command<'r>(root: &'r Command, name: &str) -> Option<&'r Command> {
    commands(root).find(|command| command.get_name() == name)
}

/// All keys of a command's table, in the order of its help.
pub(super) fn keys(command: &Command) -> impl Iterator<Item = Key<'_>> {
    command.get_arguments().filter_map(Key::new)
}

impl<'c> Key<'c> {
    fn new(arg: &'c Arg) -> Option<Key<'c>> {
        let name = arg.get_long().filter(|name| *name != CONFIG && !arg.is_hide_set())?;
        let (kind, is_list) = match arg.get_action() {
            ArgAction::SetTrue => (Kind::Flag, false),
            ArgAction::Set => (kind(arg), false),
            ArgAction::Append => (kind(arg), true),
            _ => return None,
        };
        Some(Key { arg, name, kind, is_list })
    }

    /// Whether a key of the file means this one: `_` is as good as `-`.
    pub(super) fn is_called(&self, key: &str) -> bool {
        key.replace('_', "-") == self.name
    }

    /// What to type for a value of the file, if this key takes it.
    ///
    /// # Errors
    /// What clap has against it.
    pub(super) fn word(&self, value: &str) -> Result<String, String> {
        if self.kind == Kind::Flag {
            return Ok(format!("--{}", self.name));
        }
        let word = format!("--{}={value}", self.name);
        let asked = Command::new("value").no_binary_name(true).disable_help_flag(true).arg(free(self.arg.clone()));
        match asked.try_get_matches_from([&word]) {
            Ok(_) => Ok(word),
            Err(error) => Err(in_one_line(&error)),
        }
    }

    /// Whether the value is nobody's business.
    pub(super) fn is_secret(&self) -> bool {
        self.arg.is_hide_env_values_set()
    }
}

fn kind(arg: &Arg) -> Kind {
    let id = arg.get_value_parser().type_id();
    let integers = [TypeId::of::<u16>(), TypeId::of::<u32>(), TypeId::of::<u64>(), TypeId::of::<i32>()];
    if integers.iter().any(|integer| id == *integer) { Kind::Integer } else { Kind::Text }
}

/// The command as it is, but that no flag asks for another or refuses it: the file may still bring what is missing.
pub(super) fn free_command(command: &Command) -> Command {
    command.clone().mut_args(free).no_binary_name(true)
}

fn free(arg: Arg) -> Arg {
    arg.requires(Resettable::Reset).conflicts_with(Resettable::Reset)
}

/// What was probably meant by a key, if anything; clap's own idea of near.
pub(super) fn nearest(command: &Command, key: &str) -> Option<String> {
    let typed = format!("--{}", key.replace('_', "-"));
    let error = free_command(command).try_get_matches_from([typed]).err()?;
    suggested(&error, ContextKind::SuggestedArg).map(|flag| flag.trim_start_matches('-').to_owned())
}

/// What was probably meant by the name of a table.
pub(super) fn nearest_table(root: &Command, name: &str) -> Option<String> {
    let error = root.clone().no_binary_name(true).try_get_matches_from([name]).err()?;
    suggested(&error, ContextKind::SuggestedSubcommand).filter(|name| command(root, name).is_some())
}

fn suggested(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(one) => Some(one.clone()),
        ContextValue::Strings(several) => several.first().cloned(),
        _ => None,
    }
}
