//! The page of an autopsy: one HTML file that opens from disk in any current browser and asks the network for nothing.
//!
//! The sources are the components in `web/` (ES modules and CSS, no build step: docs/decisions/004-web.md), put one after
//! another into one inline module; the answer is packed, deflated and written as base64. The verdict is HTML beside it
//! (`summary`), so that it is read without any script as well. Text of dumps is hostile: the page makes text nodes of what
//! is in the base64, all other passes `markup`, and its policy (`Content-Security-Policy` in `web/page.html`) lets the
//! browser refuse markup made from text, every request, and every script and style but the page's own, which it names by
//! their hashes.
mod markup;
mod payload;
mod summary;
mod words;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use mycroft_diagnose::stacks::Autopsy;

/// Largest page, bytes: what mails, ticket systems and chats still take. 2 M cells are far below it.
pub const PAGE_BYTES_MAX: usize = 15 << 20;

/// Columns of a group that a page shows at most before any are cut for size: a recorder's ring is 2,000 by default,
/// 20,000 where somebody raised it.
const COLUMNS_MAX: usize = 65_536;

/// zlib's own default: level 9 is a tenth smaller and takes twice as long.
const DEFLATE_LEVEL: u8 = 6;

/// The document, with the places for hashes of script and style, title, style, verdict, data and script, in that order.
const DOCUMENT: &str = include_str!("../../../../web/page.html");

const PLACES: [&str; 7] =
    ["{{script-hash}}", "{{style-hash}}", "{{title}}", "{{style}}", "{{summary}}", "{{data}}", "{{script}}"];

/// Style sheets, in order.
const STYLES: &[&str] = &[
    include_str!("../../../../web/theme.css"),
    include_str!("../../../../web/page.css"),
    include_str!("../../../../web/print.css"),
];

/// Modules, each after those it imports.
const MODULES: &[(&str, &str)] = &[
    ("dom.js", include_str!("../../../../web/dom.js")),
    ("data.js", include_str!("../../../../web/data.js")),
    ("colour.js", include_str!("../../../../web/colour.js")),
    ("waitgraph.js", include_str!("../../../../web/waitgraph.js")),
    ("printed.js", include_str!("../../../../web/printed.js")),
    ("stackgrid.js", include_str!("../../../../web/stackgrid.js")),
    ("icicle.js", include_str!("../../../../web/icicle.js")),
    ("layout.js", include_str!("../../../../web/layout.js")),
    ("painter.js", include_str!("../../../../web/painter.js")),
    ("grid.js", include_str!("../../../../web/grid.js")),
    ("detail.js", include_str!("../../../../web/detail.js")),
    ("autopsy.js", include_str!("../../../../web/autopsy.js")),
];

/// The page that shows `autopsy`; `title` says whose it is, e.g. the folder's name.
///
/// At most [`PAGE_BYTES_MAX`] as long as the answer's tables alone are: where the grid would make it longer, each group
/// keeps fewer columns around its first wrong point, and the page says so.
pub fn render(autopsy: &Autopsy, title: &str) -> String {
    render_within(autopsy, title, PAGE_BYTES_MAX)
}

fn render_within(autopsy: &Autopsy, title: &str, bytes_max: usize) -> String {
    let mut columns_max = COLUMNS_MAX;
    let verdict = summary::html(autopsy, title);
    let title = format!("{} - {title}", words::title(autopsy));
    loop {
        let packed = payload::pack(autopsy, columns_max);
        let data = STANDARD.encode(miniz_oxide::deflate::compress_to_vec_zlib(&packed, DEFLATE_LEVEL));
        let page = assemble(&title, &verdict, &data);
        if page.len() <= bytes_max || columns_max == 0 {
            return page;
        }
        let widest = autopsy.grid.iter().map(|group| group.columns.len()).max().unwrap_or(0);
        columns_max = widest.min(columns_max) / 2;
    }
}

fn assemble(title: &str, verdict: &str, data: &str) -> String {
    // The hash is of all that stands between the tags.
    let (style, script) = (format!("\n{}\n", STYLES.concat()), format!("\n{}\n", script()));
    let (hashes, title) = ([hash(&script), hash(&style)], markup::escape(&payload::clean(title)));
    let [script_hash, style_hash] = hashes;
    let parts = [script_hash, style_hash, title, style, verdict.to_owned(), data.to_owned(), script];
    let mut page = String::with_capacity(DOCUMENT.len() + parts.iter().map(String::len).sum::<usize>());
    let mut rest = DOCUMENT;
    for (place, part) in PLACES.into_iter().zip(&parts) {
        let (before, after) = rest.split_once(place).unwrap_or((rest, ""));
        page.push_str(before);
        page.push_str(part);
        rest = after;
    }
    page.push_str(rest);
    page
}

/// All modules as one: inline modules cannot import each other, so imports go and exports become plain declarations.
fn script() -> String {
    let mut out = String::new();
    for (name, source) in MODULES {
        out.push_str(&format!("// {name}\n"));
        for line in source.lines().filter(|line| !line.starts_with("import ")) {
            out.push_str(line.strip_prefix("export ").unwrap_or(line));
            out.push('\n');
        }
    }
    out
}

/// How a policy names the one inline script or style that may be used.
fn hash(source: &str) -> String {
    format!("'sha256-{}'", STANDARD.encode(ring::digest::digest(&ring::digest::SHA256, source.as_bytes())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_diagnose::stacks::{Cell, GroupGrid, RankRow};
    use mycroft_record::Rank;
    use std::collections::BTreeMap;

    /// Modules become one script: a name that two of them declare at their top ends it before it begins.
    #[test]
    fn no_two_modules_declare_the_same_name() {
        let mut names: BTreeMap<String, &str> = BTreeMap::new();
        for (module, source) in MODULES {
            for line in source.lines() {
                let line = line.strip_prefix("export ").unwrap_or(line);
                let line = line.strip_prefix("async ").unwrap_or(line);
                let kinds = ["function ", "function* ", "const ", "let ", "class "];
                let Some(rest) = kinds.iter().find_map(|kind| line.strip_prefix(kind)) else { continue };
                let name = rest.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == '$')).next().unwrap_or("");
                if let Some(other) = names.insert(name.to_owned(), module).filter(|_| !name.is_empty()) {
                    panic!("{name} is declared in {other} and in {module}");
                }
            }
        }
        assert!(names.len() > 50, "{}", names.len());
    }

    #[test]
    fn the_document_has_each_place_once_and_in_order() {
        let mut rest = DOCUMENT;
        for place in PLACES {
            assert_eq!(DOCUMENT.matches(place).count(), 1, "{place}");
            rest = rest.split_once(place).expect(place).1;
        }
    }

    #[test]
    fn a_title_is_text_even_where_it_names_a_place() {
        let page = assemble("</title><script>{{data}}\u{202e}", "", "AAAA");
        assert!(page.contains("&lt;/title&gt;&lt;script&gt;{{data}}\\u{202e}"), "{}", &page[..400]);
        assert_eq!(page.matches("AAAA").count(), 1);
    }

    #[test]
    fn a_page_too_large_keeps_the_columns_around_the_first_wrong_point() {
        let mut answer = mycroft_diagnose::stacks::autopsy(&Default::default(), &Default::default());
        answer.op_names = (0..97).map(|op| format!("op {op}")).collect();
        let noise = |column: u32| ((u64::from(column) * u64::from(column) * 2_654_435_761) >> 20) as u32 % 97;
        let cell = |column: u32| Cell { column, op: noise(column), ..Cell::default() };
        answer.grid = vec![GroupGrid {
            label: "g".into(),
            rows: vec![RankRow { rank: Rank(0), cells: (0..60_000).map(cell).collect() }],
            columns: vec!["#".into(); 60_000],
            first_wrong: Some(59_000),
        }];
        let whole = render_within(&answer, "t", usize::MAX).len();
        let bare = render_within(&answer, "t", 0).len();
        assert!(bare + 10_000 < whole, "no grid is left of {whole} bytes: {bare}");
        let limit = (bare + whole) / 2;
        let cut = render_within(&answer, "t", limit).len();
        assert!(bare < cut && cut <= limit, "{bare}, {cut}, {limit}");
    }

    /// What [`script`] relies on, and the house's rules for `web/`.
    #[test]
    fn modules_import_only_what_earlier_ones_export() {
        let mut exports: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (name, source) in MODULES {
            assert!(source.is_ascii(), "{name}");
            assert!(source.starts_with("//"), "{name} does not say what it is for");
            assert!(source.lines().count() <= 800, "{name} is too long");
            assert!(!source.contains("</script"), "{name} would end the script");
            assert!(!source.contains("innerHTML") && !source.contains("fetch("), "{name}");
            for line in source.lines().filter(|line| line.starts_with("import")) {
                let (names, from) = line
                    .strip_prefix("import { ")
                    .and_then(|line| line.strip_suffix("\";"))
                    .and_then(|line| line.split_once(" } from \"./"))
                    .unwrap_or_else(|| panic!("{name}: not `import {{ a }} from \"./b.js\";`: {line}"));
                for wanted in names.split(", ") {
                    let known = exports.get(from).unwrap_or_else(|| panic!("{name} comes before {from}"));
                    assert!(known.iter().any(|export| export == wanted), "{name}: {from} has no {wanted}");
                }
            }
            exports.insert(name, exported(source));
        }
    }

    fn exported(source: &str) -> Vec<String> {
        let mut names = Vec::new();
        for line in source.lines().filter_map(|line| line.strip_prefix("export ")) {
            let line = line.strip_prefix("async ").unwrap_or(line);
            let (kind, rest) = line.split_once(' ').expect(line);
            let declared: Vec<&str> = if kind == "const" { rest.split(", ").collect() } else { vec![rest] };
            for name in declared {
                names.push(name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
            }
        }
        names
    }
}
