//! From lines to where each rank stands in each group.
//!
//! A group is known by its name (`PG GUID`), which all ranks share; lines of older versions tell none. Of several
//! operations that timed out on a rank the lowest number counts: the others queue behind it.
use super::told::Cite;
use crate::stacks::ranks::FILLED_MAX;
use mycroft_record::Rank;
use mycroft_record::dump::{Bundle, OpName};
use mycroft_record::printed::{Counts, Fingerprint, LogFile, LogLine, Says, Stands, some};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The group that torch makes first, with all ranks.
pub(super) const WORLD: &str = "0";
/// Its description.
pub(super) const WORLD_DESC: &str = "default_pg";

/// An operation and its elements, input and output.
pub(super) type Call = (OpName, Option<(i64, i64)>);

/// Where a rank stands in a group.
#[derive(Clone, Debug, Default)]
pub(super) struct Stand {
    /// The oldest operation that it is in.
    pub(super) open: Option<u64>,
    pub(super) call: Option<Call>,
    pub(super) dtype: Arc<str>,
    /// Last issued and last completed; -1: none.
    pub(super) status: Option<(i64, i64)>,
    pub(super) cites: Vec<Cite>,
    /// Only told by others' signal: its own watchdog has not complained.
    pub(super) is_told: bool,
    /// When it issued the open one, nanoseconds since the beginning of the year.
    pub(super) since: Option<u64>,
    /// How far the watchdog was over its limit, milliseconds, and that limit.
    pub(super) over: Option<(u64, u64)>,
}

/// A group as lines tell it.
#[derive(Clone, Debug, Default)]
pub(super) struct Grouped {
    pub(super) desc: Arc<str>,
    pub(super) stands: BTreeMap<Rank, Stand>,
    /// Number in the group -> rank, where a line tells both.
    pub(super) members: BTreeMap<u32, Rank>,
    /// How many members there are, where anything tells.
    pub(super) size: u32,
}

/// A timeout whose line tells no group.
struct Loose<'a> {
    rank: Rank,
    stands: &'a Stands,
    line: &'a LogLine,
    cite: Cite,
}

/// What the lines say of places, by group.
#[derive(Debug, Default)]
pub(super) struct Folded {
    pub(super) groups: BTreeMap<Arc<str>, Grouped>,
    /// Ranks of which there is any line or file.
    pub(super) heard: BTreeSet<Rank>,
    /// Timeouts of different numbers whose lines tell no group: nothing says whether they belong together.
    pub(super) apart: bool,
    /// A single description of a collective that differs from another, which is not told.
    pub(super) lone: Option<(Fingerprint, Cite)>,
}

/// The rank that printed a line.
pub(super) fn rank_of(file: &LogFile, line: &LogLine) -> Option<Rank> {
    line.rank.or(file.rank)
}

/// Whether the group is that of all ranks.
pub(super) fn is_world(name: &str, desc: &str) -> bool {
    name == WORLD || desc == WORLD_DESC || name.is_empty()
}

/// The name of the group that a line tells; `None` where it tells none.
fn group_of(stands: &Stands) -> Option<Arc<str>> {
    let first = stands.pg_id == Some(0) || &*stands.desc == WORLD_DESC;
    if !stands.group.is_empty() { Some(stands.group.clone()) } else { first.then(|| WORLD.into()) }
}

impl Folded {
    pub(super) fn of(bundle: &Bundle) -> Folded {
        let mut folded = Folded::default();
        let mut loose = Vec::new();
        let mut prints: Vec<(&Fingerprint, Cite)> = Vec::new();
        for (at, file) in bundle.logs.iter().enumerate() {
            folded.heard.extend(file.rank);
            folded.heard.extend(file.meters.iter().filter_map(|meter| meter.rank));
            for line in &file.lines {
                let cite = Cite { file: at, line: line.number };
                folded.heard.extend(line.rank);
                match &line.says {
                    Says::Stands(stands) => folded.stands(file, line, stands, cite, &mut loose),
                    Says::Fingerprint(print) => prints.push((print, cite)),
                    Says::Counts(counts) => folded.counts(counts, cite),
                    _ => {}
                }
            }
        }
        folded.place(loose);
        folded.prints(&prints);
        for group in folded.groups.values_mut() {
            group.settle();
        }
        folded
    }

    fn stands<'a>(
        &mut self,
        file: &LogFile,
        line: &'a LogLine,
        stands: &'a Stands,
        cite: Cite,
        loose: &mut Vec<Loose<'a>>,
    ) {
        let group = group_of(stands);
        let told = rank_of(file, line);
        // The rank within the group of all ranks is the rank; without a group nothing better is at hand.
        let in_world = group.as_deref().is_none_or(|name| is_world(name, &stands.desc));
        let Some(rank) = told.or_else(|| stands.member.filter(|_| in_world).map(Rank)) else { return };
        self.heard.insert(rank);
        let Some(name) = group else { return loose.push(Loose { rank, stands, line, cite }) };
        let group = self.groups.entry(name).or_default();
        if group.desc.is_empty() {
            group.desc = stands.desc.clone();
        }
        if let Some(member) = stands.member.filter(|_| told.is_some()) {
            group.members.entry(member).or_insert(rank);
        }
        group.stands.entry(rank).or_default().take(stands, line, cite);
    }

    /// Timeouts without a group join the group in which the rank stands before that number; else a group in which another
    /// rank has the number open; else, if all have one number, they are one group.
    fn place(&mut self, loose: Vec<Loose<'_>>) {
        let mut rest: Vec<Loose<'_>> = Vec::new();
        for item in loose {
            let seq = item.stands.seq;
            let number = seq.and_then(|seq| i64::try_from(seq).ok());
            let fits = |group: &Grouped| {
                group.stands.get(&item.rank).is_some_and(|stand| match (stand.status, number) {
                    (Some((issued, done)), Some(seq)) => done < seq && seq <= issued,
                    _ => seq.is_some() && stand.open == seq,
                })
            };
            let is_open = |group: &Grouped| seq.is_some() && group.stands.values().any(|stand| stand.open == seq);
            let groups = || self.groups.iter();
            let name = groups().find(|(_, group)| fits(group)).or_else(|| groups().find(|(_, group)| is_open(group)));
            let name = name.map(|(name, _)| name.clone());
            let found = name.and_then(|name| self.groups.get_mut(&name));
            match found {
                Some(group) => group.stands.entry(item.rank).or_default().take(item.stands, item.line, item.cite),
                None => rest.push(item),
            }
        }
        let mut lowest: BTreeMap<Rank, u64> = BTreeMap::new();
        for (rank, seq) in rest.iter().filter_map(|item| Some((item.rank, item.stands.seq?))) {
            let known = lowest.entry(rank).or_insert(seq);
            *known = seq.min(*known);
        }
        let numbers: BTreeSet<u64> = lowest.values().copied().collect();
        self.apart = numbers.len() > 1;
        for item in rest {
            let name: Arc<str> = match item.stands.seq.filter(|_| self.apart) {
                Some(seq) => format!("operation {seq} of a group that is not told").into(),
                None => Arc::default(),
            };
            self.groups.entry(name).or_default().stands.entry(item.rank).or_default().take(
                item.stands,
                item.line,
                item.cite,
            );
        }
    }

    fn prints(&mut self, prints: &[(&Fingerprint, Cite)]) {
        let ranks: BTreeSet<Rank> = prints.iter().map(|(print, _)| print.rank).collect();
        if ranks.len() < 2 {
            self.lone = prints.first().map(|(print, cite)| ((*print).clone(), *cite));
            return;
        }
        for (print, cite) in prints {
            self.heard.insert(print.rank);
            let group = self.groups.entry(Arc::default()).or_default();
            let stand = group.stands.entry(print.rank).or_default();
            if stand.open.is_none_or(|open| print.seq < open) {
                stand.open = Some(print.seq);
                let elements = print.shape.iter().fold(1_i64, |n, dim| n.saturating_mul(*dim));
                stand.call = Some((print.op.clone(), Some((elements, elements))));
                stand.dtype = print.dtype.clone();
            }
            stand.cites.push(*cite);
        }
    }

    /// Those that have launched more than the least wait in the operation behind the least.
    fn counts(&mut self, counts: &Counts, cite: Cite) {
        let Some(least) = counts.camps.iter().map(|camp| camp.0).min() else { return };
        let name: Arc<str> = format!("communicator {} {}", counts.comm, counts.op.text).trim_end().into();
        let listed: BTreeSet<Rank> = counts.camps.iter().flat_map(|camp| &camp.2).copied().collect();
        let group = self.groups.entry(name.clone()).or_default();
        group.desc = name;
        group.size = counts.size.min(FILLED_MAX);
        let rest: Vec<Rank> = (0..group.size).map(Rank).filter(|rank| !listed.contains(rank)).collect();
        for (last, how_many, ranks) in &counts.camps {
            // RAS lists the few; a camp that is not listed is all the others.
            let whole = ranks.len() as u32 == *how_many;
            let whose = if whole { ranks } else { &rest };
            if !whole && *how_many as usize != rest.len() {
                continue;
            }
            for rank in whose {
                let stand = group.stands.entry(*rank).or_default();
                stand.open = (*last > least).then_some(least + 1);
                stand.call = stand.open.map(|_| (counts.op.clone(), None));
                let number = |seq: u64| i64::try_from(seq).unwrap_or(i64::MAX);
                stand.status = Some((number(*last), number(least)));
                stand.cites.push(cite);
            }
        }
        self.heard.extend(group.stands.keys());
    }
}

impl Stand {
    fn take(&mut self, stands: &Stands, line: &LogLine, cite: Cite) {
        if self.cites.len() < 4 && !self.cites.contains(&cite) {
            self.cites.push(cite);
        }
        // What a rank says after its first status was said after the abort: what completed then proves nothing.
        self.status = self.status.or(stands.status);
        self.is_told |= stands.is_told;
        let Some(seq) = stands.seq else { return };
        if self.open.is_none_or(|open| seq < open) {
            self.open = Some(seq);
            self.call = None;
        }
        if self.open != Some(seq) {
            return;
        }
        if let (None, Some(op)) = (&self.call, &stands.op) {
            self.call = Some((op.clone(), stands.sizes));
        }
        if let Some(ran) = stands.ran_ms {
            self.since = line.at.map(|at| at.saturating_sub(ran.saturating_mul(1_000_000)));
            self.over = stands.timeout_ms.map(|limit| (ran.saturating_sub(limit), limit));
        }
    }
}

impl Grouped {
    /// A rank with more issued than completed is in the next one after the last completed. What an operation is that only
    /// its number tells of, its peers tell, if they agree.
    fn settle(&mut self) {
        for stand in self.stands.values_mut() {
            if let (None, Some((issued, done))) = (stand.open, stand.status)
                && issued > done
            {
                stand.open = Some(some(done).map_or(1, |done| done + 1));
            }
        }
        let mut known: BTreeMap<u64, Option<Call>> = BTreeMap::new();
        for stand in self.stands.values() {
            if let (Some(open), Some(call)) = (stand.open, &stand.call) {
                let entry = known.entry(open).or_insert_with(|| Some(call.clone()));
                if entry.as_ref() != Some(call) {
                    *entry = None;
                }
            }
        }
        for stand in self.stands.values_mut() {
            let Some(open) = stand.open.filter(|_| stand.call.is_none()) else { continue };
            match known.get(&open) {
                Some(Some(call)) => stand.call = Some(call.clone()),
                Some(None) => stand.open = None,
                None => {
                    let op = OpName { text: "operation".into(), op: "operation".into(), ..OpName::default() };
                    stand.call = Some((op, None));
                }
            }
        }
    }
}
