//! Turns the dicts of a dump into records as soon as each is complete, so that no second copy of a dump ever exists.
//!
//! A dict with an entry's keys becomes an [`Entry`], one with a frame's keys a frame number; everything else stays a dict
//! and is looked at when the whole file is read ([`crate::dump`]).
use crate::budget::{NODE_BYTES, number_of};
use crate::fault::Fault;
use crate::field::Field;
use crate::index::{Index, fold, mix};
use crate::value::{EMPTY, Known, Pool, Value};
use crate::{opname, text};
use mycroft_record::dump::{DumpThread, Entry, EntryState, Frame, OpName, Shape};
use mycroft_record::{HostTime, OpKind};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Unknown keys that are told by name; a file of nothing but new keys tells the first 64.
const UNKNOWN_FIELDS_MAX: usize = 64;

/// What a process group is known by in entries.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum GroupKey {
    /// Name and description (strings of the pool).
    Named(u32, u32),
    /// A name only.
    Bare(u32),
    /// Nothing but its number in the process (before 2.2).
    ByPgId(u32),
}

/// Builds the records of one dump.
#[derive(Debug)]
pub(crate) struct Builder<'a> {
    /// The values.
    pub(crate) pool: Pool<'a>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) ops: Vec<OpName>,
    op_numbers: BTreeMap<u32, u32>,
    pub(crate) shapes: Vec<Shape>,
    shape_keys: Vec<[u32; 4]>,
    shape_index: Index,
    pub(crate) frames: Vec<Frame>,
    frame_keys: Vec<[u32; 3]>,
    frame_index: Index,
    pub(crate) stacks: Vec<Box<[u32]>>,
    pub(crate) threads: Vec<DumpThread>,
    thread_numbers: BTreeMap<(u64, u32), u32>,
    last_thread: Option<((Value, Value), u32)>,
    pub(crate) groups: Vec<GroupKey>,
    group_numbers: BTreeMap<GroupKey, u32>,
    texts: BTreeMap<u32, Arc<str>>,
    pub(crate) unknown_fields: BTreeSet<u32>,
    /// Values of a type that their field should not have: how many, and where the first stood.
    pub(crate) odd_values: Option<(usize, usize)>,
}

/// A key that is no string, or none at all.
const NO_STR: u32 = u32::MAX;

/// What an entry's fields say before they are put together.
#[derive(Clone, Copy, Debug)]
struct Raw {
    sizes: [Value; 4],
    frames: Option<Value>,
    group: Option<Value>,
    thread: (Value, Value),
    op: Option<u32>,
    state: Option<EntryState>,
    is_p2p: Option<bool>,
}

impl<'a> Builder<'a> {
    /// For one file.
    pub(crate) fn new(bytes: &'a [u8]) -> Builder<'a> {
        Builder {
            pool: Pool::new(bytes),
            entries: Vec::new(),
            ops: Vec::new(),
            op_numbers: BTreeMap::new(),
            shapes: Vec::new(),
            shape_keys: Vec::new(),
            shape_index: Index::default(),
            frames: Vec::new(),
            frame_keys: Vec::new(),
            frame_index: Index::default(),
            stacks: Vec::new(),
            threads: Vec::new(),
            thread_numbers: BTreeMap::new(),
            last_thread: None,
            groups: Vec::new(),
            group_numbers: BTreeMap::new(),
            texts: BTreeMap::new(),
            unknown_fields: BTreeSet::new(),
            odd_values: None,
        }
    }

    /// Puts keys and values into a dict; what the dict is from now on.
    pub(crate) fn dict(&mut self, dict: Value, pairs: &[Value]) -> Result<Value, Fault> {
        let untouched = match dict {
            Value::NewDict => true,
            Value::Dict(slot) => self.pool.is_untouched(slot),
            _ => return Err(Fault::new(self.pool.budget.at, "a key for something that is no open dict")),
        };
        let record = if untouched { self.record(pairs)? } else { None };
        match (record, dict) {
            (Some(record), Value::Dict(slot)) => {
                self.pool.resolve(slot, record);
                Ok(record)
            }
            (Some(record), _) => Ok(record),
            (None, Value::Dict(slot)) => {
                self.pool.extend(slot, pairs)?;
                Ok(dict)
            }
            (None, _) => Ok(Value::Pairs(self.pool.seq(pairs)?)),
        }
    }

    /// The record that these keys make, if they make one.
    fn record(&mut self, pairs: &[Value]) -> Result<Option<Value>, Fault> {
        let mut is_frame = false;
        let mut plain = true;
        for pair in pairs.chunks_exact(2) {
            match self.pool.field(pair[0]) {
                Some(Field::RecordId | Field::ProfilingName | Field::CollectiveSeqId | Field::TimeCreated) => {
                    let entry = self.entry(pairs)?;
                    let number = number_of(self.entries.len());
                    self.pool.budget.push(&mut self.entries, entry)?;
                    return Ok(Some(Value::Entry(number)));
                }
                Some(Field::Filename) => is_frame = true,
                Some(Field::Name | Field::Line) => {}
                _ => plain = false,
            }
        }
        if is_frame && plain { Ok(Some(Value::Frame(self.frame(pairs)?))) } else { Ok(None) }
    }

    fn entry(&mut self, pairs: &[Value]) -> Result<Entry, Fault> {
        let mut entry = Entry { duration_us: f32::NAN, stack: Entry::NONE, thread: Entry::NONE, ..Entry::default() };
        let mut raw = Raw {
            sizes: [Value::Seq(EMPTY); 4],
            frames: None,
            group: None,
            thread: (Value::None, Value::None),
            op: None,
            state: None,
            is_p2p: None,
        };
        for pair in pairs.chunks_exact(2) {
            let (key, value) = (pair[0], pair[1]);
            match self.pool.field(key) {
                Some(Field::Unknown) | None => self.unknown_field(key)?,
                Some(field) => self.entry_field(field, value, &mut entry, &mut raw)?,
            }
        }
        self.finish_entry(entry, raw)
    }

    #[inline]
    fn entry_field(&mut self, field: Field, value: Value, entry: &mut Entry, raw: &mut Raw) -> Result<(), Fault> {
        match field {
            Field::RecordId => entry.record_id = self.count(value),
            Field::PgId => entry.pg_id = u32::try_from(self.count(value)).unwrap_or(u32::MAX),
            Field::CollectiveSeqId | Field::SeqId => entry.seq = self.count(value),
            Field::P2pSeqId => entry.p2p_seq = self.count(value),
            Field::OpId => entry.op_id = self.count(value),
            Field::TimeCreated => entry.created_at = HostTime(self.count(value)),
            Field::TimeStarted => entry.started_at = HostTime(self.count(value)),
            Field::TimeCompleted => entry.completed_at = HostTime(self.count(value)),
            Field::TimeoutMs => entry.timeout_ms = u32::try_from(self.count(value)).unwrap_or(u32::MAX),
            Field::DurationMs => {
                let ms = self.pool.as_real(value);
                if ms.is_none() && value != Value::None {
                    self.odd();
                }
                #[expect(clippy::cast_possible_truncation, reason = "microseconds are kept in the precision of f32")]
                let us = ms.map_or(f32::NAN, |ms| (ms * 1e3) as f32);
                entry.duration_us = us;
            }
            Field::Retired => entry.retired = self.truth(value),
            Field::IsP2p => raw.is_p2p = Some(self.truth(value)),
            Field::InputSizes => raw.sizes[0] = value,
            Field::InputDtypes => raw.sizes[1] = value,
            Field::OutputSizes => raw.sizes[2] = value,
            Field::OutputDtypes => raw.sizes[3] = value,
            Field::Frames => raw.frames = Some(value),
            Field::ProcessGroup => raw.group = Some(value),
            Field::ThreadId => raw.thread.0 = value,
            Field::ThreadName => raw.thread.1 = value,
            Field::State => raw.state = self.state(value),
            Field::ProfilingName => match value {
                Value::Str(text) => raw.op = Some(self.op(text)?),
                _ => self.odd(),
            },
            _ => {}
        }
        Ok(())
    }

    fn finish_entry(&mut self, mut entry: Entry, raw: Raw) -> Result<Entry, Fault> {
        entry.op = match raw.op {
            Some(op) => op,
            None => self.nameless_op()?,
        };
        entry.is_p2p =
            raw.is_p2p.unwrap_or_else(|| matches!(self.ops[entry.op as usize].kind, OpKind::Send | OpKind::Recv));
        entry.state = raw.state.unwrap_or(match (entry.completed_at.is_some(), entry.started_at.is_some()) {
            (true, _) => EntryState::Completed,
            (false, true) => EntryState::Started,
            (false, false) => EntryState::Scheduled,
        });
        entry.shape = self.shape(raw.sizes)?;
        if let Some(frames) = raw.frames {
            entry.stack = self.stack(frames)?;
        }
        entry.group = self.group(raw.group, entry.pg_id)?;
        if raw.thread != (Value::None, Value::None) {
            entry.thread = self.thread(raw.thread)?;
        }
        Ok(entry)
    }

    fn state(&mut self, value: Value) -> Option<EntryState> {
        match self.pool.field(value) {
            Some(Field::Scheduled) => Some(EntryState::Scheduled),
            Some(Field::Started) => Some(EntryState::Started),
            Some(Field::Completed) => Some(EntryState::Completed),
            Some(_) => Some(EntryState::Other),
            None => {
                if value != Value::None {
                    self.odd();
                }
                None
            }
        }
    }

    /// A number that cannot be negative; 0 for `None` and for negative ones ("never").
    #[inline]
    fn count(&mut self, value: Value) -> u64 {
        match self.pool.as_int(value) {
            Some(number) => u64::try_from(number).unwrap_or(0),
            None => self.odd_count(value),
        }
    }

    #[cold]
    fn odd_count(&mut self, value: Value) -> u64 {
        match value {
            Value::None => 0,
            Value::Str(text) => {
                match std::str::from_utf8(self.pool.str_bytes(text)).ok().and_then(|t| t.parse().ok()) {
                    Some(number) => number,
                    None => {
                        self.odd();
                        0
                    }
                }
            }
            _ => match self.pool.as_real(value) {
                // Some writers turn every number into a float.
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
                Some(real) => real as u64,
                None => {
                    self.odd();
                    0
                }
            },
        }
    }

    #[inline]
    fn truth(&mut self, value: Value) -> bool {
        match value {
            Value::Bool(yes) => yes,
            Value::None => false,
            Value::Int(number) => number != 0,
            _ => {
                self.odd();
                false
            }
        }
    }

    /// Counts a value of a type that its field should not have.
    #[cold]
    pub(crate) fn odd(&mut self) {
        let at = self.pool.budget.at;
        let (count, first) = self.odd_values.unwrap_or((0, at));
        self.odd_values = Some((count + 1, first));
    }

    /// Remembers the name of a key that this version does not know.
    #[cold]
    pub(crate) fn unknown_field(&mut self, key: Value) -> Result<(), Fault> {
        let Value::Str(text) = key else {
            self.odd();
            return Ok(());
        };
        if self.unknown_fields.len() < UNKNOWN_FIELDS_MAX && !self.unknown_fields.contains(&text) {
            self.pool.budget.charge(NODE_BYTES)?;
            self.unknown_fields.insert(text);
        }
        Ok(())
    }

    /// A string of the pool as text that outlives it. Bytes that are no UTF-8 become `?`: a text never grows.
    pub(crate) fn text(&mut self, number: u32) -> Result<Arc<str>, Fault> {
        if let Some(text) = self.texts.get(&number) {
            return Ok(text.clone());
        }
        let bytes = self.pool.str_bytes(number);
        self.pool.budget.charge(NODE_BYTES + bytes.len())?;
        let text: Arc<str> = text::valid(self.pool.str_bytes(number)).into();
        self.texts.insert(number, text.clone());
        Ok(text)
    }

    /// The text of a string value; empty for anything else.
    pub(crate) fn text_of(&mut self, value: Value) -> Result<Arc<str>, Fault> {
        match value {
            Value::Str(number) => self.text(number),
            _ => Ok(Arc::default()),
        }
    }

    fn op(&mut self, text: u32) -> Result<u32, Fault> {
        if let Some(&number) = self.op_numbers.get(&text) {
            return Ok(number);
        }
        let text_arc = self.text(text)?;
        let number = self.new_op(&text_arc)?;
        self.op_numbers.insert(text, number);
        Ok(number)
    }

    fn new_op(&mut self, text: &Arc<str>) -> Result<u32, Fault> {
        let parts = opname::parts(text);
        self.pool.budget.charge(3 * NODE_BYTES + parts.lib.len() + parts.op.len())?;
        let op = OpName {
            text: text.clone(),
            lib: parts.lib.into(),
            op: parts.op.into(),
            kind: parts.kind,
            src: parts.src,
            dst: parts.dst,
        };
        let number = number_of(self.ops.len());
        self.pool.budget.push(&mut self.ops, op)?;
        Ok(number)
    }

    fn nameless_op(&mut self) -> Result<u32, Fault> {
        if let Some(&number) = self.op_numbers.get(&NO_STR) {
            return Ok(number);
        }
        let number = self.new_op(&Arc::default())?;
        self.op_numbers.insert(NO_STR, number);
        Ok(number)
    }

    fn shape(&mut self, sizes: [Value; 4]) -> Result<u32, Fault> {
        let mut key = [EMPTY; 4];
        for (part, value) in key.iter_mut().zip(sizes) {
            match self.pool.list(value)? {
                Some(seq) => *part = seq,
                None if value == Value::None => {}
                None => self.odd(),
            }
        }
        let hash = fold(key.iter().fold(0, |hash, &part| mix(hash, u64::from(part))));
        if let Some(number) = self.shape_index.find(hash, |number| self.shape_keys[number as usize] == key) {
            return Ok(number);
        }
        let [inputs, input_dtypes, outputs, output_dtypes] = key;
        let shape = Shape {
            inputs: self.tensors(inputs)?,
            input_dtypes: self.dtypes(input_dtypes)?,
            outputs: self.tensors(outputs)?,
            output_dtypes: self.dtypes(output_dtypes)?,
        };
        let number = number_of(self.shapes.len());
        self.pool.budget.push(&mut self.shapes, shape)?;
        self.pool.budget.push(&mut self.shape_keys, key)?;
        self.shape_index.insert(&mut self.pool.budget, hash, number)?;
        Ok(number)
    }

    /// Sizes per tensor; a flat list is one tensor.
    fn tensors(&mut self, seq: u32) -> Result<Vec<Box<[i64]>>, Fault> {
        let count = self.pool.len(seq);
        if count > 0 && self.pool.as_int(self.pool.item(seq, 0)).is_some() {
            self.pool.budget.charge_list::<Box<[i64]>>(1)?;
            return Ok(vec![self.tensor(seq)?]);
        }
        self.pool.budget.charge_list::<Box<[i64]>>(count)?;
        let mut tensors = Vec::with_capacity(count);
        for index in 0..count {
            let item = self.pool.item(seq, index);
            match self.pool.list(item)? {
                Some(tensor) => tensors.push(self.tensor(tensor)?),
                None => self.odd(),
            }
        }
        Ok(tensors)
    }

    fn tensor(&mut self, seq: u32) -> Result<Box<[i64]>, Fault> {
        self.pool.budget.charge_list::<i64>(self.pool.len(seq))?;
        let sizes: Box<[i64]> = self.pool.items(seq).iter().filter_map(|&item| self.pool.as_int(item)).collect();
        if sizes.len() != self.pool.len(seq) {
            self.odd();
        }
        Ok(sizes)
    }

    fn dtypes(&mut self, seq: u32) -> Result<Vec<Arc<str>>, Fault> {
        let count = self.pool.len(seq);
        self.pool.budget.charge_list::<Arc<str>>(count)?;
        let mut dtypes = Vec::with_capacity(count);
        for index in 0..count {
            let item = self.pool.item(seq, index);
            dtypes.push(self.text_of(item)?);
        }
        Ok(dtypes)
    }

    /// The frame that these keys make.
    fn frame(&mut self, pairs: &[Value]) -> Result<u32, Fault> {
        let mut key = [NO_STR, NO_STR, 0];
        for pair in pairs.chunks_exact(2) {
            match (self.pool.field(pair[0]), pair[1]) {
                (Some(Field::Name), Value::Str(text)) => key[0] = text,
                (Some(Field::Filename), Value::Str(text)) => key[1] = text,
                (Some(Field::Line), value) => key[2] = u32::try_from(self.count(value)).unwrap_or(0),
                _ => {}
            }
        }
        self.frame_number(key)
    }

    fn frame_number(&mut self, key: [u32; 3]) -> Result<u32, Fault> {
        let hash = fold(key.iter().fold(0, |hash, &part| mix(hash, u64::from(part))));
        if let Some(number) = self.frame_index.find(hash, |number| self.frame_keys[number as usize] == key) {
            return Ok(number);
        }
        let [name, file, line] = key;
        let name = if name == NO_STR { Arc::default() } else { self.text(name)? };
        let file = if file == NO_STR { Arc::default() } else { self.text(file)? };
        let number = number_of(self.frames.len());
        self.pool.budget.push(&mut self.frames, Frame { name, file, line })?;
        self.pool.budget.push(&mut self.frame_keys, key)?;
        self.frame_index.insert(&mut self.pool.budget, hash, number)?;
        Ok(number)
    }

    /// The stack that a list of frames makes; none for an empty list.
    fn stack(&mut self, frames: Value) -> Result<u32, Fault> {
        let Some(seq) = self.pool.list(frames)? else {
            if frames != Value::None {
                self.odd();
            }
            return Ok(Entry::NONE);
        };
        if seq == EMPTY {
            return Ok(Entry::NONE);
        }
        if let Known::Stack(number) = self.pool.known(seq) {
            return Ok(number);
        }
        let count = self.pool.len(seq);
        self.pool.budget.charge_list::<u32>(count)?;
        let mut stack = Vec::with_capacity(count);
        for index in 0..count {
            let item = self.pool.item(seq, index);
            stack.push(match item {
                Value::Frame(frame) => frame,
                Value::Str(text) => self.frame_number([text, NO_STR, 0])?,
                _ => match self.pool.dict(item)? {
                    Some(pairs) => self.frame_with_more(pairs)?,
                    None => {
                        self.odd();
                        continue;
                    }
                },
            });
        }
        let number = number_of(self.stacks.len());
        self.pool.budget.push(&mut self.stacks, stack.into())?;
        self.pool.remember(seq, Known::Stack(number));
        Ok(number)
    }

    /// A frame with keys that this version does not know.
    fn frame_with_more(&mut self, pairs: u32) -> Result<u32, Fault> {
        let mut known = [Value::None; 6];
        let mut used = 0;
        for index in (0..self.pool.len(pairs)).step_by(2) {
            let (key, value) = (self.pool.item(pairs, index), self.pool.item(pairs, index + 1));
            if matches!(self.pool.field(key), Some(Field::Name | Field::Filename | Field::Line)) && used < known.len() {
                (known[used], known[used + 1]) = (key, value);
                used += 2;
            }
        }
        self.frame(&known[..used])
    }

    fn group(&mut self, group: Option<Value>, pg_id: u32) -> Result<u32, Fault> {
        let key = match group {
            Some(Value::Str(name)) => GroupKey::Bare(name),
            Some(value) => match self.pool.list(value)? {
                Some(seq) => {
                    if let Known::Group(number) = self.pool.known(seq) {
                        return Ok(number);
                    }
                    let key = match *self.pool.items(seq) {
                        [Value::Str(name), Value::Str(desc), ..] => GroupKey::Named(name, desc),
                        [Value::Str(name), ..] => GroupKey::Bare(name),
                        _ => GroupKey::ByPgId(pg_id),
                    };
                    let number = self.group_number(key)?;
                    if !matches!(key, GroupKey::ByPgId(_)) {
                        self.pool.remember(seq, Known::Group(number));
                    }
                    return Ok(number);
                }
                None => GroupKey::ByPgId(pg_id),
            },
            None => GroupKey::ByPgId(pg_id),
        };
        self.group_number(key)
    }

    fn group_number(&mut self, key: GroupKey) -> Result<u32, Fault> {
        if let Some(&number) = self.group_numbers.get(&key) {
            return Ok(number);
        }
        self.pool.budget.charge(2 * NODE_BYTES)?;
        let number = number_of(self.groups.len());
        self.pool.budget.push(&mut self.groups, key)?;
        self.group_numbers.insert(key, number);
        Ok(number)
    }

    fn thread(&mut self, thread: (Value, Value)) -> Result<u32, Fault> {
        if let Some((last, number)) = self.last_thread
            && last == thread
        {
            return Ok(number);
        }
        let id = match thread.0 {
            Value::Str(text) => std::str::from_utf8(self.pool.str_bytes(text)).ok().and_then(|text| text.parse().ok()),
            value => self.pool.as_int(value).and_then(|id| u64::try_from(id).ok()),
        };
        let name = if let Value::Str(name) = thread.1 { name } else { NO_STR };
        // An id of 0 is no thread, so it stands for "no number" in the key.
        let key = (id.unwrap_or(0), name);
        let number = match self.thread_numbers.get(&key) {
            Some(&number) => number,
            None => {
                self.pool.budget.charge(NODE_BYTES)?;
                let name = self.text_of(thread.1)?;
                let number = number_of(self.threads.len());
                self.pool.budget.push(&mut self.threads, DumpThread { id, name })?;
                self.thread_numbers.insert(key, number);
                number
            }
        };
        // A large number is not kept, so its value may come to mean another.
        if matches!(thread.0, Value::Str(_) | Value::Int(_)) && matches!(thread.1, Value::Str(_) | Value::None) {
            self.last_thread = Some((thread, number));
        }
        Ok(number)
    }
}
