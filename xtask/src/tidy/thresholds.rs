//! The constants that live verdicts rest on, as docs/thresholds.md: their values, with what their comments say of unit and source.
use anyhow::{Context, Result};
use std::path::Path;
use syn::visit::{self, Visit};
use syn::{Attribute, Expr, ItemConst, ItemMod, Lit, Meta, Type};

/// Rooms of `crates/diagnose/src` whose constants count, in the order in which a verdict passes them.
const ROOMS: &[&str] = &["measure", "evidence", "change", "explain", "watch", "case"];

/// Constants that these rooms may have together: what a person can know one by one.
pub(super) const CONSTANTS_MAX: usize = 80;

const PAGE: &str = "docs/thresholds.md";

/// A named constant, in the words of its comment.
#[derive(PartialEq, Eq, Debug)]
struct Constant {
    name: String,
    value: String,
    says: String,
    file: String,
}

/// How many constants these rooms have.
pub(super) fn count(files: &[(String, String)]) -> Result<usize> {
    Ok(ROOMS.iter().map(|room| constants(room, files)).collect::<Result<Vec<_>>>()?.iter().map(Vec::len).sum())
}

/// Writes the page.
pub(super) fn write(root: &Path, files: &[(String, String)]) -> Result<()> {
    std::fs::write(root.join(PAGE), page(files)?).with_context(|| format!("{PAGE}: not writable"))
}

/// The page is what the code says, and each constant says what it is.
pub(super) fn check(root: &Path, files: &[(String, String)], violations: &mut Vec<String>) -> Result<()> {
    for room in ROOMS {
        for constant in constants(room, files)?.iter().filter(|constant| constant.says.is_empty()) {
            violations.push(format!("{}: {} has no comment with its unit and source", constant.file, constant.name));
        }
    }
    if std::fs::read_to_string(root.join(PAGE)).unwrap_or_default() != page(files)? {
        violations.push(format!("{PAGE}: not what the code says; `cargo xtask tidy --write-thresholds` writes it"));
    }
    Ok(())
}

fn page(files: &[(String, String)]) -> Result<String> {
    let mut page = format!(
        "# Thresholds\n\nThe named constants of the rooms that a live slowdown's verdict passes, {} in all, each in the words of its \
         comment. Written by `cargo xtask tidy --write-thresholds`; do not edit. Stalls wait for learned times \
         (`watch/waits`), and what a look used is in its report.\n",
        count(files)?
    );
    for room in ROOMS {
        let constants = constants(room, files)?;
        page.push_str(&format!(
            "\n## `{room}`: {}\n\n| constant | value | what, unit and source | file |\n",
            constants.len()
        ));
        page.push_str("|---|---|---|---|\n");
        for Constant { name, value, says, file } in constants {
            page.push_str(&format!("| `{name}` | `{value}` | {says} | {file} |\n"));
        }
    }
    Ok(page)
}

/// The constants of one room, file by file as they stand.
fn constants(room: &str, files: &[(String, String)]) -> Result<Vec<Constant>> {
    let (file, folder) = (format!("crates/diagnose/src/{room}.rs"), format!("crates/diagnose/src/{room}/"));
    let is_test = |path: &str| path.ends_with("/tests.rs") || path.contains("/tests/");
    let mut all = Vec::new();
    let mut of_room: Vec<_> = files.iter().filter(|(path, _)| *path == file || path.starts_with(&folder)).collect();
    of_room.sort();
    for (path, text) in of_room {
        if is_test(path) {
            continue;
        }
        let parsed = syn::parse_file(text).with_context(|| format!("{path}: not Rust"))?;
        let mut found = Found { file: path.trim_start_matches("crates/diagnose/src/"), text, all: &mut all };
        found.visit_file(&parsed);
    }
    Ok(all)
}

struct Found<'a> {
    file: &'a str,
    text: &'a str,
    all: &'a mut Vec<Constant>,
}

impl<'ast> Visit<'ast> for Found<'_> {
    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        if is_text(&item.ty) {
            return;
        }
        let says: Vec<String> = item.attrs.iter().filter_map(comment).collect();
        let value = value(self.text, &item.ident.to_string());
        let (name, file) = (item.ident.to_string(), self.file.to_owned());
        self.all.push(Constant { name, value, says: says.join(" ").replace('|', "\\|"), file });
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let is_test = item.attrs.iter().any(|attribute| attribute.path().is_ident("cfg"));
        if !is_test {
            visit::visit_item_mod(self, item);
        }
    }
}

/// Words are no thresholds.
fn is_text(of: &Type) -> bool {
    matches!(of, Type::Reference(of) if matches!(&*of.elem, Type::Path(path) if path.path.is_ident("str")))
}

/// A line of a doc comment.
fn comment(attribute: &Attribute) -> Option<String> {
    let Meta::NameValue(pair) = &attribute.meta else { return None };
    let Expr::Lit(literal) = &pair.value else { return None };
    match &literal.lit {
        Lit::Str(text) if pair.path.is_ident("doc") => Some(text.value().trim().to_owned()),
        _ => None,
    }
}

/// What a constant is set to, as it is written.
fn value(text: &str, name: &str) -> String {
    let after = text.split_once(&format!("const {name}:")).map_or("", |(_, after)| after);
    let value = after.split_once('=').map_or("", |(_, value)| value);
    let words: Vec<&str> = value.split_once(";\n").map_or("", |(value, _)| value).split_whitespace().collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(text: &str) -> Vec<(String, String)> {
        vec![("crates/diagnose/src/watch/track.rs".to_owned(), text.to_owned())]
    }

    #[test]
    fn the_page_has_each_constant_with_its_value_and_its_comment() {
        let text = "/// A second,\n/// by the paper.\nconst A: u64 = 3 * B;\n/// Said.\nconst W: &str = \"w\";\nstruct S;\n#[cfg(test)]\nmod t { const T: u64 = 1; }\n";
        let page = page(&files(text)).expect("Rust");
        assert!(page.contains("| `A` | `3 * B` | A second, by the paper. | watch/track.rs |"), "{page}");
        assert!(!page.contains("`T`") && !page.contains("`W`"));
        assert_eq!(count(&files(text)).expect("Rust"), 1);
    }

    #[test]
    fn a_constant_without_a_comment_and_an_old_page_are_told() {
        let (mut violations, none) = (Vec::new(), Path::new("/none"));
        check(none, &files("const A: u64 = 3;\n"), &mut violations).expect("Rust");
        assert_eq!(violations.len(), 2, "{violations:?}");
        assert!(violations[0].contains("A has no comment"));
    }
}
