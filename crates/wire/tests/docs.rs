//! The catalogue in `docs/formats/record.md` lists every kind and column of the code.
use mycroft_wire::cells::{Kind, columns};

#[test]
fn the_catalogue_is_complete() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/formats/record.md");
    let text = std::fs::read_to_string(path).unwrap();
    for &kind in Kind::ALL {
        let row = format!("| {} | {} | 1 |", kind as u8, kind.as_str());
        assert!(text.contains(&row), "no line {row}");
        let section = match kind {
            // Described as having the columns of FlowState.
            Kind::FlowDone => Kind::FlowState,
            other => other,
        };
        let begin = text.find(&format!("**{}**:", section.as_str())).unwrap();
        let section = text[begin..].split("\n\n").next().unwrap();
        let mut rest = section;
        for column in columns(kind) {
            let quoted = format!("`{}`", column.name);
            let at =
                rest.find(&quoted).unwrap_or_else(|| panic!("{}: {quoted} is missing or out of order", kind.as_str()));
            rest = &rest[at + quoted.len()..];
        }
    }
}
