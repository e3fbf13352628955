//! From where ranks stand to one small dump per rank, so that one brain judges what recorders and what lines tell.
use super::fold::{Folded, Grouped, Stand, is_world};
use super::told::{Cite, Told, World};
use crate::stacks::ranks::FILLED_MAX;
use mycroft_record::dump::{Bundle, Dump, DumpGroup, Entry, GroupStatus, Shape};
use mycroft_record::printed::{Kind, Says, some};
use mycroft_record::{HostName, OpKind, Rank};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The world: what sizes of its operations, dumps, and lines tell, else the highest rank of which anything is there.
pub(super) fn world(bundle: &Bundle, folded: &Folded) -> World {
    let stacks = bundle.stacks.iter().filter_map(|stacks| stacks.rank);
    let ranks = folded.heard.iter().copied().chain(bundle.dumps.iter().map(|dump| dump.rank)).chain(stacks);
    let seen = ranks.map(|rank| rank.0 + 1).max().filter(|size| *size < FILLED_MAX).unwrap_or(0);
    let groups = || folded.groups.iter().filter(|(name, group)| is_world(name, &group.desc)).map(|(_, group)| group);
    let by_sizes = groups().flat_map(|group| group.stands.values()).filter_map(members_by_sizes).max();
    let inits = bundle.logs.iter().flat_map(|log| &log.lines).filter_map(|line| match &line.says {
        Says::Init(_, _, size, _) => Some(*size),
        _ => None,
    });
    let dumps = bundle.dumps.iter().flat_map(|dump| &dump.groups).filter(|group| !group.local_ranks);
    let dumps = dumps.flat_map(|group| group.ranks.iter().map(|rank| rank.0 + 1)).max();
    let counted = folded.groups.values().map(|group| group.size).max().filter(|size| *size > 0);
    let told = [by_sizes, inits.max(), dumps, counted].into_iter().flatten().filter(|size| *size < FILLED_MAX).max();
    World { size: told.unwrap_or(0).max(seen), is_sure: told.is_some_and(|told| told >= seen) }
}

/// How many members the sizes of a gather or a scatter tell.
fn members_by_sizes(stand: &Stand) -> Option<u32> {
    let (op, sizes) = stand.call.as_ref()?;
    let (one, all) = match (op.kind, (*sizes)?) {
        (OpKind::AllGather, (one, all)) => (one, all),
        (OpKind::ReduceScatter, (all, one)) => (one, all),
        _ => return None,
    };
    (one > 0 && all % one == 0).then(|| u32::try_from(all / one).ok()).flatten().filter(|size| *size < FILLED_MAX)
}

/// The members of a group in their order, and whether all of them are known.
pub(super) fn members(bundle: &Bundle, name: &str, group: &Grouped, world: World) -> (Vec<Rank>, bool) {
    if is_world(name, &group.desc) {
        return ((0..world.size).map(Rank).collect(), true);
    }
    let known = bundle.dumps.iter().flat_map(|dump| &dump.groups);
    if let Some(known) = known.into_iter().find(|known| &*known.name == name && !known.ranks.is_empty()) {
        return (known.ranks.clone(), true);
    }
    if group.size > 0 {
        return ((0..group.size).map(Rank).collect(), true);
    }
    let users: Vec<Rank> = group.stands.keys().copied().collect();
    let told = group.stands.values().filter_map(members_by_sizes).max();
    let highest = group.members.keys().max().map_or(0, |last| last + 1);
    // A group without a name in which all have the numbers that they have in the job is the whole job.
    let is_whole = name.is_empty() && group.members.iter().all(|(place, rank)| *place == rank.0);
    let highest = if is_whole { highest.max(world.size) } else { highest };
    let size = told.unwrap_or(0).max(highest).max(users.len() as u32);
    if size as usize == users.len() {
        return (users, told.is_some());
    }
    // Ranks of a group lie at equal distances in every layout that frameworks make: two places tell the others.
    let mut places = group.members.iter();
    let (Some(first), Some(second)) = (places.next(), places.next()) else { return (users, false) };
    let stride = (i64::from(second.1.0) - i64::from(first.1.0)) / (i64::from(*second.0) - i64::from(*first.0));
    let base = i64::from(first.1.0) - stride * i64::from(*first.0);
    let all: Option<Vec<Rank>> =
        (0..size).map(|at| u32::try_from(base + stride * i64::from(at)).ok().map(Rank)).collect();
    let fits = |all: &Vec<Rank>| {
        stride > 0
            && group.members.iter().all(|(at, rank)| all.get(*at as usize) == Some(rank))
            && users.iter().all(|rank| all.contains(rank))
    };
    all.filter(fits).map_or((users, false), |all| (all, true))
}

/// Makes the dumps of ranks of which there is none, and says which ranks nothing is known of.
pub(super) fn dumps(bundle: &Bundle, folded: &Folded, told: &mut Told) {
    let known: BTreeSet<Rank> = bundle.dumps.iter().map(|dump| dump.rank).collect();
    let mut dumps: BTreeMap<Rank, Dump> = BTreeMap::new();
    for (name, group) in &folded.groups {
        let (members, whole) = members(bundle, name, group, told.world);
        if !whole {
            told.partial.insert(name.clone());
        }
        let stood = group.stands.iter().filter(|(_, stand)| !stand.cites.is_empty());
        told.stood.extend(stood.map(|(rank, stand)| ((name.clone(), *rank), stand.cites.clone())));
        let mut stands = group.stands.clone();
        if whole && !folded.apart {
            let quiet = silent(bundle, folded, group, &members, told);
            told.silent.extend(quiet.iter().map(|(rank, _)| *rank));
            stands.extend(quiet);
        }
        told.unknown.extend(members.iter().filter(|rank| !stands.contains_key(rank) && !known.contains(rank)));
        for (rank, stand) in stands.iter().filter(|(rank, _)| !known.contains(rank)) {
            let dump = dumps.entry(*rank).or_insert_with(|| Dump {
                rank: *rank,
                printed: true,
                active_only: true,
                host: host_of(bundle, &stand.cites),
                source: stand.cites.first().map_or_else(Arc::default, |cite| bundle.logs[cite.file].source.clone()),
                ..Dump::default()
            });
            add(dump, name, &group.desc, &members, stand);
        }
    }
    // A rank that stands somewhere is known of; in other groups nothing of it is.
    told.unknown.retain(|rank| !dumps.contains_key(rank));
    told.dumps = dumps.into_values().collect();
}

fn host_of(bundle: &Bundle, cites: &[Cite]) -> HostName {
    cites.first().map_or_else(HostName::default, |cite| bundle.logs[cite.file].host.clone())
}

fn add(dump: &mut Dump, name: &Arc<str>, desc: &Arc<str>, members: &[Rank], stand: &Stand) {
    let group = dump.groups.len() as u32;
    dump.groups.push(DumpGroup { name: name.clone(), desc: desc.clone(), ranks: members.to_vec(), local_ranks: false });
    let issued = stand.status.and_then(|status| some(status.0)).max(stand.open);
    dump.statuses.push(GroupStatus {
        pg_id: u64::from(group),
        group: Some(group),
        last_enqueued: Some(issued.unwrap_or(0)),
        last_started: None,
        last_completed: stand.status.and_then(|status| some(status.1)),
    });
    let (Some(seq), Some((op, sizes))) = (stand.open, &stand.call) else { return };
    let list = |size: i64| vec![Box::from([size])];
    let dtypes = || if stand.dtype.is_empty() { Vec::new() } else { vec![stand.dtype.clone()] };
    let (inputs, outputs) = sizes.map_or((Vec::new(), Vec::new()), |(one, other)| (list(one), list(other)));
    let entry = Entry {
        record_id: stand.cites.first().map_or(0, |cite| cite.line),
        seq,
        op_id: seq,
        duration_us: f32::NAN,
        pg_id: group,
        group,
        op: dump.ops.len() as u32,
        shape: dump.shapes.len() as u32,
        stack: Entry::NONE,
        thread: Entry::NONE,
        ..Entry::default()
    };
    dump.ops.push(op.clone());
    dump.shapes.push(Shape { inputs, input_dtypes: dtypes(), outputs, output_dtypes: dtypes() });
    dump.entries.push(entry);
}

/// Ranks of which no line says where they stand, although lines of most others do: their own watchdogs had nothing to
/// complain of. One whose lines may just not be here is not among them.
fn silent(bundle: &Bundle, folded: &Folded, group: &Grouped, members: &[Rank], told: &Told) -> Vec<(Rank, Stand)> {
    let waiting: Vec<u64> = group.stands.values().filter_map(|stand| stand.open).collect();
    let Some(seq) = waiting.iter().min().copied() else { return Vec::new() };
    let all_wait = waiting.len() == group.stands.len() && waiting.iter().all(|open| *open == seq);
    let fingerprints = group.stands.values().any(|stand| !stand.dtype.is_empty());
    if !all_wait || waiting.len() < 2 || told.agree.is_some() || fingerprints {
        return Vec::new();
    }
    let timed_out = timed_out(bundle);
    let known = |rank: &Rank| {
        group.stands.contains_key(rank)
            || timed_out.contains(rank)
            || bundle.dumps.iter().any(|dump| dump.rank == *rank)
    };
    let quiet: Vec<Rank> = members.iter().copied().filter(|rank| !known(rank)).collect();
    // A stack tells what a rank does whose lines may not be here.
    let has_stack = |rank: &Rank| bundle.stacks.iter().any(|stacks| stacks.rank == Some(*rank));
    let heard = quiet.iter().all(|rank| folded.heard.contains(rank) || has_stack(rank));
    let few = quiet.len() * 2 < members.len() && members.len() - quiet.len() == waiting.len();
    let lead = few && (quiet.len() == 1 || heard);
    let stand = |rank: Rank| {
        let status = Some((i64::try_from(seq).unwrap_or(i64::MAX) - 1, -1));
        (rank, Stand { status, ..Stand::default() })
    };
    if lead { quiet.into_iter().map(stand).collect() } else { Vec::new() }
}

/// Ranks that say that an operation of theirs timed out, without a number.
fn timed_out(bundle: &Bundle) -> BTreeSet<Rank> {
    let lines = bundle.logs.iter().flat_map(|file| file.lines.iter().map(move |line| (file, line)));
    let out = lines.filter(|(_, line)| matches!(line.says, Says::Event(Kind::TimedOut, _)));
    out.filter_map(|(file, line)| super::fold::rank_of(file, line)).collect()
}
