//! What the page draws below its verdict, packed: JSON for what is small, varints and runs for the grid's cells (`web/data.js` reads it).
//!
//! 1,024 ranks x 2,000 operations are 2 M cells of 20 bytes. Rows of one group are nearly alike and a row is some KB, so
//! the one before lies in deflate's window: a row costs tens of bytes.
use mycroft_diagnose::stacks::{Autopsy, CellMark, GroupGrid, PrintedLine, RankRow};
use mycroft_record::dump::Frame;
use mycroft_record::text::printable_within;
use serde::Serialize;
use std::collections::HashMap;
use std::ops::Range;

/// Longest text of a dump that the page repeats, in characters: a file name with its folders, a long argument list.
const TEXT_CHARS_MAX: usize = 600;

/// Version of the packed form; the page and its data travel together, so this only names it.
const VERSION: u32 = 2;

#[derive(Serialize)]
struct Meta {
    version: u32,
    group: String,
    suspects: Vec<SuspectJson>,
    ranks: Vec<u32>,
    arrows: Vec<ArrowJson>,
    ops: Vec<String>,
    frames: Vec<FrameJson>,
    stacks: Vec<Vec<u32>>,
    combos: Vec<i64>,
    groups: Vec<GroupJson>,
    stack_groups: Vec<StackGroupJson>,
    printed: Printed,
}

/// Function, file, line.
type FrameJson = (String, String, u32);

#[derive(Serialize)]
struct SuspectJson {
    rank: u32,
    doing: String,
}

#[derive(Serialize)]
struct ArrowJson {
    waiting: Vec<u32>,
    waits_for: Vec<u32>,
    text: String,
}

#[derive(Serialize)]
struct GroupJson {
    label: String,
    ranks: Vec<u32>,
    columns: Vec<String>,
    first_wrong: Option<u32>,
    /// Columns before the first that is shown.
    cut_before: u32,
    /// Columns after the last that is shown.
    cut_after: u32,
}

#[derive(Serialize)]
struct StackGroupJson {
    ranks: Vec<u32>,
    frames: Vec<FrameJson>,
    odd: bool,
    doing: String,
}

/// What was printed. The answer itself bounds how many lines there are and how long each is.
#[derive(Serialize)]
struct Printed {
    files: Vec<String>,
    lines: Vec<LineJson>,
    left_out: usize,
}

/// File (index), line, rank, host, milliseconds since the beginning of the year, part, text.
type LineJson = (usize, u64, Option<u32>, String, Option<u64>, &'static str, String);

/// Packs an answer, with at most `columns_max` columns of each group: those around its first wrong point, or its last.
pub(super) fn pack(autopsy: &Autopsy, columns_max: usize) -> Vec<u8> {
    let mut combos = Combos::new(autopsy);
    let mut cells = Vec::new();
    let mut groups = Vec::new();
    for grid in &autopsy.grid {
        let shown = shown(grid, columns_max);
        for row in &grid.rows {
            pack_row(row, &shown, &mut combos, &mut cells);
        }
        groups.push(group_json(grid, &shown));
    }
    let json = serde_json::to_vec(&meta(autopsy, combos.pairs, groups)).unwrap_or_default();
    let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(4 + json.len() + cells.len());
    bytes.extend(length.to_le_bytes());
    bytes.extend(json);
    bytes.extend(cells);
    bytes
}

fn meta(autopsy: &Autopsy, combos: Vec<i64>, groups: Vec<GroupJson>) -> Meta {
    Meta {
        version: VERSION,
        group: clean(&autopsy.group),
        suspects: suspects(autopsy),
        ranks: autopsy.ranks.iter().map(|rank| rank.0).collect(),
        arrows: autopsy
            .blast_radius
            .iter()
            .map(|entry| ArrowJson {
                waiting: entry.waiting.iter().map(|rank| rank.0).collect(),
                waits_for: entry.waits_for.iter().map(|rank| rank.0).collect(),
                text: clean(&entry.text),
            })
            .collect(),
        ops: autopsy.op_names.iter().map(|name| clean(name)).collect(),
        frames: autopsy.frames.iter().map(frame_json).collect(),
        stacks: autopsy.call_stacks.clone(),
        combos,
        groups,
        stack_groups: autopsy
            .stack_groups
            .iter()
            .map(|group| StackGroupJson {
                ranks: group.ranks.iter().map(|rank| rank.0).collect(),
                frames: group.frames.iter().map(frame_json).collect(),
                odd: group.odd,
                doing: clean(&group.doing),
            })
            .collect(),
        printed: printed(autopsy),
    }
}

fn printed(autopsy: &Autopsy) -> Printed {
    let mut files: Vec<&str> = autopsy.lines.iter().map(|line| &*line.file).collect();
    files.sort_unstable();
    files.dedup();
    let line = |line: &PrintedLine| {
        let file = files.binary_search(&&*line.file).unwrap_or_default();
        let ms = line.at.map(|at| at / 1_000_000);
        let rank = line.rank.map(|rank| rank.0);
        (file, line.line, rank, clean(&line.host), ms, line.part.as_str(), clean(&line.text))
    };
    let lines = autopsy.lines.iter().map(line).collect();
    Printed { lines, files: files.iter().map(|file| clean(file)).collect(), left_out: autopsy.lines_left_out }
}

fn suspects(autopsy: &Autopsy) -> Vec<SuspectJson> {
    autopsy.blamed().map(|(rank, _, conduct)| SuspectJson { rank: rank.0, doing: clean(&conduct.doing) }).collect()
}

fn frame_json(frame: &Frame) -> FrameJson {
    (clean(&frame.name), clean(&frame.file), frame.line)
}

fn group_json(grid: &GroupGrid, shown: &Range<u32>) -> GroupJson {
    let columns = grid.columns.iter().skip(shown.start as usize).take(shown.len());
    let total = u32::try_from(grid.columns.len()).unwrap_or(u32::MAX);
    GroupJson {
        label: clean(&grid.label),
        ranks: grid.rows.iter().map(|row| row.rank.0).collect(),
        columns: columns.map(|label| clean(label)).collect(),
        first_wrong: grid.first_wrong.filter(|column| shown.contains(column)).map(|column| column - shown.start),
        cut_before: shown.start,
        cut_after: total.saturating_sub(shown.end),
    }
}

/// Columns of a group to show: all where they fit, otherwise those around the first wrong point, otherwise the last.
fn shown(grid: &GroupGrid, columns_max: usize) -> Range<u32> {
    let total = u32::try_from(grid.columns.len()).unwrap_or(u32::MAX);
    let most = u32::try_from(columns_max).unwrap_or(u32::MAX);
    if total <= most {
        return 0..total;
    }
    let middle = grid.first_wrong.unwrap_or(total);
    let start = middle.saturating_sub(most / 2).min(total - most);
    start..start + most
}

/// Pairs of operation and call stack, numbered by first appearance.
struct Combos {
    ops: usize,
    stacks: usize,
    numbers: HashMap<(u32, u32), u64>,
    /// Operation and stack of each number; -1 for "none" and for what points outside its table.
    pairs: Vec<i64>,
}

impl Combos {
    fn new(autopsy: &Autopsy) -> Combos {
        Combos {
            ops: autopsy.op_names.len(),
            stacks: autopsy.call_stacks.len(),
            numbers: HashMap::new(),
            pairs: Vec::new(),
        }
    }

    fn number(&mut self, op: u32, stack: u32) -> u64 {
        if let Some(&number) = self.numbers.get(&(op, stack)) {
            return number;
        }
        let number = self.numbers.len() as u64;
        self.numbers.insert((op, stack), number);
        let inside = |index: u32, size: usize| if (index as usize) < size { i64::from(index) } else { -1 };
        self.pairs.extend([inside(op, self.ops), inside(stack, self.stacks)]);
        number
    }
}

fn pack_row(row: &RankRow, shown: &Range<u32>, combos: &mut Combos, out: &mut Vec<u8>) {
    let mut cells = Vec::with_capacity(row.cells.len());
    let mut next = shown.start;
    for cell in &row.cells {
        // One cell per column, in order: what is not cannot be drawn.
        if cell.column >= next && shown.contains(&cell.column) {
            next = cell.column + 1;
            cells.push(cell);
        }
    }
    varint(cells.len() as u64, out);
    let mut end = shown.start;
    for run in cells.chunk_by(|a, b| a.column + 1 == b.column) {
        varint(u64::from(run[0].column - end), out);
        varint(run.len() as u64, out);
        end = run[0].column + u32::try_from(run.len()).unwrap_or(u32::MAX);
    }
    for cell in &cells {
        varint(combos.number(cell.op, cell.stack), out);
    }
    let flags = |cell: &mycroft_diagnose::stacks::Cell| cell.state.min(2) | (mark_number(cell.mark) << 2);
    for run in cells.chunk_by(|a, b| flags(a) == flags(b)) {
        varint(u64::from(flags(run[0])), out);
        varint(run.len() as u64, out);
    }
}

fn mark_number(mark: CellMark) -> u8 {
    match mark {
        CellMark::Plain => 0,
        CellMark::Odd => 1,
        CellMark::Missing => 2,
        CellMark::First => 3,
    }
}

/// LEB128.
fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Text of a dump as it may be shown: characters that do not print, or that reorder a line, are spelled out.
pub(super) fn clean(text: &str) -> String {
    printable_within(text, TEXT_CHARS_MAX).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_diagnose::stacks::Cell;

    #[test]
    fn what_does_not_print_is_spelled_out_and_long_text_is_cut() {
        assert_eq!(clean("a\0b\u{202e}c\nd"), "a\\u{0}b\\u{202e}c\\nd");
        assert_eq!(clean("<b>&\"'"), "<b>&\"'");
        assert_eq!(clean(&"x".repeat(5_000)).len(), TEXT_CHARS_MAX + 3);
    }

    #[test]
    fn columns_shown_are_those_around_the_first_wrong_point() {
        let grid = |first_wrong| GroupGrid {
            label: String::new(),
            rows: Vec::new(),
            columns: vec![String::new(); 1_000],
            first_wrong,
        };
        assert_eq!(shown(&grid(None), 2_000), 0..1_000);
        assert_eq!(shown(&grid(None), 100), 900..1_000);
        assert_eq!(shown(&grid(Some(500)), 100), 450..550);
        assert_eq!(shown(&grid(Some(3)), 100), 0..100);
        assert_eq!(shown(&grid(Some(999)), 100), 900..1_000);
    }

    #[test]
    fn a_row_is_runs_and_an_odd_order_of_columns_is_dropped() {
        let cell = |column, op, state| Cell { column, op, stack: u32::MAX, state, mark: CellMark::Plain };
        let row = RankRow {
            rank: mycroft_record::Rank(0),
            cells: vec![cell(2, 0, 2), cell(3, 1, 2), cell(3, 0, 2), cell(1, 0, 2), cell(7, 0, 0), cell(99, 0, 0)],
        };
        let mut combos = Combos { ops: 1, stacks: 0, numbers: HashMap::new(), pairs: Vec::new() };
        let mut out = Vec::new();
        pack_row(&row, &(0..10), &mut combos, &mut out);
        assert_eq!(out, [3, 2, 2, 3, 1, 0, 1, 0, 2, 2, 0, 1]);
        assert_eq!(combos.pairs, [0, -1, -1, -1], "operation 1 is outside its table");
    }
}
