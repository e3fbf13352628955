//! Records as lines of JSON (docs/formats/record.md): the source, the kind, and the columns that the wire and the store
//! have for it.
use mycroft_record::text::printable;
use mycroft_record::{Batch, Rank, Record};
use mycroft_wire::cells::{CellType, Interner, Kind, columns, put};
use serde_json::to_string;
use std::io::{self, Write};

/// Writes records, with memory for the next one.
#[derive(Default)]
pub(crate) struct Lines {
    cells: Vec<u64>,
    line: String,
}

impl Lines {
    /// Writes one record of a batch.
    ///
    /// # Errors
    /// When `out` does not take it.
    pub(crate) fn write(&mut self, batch: &Batch, record: &Record, out: &mut impl Write) -> io::Result<()> {
        let (source, kind) = (&batch.source, Kind::of(record));
        let process = source.process;
        let rank = process.map(|process| process.rank).filter(|rank| *rank != Rank::UNKNOWN);
        let number = |number: Option<u32>| number.map_or("null".to_owned(), |number| number.to_string());
        self.line.clear();
        self.line.push_str(&format!(
            "{{\"kind\":\"{}\",\"job\":{},\"host\":{},\"rank\":{},\"pid\":{},\"collected_at\":{}",
            kind.as_str(),
            quoted(&source.job)?,
            quoted(&source.host)?,
            number(rank.map(|rank| rank.0)),
            number(process.map(|process| process.pid)),
            batch.collected_at.0
        ));
        self.cells.clear();
        let mut strings = Interner::default();
        put(record, &mut strings, &mut self.cells);
        for (column, &cell) in columns(kind).iter().zip(&self.cells) {
            let value = match column.cell {
                CellType::At | CellType::Time if cell == 0 => "null".to_owned(),
                CellType::At | CellType::Time | CellType::Number => cell.to_string(),
                CellType::Id => format!("\"{cell:016x}\""),
                CellType::Signed => (cell as u32 as i32).to_string(),
                CellType::Flag => (cell != 0).to_string(),
                CellType::Text => {
                    let text = usize::try_from(cell).ok().and_then(|index| strings.strings().get(index));
                    quoted(text.map_or("", |text| text))?
                }
            };
            self.line.push_str(&format!(",\"{}\":{value}", column.name));
        }
        self.line.push_str("}\n");
        out.write_all(self.line.as_bytes())
    }
}

/// A name that came over the wire, as JSON and fit for a terminal.
fn quoted(text: &str) -> io::Result<String> {
    Ok(to_string(&printable(text))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::{CommId, CommInit, CommRank, Gap, GapCause, HostTime, ProcessKey, Source};

    fn line(process: Option<ProcessKey>, record: Record) -> String {
        let source = Source { job: "train\x1b".into(), host: "host0".into(), process };
        let batch = Batch { source, collected_at: HostTime(7), records: vec![record] };
        let mut out = Vec::new();
        Lines::default().write(&batch, &batch.records[0], &mut out).expect("memory takes it");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_record_is_a_line_of_its_columns() {
        let comm = CommInit {
            at: HostTime(5),
            comm: CommId(0xfeed),
            n_ranks: 8,
            n_nodes: 2,
            comm_rank: CommRank(3),
            name: "DP_0".into(),
        };
        let process = ProcessKey { rank: Rank(1), pid: 42, nonce: 9 };
        assert_eq!(
            line(Some(process), Record::CommInit(comm)),
            "{\"kind\":\"CommInit\",\"job\":\"train\\\\u{1b}\",\"host\":\"host0\",\"rank\":1,\"pid\":42,\
             \"collected_at\":7,\"time\":5,\"comm\":\"000000000000feed\",\"n_ranks\":8,\"n_nodes\":2,\
             \"comm_rank\":3,\"name\":\"DP_0\"}\n"
        );
        let gap = Gap { noticed_at: HostTime::NONE, lost: 2, cause: GapCause::ServerDropped };
        let line = line(None, Record::Gap(gap));
        assert!(line.contains("\"rank\":null,\"pid\":null") && line.contains("\"time\":null,\"lost\":2"), "{line}");
    }
}
