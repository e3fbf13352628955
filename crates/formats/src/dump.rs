//! From the top level of a Flight Recorder dump to a [`Dump`].
use crate::budget::{NODE_BYTES, number_of};
use crate::builder::{Builder, GroupKey};
use crate::fault::Fault;
use crate::field::Field;
use crate::value::{EMPTY, Value};
use mycroft_record::Rank;
use mycroft_record::dump::{Dump, DumpGroup, DumpVersion, Entry, GroupStatus};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Place;
use std::sync::Arc;

/// Makes a dump of a file's root value; `None` if it is no dump.
pub(crate) fn finish(mut builder: Builder<'_>, root: Value) -> Result<Option<Dump>, Fault> {
    let mut top = Top::default();
    if let Some(pairs) = builder.pool.dict(root)? {
        for index in (0..builder.pool.len(pairs)).step_by(2) {
            let (key, value) = (builder.pool.item(pairs, index), builder.pool.item(pairs, index + 1));
            top.field(&mut builder, key, value)?;
        }
        if top.known == 0 {
            return Ok(None);
        }
    } else if let Some(list) = builder.pool.list(root)?
        && builder.pool.items(list).iter().all(|item| matches!(item, Value::Entry(_)))
        && list != EMPTY
    {
        // Before 1.1 (2023) a dump was the list of its entries.
        top.entries = Some(list);
    } else {
        return Ok(None);
    }
    let mut dump = Dump { version: top.version, comm_lib_version: top.lib, ..Dump::default() };
    if let Some(list) = top.entries {
        entries(&mut builder, list, &mut dump)?;
    }
    groups(&mut builder, top.config, &mut dump)?;
    if let Some(pairs) = top.status {
        statuses(&mut builder, pairs, &mut dump)?;
    }
    if let Some(pairs) = top.health {
        health(&mut builder, pairs, &mut dump)?;
    }
    for number in builder.unknown_fields.clone() {
        dump.unknown_fields.push(builder.text(number)?);
    }
    if let Some((count, first)) = builder.odd_values {
        dump.notes.push(format!("{count} values of an unexpected type were not used, the first before byte {first}"));
    }
    dump.ops = builder.ops;
    dump.shapes = builder.shapes;
    dump.frames = builder.frames;
    dump.stacks = builder.stacks;
    dump.threads = builder.threads;
    dump.active_only = active_only(&dump);
    Ok(Some(dump))
}

/// The values of the top level.
#[derive(Default)]
struct Top {
    /// How many of the keys that only a dump has.
    known: usize,
    version: DumpVersion,
    lib: Arc<str>,
    config: Option<u32>,
    status: Option<u32>,
    entries: Option<u32>,
    health: Option<u32>,
}

impl Top {
    fn field(&mut self, builder: &mut Builder<'_>, key: Value, value: Value) -> Result<(), Fault> {
        let field = builder.pool.field(key);
        match field {
            Some(Field::Version) => self.version = version(builder, value),
            Some(Field::PgConfig) => self.config = table(builder, value)?,
            Some(Field::PgStatus) => self.status = table(builder, value)?,
            Some(Field::HealthCheckResults) => self.health = table(builder, value)?,
            Some(Field::CommLibVersion | Field::NcclVersion) => self.lib = builder.text_of(value)?,
            Some(Field::Entries) => {
                self.entries = builder.pool.list(value)?;
                if self.entries.is_none() && value != Value::None {
                    return Err(Fault::new(builder.pool.budget.at, "`entries` is no list"));
                }
            }
            Some(Field::NcclCommState) => {}
            _ => builder.unknown_field(key)?,
        }
        self.known += usize::from(matches!(
            field,
            Some(
                Field::PgConfig
                    | Field::PgStatus
                    | Field::CommLibVersion
                    | Field::NcclVersion
                    | Field::Entries
                    | Field::NcclCommState
            )
        ));
        Ok(())
    }
}

/// A dict, counted as odd where it is something else.
fn table(builder: &mut Builder<'_>, value: Value) -> Result<Option<u32>, Fault> {
    let pairs = builder.pool.dict(value)?;
    if pairs.is_none() && value != Value::None {
        builder.odd();
    }
    Ok(pairs)
}

/// "2.10" as (2, 10); parts that are no numbers are 0.
fn version(builder: &mut Builder<'_>, value: Value) -> DumpVersion {
    let Value::Str(number) = value else {
        builder.odd();
        return DumpVersion::default();
    };
    let text = String::from_utf8_lossy(builder.pool.str_bytes(number));
    let mut parts = text.split('.').map(|part| part.trim().parse().ok());
    let (major, minor) = (parts.next().flatten(), parts.next().flatten());
    if major.is_none() {
        builder.odd();
    }
    DumpVersion { major: major.unwrap_or(0), minor: minor.unwrap_or(0) }
}

/// Puts the entries into the dump in the order of its list.
fn entries(builder: &mut Builder<'_>, list: u32, dump: &mut Dump) -> Result<(), Fault> {
    let items = builder.pool.items(list);
    let count = items.len();
    let in_order = count == builder.entries.len()
        && items.iter().enumerate().all(|(index, item)| *item == Value::Entry(number_of(index)));
    if in_order {
        dump.entries = std::mem::take(&mut builder.entries);
        return Ok(());
    }
    builder.pool.budget.charge_list::<Entry>(count)?;
    let mut kept = Vec::with_capacity(count);
    for &item in builder.pool.items(list) {
        if let Value::Entry(number) = item {
            kept.push(builder.entries[number as usize]);
        }
    }
    if kept.len() < count {
        dump.notes.push(format!("{} of {count} items of `entries` are no entries", count - kept.len()));
    }
    dump.entries = kept;
    Ok(())
}

/// Groups of `pg_config`, then those that only entries name; renumbers the entries.
fn groups(builder: &mut Builder<'_>, config: Option<u32>, dump: &mut Dump) -> Result<(), Fault> {
    let mut by_name: BTreeMap<Arc<str>, u32> = BTreeMap::new();
    let config = config.unwrap_or(EMPTY);
    for index in (0..builder.pool.len(config)).step_by(2) {
        let (key, value) = (builder.pool.item(config, index), builder.pool.item(config, index + 1));
        let mut group = DumpGroup { name: builder.text_of(key)?, ..DumpGroup::default() };
        let Some(pairs) = table(builder, value)? else { continue };
        for index in (0..builder.pool.len(pairs)).step_by(2) {
            let (key, value) = (builder.pool.item(pairs, index), builder.pool.item(pairs, index + 1));
            match builder.pool.field(key) {
                Some(Field::Name) => group.name = builder.text_of(value)?,
                Some(Field::Desc) => group.desc = builder.text_of(value)?,
                Some(Field::Ranks) => ranks(builder, value, &mut group)?,
                _ => builder.unknown_field(key)?,
            }
        }
        builder.pool.budget.charge(NODE_BYTES)?;
        by_name.insert(group.name.clone(), number_of(dump.groups.len()));
        builder.pool.budget.push(&mut dump.groups, group)?;
    }
    let mut numbers = Vec::new();
    for key in std::mem::take(&mut builder.groups) {
        let (name, desc) = match key {
            GroupKey::Named(name, desc) => (builder.text(name)?, builder.text(desc)?),
            GroupKey::Bare(name) => (builder.text(name)?, Arc::default()),
            GroupKey::ByPgId(pg_id) => {
                builder.pool.budget.charge(NODE_BYTES)?;
                (pg_id.to_string().into(), Arc::default())
            }
        };
        let known = by_name.get(&name).copied().filter(|&number| {
            let known: &str = &dump.groups[number as usize].desc;
            known == &*desc || known.is_empty() && !name.is_empty() || desc.is_empty()
        });
        builder.pool.budget.push(&mut numbers, known.unwrap_or(number_of(dump.groups.len())))?;
        if known.is_none() {
            let group = DumpGroup { name, desc, ..DumpGroup::default() };
            builder.pool.budget.push(&mut dump.groups, group)?;
        } else if let Some(number) = known
            && dump.groups[number as usize].desc.is_empty()
        {
            dump.groups[number as usize].desc = desc;
        }
    }
    for entry in &mut dump.entries {
        entry.group = numbers[entry.group as usize];
    }
    Ok(())
}

/// Members of a group: "[0, 1]" (global ranks), "0,1" or 0 (torchcomms: positions in the group), or a list.
fn ranks(builder: &mut Builder<'_>, value: Value, group: &mut DumpGroup) -> Result<(), Fault> {
    if let Some(seq) = builder.pool.list(value)? {
        builder.pool.budget.charge_list::<Rank>(builder.pool.len(seq))?;
        let members = builder.pool.items(seq).iter().filter_map(|&item| builder.pool.as_int(item));
        group.ranks = members.filter_map(|rank| u32::try_from(rank).ok()).map(Rank).collect();
        return Ok(());
    }
    if let Some(rank) = builder.pool.as_int(value) {
        group.local_ranks = true;
        group.ranks = u32::try_from(rank).ok().map(Rank).into_iter().collect();
        return Ok(());
    }
    let Value::Str(number) = value else {
        builder.odd();
        return Ok(());
    };
    let count = rank_list(builder.pool.str_bytes(number)).1.count();
    builder.pool.budget.charge_list::<Rank>(count)?;
    let mut members = Vec::with_capacity(count);
    let (bracketed, list) = rank_list(builder.pool.str_bytes(number));
    members.extend(list.filter_map(rank).map(Rank));
    let complete = members.len() == count;
    group.local_ranks = !bracketed && count > 0;
    group.ranks = members;
    if !complete {
        builder.odd();
    }
    Ok(())
}

/// Whether a list of ranks is in brackets, and its parts.
fn rank_list(text: &[u8]) -> (bool, impl Iterator<Item = &[u8]>) {
    let text = text.trim_ascii();
    let inside = text.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
    let list = inside.unwrap_or(text).trim_ascii();
    (inside.is_some(), list.split(|&byte| byte == b',').filter(move |_| !list.is_empty()))
}

fn rank(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

/// `pg_status`: numbers in pickle, strings in JSON, -1 for never.
fn statuses(builder: &mut Builder<'_>, table_pairs: u32, dump: &mut Dump) -> Result<(), Fault> {
    let mut group_of: BTreeMap<u64, u32> = BTreeMap::new();
    for entry in &dump.entries {
        if let Place::Vacant(place) = group_of.entry(u64::from(entry.pg_id)) {
            builder.pool.budget.charge(NODE_BYTES)?;
            place.insert(entry.group);
        }
    }
    for index in (0..builder.pool.len(table_pairs)).step_by(2) {
        let (key, value) = (builder.pool.item(table_pairs, index), builder.pool.item(table_pairs, index + 1));
        let (Some(pg_id), Some(pairs)) = (number(builder, key), table(builder, value)?) else {
            builder.odd();
            continue;
        };
        let mut status = GroupStatus { pg_id, group: group_of.get(&pg_id).copied(), ..GroupStatus::default() };
        for index in (0..builder.pool.len(pairs)).step_by(2) {
            let (key, value) = (builder.pool.item(pairs, index), builder.pool.item(pairs, index + 1));
            match builder.pool.field(key) {
                Some(Field::LastEnqueued) => status.last_enqueued = number(builder, value),
                Some(Field::LastStarted) => status.last_started = number(builder, value),
                Some(Field::LastCompleted) => status.last_completed = number(builder, value),
                _ => builder.unknown_field(key)?,
            }
        }
        builder.pool.budget.push(&mut dump.statuses, status)?;
    }
    dump.statuses.sort_by_key(|status| status.pg_id);
    Ok(())
}

/// A number, or a string of one; `None` for negative ones.
fn number(builder: &Builder<'_>, value: Value) -> Option<u64> {
    match value {
        Value::Str(text) => std::str::from_utf8(builder.pool.str_bytes(text)).ok()?.trim().parse().ok(),
        _ => builder.pool.as_int(value).and_then(|number| u64::try_from(number).ok()),
    }
}

/// `health_check_results` of NVRx: {check: {"status", "output"}} or {check: text}.
fn health(builder: &mut Builder<'_>, checks: u32, dump: &mut Dump) -> Result<(), Fault> {
    for index in (0..builder.pool.len(checks)).step_by(2) {
        let (key, value) = (builder.pool.item(checks, index), builder.pool.item(checks, index + 1));
        let name = builder.text_of(key)?;
        let mut text = builder.text_of(value)?;
        if let Some(pairs) = builder.pool.dict(value)? {
            let (mut status, mut output) = (Arc::default(), Arc::default());
            for index in (0..builder.pool.len(pairs)).step_by(2) {
                let (key, value) = (builder.pool.item(pairs, index), builder.pool.item(pairs, index + 1));
                match builder.pool.field(key) {
                    Some(Field::Status) => status = builder.text_of(value)?,
                    Some(Field::Output) => output = builder.text_of(value)?,
                    _ => builder.unknown_field(key)?,
                }
            }
            builder.pool.budget.charge(2 * (status.len() + output.len()) + NODE_BYTES)?;
            text = if output.is_empty() { status } else { format!("{status}: {output}").into() };
        }
        builder.pool.budget.push(&mut dump.health, (name, text))?;
    }
    Ok(())
}

/// NVRx dumps operations in flight only. A recorder's ring holds consecutive records, and a process that went on past its
/// first operations has some that are done: a dump without either was filtered.
fn active_only(dump: &Dump) -> bool {
    if dump.entries.iter().any(Entry::is_done) {
        return false;
    }
    let gaps = dump.entries.windows(2).any(|pair| pair[1].record_id > pair[0].record_id + 1);
    let later = dump.entries.first().is_some_and(|first| first.record_id > 0);
    let did_something = dump.statuses.iter().any(|status| status.last_completed.is_some_and(|seq| seq > 0));
    gaps || (later || dump.entries.is_empty()) && did_something
}
