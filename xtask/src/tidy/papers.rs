//! What documents and code say of each other: invariants by number, terms and their types, sections of the paper.
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::path::Path;

type Sources = [(String, String)];

/// Checks all of it.
pub(super) fn check(root: &Path, files: &Sources, violations: &mut Vec<String>) -> Result<()> {
    let page = |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| format!("{name}: not readable"));
    citations(&page("docs/papers/mycroft.md")?, files, violations);
    invariants(&page("ARCHITECTURE.md")?, files, violations);
    glossary(&page("docs/glossary.md")?, files, violations);
    Ok(())
}

/// Every `//= mycroft X` must cite a section that docs/papers/mycroft.md treats.
fn citations(notes: &str, files: &Sources, violations: &mut Vec<String>) {
    for (path, text) in files {
        for (number, line) in text.lines().enumerate() {
            let Some(citation) = line.trim_start().strip_prefix("//= mycroft ") else { continue };
            if !notes.contains(citation.trim()) {
                let citation = citation.trim();
                violations.push(format!(
                    "{path}:{}: cites `{citation}`, which docs/papers/mycroft.md does not treat",
                    number + 1
                ));
            }
        }
    }
}

/// Every `(invariant N` in code must be an item of ARCHITECTURE.md's list.
fn invariants(map: &str, files: &Sources, violations: &mut Vec<String>) {
    let list = map.split("## Invariants").nth(1).and_then(|rest| rest.split("\n## ").next()).unwrap_or_default();
    let known: BTreeSet<&str> = list.lines().filter_map(|line| Some(line.split_once(". **")?.0)).collect();
    for (path, text) in files {
        for (number, line) in text.lines().enumerate() {
            let cited = line.match_indices("(invariant ").map(|(at, word)| &line[at + word.len()..]);
            for rest in cited {
                let digits = &rest[..rest.bytes().take_while(u8::is_ascii_digit).count()];
                if !digits.is_empty() && !known.contains(digits) {
                    violations.push(format!("{path}:{}: invariant {digits} is not one of ARCHITECTURE.md", number + 1));
                }
            }
        }
    }
}

/// Each type in the last column of the glossary's tables must be defined in a crate.
fn glossary(page: &str, files: &Sources, violations: &mut Vec<String>) {
    let defined: BTreeSet<&str> = files
        .iter()
        .filter(|(path, _)| path.starts_with("crates/") && path.contains("/src/"))
        .flat_map(|(path, text)| {
            // The ids and kinds of the vocabulary are made by macros, each name at the beginning of a line.
            let by_macro = path.starts_with("crates/record/src/");
            text.lines().filter_map(move |line| defined_type(line, by_macro))
        })
        .collect();
    for (number, line) in page.lines().enumerate() {
        let Some(types) = line.strip_prefix("| ").and_then(|line| line.trim_end_matches(" |").rsplit(" | ").next())
        else {
            continue;
        };
        for name in types.split('`').skip(1).step_by(2).filter(|name| !defined.contains(name)) {
            violations.push(format!("docs/glossary.md:{}: no type `{name}` in the crates", number + 1));
        }
    }
}

/// The type that a line begins to define, if it does.
fn defined_type(line: &str, by_macro: bool) -> Option<&str> {
    const DEFINING: &[&str] = &["struct", "enum", "trait", "type"];
    let mut words = line.split_whitespace().filter(|word| !word.starts_with("pub"));
    let first = words.next()?;
    let name = if DEFINING.contains(&first) { words.next()? } else { Some(first).filter(|_| by_macro)? };
    let end = name.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(name.len());
    Some(&name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> Vec<(String, String)> {
        vec![("crates/a/src/lib.rs".to_owned(), text.to_owned())]
    }

    #[test]
    fn an_invariant_that_is_not_in_the_list_is_told_with_its_line() {
        let map = "## Invariants\n\n1. **One.** Text\n2. **Two**\n\n## Next\n3. **Not one**\n";
        let mut found = Vec::new();
        invariants(map, &source("// (invariant 2)\n// (invariant 3: because)\n"), &mut found);
        assert_eq!(found, ["crates/a/src/lib.rs:2: invariant 3 is not one of ARCHITECTURE.md"]);
    }

    #[test]
    fn a_type_of_the_glossary_must_be_defined() {
        let page = "| term | type |\n|---|---|\n| a `Word` | `Rank`, `Gone` |\n| b | - |\n";
        let mut found = Vec::new();
        glossary(page, &source("pub(crate) struct Rank(u32);\n// struct Gone\n"), &mut found);
        assert_eq!(found, ["docs/glossary.md:3: no type `Gone` in the crates"]);
    }
}
