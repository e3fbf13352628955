//! Which ranks there are: those that anything tells of, and those between them.
use mycroft_record::dump::{Bundle, Dump, DumpGroup};
use mycroft_record::{OpKind, Rank};
use std::collections::BTreeSet;

/// Ranks that a gap in the numbering may add: a job of 100,000 ranks, and no more because of one odd file name.
pub(super) const FILLED_MAX: u32 = 1 << 17;

/// Every rank of the job, ascending. `more`: those that logs tell of.
pub(super) fn seen(bundle: &Bundle, more: &BTreeSet<Rank>) -> Vec<Rank> {
    let mut ranks: Vec<Rank> = bundle.dumps.iter().map(|dump| dump.rank).collect();
    ranks.extend(more);
    let untold = |group: &DumpGroup| group.ranks.is_empty() && !group.name.is_empty();
    let native = bundle.dumps.iter().any(|dump| dump.groups.iter().any(untold));
    ranks.extend(bundle.stacks.iter().filter_map(|stacks| stacks.rank));
    ranks.extend(bundle.unusable.iter().chain(&bundle.unread).filter_map(|file| file.rank));
    let mut known: BTreeSet<&[Rank]> = BTreeSet::new();
    for group in bundle.dumps.iter().flat_map(|dump| &dump.groups) {
        if !group.local_ranks && known.insert(&group.ranks) {
            ranks.extend(&group.ranks);
        }
    }
    ranks.retain(|rank| *rank != Rank::UNKNOWN);
    ranks.sort_unstable();
    ranks.dedup();
    let told = bundle.dumps.iter().flat_map(|dump| &dump.groups).any(|group| group.local_ranks);
    if native || told {
        let members = bundle.dumps.iter().map(members_by_sizes).max().unwrap_or(0);
        ranks.extend((members > 0).then(|| Rank(members - 1)));
        ranks.sort_unstable();
        ranks.dedup();
    }
    // Ranks of a job have no holes: a number that is missing among dumps that tell no members is a rank without a dump.
    let last = ranks.last().map_or(0, |rank| rank.0);
    if (native || told) && (last as usize) < 4 * ranks.len() + 64 && last < FILLED_MAX {
        ranks = (0..=last).map(Rank).collect();
    }
    ranks
}

/// How many members the sizes of a gather tell: what all give over what one gives.
fn members_by_sizes(dump: &Dump) -> u32 {
    let total = |sizes: &[Box<[i64]>]| {
        sizes.iter().map(|dims| dims.iter().fold(1_i64, |n, dim| n.saturating_mul(*dim))).fold(0, i64::saturating_add)
    };
    let mut most = 0;
    let mut seen = BTreeSet::new();
    for entry in &dump.entries {
        if !seen.insert((entry.op, entry.shape)) {
            continue;
        }
        let op =
            dump.ops.get(entry.op as usize).filter(|op| op.kind == OpKind::AllGather && !op.op.contains("coalesced"));
        let Some(shape) = op.and_then(|_| dump.shapes.get(entry.shape as usize)) else { continue };
        let (one, all) = (total(&shape.inputs), total(&shape.outputs));
        if one > 0 && all % one == 0 && all / one < i64::from(FILLED_MAX) {
            most = most.max((all / one) as u32);
        }
    }
    most
}
