//! The configuration file: its tables as words of a command line, and what is wrong with it, by line.
use super::keys::{self, Key, Kind};
use anyhow::{Context, Result, bail};
use clap::Command;
use mycroft_wire::trusted::{self, Holds};
use std::collections::BTreeMap;
use std::fmt;
use std::io::ErrorKind;
use std::ops::Range;
use std::path::{Path, PathBuf};
use toml::de::{DeTable, DeValue};

/// The file that is read where no other is named.
pub(super) const DEFAULT: &str = "/etc/mycroft/mycroft.toml";
/// Says that there is no file.
pub(super) const NONE: &str = "/dev/null";
/// Read permission for everybody.
const ALL_READ: u32 = 0o004;

/// One key of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    /// The flag's long name.
    pub(super) name: String,
    /// Line in the file, from 1.
    pub(super) line: usize,
    /// The values as text.
    pub(super) values: Vec<String>,
    /// What would be typed instead.
    pub(super) words: Vec<String>,
}

/// Something wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Wrong {
    /// Line in the file, from 1.
    pub(super) line: usize,
    /// The table in which it is; without one it concerns every command.
    pub(super) table: Option<String>,
    /// What is wrong, and what to do.
    pub(super) text: String,
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

/// What a file says.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct File {
    /// Where it is; empty where there is none.
    pub(super) path: PathBuf,
    /// Keys by table, in the order of their lines.
    pub(super) tables: BTreeMap<String, Vec<Entry>>,
    /// In the order of their lines.
    pub(super) wrongs: Vec<Wrong>,
}

impl File {
    /// What is wrong for a command.
    pub(super) fn wrongs_for<'f>(&'f self, command: &'f str) -> impl Iterator<Item = &'f Wrong> {
        self.wrongs.iter().filter(move |wrong| wrong.table.as_ref().is_none_or(|table| table == command))
    }

    /// Keys of a command's table.
    pub(super) fn entries(&self, command: &str) -> &[Entry] {
        self.tables.get(command).map_or(&[], Vec::as_slice)
    }
}

/// Reads the file that was named, or the default one where it is there and may be read.
///
/// # Errors
/// A named file cannot be read; others may change it; it is no text.
pub(super) fn load(named: Option<&Path>, root: &Command) -> Result<Option<File>> {
    let path = named.unwrap_or(Path::new(DEFAULT));
    if path == Path::new(NONE) {
        return Ok(None);
    }
    let bytes = match trusted::read(path, Holds::Public) {
        Ok(bytes) => bytes,
        Err(error)
            if named.is_none()
                && matches!(error.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied)
                && std::fs::File::open(path).is_err() =>
        {
            return Ok(None);
        }
        Err(error) => return Err(error).with_context(|| format!("configuration file {}", path.display())),
    };
    let Ok(text) = std::str::from_utf8(&bytes) else { bail!("configuration file {}: is not text", path.display()) };
    let mut file = parse(text, root);
    file.path = path.to_owned();
    secrets(&mut file, root);
    Ok(Some(file))
}

/// A secret in a file that every user of the machine can read is none.
fn secrets(file: &mut File, root: &Command) {
    use std::os::unix::fs::PermissionsExt;
    let is_open = std::fs::metadata(&file.path).is_ok_and(|stat| stat.permissions().mode() & ALL_READ != 0);
    for command in keys::commands(root).filter(|_| is_open) {
        for key in keys::keys(command).filter(Key::is_secret) {
            let (name, table) = (key.name, command.get_name());
            let told = file.entries(table).iter().find(|entry| entry.name == name).map(|entry| Wrong {
                line: entry.line,
                table: Some(table.to_owned()),
                text: format!(
                    "{name} in [{table}] is a secret, and every user can read this file: chmod o-r it, or name a file with {name}-file"
                ),
            });
            file.wrongs.extend(told);
        }
    }
    file.wrongs.sort_by_key(|wrong| wrong.line);
}

/// What a text says.
pub(super) fn parse(text: &str, root: &Command) -> File {
    let mut reader = Reader { text, root, file: File::default() };
    match DeTable::parse(text) {
        Ok(whole) => reader.whole(whole.get_ref()),
        Err(error) => {
            let said = format!("is not TOML: {}", error.message().lines().collect::<Vec<_>>().join("; "));
            reader.wrong(error.span().unwrap_or_default(), None, said);
        }
    }
    reader.file.wrongs.sort_by_key(|wrong| wrong.line);
    for entries in reader.file.tables.values_mut() {
        entries.sort_by_key(|entry| entry.line);
    }
    reader.file
}

struct Reader<'t> {
    text: &'t str,
    root: &'t Command,
    file: File,
}

impl Reader<'_> {
    fn line(&self, span: &Range<usize>) -> usize {
        1 + self.text.bytes().take(span.start).filter(|byte| *byte == b'\n').count()
    }

    fn wrong(&mut self, span: Range<usize>, table: Option<&str>, text: String) {
        let line = self.line(&span);
        self.file.wrongs.push(Wrong { line, table: table.map(str::to_owned), text });
    }

    fn whole(&mut self, whole: &DeTable<'_>) {
        for (name, value) in whole {
            let text: &str = name.get_ref();
            match (keys::command(self.root, text), value.get_ref()) {
                (Some(command), DeValue::Table(table)) => self.table(command, table),
                (Some(_), _) => self.wrong(name.span(), None, format!("{text} is a table: write [{text}]")),
                (None, DeValue::Table(_)) => {
                    let said = format!("no table is called [{text}]{}", self.which_table(text));
                    self.wrong(name.span(), None, said);
                }
                (None, _) => {
                    let said = format!("{text} stands in no table: keys belong below {}", self.tables());
                    self.wrong(name.span(), None, said);
                }
            }
        }
    }

    fn tables(&self) -> String {
        let names: Vec<String> = keys::commands(self.root).map(|command| format!("[{}]", command.get_name())).collect();
        names.join(", ")
    }

    fn which_table(&self, name: &str) -> String {
        keys::nearest_table(self.root, name)
            .map_or_else(|| format!(": there are {}", self.tables()), |near| format!(": did you mean [{near}]?"))
    }

    fn table(&mut self, command: &Command, table: &DeTable<'_>) {
        let name = command.get_name();
        for (written, value) in table {
            let text: &str = written.get_ref();
            let Some(key) = keys::keys(command).find(|key| key.is_called(text)) else {
                let near = keys::nearest(command, text).map_or_else(
                    || format!(": `mycroft {name} --help` lists all, without the --"),
                    |near| format!(": did you mean {near}?"),
                );
                self.wrong(written.span(), Some(name), format!("[{name}] has no key {text}{near}"));
                continue;
            };
            if let Some(first) = self.file.entries(name).iter().find(|entry| entry.name == key.name) {
                let said = format!("{text} in [{name}] is there already, in line {}: remove one", first.line);
                self.wrong(written.span(), Some(name), said);
                continue;
            }
            match entry(key, value.get_ref()) {
                Ok(entry) => {
                    let entry = Entry { line: self.line(&written.span()), ..entry };
                    self.file.tables.entry(name.to_owned()).or_default().push(entry);
                }
                Err(why) => self.wrong(value.span(), Some(name), format!("{text} in [{name}]: {why}")),
            }
        }
    }
}

/// A key with its value, without the line; or why the value is none.
fn entry(key: Key<'_>, value: &DeValue<'_>) -> Result<Entry, String> {
    let mut entry = Entry { name: key.name.to_owned(), line: 0, values: Vec::new(), words: Vec::new() };
    match value {
        DeValue::Array(values) if key.is_list => {
            for value in values {
                add(&mut entry, key, value.get_ref())?;
            }
        }
        value => add(&mut entry, key, value)?,
    }
    Ok(entry)
}

fn add(entry: &mut Entry, key: Key<'_>, value: &DeValue<'_>) -> Result<(), String> {
    let text = match (key.kind, value) {
        (Kind::Flag, DeValue::Boolean(is_on)) => {
            entry.words.extend(is_on.then(|| format!("--{}", key.name)));
            entry.values.push(is_on.to_string());
            return Ok(());
        }
        (Kind::Text, DeValue::String(text)) => text.to_string(),
        (Kind::Integer, DeValue::Integer(integer)) => {
            i128::from_str_radix(&integer.as_str().replace('_', ""), integer.radix())
                .map_err(|error| format!("{integer}: {error}"))?
                .to_string()
        }
        (kind, other) => {
            let list = if key.is_list { ", or a list of such" } else { "" };
            return Err(format!("must be {}{list}, and is {}", kind.word(), told(other)));
        }
    };
    entry.words.push(key.word(&text)?);
    entry.values.push(text);
    Ok(())
}

/// What stands in the file, as a person calls it.
fn told(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the string \"{text}\""),
        DeValue::Integer(integer) => format!("the integer {integer}"),
        DeValue::Float(float) => format!("the number {float}"),
        DeValue::Boolean(is_on) => is_on.to_string(),
        DeValue::Datetime(time) => format!("the time {time}"),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
