//! `docs/formats/ring.md` against the code: every offset of every table, both ways.
use mycroft_ring::gate::words::{LANE_COUNT, LANE_WORDS};
use mycroft_ring::layout::{self, Geometry, WORD_BYTES};
use std::collections::BTreeMap;

const DOC: &str = include_str!("../../../docs/formats/ring.md");
const CODE: &str = concat!(include_str!("../src/layout.rs"), include_str!("../src/gate/words.rs"));

fn section(title: &str) -> &'static str {
    let heading = format!("\n## {title}\n");
    let at = DOC.find(&heading).unwrap_or_else(|| panic!("no section {title}")) + heading.len();
    let rest = &DOC[at..];
    &rest[..rest.find("\n## ").unwrap_or(rest.len())]
}

fn rows(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().filter(|l| l.starts_with("| ") && l.as_bytes()[2].is_ascii_digit());
    lines.map(|l| l.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Fields of a table in the document: name to word.
fn documented(title: &str) -> BTreeMap<String, usize> {
    let mut fields = BTreeMap::new();
    for row in rows(section(title)) {
        let word: usize = row[0].parse().expect("a word offset");
        let byte: usize = row[1].parse().expect("a byte offset");
        assert_eq!(word * WORD_BYTES, byte, "{title}: {row:?}");
        assert!(row.len() == 5 && row.iter().all(|cell| !cell.is_empty()), "{title}: {row:?}");
        fields.insert(row[2].trim_matches('`').to_owned(), word);
    }
    fields
}

/// Constants of a module of `layout.rs` or of the gate: name to value.
fn coded(module: &str) -> BTreeMap<String, usize> {
    let start = format!("\npub mod {module} {{");
    let at = CODE.find(&start).unwrap_or_else(|| panic!("no module {module}"));
    let body = &CODE[at..at + CODE[at..].find("\n}").expect("its end")];
    let constants = body.lines().filter_map(|l| l.trim().strip_prefix("pub const ")?.split_once(": usize = "));
    constants.map(|(name, v)| (name.to_owned(), v.trim_end_matches(';').parse().expect("a number"))).collect()
}

#[test]
fn every_offset_in_the_document_is_the_code_s() {
    for (title, module) in [
        ("Header", "header"),
        ("Communicator cell", "comm"),
        ("Operation cell", "op"),
        ("Flow cell", "flow"),
        ("Ring header", "ring"),
        ("Gate", "gate"),
        ("Lane of the gate", "gate_lane"),
        ("Task of the gate", "task"),
    ] {
        assert_eq!(documented(title), coded(module), "{title}");
    }
    // The text of the code is what the compiler saw.
    assert_eq!(coded("header")["DROPPED"], layout::header::DROPPED);
    assert_eq!(coded("flow")["STAGE_MAX_TICKS"], layout::flow::STAGE_MAX_TICKS);
}

#[test]
fn the_document_s_sizes_are_the_code_s() {
    let sizes = rows(section("Sections"));
    assert!(sizes.len() >= 3);
    for row in sizes {
        let (number, unit) = row[0].split_once(' ').expect("a number and a unit");
        let bytes = number.parse::<u64>().expect("a number") << if unit == "MiB" { 20 } else { 10 };
        let g = Geometry::for_bytes(bytes);
        assert!(g.total_bytes() <= bytes && g.is_sane());
        let numbers: Vec<u64> = row[1..].iter().map(|n| n.parse().expect("a number")).collect();
        assert_eq!(numbers, [g.comms, g.ops, g.flows, g.rings, g.ring_slots], "{row:?}");
    }
    for (name, value) in [
        ("HEADER_WORDS", layout::HEADER_WORDS),
        ("CELL_WORDS", layout::CELL_WORDS),
        ("RING_HEADER_WORDS", layout::RING_HEADER_WORDS),
        ("SLOT_WORDS", layout::SLOT_WORDS),
        ("LANE_WORDS", LANE_WORDS),
        ("LANE_COUNT", LANE_COUNT),
    ] {
        assert!(DOC.contains(&format!("`{name}` = {value}")), "{name} is {value}");
    }
    assert!(DOC.contains(&format!("layout version {}", layout::VERSION)));
}

#[test]
fn any_size_gives_a_sane_geometry_that_fits() {
    for bytes in (0..40).map(|bit| 1u64 << bit).flat_map(|n| [n - 1, n, n + n / 3]) {
        let g = Geometry::for_bytes(bytes);
        assert!(g.is_sane(), "{bytes}: {g:?}");
        let clamped = bytes.clamp(layout::MIN_SEGMENT_BYTES, layout::MAX_SEGMENT_BYTES);
        assert!(g.total_bytes() <= clamped && g.total_bytes() > clamped * 9 / 10, "{bytes}: {g:?}");
        assert!(g.offsets().iter().all(|at| at.is_multiple_of(8)), "a section off its cache line: {g:?}");
    }
    assert_eq!(layout::default_segment_bytes(Some(8)) * 8, layout::HOST_BYTES);
    assert_eq!(layout::default_segment_bytes(None), layout::HOST_BYTES / 8);
    assert_eq!(layout::default_segment_bytes(Some(0)), layout::HOST_BYTES);
    assert_eq!(layout::default_segment_bytes(Some(1 << 20)), layout::MIN_SEGMENT_BYTES);
}
