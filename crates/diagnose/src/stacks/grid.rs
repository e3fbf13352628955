//! The grid: rows are ranks of a group, columns are sequence numbers, transfers lie between the collectives they follow.
use super::doing::Doings;
use super::frames;
use super::index::{Group, Index};
use super::judge::Ruling;
use super::tables::NONE;
use super::verdict::{Autopsy, Cell, CellMark, GroupGrid, RankRow, StackGroup};
use mycroft_record::Rank;
use mycroft_record::dump::{EntryState, Frame};
use std::collections::BTreeMap;

/// Place of a column: after which collective, collective or transfer, position, pair.
type Place = (u64, u8, u64, u32);

/// Fills the grid and its tables.
pub(super) fn fill(index: &Index<'_>, ruling: &Ruling, out: &mut Autopsy) {
    let tables = &index.tables;
    out.op_names = tables.ops.iter().map(|op| op.name.to_string()).collect();
    out.frames = tables.frames.iter().map(|frame| (*frame).clone()).collect();
    out.call_stacks = tables.stacks.clone();
    out.grid = (0..index.groups.len()).map(|id| group_grid(index, id, ruling)).collect();
    out.grid.retain(|grid| !grid.columns.is_empty());
}

fn group_grid(index: &Index<'_>, id: usize, ruling: &Ruling) -> GroupGrid {
    let group = &index.groups[id];
    let mut rows: BTreeMap<Rank, Vec<(Place, Cell)>> = BTreeMap::new();
    for lane in &group.lanes {
        let row = rows.entry(lane.rank).or_default();
        for slot in &lane.slots {
            let state = if slot.done { 2 } else { u8::from(slot.started) };
            let cell = Cell { column: 0, op: slot.op, stack: slot.stack, state, mark: CellMark::Plain };
            row.push(((slot.seq, 0, 0, 0), cell));
        }
    }
    transfers(index, group, &mut rows);
    let mut places: Vec<Place> = rows.values().flatten().map(|(place, _)| *place).collect();
    places.sort_unstable();
    places.dedup();
    let at = |place: &Place| places.binary_search(place).unwrap_or_default() as u32;
    let here = ruling.at.filter(|op| op.group as usize == id).and_then(|op| op.collective_seq());
    let wrong = here.and_then(|seq| places.binary_search(&(seq, 0, 0, 0)).ok()).map(|at| at as u32);
    let lasting = ruling.point.as_ref().filter(|point| point.group as usize == id);
    let rows = rows
        .into_iter()
        .map(|(rank, cells)| {
            let odd = lasting.is_some_and(|point| point.odd.contains(&rank));
            let mut cells: Vec<Cell> =
                cells.into_iter().map(|(place, cell)| Cell { column: at(&place), ..cell }).collect();
            cells.sort_by_key(|cell| cell.column);
            for cell in &mut cells {
                cell.mark = match wrong {
                    Some(wrong) if odd && cell.column >= wrong => CellMark::Odd,
                    Some(wrong) if cell.column == wrong => CellMark::First,
                    _ => CellMark::Plain,
                };
            }
            if let Some(column) = wrong.filter(|_| here.is_some() && ruling.missing.contains(&rank)) {
                cells.push(Cell { column, op: NONE, stack: NONE, state: 0, mark: CellMark::Missing });
                cells.sort_by_key(|cell| cell.column);
            }
            RankRow { rank, cells }
        })
        .collect();
    let columns = places.iter().map(|place| column_label(group, place)).collect();
    GroupGrid { label: group.label(), rows, columns, first_wrong: wrong }
}

fn column_label(group: &Group, place: &Place) -> String {
    match group.pairs.get(place.3 as usize).filter(|_| place.1 == 1) {
        Some(pair) => format!("{} send {}->{}", place.0, pair.from, pair.to),
        None => format!("#{}", place.0),
    }
}

fn transfers(index: &Index<'_>, group: &Group, rows: &mut BTreeMap<Rank, Vec<(Place, Cell)>>) {
    for (number, pair) in group.pairs.iter().enumerate() {
        let start = pair.first.0.min(pair.first.1);
        for seq in start..pair.end(true).max(pair.end(false)) {
            // Both halves stand in one column: behind the collective that the sender, else the receiver, issued last.
            let sides = [(pair.from, true), (pair.to, false)];
            let half = |(rank, sender): (Rank, bool)| {
                let half = pair.half(sender, seq)?;
                let dump = group.lane(rank)?.dump?;
                Some((rank, dump, index.bundle.dumps[dump].entries.get(half.entry as usize)?))
            };
            let halves: Vec<_> = sides.into_iter().filter_map(half).collect();
            let Some(after) = halves.first().map(|(_, _, entry)| entry.seq) else { continue };
            for (rank, dump, entry) in halves {
                let translation = &index.translations[dump];
                let get = |table: &[u32], at: u32| table.get(at as usize).copied().unwrap_or(NONE);
                let started = entry.state == EntryState::Started || entry.started_at.is_some();
                let state = if entry.is_done() { 2 } else { u8::from(started) };
                let (op, stack) = (get(&translation.ops, entry.op), get(&translation.stacks, entry.stack));
                let cell = Cell { column: 0, op, stack, state, mark: CellMark::Plain };
                rows.entry(rank).or_default().push(((after, 1, seq, number as u32), cell));
            }
        }
    }
}

/// Ranks by what their main threads do, largest group first.
pub(super) fn stack_groups(doings: &Doings<'_>) -> Vec<StackGroup> {
    let mut groups: BTreeMap<Vec<&Frame>, (Vec<Rank>, &str)> = BTreeMap::new();
    for (rank, doing) in &doings.of {
        groups.entry(doing.frames.clone()).or_insert_with(|| (Vec::new(), &doing.text)).0.push(*rank);
    }
    let mut out: Vec<StackGroup> = groups
        .into_iter()
        .map(|(frames, (ranks, doing))| StackGroup {
            ranks,
            frames: frames.into_iter().cloned().collect(),
            odd: false,
            doing: doing.to_owned(),
        })
        .collect();
    out.sort_by(|a, b| b.ranks.len().cmp(&a.ranks.len()).then_with(|| a.ranks.cmp(&b.ranks)));
    let most = out.first().map_or(0, |group| group.ranks.len());
    for group in &mut out {
        group.odd = group.ranks.len() < most && group.frames.iter().any(frames::is_program);
    }
    out
}
