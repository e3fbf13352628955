//! Dumps whose file names another rank than the dump.
//!
//! torch before August 2026 keeps the first rank that a process was told, also where that was its rank in a group: the dump
//! of rank 1 then lies in the file of rank 0 and none in its own. A dump tells whose it is where it holds a transfer: who
//! sends is the sender.
use mycroft_record::Rank;
use mycroft_record::dump::Dump;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Gives dumps the rank that they tell themselves, where files name one rank twice and another never.
pub(crate) fn by_content(dumps: &mut [Dump], told: &mut Vec<(Arc<str>, Rank, Rank)>) {
    let mut named: BTreeMap<Rank, usize> = BTreeMap::new();
    for dump in dumps.iter() {
        *named.entry(dump.rank).or_default() += 1;
    }
    let members: BTreeSet<Rank> = dumps
        .iter()
        .flat_map(|dump| &dump.groups)
        .filter(|group| !group.local_ranks)
        .flat_map(|group| group.ranks.clone())
        .collect();
    let missing: BTreeSet<Rank> = members.into_iter().filter(|rank| !named.contains_key(rank)).collect();
    if missing.is_empty() {
        return;
    }
    for dump in dumps.iter_mut().filter(|dump| named.get(&dump.rank).is_some_and(|count| *count > 1)) {
        if let Some(rank) = own_rank(dump).filter(|rank| missing.contains(rank)) {
            told.push((dump.source.clone(), dump.rank, rank));
            dump.rank = rank;
        }
    }
    told.sort();
    told.dedup();
}

/// The rank that every transfer in the dump tells: the sender of what it sends, the receiver of what it receives.
fn own_rank(dump: &Dump) -> Option<Rank> {
    let mut own = None;
    for entry in &dump.entries {
        let Some(op) = dump.ops.get(entry.op as usize) else { continue };
        let member = match &*op.op {
            "send" => op.src,
            "recv" => op.dst,
            _ => continue,
        };
        let group = dump.groups.get(entry.group as usize).filter(|group| !group.local_ranks)?;
        let rank = *group.ranks.get(member? as usize)?;
        if own.is_some_and(|known| known != rank) {
            return None;
        }
        own = Some(rank);
    }
    own
}
