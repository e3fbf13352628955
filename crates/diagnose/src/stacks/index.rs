//! The index of a bundle: per group and member, what it did in which order; and the answers the wait-for graph asks for.
//!
//! Collectives are aligned by sequence number within a group, never by record id. A group is its name, description and
//! members: `split_group` gives different groups one name, and `pg_id` means nothing outside its process.
use super::pairs::{self, Pair};
use super::ranks;
use super::tables::{NONE, Tables, Translation};
use mycroft_record::dump::{Bundle, Dump, DumpGroup, Entry, EntryState, GroupStatus};
use mycroft_record::{OpKind, Rank};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// One collective of one rank; several entries with one number are one coalesced operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) seq: u64,
    /// Index into the dump's entries.
    pub(super) entry: u32,
    /// Numbers of [`Tables`].
    pub(super) op: u32,
    pub(super) shape: u32,
    pub(super) stack: u32,
    /// Entries that make it up.
    pub(super) count: u32,
    pub(super) done: bool,
    pub(super) started: bool,
}

/// One member of a group.
#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) rank: Rank,
    /// Index into the bundle's dumps; `None` without a usable dump.
    pub(super) dump: Option<usize>,
    /// Collectives by sequence number.
    pub(super) slots: Vec<Slot>,
    /// Highest sequence number issued as `pg_status` tells it, where no entry does; also of a dump that was cut short.
    pub(super) issued: Option<u64>,
    /// The same as `pg_status` tells it in any case, as a sequence number.
    pub(super) status: Option<u64>,
    /// It holds the member's first operation in the group: nothing was overwritten.
    pub(super) whole: bool,
}

/// A process group.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) name: Arc<str>,
    pub(super) desc: Arc<str>,
    /// Members in group-rank order.
    pub(super) order: Vec<Rank>,
    /// Members by rank.
    pub(super) lanes: Vec<Lane>,
    /// The members are inferred from who has entries.
    pub(super) inferred: bool,
    /// Point-to-point traffic, by source and destination.
    pub(super) pairs: Vec<Pair>,
}

impl Group {
    /// What people call it.
    pub(super) fn label(&self) -> String {
        let text = if self.desc.is_empty() || &*self.desc == "undefined" { &self.name } else { &self.desc };
        if text.is_empty() { "the only group".to_owned() } else { text.to_string() }
    }

    pub(super) fn lane(&self, rank: Rank) -> Option<&Lane> {
        let at = self.lanes.binary_search_by_key(&rank, |lane| lane.rank).ok()?;
        self.lanes.get(at)
    }
}

impl Lane {
    pub(super) fn slot(&self, seq: u64) -> Option<&Slot> {
        let at = self.slots.binary_search_by_key(&seq, |slot| slot.seq).ok()?;
        self.slots.get(at)
    }

    /// The oldest collective that is not done.
    pub(super) fn oldest_open(&self) -> Option<&Slot> {
        self.slots.iter().find(|slot| !slot.done)
    }
}

/// The index.
#[derive(Debug)]
pub(super) struct Index<'a> {
    pub(super) bundle: &'a Bundle,
    /// Every rank that anything tells of, ascending.
    pub(super) ranks: Vec<Rank>,
    pub(super) groups: Vec<Group>,
    pub(super) tables: Tables<'a>,
    /// Of each rank: its groups.
    pub(super) groups_of: BTreeMap<Rank, Vec<u32>>,
    /// Of each dump: does its recorder ever say that an operation started, or completed?
    pub(super) tells: Vec<Tells>,
    /// Per dump: index of each of its groups here.
    pub(super) group_ids: Vec<Vec<u32>>,
    /// Per dump: its translation.
    pub(super) translations: Vec<Translation>,
}

/// Which states a recorder ever reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Tells {
    pub(super) started: bool,
    pub(super) completed: bool,
    /// The ring was full: older operations are overwritten.
    pub(super) wrapped: bool,
    /// Retired without ever being reported as completed: native Gloo, or a hook without completion.
    pub(super) retires_only: bool,
}

/// What a group is known by before its members are settled.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    name: Arc<str>,
    desc: Arc<str>,
    members: Vec<Rank>,
    lib: Arc<str>,
}

impl<'a> Index<'a> {
    /// `more`: ranks that something beside the bundle's dumps and stacks tells of.
    pub(super) fn of(bundle: &'a Bundle, more: &BTreeSet<Rank>) -> Index<'a> {
        let ranks = ranks::seen(bundle, more);
        let mut index = Index {
            bundle,
            ranks,
            groups: Vec::new(),
            tables: Tables::default(),
            groups_of: BTreeMap::new(),
            tells: bundle.dumps.iter().map(tells).collect(),
            group_ids: Vec::new(),
            translations: Vec::new(),
        };
        index.find_groups();
        let empty = Translation::default();
        for at in 0..bundle.dumps.len() {
            let like = index.translations.last().unwrap_or(&empty);
            let translation = index.tables.translate(&bundle.dumps[at], like);
            index.translations.push(translation);
            index.fill(at);
        }
        for group in &mut index.groups {
            pairs::number(group, &index.tells);
        }
        index.join_statuses();
        index.join_heads();
        for (id, group) in index.groups.iter().enumerate() {
            for lane in &group.lanes {
                index.groups_of.entry(lane.rank).or_default().push(id as u32);
            }
        }
        index
    }

    /// Groups that any dump has entries or a status in.
    fn find_groups(&mut self) {
        let several = self.bundle.dumps.windows(2).any(|pair| pair[0].rank == pair[1].rank);
        let mut keys: Vec<Vec<Option<Key>>> = Vec::new();
        let mut seen: BTreeMap<Key, (Vec<Rank>, BTreeSet<Rank>)> = BTreeMap::new();
        for dump in &self.bundle.dumps {
            let libs = libs_of_groups(dump);
            let mut of_dump = Vec::new();
            for (at, group) in dump.groups.iter().enumerate() {
                let Some(key) = key_of(group, libs[at].as_ref(), several) else {
                    of_dump.push(None);
                    continue;
                };
                let entry = seen.entry(key.clone()).or_insert_with(|| (group.ranks.clone(), BTreeSet::new()));
                if libs[at].is_some() {
                    entry.1.insert(dump.rank);
                }
                of_dump.push(Some(key));
            }
            keys.push(of_dump);
        }
        let mut ids: BTreeMap<Key, u32> = BTreeMap::new();
        for (key, (order, users)) in seen {
            if users.is_empty() && key.members.is_empty() {
                continue;
            }
            let inferred = key.members.is_empty();
            let members = if inferred { self.infer(&key, order.len(), &users) } else { key.members.clone() };
            let order = if inferred { members.clone() } else { order };
            ids.insert(key.clone(), self.groups.len() as u32);
            self.groups.push(self.empty_group(&key, members, order, inferred));
        }
        self.group_ids = keys
            .into_iter()
            .map(|of_dump| of_dump.into_iter().map(|key| key.and_then(|key| ids.get(&key).copied()).unwrap_or(NONE)))
            .map(Iterator::collect)
            .collect();
    }

    /// Members of a group whose dumps do not tell them: the world, or those that used it.
    fn infer(&self, key: &Key, told: usize, users: &BTreeSet<Rank>) -> Vec<Rank> {
        let world = &*key.name == "0" || &*key.desc == "default_pg" || told == self.ranks.len();
        if world { self.ranks.clone() } else { users.iter().copied().collect() }
    }

    fn empty_group(&self, key: &Key, members: Vec<Rank>, order: Vec<Rank>, inferred: bool) -> Group {
        let lanes = members.into_iter().map(|rank| {
            let dumps = &self.bundle.dumps;
            let first = dumps.partition_point(|dump| dump.rank < rank);
            let dump = dumps.get(first).filter(|dump| dump.rank == rank).map(|_| first);
            Lane { rank, dump, ..Lane::default() }
        });
        let lanes = lanes.collect();
        Group { name: key.name.clone(), desc: key.desc.clone(), order, lanes, inferred, pairs: Vec::new() }
    }

    /// Files the entries of one dump.
    fn fill(&mut self, at: usize) {
        let dump = &self.bundle.dumps[at];
        let translation = &self.translations[at];
        // Where each of the dump's groups is here: group, lane.
        let places: Vec<Option<(usize, usize)>> = self.group_ids[at]
            .iter()
            .map(|id| {
                let group = self.groups.get(*id as usize)?;
                let lane = group.lanes.binary_search_by_key(&dump.rank, |lane| lane.rank).ok()?;
                Some((*id as usize, lane))
            })
            .collect();
        let whole = !self.tells[at].wrapped && !dump.active_only;
        let renumber = global_numbers(dump);
        for (group, lane) in places.iter().flatten() {
            let lane = &mut self.groups[*group].lanes[*lane];
            lane.dump = Some(at);
            lane.whole = whole;
        }
        for (number, entry) in dump.entries.iter().enumerate() {
            let Some(Some((group, lane))) = places.get(entry.group as usize) else { continue };
            let group = &mut self.groups[*group];
            let op = translation.ops.get(entry.op as usize).copied().unwrap_or(NONE);
            let kind = self.tables.ops.get(op as usize).map_or(OpKind::Unknown, |op| op.kind);
            if entry.is_p2p || matches!(kind, OpKind::Send | OpKind::Recv) {
                pairs::file(group, dump, number as u32, *lane);
                continue;
            }
            let lane = &mut group.lanes[*lane];
            let mut slot = slot_of(entry, number as u32, op, translation);
            if renumber {
                slot.seq = lane.slots.len() as u64 + 1;
            }
            match lane.slots.last_mut() {
                // The last entry of a coalesced operation carries its state.
                Some(last) if last.seq == slot.seq => {
                    last.count += 1;
                    (last.done, last.started) = (slot.done, slot.started);
                }
                _ => lane.slots.push(slot),
            }
        }
        for (group, lane) in places.iter().flatten() {
            let slots = &mut self.groups[*group].lanes[*lane].slots;
            if !slots.is_sorted_by_key(|slot| slot.seq) {
                slots.sort_by_key(|slot| slot.seq); // stable: the older entry of a number stays first
                slots.dedup_by_key(|slot| slot.seq);
            }
        }
    }

    /// `pg_status` survives a wrap of the ring: it fills in for lanes without entries.
    fn join_statuses(&mut self) {
        for at in 0..self.bundle.dumps.len() {
            let dump = &self.bundle.dumps[at];
            for (group, status) in joined(dump) {
                let Some(id) = self.group_ids[at].get(group).copied().filter(|id| *id != NONE) else { continue };
                let group = &mut self.groups[id as usize];
                let shift = if dump.printed { 0 } else { shift_of_all(&self.bundle.dumps, group).unwrap_or(0) };
                let Ok(lane) = group.lanes.binary_search_by_key(&dump.rank, |lane| lane.rank) else { continue };
                let lane = &mut group.lanes[lane];
                let issued = status.last_enqueued.map(|seq| seq.saturating_add_signed(shift));
                lane.status = issued;
                if lane.slots.is_empty() || dump.printed {
                    lane.issued = issued;
                }
            }
        }
    }

    /// A dump that was cut short still says in its `pg_status` how far its rank had come.
    fn join_heads(&mut self) {
        let bundle = self.bundle;
        let heads: Vec<&Dump> = bundle.heads.iter().filter(|head| !self.has_dump(head.rank)).collect();
        for head in heads {
            for (at, status) in joined(head) {
                let Some(key) = head.groups.get(at).and_then(|group| key_of(group, None, false)) else { continue };
                let same = |group: &&mut Group| {
                    (&group.name, &group.desc) == (&key.name, &key.desc)
                        && group.lanes.iter().map(|lane| lane.rank).eq(key.members.iter().copied())
                };
                let Some(group) = self.groups.iter_mut().find(same) else { continue };
                let Some(shift) = shift_of_all(&bundle.dumps, group) else { continue };
                if let Ok(lane) = group.lanes.binary_search_by_key(&head.rank, |lane| lane.rank) {
                    let issued = status.last_enqueued.map(|seq| seq.saturating_add_signed(shift));
                    group.lanes[lane].issued = issued;
                }
            }
        }
    }

    /// The dump of a member of a group.
    pub(super) fn dump(&self, lane: &Lane) -> Option<&'a Dump> {
        lane.dump.map(|at| &self.bundle.dumps[at])
    }

    /// The entry behind a slot.
    pub(super) fn entry(&self, lane: &Lane, slot: &Slot) -> Option<&'a Entry> {
        self.dump(lane)?.entries.get(slot.entry as usize)
    }

    /// Whether what is known of the member was printed and not recorded.
    pub(super) fn is_printed(&self, lane: &Lane) -> bool {
        self.dump(lane).is_some_and(|dump| dump.printed)
    }

    /// Whether the rank left a usable dump, or lines that say where it stands.
    pub(super) fn has_dump(&self, rank: Rank) -> bool {
        self.bundle.dumps.binary_search_by_key(&rank, |dump| dump.rank).is_ok()
    }
}

fn slot_of(entry: &Entry, number: u32, op: u32, translation: &Translation) -> Slot {
    let get = |table: &[u32], at: u32| table.get(at as usize).copied().unwrap_or(NONE);
    Slot {
        seq: entry.seq,
        entry: number,
        op,
        shape: get(&translation.shapes, entry.shape),
        stack: get(&translation.stacks, entry.stack),
        count: 1,
        done: entry.is_done(),
        started: entry.state == EntryState::Started || entry.started_at.is_some(),
    }
}

/// The torchcomms recorder counts collectives over all communicators from 0: order within the group is what compares.
fn global_numbers(dump: &Dump) -> bool {
    let local = dump.groups.iter().any(|group| group.local_ranks);
    local && dump.entries.first().is_some_and(|entry| entry.record_id == 0)
}

fn tells(dump: &Dump) -> Tells {
    let mut tells =
        Tells { wrapped: !dump.printed && dump.entries.first().is_some_and(|e| e.record_id > 0), ..Tells::default() };
    let mut retired = false;
    for entry in &dump.entries {
        tells.started |= entry.state == EntryState::Started || entry.started_at.is_some();
        tells.completed |= entry.state == EntryState::Completed;
        retired |= entry.retired;
    }
    tells.started |= dump.statuses.iter().any(|status| status.last_started.is_some());
    tells.retires_only = retired && !tells.completed;
    tells
}

/// Per group of the dump: the library of its entries; `None` where it has none.
fn libs_of_groups(dump: &Dump) -> Vec<Option<Arc<str>>> {
    let mut libs: Vec<Option<Arc<str>>> = vec![None; dump.groups.len()];
    for entry in &dump.entries {
        if let Some(lib @ None) = libs.get_mut(entry.group as usize) {
            *lib = dump.ops.get(entry.op as usize).map(|op| op.lib.clone());
        }
    }
    libs
}

/// What the group is known by; `None` for a line of `pg_config` that says nothing (native Gloo's only one).
fn key_of(group: &DumpGroup, lib: Option<&Arc<str>>, several: bool) -> Option<Key> {
    let told = !group.ranks.is_empty() && !group.local_ranks;
    if lib.is_none() && (!told || group.name.is_empty()) {
        return None;
    }
    let mut members = if told { group.ranks.clone() } else { Vec::new() };
    members.sort_unstable();
    members.dedup();
    // From torch 2.15 each backend records for itself and counts for itself, under one name.
    let lib = if several { lib.cloned().unwrap_or_default() } else { Arc::default() };
    Some(Key { name: group.name.clone(), desc: group.desc.clone(), members, lib })
}

/// The groups of a dump with their status. `pg_id`s are given in the order in which a process joins groups, and names in
/// the order in which the job makes them: where entries do not join the two, their order does, if it contradicts none.
fn joined(dump: &Dump) -> Vec<(usize, GroupStatus)> {
    let mut out: Vec<(usize, GroupStatus)> =
        dump.statuses.iter().filter_map(|status| Some((status.group? as usize, *status))).collect();
    if out.len() == dump.statuses.len() {
        return out;
    }
    let mut names: Vec<(u64, usize)> = Vec::new();
    for (at, group) in dump.groups.iter().enumerate() {
        let Ok(number) = group.name.parse::<u64>() else { return out };
        names.push((number, at));
    }
    names.sort_unstable();
    let mut statuses: Vec<&GroupStatus> = dump.statuses.iter().collect();
    statuses.sort_unstable_by_key(|status| status.pg_id);
    let fits = names.len() == statuses.len()
        && names.iter().zip(&statuses).all(|((_, at), status)| status.group.is_none_or(|group| group as usize == *at));
    if fits {
        out = names.iter().zip(&statuses).map(|((_, at), status)| (*at, **status)).collect();
    }
    out
}

/// What to add to a status number of this group to get a sequence number: the hook counts operations from 0. Beyond one the
/// number counts something else, e.g. point-to-point operations as well. `None` where members disagree: a rank that has not
/// come back from the call has an entry that its status does not count yet.
fn shift_of_all(dumps: &[Dump], group: &Group) -> Option<i64> {
    let mut shifts = shifts(dumps, group);
    let first = shifts.next().filter(|shift| shift.abs() <= 1)?;
    shifts.all(|shift| shift == first).then_some(first)
}

/// Per member with entries: its last sequence number less its status number.
fn shifts(dumps: &[Dump], group: &Group) -> impl Iterator<Item = i64> {
    group.lanes.iter().filter_map(|lane| {
        let (dump, last) = (dumps.get(lane.dump?).filter(|dump| !dump.printed)?, lane.slots.last()?);
        let entry = dump.entries.get(last.entry as usize)?;
        let status = dump.statuses.iter().find(|status| status.pg_id == u64::from(entry.pg_id))?;
        Some(last.seq as i64 - status.last_enqueued? as i64)
    })
}
