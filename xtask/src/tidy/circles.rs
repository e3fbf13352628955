//! Which files of a crate use each other in a circle: such files can only be understood together.
use super::syntax::{InnerPath, Syntax};
use std::collections::{BTreeMap, BTreeSet};

/// The files of one crate, each by its module (`[]` is the crate's root) with its path and syntax.
pub(crate) struct Room<'a> {
    modules: BTreeMap<InnerPath, (&'a str, &'a Syntax)>,
}

/// How many names are followed through re-exports before a path is taken as it stands.
const REEXPORTS_MAX: usize = 4;

impl<'a> Room<'a> {
    /// The room whose sources lie under `root` (`crates/x/src/`), without files that exist only in tests.
    pub(crate) fn new(root: &str, files: &'a [(String, Syntax)]) -> Room<'a> {
        let mut modules: BTreeMap<InnerPath, (&str, &Syntax)> = files
            .iter()
            .filter_map(|(path, syntax)| Some((module_of(path.strip_prefix(root)?), (path.as_str(), syntax))))
            .collect();
        let tests: Vec<InnerPath> = modules
            .iter()
            .flat_map(|(module, (_, syntax))| {
                syntax.test_modules.iter().map(|name| module.iter().chain([name]).cloned().collect())
            })
            .collect();
        modules.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
        Room { modules }
    }

    /// For each file in a circle, by its path: how many files of the same circle it uses.
    pub(crate) fn circles(&self) -> BTreeMap<&'a str, usize> {
        let edges: BTreeMap<&InnerPath, BTreeSet<&InnerPath>> =
            self.modules.keys().map(|module| (module, self.uses(module))).collect();
        let reach: BTreeMap<&InnerPath, BTreeSet<&InnerPath>> =
            edges.keys().map(|module| (*module, reached(module, &edges))).collect();
        let mut circles = BTreeMap::new();
        for (module, used) in &edges {
            let inside = used.iter().filter(|other| reach[*other].contains(module)).count();
            if inside > 0 {
                circles.insert(self.modules[*module].0, inside);
            }
        }
        circles
    }

    /// The other modules that a module uses.
    fn uses(&self, module: &InnerPath) -> BTreeSet<&InnerPath> {
        let syntax = self.modules[module].1;
        let imports = syntax.imports.iter().filter(|import| !import.reexport).map(|import| &import.path);
        imports
            .chain(&syntax.paths)
            .filter_map(|path| self.target(module, path, REEXPORTS_MAX))
            .filter(|target| *target != module)
            .collect()
    }

    /// The module in which the item of a path lies, as far as names tell.
    fn target(&self, from: &InnerPath, path: &[String], depth: usize) -> Option<&InnerPath> {
        let (mut at, rest) = self.start(from, path)?;
        let mut rest = rest;
        while let Some((name, tail)) = rest.split_first() {
            let child: InnerPath = at.iter().chain([name]).cloned().collect();
            if !self.modules.contains_key(&child) {
                break;
            }
            (at, rest) = (child, tail);
        }
        let (found, (_, syntax)) = self.modules.get_key_value(&at)?;
        let import = rest.first().and_then(|name| syntax.imports.iter().find(|import| import.name == *name));
        match import {
            Some(import) if depth > 0 && import.path != path => {
                self.target(found, &import.path, depth - 1).or(Some(found))
            }
            _ => Some(found),
        }
    }

    /// Where a path begins and what is left of it; none where it leads out of the crate or is a local name.
    fn start<'p>(&self, from: &InnerPath, path: &'p [String]) -> Option<(InnerPath, &'p [String])> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => Some((Vec::new(), rest)),
            "self" => Some((from.clone(), rest)),
            "super" => {
                let mut at = from.clone();
                at.pop()?;
                let ups = rest.iter().take_while(|name| *name == "super").count();
                at.truncate(at.len().checked_sub(ups)?);
                Some((at, &rest[ups..]))
            }
            child => {
                let below: InnerPath = from.iter().map(String::as_str).chain([child]).map(str::to_owned).collect();
                self.modules.contains_key(&below).then_some((below, rest))
            }
        }
    }
}

/// `a/b.rs` and `a/b/mod.rs` are `[a, b]`; `lib.rs` and `main.rs` are `[]`.
fn module_of(path: &str) -> InnerPath {
    let mut module: InnerPath = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if module.last().is_some_and(|last| last == "mod") || module == ["lib"] || module == ["main"] {
        module.pop();
    }
    module
}

/// Everything that can be reached from a module by at least one step.
fn reached<'m>(
    from: &'m InnerPath,
    edges: &BTreeMap<&'m InnerPath, BTreeSet<&'m InnerPath>>,
) -> BTreeSet<&'m InnerPath> {
    let mut seen = BTreeSet::new();
    let mut next = vec![from];
    while let Some(module) = next.pop() {
        next.extend(edges[module].iter().copied().filter(|other| seen.insert(*other)));
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::super::syntax::parse;
    use super::*;

    fn circles(files: &[(&str, &str)]) -> Vec<(String, usize)> {
        let files: Vec<(String, Syntax)> =
            files.iter().map(|(path, text)| (format!("src/{path}"), parse(path, text).expect("Rust"))).collect();
        Room::new("src/", &files).circles().into_iter().map(|(path, uses)| (path.to_owned(), uses)).collect()
    }

    #[test]
    fn files_that_use_each_other_are_a_circle_however_long_and_others_are_not() {
        let found = circles(&[
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "fn f() { super::c::g(); }"),
            ("c.rs", "use super::a::{self};"),
            ("d.rs", "use crate::a::A;"),
        ]);
        assert_eq!(found, [("src/a.rs".to_owned(), 1), ("src/b.rs".to_owned(), 1), ("src/c.rs".to_owned(), 1)]);
    }

    #[test]
    fn what_a_root_shows_is_no_use_of_the_root() {
        let shown = [("lib.rs", "mod a; mod b;\npub use a::A;"), ("a.rs", "pub struct A;"), ("b.rs", "use crate::A;")];
        assert_eq!(circles(&shown), []);
        let used = [("lib.rs", "mod b; use b::B; struct A; fn f(_: B) {}"), ("b.rs", "use crate::A;")];
        assert_eq!(circles(&used), [("src/b.rs".to_owned(), 1), ("src/lib.rs".to_owned(), 1)]);
    }

    #[test]
    fn tests_may_use_what_they_test() {
        let found = circles(&[
            ("lib.rs", "mod a;"),
            ("a/mod.rs", "#[cfg(test)]\nmod tests;\nfn f() { tests::g() }"),
            ("a/tests.rs", "use super::*;"),
        ]);
        assert_eq!(found, []);
    }
}
