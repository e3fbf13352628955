//! Limits that older code exceeds: what exceeds one is listed in `xtask/exceptions.toml` with its number, and may shrink but
//! not grow. The list only gets shorter.
use super::circles::Room;
use super::syntax::{Syntax, parse};
use super::thresholds;
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Longest function, from `fn` to its closing brace: what a screen shows.
const FUNCTION_LINES_MAX: usize = 60;

/// Longest source file: split by responsibility before it grows past this.
const FILE_LINES_MAX: usize = 400;

/// What exceeds a limit today, by its key, and by how much.
type Listed = BTreeMap<String, usize>;

/// The list of exceptions, and what is measured in its shape.
#[derive(Default, Serialize, Deserialize, PartialEq, Eq, Debug)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exceptions {
    /// Lines of functions, by `FILE NAME`.
    function_lines: Listed,
    /// Lines of files.
    file_lines: Listed,
    /// Files in a circle of files of their crate, with how many of the circle each uses.
    circles: Listed,
    /// Named constants of the rooms that a slowdown's verdict passes.
    #[serde(default)]
    constants: Listed,
}

/// The key of the constants.
const CONSTANTS: &str = "docs/thresholds.md";

const HEADER: &str = "\
# What exceeds a limit of `cargo xtask tidy` and is older than the limit: functions of more than 60 lines, files of more than
# 400, files that use each other in a circle (with how many of the circle each uses), constants in docs/thresholds.md beyond 80.
# A number may shrink and not grow.
# `cargo xtask tidy --write-exceptions` writes this file anew; it raises and adds nothing.

";

/// Measures all sources.
pub(crate) fn measure(files: &[(String, String)]) -> Result<Exceptions> {
    let mut found = Exceptions::default();
    let mut parsed: Vec<(String, Syntax)> = Vec::with_capacity(files.len());
    for (path, text) in files {
        let syntax = parse(path, text)?;
        for function in syntax.functions.iter().filter(|function| function.lines > FUNCTION_LINES_MAX) {
            let longest = found.function_lines.entry(format!("{path} {}", function.name)).or_default();
            *longest = function.lines.max(*longest);
        }
        let lines = text.lines().count();
        if lines > FILE_LINES_MAX {
            found.file_lines.insert(path.clone(), lines);
        }
        parsed.push((path.clone(), syntax));
    }
    let rooms: BTreeSet<&str> =
        files.iter().filter_map(|(path, _)| path.find("/src/").map(|at| &path[..at + "/src/".len()])).collect();
    for room in rooms {
        let circles = Room::new(room, &parsed).circles();
        found.circles.extend(circles.into_iter().map(|(path, uses)| (path.to_owned(), uses)));
    }
    let constants = thresholds::count(files)?;
    if constants > thresholds::CONSTANTS_MAX {
        found.constants.insert(CONSTANTS.to_owned(), constants);
    }
    Ok(found)
}

impl Exceptions {
    fn parts(&self) -> [(&'static str, &Listed); 4] {
        [
            ("lines, at most 60: split it by what it does", &self.function_lines),
            ("lines, at most 400: split it by responsibility", &self.file_lines),
            ("files of its circle used: no file needs one that needs it", &self.circles),
            ("constants, at most 80: one mechanism that predicts instead of rules", &self.constants),
        ]
    }

    /// What is listed wrongly, in words.
    pub(crate) fn violations(&self, listed: &Exceptions) -> Vec<String> {
        let mut violations = Vec::new();
        for ((what, found), (_, listed)) in self.parts().into_iter().zip(listed.parts()) {
            for (key, &number) in found {
                match listed.get(key) {
                    None => violations.push(format!("{key}: {number} {what}")),
                    Some(&was) if number > was => violations.push(format!("{key}: {number} {what} ({was} before)")),
                    Some(_) => {}
                }
            }
            for key in listed.keys().filter(|key| !found.contains_key(*key)) {
                violations.push(format!(
                    "{key}: no exception needed any more; `cargo xtask tidy --write-exceptions` takes it off the list"
                ));
            }
        }
        violations
    }

    /// What has to be listed from now on; an error names what would be raised or new.
    fn shrunk(self, listed: &Exceptions) -> Result<Exceptions> {
        let raised: Vec<String> =
            self.violations(listed).into_iter().filter(|line| !line.contains("no exception needed")).collect();
        if !raised.is_empty() {
            bail!("the list of exceptions does not grow:\n{}", raised.join("\n"));
        }
        Ok(self)
    }
}

fn list_path(root: &Path) -> PathBuf {
    root.join("xtask/exceptions.toml")
}

/// The list as it is kept; none where there is no file.
pub(crate) fn listed(root: &Path) -> Result<Option<Exceptions>> {
    let path = list_path(root);
    if !path.exists() {
        return Ok(None);
    }
    let text = std::fs::read_to_string(&path).with_context(|| format!("{}: not readable", path.display()))?;
    toml::from_str(&text).map(Some).with_context(|| format!("{}: not a list of exceptions", path.display()))
}

/// Writes the list anew, without what is no longer needed. Where there is none, today's state is the list.
pub(crate) fn write(root: &Path, found: Exceptions) -> Result<()> {
    let next = match listed(root)? {
        Some(listed) => found.shrunk(&listed)?,
        None => found,
    };
    let path = list_path(root);
    std::fs::write(&path, format!("{HEADER}{}", toml::to_string(&next)?))
        .with_context(|| format!("{}: not writable", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(functions: &[(&str, usize)]) -> Vec<(String, String)> {
        let text: String = functions
            .iter()
            .map(|(name, lines)| format!("fn {name}() {{\n{}}}\n", "    loop {}\n".repeat(lines - 2)))
            .collect();
        vec![("crates/a/src/lib.rs".to_owned(), text)]
    }

    fn measured(functions: &[(&str, usize)]) -> Exceptions {
        measure(&source(functions)).expect("Rust")
    }

    #[test]
    fn what_is_at_the_limit_is_no_exception() {
        assert_eq!(measured(&[("f", 60)]), Exceptions::default());
        assert_eq!(measured(&[("f", 61)]).function_lines, [("crates/a/src/lib.rs f".to_owned(), 61)].into());
        let long: Vec<(&str, usize)> = vec![("f", 50); 9];
        assert_eq!(measured(&long).file_lines, [("crates/a/src/lib.rs".to_owned(), 450)].into());
    }

    #[test]
    fn a_listed_function_may_shrink_and_not_grow_and_leaves_the_list() {
        let listed = measured(&[("f", 70)]);
        assert_eq!(measured(&[("f", 65)]).violations(&listed), Vec::<String>::new());
        assert_eq!(measured(&[("f", 71)]).violations(&listed).len(), 1);
        assert_eq!(measured(&[("f", 70), ("g", 61)]).violations(&listed).len(), 1);
        assert_eq!(measured(&[("f", 60)]).violations(&listed).len(), 1);
    }

    #[test]
    fn writing_the_list_lowers_and_never_raises() {
        let listed = measured(&[("f", 70)]);
        assert!(measured(&[("f", 71)]).shrunk(&listed).is_err());
        assert!(measured(&[("g", 61)]).shrunk(&listed).is_err());
        assert_eq!(measured(&[("f", 62)]).shrunk(&listed).expect("smaller"), measured(&[("f", 62)]));
        assert_eq!(measured(&[("f", 6)]).shrunk(&listed).expect("gone"), Exceptions::default());
    }

    #[test]
    fn the_list_survives_its_file() {
        let found = measured(&[("f", 70)]);
        let text = format!("{HEADER}{}", toml::to_string(&found).expect("TOML"));
        assert_eq!(toml::from_str::<Exceptions>(&text).expect("a list"), found);
    }
}
