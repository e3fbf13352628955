//! Where all ranks may wait (FALCON 4.3): at a point of each rank's program such that of every operation either all members
//! have issued it or none has. So no rank waits at the gate while a peer waits for it inside a collective.
//!
//! The least such point is found without knowing the programs: whoever has issued less than a peer of a communicator has
//! to go on, and by one entry at a time nobody goes further than it must. What one issues on the way may oblige others.
use super::{LaneKey, LaneKind, Left};
use std::collections::{BTreeMap, BTreeSet};

/// A lane as a rank shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lane {
    /// What it is of.
    pub key: LaneKey,
    /// Operations issued so far.
    pub count: u64,
}

/// What one rank shows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    /// A library with a gate counts its calls.
    pub has_gate: bool,
    /// An entry waits at the gate for this request.
    pub waiting: bool,
    /// Entries that came to the gate in this request.
    pub entries: u32,
    /// It left this request by itself.
    pub left: Option<Left>,
    /// Calls that no lane counts.
    pub untracked: u64,
    /// Its communicators and peers.
    pub lanes: Vec<Lane>,
}

/// What to do next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Plan {
    /// All wait, and nobody waits for one who waits at the gate.
    Agreed,
    /// These are behind a peer and wait at the gate: each has to go on by one entry.
    GoOn(BTreeSet<usize>),
    /// Somebody has not come yet.
    Wait,
}

/// Why no point can be agreed on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// A rank (by its place in the list) makes calls that no lane counts.
    Untracked {
        /// Place in the list.
        view: usize,
    },
    /// A communicator has members that are not among these ranks.
    Elsewhere {
        /// The communicator.
        comm: u64,
        /// Ranks in it.
        members: u32,
        /// Of them here.
        here: usize,
    },
}

/// Rank in the communicator to place in the list, by communicator.
fn members(views: &[View]) -> BTreeMap<u64, BTreeMap<u32, usize>> {
    let mut members: BTreeMap<u64, BTreeMap<u32, usize>> = BTreeMap::new();
    for (i, view) in views.iter().enumerate() {
        for lane in view.lanes.iter().filter(|lane| lane.key.kind == LaneKind::Collective) {
            members.entry(lane.key.comm).or_default().insert(lane.key.own, i);
        }
    }
    members
}

/// Whether a point can be agreed on between these ranks, before anybody is asked.
///
/// # Errors
/// Something is not counted, or somebody is not here.
pub fn may_agree(views: &[View]) -> Result<(), Refusal> {
    if let Some(view) = views.iter().position(|view| view.untracked > 0) {
        return Err(Refusal::Untracked { view });
    }
    let members = members(views);
    for lane in views.iter().flat_map(|view| &view.lanes).filter(|lane| lane.key.kind == LaneKind::Collective) {
        let here = members.get(&lane.key.comm).map_or(0, BTreeMap::len);
        if here as u64 != u64::from(lane.key.other) {
            return Err(Refusal::Elsewhere { comm: lane.key.comm, members: lane.key.other, here });
        }
    }
    Ok(())
}

/// What to do, by what the ranks show now.
pub fn plan(views: &[View]) -> Plan {
    let behind = behind(views);
    let go_on: BTreeSet<usize> = behind.iter().copied().filter(|&i| views[i].waiting).collect();
    if !go_on.is_empty() {
        Plan::GoOn(go_on)
    } else if behind.is_empty() && views.iter().all(|view| view.waiting) {
        Plan::Agreed
    } else {
        Plan::Wait
    }
}

/// Who keeps the others from agreeing: of those that do not wait at their gates, one that is behind a peer (others may be
/// inside an operation that it has not issued), else the first.
pub fn latest(views: &[View]) -> Option<usize> {
    let behind = behind(views);
    let mut absent: Vec<usize> = (0..views.len()).filter(|&i| !views[i].waiting).collect();
    absent.sort_by_key(|i| !behind.contains(i));
    absent.first().copied()
}

/// Ranks that have issued less than a peer of theirs.
fn behind(views: &[View]) -> BTreeSet<usize> {
    owed(views).into_keys().collect()
}

/// What each rank that has issued less than a peer still has to issue: lanes of its own, with the count of the peer.
pub fn owed(views: &[View]) -> BTreeMap<usize, Vec<Lane>> {
    let members = members(views);
    let mut newest: BTreeMap<u64, u64> = BTreeMap::new();
    // Sends and receives of each communicator, from a rank to a rank.
    let mut pairs: BTreeMap<(u64, u32, u32), [u64; 2]> = BTreeMap::new();
    let lanes = || views.iter().enumerate().flat_map(|(i, view)| view.lanes.iter().map(move |lane| (i, lane)));
    for (_, Lane { key, count }) in lanes() {
        match key.kind {
            LaneKind::Collective => {
                let newest = newest.entry(key.comm).or_default();
                *newest = (*newest).max(*count);
            }
            LaneKind::Send => pairs.entry((key.comm, key.own, key.other)).or_default()[0] = *count,
            LaneKind::Recv => pairs.entry((key.comm, key.other, key.own)).or_default()[1] = *count,
        }
    }
    let mut owed: BTreeMap<usize, Vec<Lane>> = BTreeMap::new();
    for (i, lane) in lanes().filter(|(_, lane)| lane.key.kind == LaneKind::Collective) {
        if let Some(&count) = newest.get(&lane.key.comm).filter(|newest| lane.count < **newest) {
            owed.entry(i).or_default().push(Lane { key: lane.key, count });
        }
    }
    for ((comm, from, to), [sent, received]) in pairs {
        let (kind, own, other) = match sent.cmp(&received) {
            std::cmp::Ordering::Less => (LaneKind::Send, from, to),
            std::cmp::Ordering::Greater => (LaneKind::Recv, to, from),
            std::cmp::Ordering::Equal => continue,
        };
        if let Some(&late) = members.get(&comm).and_then(|of| of.get(&own)) {
            let key = LaneKey { comm, kind, own, other };
            owed.entry(late).or_default().push(Lane { key, count: sent.max(received) });
        }
    }
    owed
}

/// Whether a rank that shows this has not issued all that was found to be owed; nothing is owed of a communicator that it
/// does not have any more.
pub fn owes(view: &View, owed: &[Lane]) -> bool {
    let count = |key: &LaneKey| view.lanes.iter().find(|lane| lane.key == *key).map(|lane| lane.count);
    let has = |comm: u64| {
        let is_it = |lane: &Lane| lane.key.comm == comm && lane.key.kind == LaneKind::Collective;
        view.lanes.iter().any(is_it)
    };
    owed.iter().any(|lane| match count(&lane.key) {
        Some(count) => count < lane.count,
        // A way that was not used yet has no lane.
        None => lane.key.kind != LaneKind::Collective && has(lane.key.comm),
    })
}
