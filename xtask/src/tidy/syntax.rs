//! What the house rules ask of a source file's syntax: how long its functions are, and which files of its room it uses.
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use syn::visit::{self, Visit};
use syn::{
    Attribute, Block, ImplItemFn, ItemFn, ItemImpl, ItemMod, ItemTrait, ItemUse, Signature, TraitItemFn, UseTree,
};

/// A function with a body.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Function {
    /// `Type::name`, or `name` outside of an `impl`.
    pub(crate) name: String,
    /// From the line of `fn` to that of the closing brace.
    pub(crate) lines: usize,
}

/// A path in the code that leads into the same crate: `crate::a::B` is `["crate", "a", "B"]`.
pub(crate) type InnerPath = Vec<String>;

/// A name that a `use` binds, and where it comes from.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct Import {
    pub(crate) name: String,
    pub(crate) path: InnerPath,
    /// Shown to others only: `pub use` of a name that this file does not write again.
    pub(crate) reexport: bool,
}

/// What there is to know of one file.
#[derive(Default)]
pub(crate) struct Syntax {
    pub(crate) functions: Vec<Function>,
    pub(crate) imports: Vec<Import>,
    /// Paths written out in code, outside of `use`.
    pub(crate) paths: Vec<InnerPath>,
    /// Modules in files of their own that exist only in tests.
    pub(crate) test_modules: BTreeSet<String>,
}

/// Parses one file.
pub(crate) fn parse(path: &str, text: &str) -> Result<Syntax> {
    let file = syn::parse_file(text).with_context(|| format!("{path}: not Rust"))?;
    let mut reader = FileReader::default();
    reader.visit_file(&file);
    let mut syntax = reader.syntax;
    for import in syntax.imports.iter_mut().filter(|import| import.reexport) {
        import.reexport = reader.words.iter().filter(|word| **word == import.name).count() == 0;
    }
    Ok(syntax)
}

#[derive(Default)]
struct FileReader {
    syntax: Syntax,
    /// The `impl`s and traits around what is visited.
    types: Vec<String>,
    /// Inline modules around what is visited.
    inline: usize,
    /// Identifiers of types, expressions and patterns, outside of `use`.
    words: Vec<String>,
}

impl FileReader {
    fn function(&mut self, signature: &Signature, body: &Block) {
        let from = signature.fn_token.span.start().line;
        let lines = body.brace_token.span.close().end().line + 1 - from;
        let mut name = self.types.last().map_or_else(String::new, |type_| format!("{type_}::"));
        name.push_str(&signature.ident.to_string());
        self.syntax.functions.push(Function { name, lines });
    }

    /// A path as seen from the file's own module: one `super` less for each inline module around it. None: out of the
    /// crate, or within the inline module.
    fn inner(&self, mut path: InnerPath) -> Option<InnerPath> {
        for _ in 0..self.inline {
            match path.first().map(String::as_str) {
                Some("super") => drop(path.remove(0)),
                Some("crate") => return Some(path),
                _ => return None,
            }
        }
        Some(path)
    }

    fn use_tree(&mut self, tree: &UseTree, prefix: &mut InnerPath, public: bool) {
        let mut bind = |name: String, last: Option<String>, prefix: &InnerPath| {
            let path: InnerPath = prefix.iter().cloned().chain(last).collect();
            if let Some(path) = self.inner(path) {
                self.syntax.imports.push(Import { name, path, reexport: public });
            }
        };
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.use_tree(&path.tree, prefix, public);
                prefix.pop();
            }
            UseTree::Name(name) if name.ident == "self" => {
                bind(prefix.last().cloned().unwrap_or_default(), None, prefix);
            }
            UseTree::Name(name) => bind(name.ident.to_string(), Some(name.ident.to_string()), prefix),
            UseTree::Rename(rename) => bind(rename.rename.to_string(), Some(rename.ident.to_string()), prefix),
            UseTree::Glob(_) => bind("*".to_owned(), None, prefix),
            UseTree::Group(group) => group.items.iter().for_each(|tree| self.use_tree(tree, prefix, public)),
        }
    }
}

/// Whether an item exists in tests only.
fn in_tests_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for FileReader {
    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast ItemImpl) {
        let name = match item.self_ty.as_ref() {
            syn::Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
            _ => None,
        };
        self.types.push(name.unwrap_or_else(|| "_".to_owned()));
        visit::visit_item_impl(self, item);
        self.types.pop();
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.types.push(item.ident.to_string());
        visit::visit_item_trait(self, item);
        self.types.pop();
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        let tests_only = in_tests_only(&item.attrs);
        if item.content.is_none() {
            if tests_only {
                self.syntax.test_modules.insert(item.ident.to_string());
            }
            return;
        }
        // A test may use whatever it tests, but its functions have a length, too.
        let before = (self.syntax.imports.len(), self.syntax.paths.len(), self.words.len());
        self.inline += 1;
        visit::visit_item_mod(self, item);
        self.inline -= 1;
        if tests_only {
            self.syntax.imports.truncate(before.0);
            self.syntax.paths.truncate(before.1);
            self.words.truncate(before.2);
        }
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let public = !matches!(item.vis, syn::Visibility::Inherited);
        self.use_tree(&item.tree, &mut Vec::new(), public);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: InnerPath = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.words.extend(segments.iter().cloned());
        if segments.len() > 1
            && let Some(path) = self.inner(segments)
        {
            self.syntax.paths.push(path);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        words_of(item.tokens.clone(), &mut self.words);
        visit::visit_macro(self, item);
    }
}

/// All identifiers of a macro's tokens.
fn words_of(tokens: proc_macro2::TokenStream, words: &mut Vec<String>) {
    for token in tokens {
        match token {
            proc_macro2::TokenTree::Ident(ident) => words.push(ident.to_string()),
            proc_macro2::TokenTree::Group(group) => words_of(group.stream(), words),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn syntax(text: &str) -> Syntax {
        parse("test.rs", text).expect("Rust")
    }

    #[test]
    fn functions_are_measured_from_fn_to_the_closing_brace_whatever_they_hold() {
        let read = syntax(
            "/// Doc\n#[inline]\nfn one() { let _ = \"}\"; }\nimpl<T> Two<T> {\n    fn three(\n    ) {\n        // }\n        \
             loop {}\n    }\n}\ntrait Four { fn five(); fn six() {\n} }\n",
        );
        let of = |name: &str, lines| Function { name: name.to_owned(), lines };
        assert_eq!(read.functions, [of("one", 1), of("Two::three", 5), of("Four::six", 2)]);
    }

    #[test]
    fn imports_are_told_whole_and_those_of_tests_are_not() {
        let read = syntax(
            "use crate::a::{B, c::{self, D as E}};\npub use x::Y;\npub use x::Z;\nfn f(_: Z) {}\n\
             #[cfg(test)]\nmod tests { use crate::q::R; }\nmod inner { use super::super::up::V; use super::Own; }\n",
        );
        let told: Vec<String> = read
            .imports
            .iter()
            .map(|import| {
                format!("{} = {}{}", import.name, import.path.join("::"), if import.reexport { " out" } else { "" })
            })
            .collect();
        assert_eq!(
            told,
            [
                "B = crate::a::B",
                "c = crate::a::c",
                "E = crate::a::c::D",
                "Y = x::Y out",
                "Z = x::Z",
                "V = super::up::V",
                "Own = Own",
            ]
        );
    }
}
