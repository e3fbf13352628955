//! Foreign data as small values: what pickle and JSON have in common.
//!
//! A [`Value`] is 8 bytes. Equal strings have one number, equal closed lists have one number, so that what repeats in a
//! dump (names, sizes, call stacks) is compared and kept once. Nothing here recurses: a list that is put into another is
//! closed first and may not change afterwards, so no list contains itself.
use crate::budget::{ALLOCATION_BYTES, Budget, number_of};
use crate::fault::Fault;
use crate::field::Field;
use crate::index::{Index, fold, hash_bytes, mix};

/// Longest single string: `pg_config` of 1 M ranks is "[0, 1, ...]" of about 8 MB.
pub(crate) const STRING_BYTES_MAX: usize = 16 << 20;

/// One value; numbers point into a [`Pool`]. A kind of four bytes beside a number of four: a kind of one byte is copied in
/// pieces, which the processor then waits to read as a whole (measured: a fifth of the time in [`Pool::seq`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub(crate) enum Value {
    /// `None`, `null`.
    None,
    /// A truth value.
    Bool(bool),
    /// A small integer.
    Int(i32),
    /// A large integer, until the next mark is closed.
    Wide(u32),
    /// A large integer that is kept.
    Kept(u32),
    /// A floating-point number (its bits), until the next mark is closed.
    Real(u32),
    /// A floating-point number that is kept.
    KeptReal(u32),
    /// A string.
    Str(u32),
    /// Bytes or something else that no dump uses.
    Blob,
    /// An empty list that nothing refers to yet.
    NewList,
    /// An empty dict that nothing refers to yet.
    NewDict,
    /// A list that something may refer to.
    List(u32),
    /// A closed list or tuple.
    Seq(u32),
    /// A dict that something may refer to.
    Dict(u32),
    /// A closed dict: keys and values in turn.
    Pairs(u32),
    /// A dict that was an entry of a dump.
    Entry(u32),
    /// A dict that was a frame of a call stack.
    Frame(u32),
}

const _: () = assert!(size_of::<Value>() == 8 && size_of::<Option<Value>>() == 8);

impl Value {
    /// The value as one word for a hash. Kind and number are found apart, so that neither needs a jump.
    #[inline]
    fn word(self) -> u64 {
        let kind: u64 = match self {
            Value::None => 1,
            Value::Bool(_) => 2,
            Value::Int(_) => 3,
            Value::Wide(_) => 4,
            Value::Kept(_) => 5,
            Value::Real(_) => 6,
            Value::KeptReal(_) => 7,
            Value::Str(_) => 8,
            Value::Blob => 9,
            Value::NewList => 10,
            Value::NewDict => 11,
            Value::List(_) => 12,
            Value::Seq(_) => 13,
            Value::Dict(_) => 14,
            Value::Pairs(_) => 15,
            Value::Entry(_) => 16,
            Value::Frame(_) => 17,
        };
        let number = match self {
            Value::None | Value::Blob | Value::NewList | Value::NewDict => 0,
            Value::Bool(yes) => u32::from(yes),
            Value::Int(n) => n.cast_unsigned(),
            Value::Wide(n) | Value::Kept(n) | Value::Real(n) | Value::KeptReal(n) | Value::Str(n) => n,
            Value::List(n) | Value::Seq(n) | Value::Dict(n) | Value::Pairs(n) | Value::Entry(n) | Value::Frame(n) => n,
        };
        kind << 32 | u64::from(number)
    }
}

/// The empty list, always there.
pub(crate) const EMPTY: u32 = 0;

/// What a reader remembers of a closed list: the number that its own tables gave it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Known {
    /// Not looked at yet.
    Nothing,
    /// A call stack.
    Stack(u32),
    /// A process group.
    Group(u32),
}

#[derive(Clone, Copy, Debug)]
struct Seq {
    start: u32,
    len: u32,
    known: Known,
}

#[derive(Clone, Copy, Debug)]
struct Str {
    /// Offset in the input, or in `unescaped` where `escaped` is set.
    start: u32,
    len: u32,
    field: Field,
    escaped: bool,
}

/// A list or dict that something may refer to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slot {
    /// Nothing was put in yet.
    Empty,
    /// Everything so far came at once.
    Whole(u32),
    /// It came in several parts.
    Parts(u32),
    /// It is part of another list and may not change any more.
    Closed(u32),
    /// It was an entry.
    Entry(u32),
    /// It was a frame.
    Frame(u32),
}

/// All values of one file.
#[derive(Debug)]
pub(crate) struct Pool<'a> {
    bytes: &'a [u8],
    unescaped: Vec<u8>,
    strs: Vec<Str>,
    str_index: Index,
    /// Large numbers that are not kept; cut back when a mark is closed.
    wides: Vec<u64>,
    kept: Vec<u64>,
    kept_index: Index,
    items: Vec<Value>,
    seqs: Vec<Seq>,
    seq_index: Index,
    slots: Vec<Slot>,
    parts: Vec<Vec<u32>>,
    /// The memory this file may take.
    pub(crate) budget: Budget,
}

impl<'a> Pool<'a> {
    /// An empty pool for a file.
    pub(crate) fn new(bytes: &'a [u8]) -> Pool<'a> {
        Pool {
            bytes,
            unescaped: Vec::new(),
            strs: Vec::new(),
            str_index: Index::default(),
            wides: Vec::new(),
            kept: Vec::new(),
            kept_index: Index::default(),
            items: Vec::new(),
            seqs: vec![Seq { start: 0, len: 0, known: Known::Nothing }],
            seq_index: Index::default(),
            slots: Vec::new(),
            parts: Vec::new(),
            budget: Budget::new(bytes.len()),
        }
    }

    /// The string `len` bytes from `start` of the input.
    pub(crate) fn string(&mut self, start: usize, len: usize) -> Result<Value, Fault> {
        if len > STRING_BYTES_MAX {
            return Err(Fault::new(start, format!("a string of {len} bytes, at most {STRING_BYTES_MAX}")));
        }
        let text = &self.bytes[start..start + len];
        let hash = hash_bytes(text);
        if let Some(number) = self.str_index.find(hash, |number| self.str_bytes(number) == text) {
            return Ok(Value::Str(number));
        }
        self.new_string(
            hash,
            Str { start: number_of(start), len: number_of(len), field: Field::of(text), escaped: false },
        )
    }

    /// A string that does not stand in the input as it is (JSON escapes).
    pub(crate) fn unescaped(&mut self, text: &[u8]) -> Result<Value, Fault> {
        let hash = hash_bytes(text);
        if let Some(number) = self.str_index.find(hash, |number| self.str_bytes(number) == text) {
            return Ok(Value::Str(number));
        }
        let start = number_of(self.unescaped.len());
        self.budget.room(&mut self.unescaped, text.len())?;
        self.unescaped.extend_from_slice(text);
        self.new_string(hash, Str { start, len: number_of(text.len()), field: Field::of(text), escaped: true })
    }

    fn new_string(&mut self, hash: u32, string: Str) -> Result<Value, Fault> {
        let number = number_of(self.strs.len());
        self.budget.push(&mut self.strs, string)?;
        self.str_index.insert(&mut self.budget, hash, number)?;
        Ok(Value::Str(number))
    }

    /// The bytes of a string.
    pub(crate) fn str_bytes(&self, number: u32) -> &[u8] {
        let string = self.strs[number as usize];
        let (start, end) = (string.start as usize, string.start as usize + string.len as usize);
        if string.escaped { &self.unescaped[start..end] } else { &self.bytes[start..end] }
    }

    /// The field that a string names.
    #[inline]
    pub(crate) fn field(&self, key: Value) -> Option<Field> {
        match key {
            Value::Str(number) => Some(self.strs[number as usize].field),
            _ => None,
        }
    }

    /// An integer.
    #[inline]
    pub(crate) fn integer(&mut self, number: i64) -> Result<Value, Fault> {
        if let Ok(small) = i32::try_from(number) {
            return Ok(Value::Int(small));
        }
        let at = number_of(self.wides.len());
        self.budget.push(&mut self.wides, number.cast_unsigned())?;
        Ok(Value::Wide(at))
    }

    /// A floating-point number.
    #[inline]
    pub(crate) fn real(&mut self, number: f64) -> Result<Value, Fault> {
        let at = number_of(self.wides.len());
        self.budget.push(&mut self.wides, number.to_bits())?;
        Ok(Value::Real(at))
    }

    /// How many large numbers are not kept: what a mark remembers.
    #[inline]
    pub(crate) fn wide_mark(&self) -> u32 {
        number_of(self.wides.len())
    }

    /// Forgets the large numbers that came after a mark.
    #[inline]
    pub(crate) fn cut_wides(&mut self, mark: u32) {
        self.wides.truncate(mark as usize);
    }

    /// The value as an integer.
    #[inline]
    pub(crate) fn as_int(&self, value: Value) -> Option<i64> {
        match value {
            Value::Int(n) => Some(i64::from(n)),
            Value::Wide(at) => Some(self.wides[at as usize].cast_signed()),
            Value::Kept(at) => Some(self.kept[at as usize].cast_signed()),
            Value::Bool(yes) => Some(i64::from(yes)),
            _ => None,
        }
    }

    /// The value as a floating-point number.
    pub(crate) fn as_real(&self, value: Value) -> Option<f64> {
        match value {
            Value::Real(at) => Some(f64::from_bits(self.wides[at as usize])),
            Value::KeptReal(at) => Some(f64::from_bits(self.kept[at as usize])),
            _ => self.as_int(value).map(|n| n as f64),
        }
    }

    /// A value that outlives the mark it stands behind.
    fn keep(&mut self, value: Value) -> Result<Value, Fault> {
        let (bits, kept): (u64, fn(u32) -> Value) = match value {
            Value::Wide(at) => (self.wides[at as usize], Value::Kept),
            Value::Real(at) => (self.wides[at as usize], Value::KeptReal),
            _ => return Ok(value),
        };
        let hash = fold(mix(0, bits));
        if let Some(number) = self.kept_index.find(hash, |number| self.kept[number as usize] == bits) {
            return Ok(kept(number));
        }
        let number = number_of(self.kept.len());
        self.budget.push(&mut self.kept, bits)?;
        self.kept_index.insert(&mut self.budget, hash, number)?;
        Ok(kept(number))
    }

    /// A value that something will refer to.
    #[inline]
    pub(crate) fn shared(&mut self, value: Value) -> Result<Value, Fault> {
        let make: fn(u32) -> Value = match value {
            Value::NewList => Value::List,
            Value::NewDict => Value::Dict,
            Value::Wide(_) | Value::Real(_) => return self.keep(value),
            _ => return Ok(value),
        };
        let number = number_of(self.slots.len());
        self.budget.push(&mut self.slots, Slot::Empty)?;
        Ok(make(number))
    }

    /// A value as part of a list: closed.
    #[inline]
    fn closed(&mut self, value: Value) -> Result<Value, Fault> {
        match value {
            Value::Wide(_) | Value::Real(_) => self.keep(value),
            Value::NewList => Ok(Value::Seq(EMPTY)),
            Value::NewDict => Ok(Value::Pairs(EMPTY)),
            Value::List(slot) => {
                let seq = self.gathered(slot)?;
                self.slots[slot as usize] = Slot::Closed(seq);
                Ok(Value::Seq(seq))
            }
            Value::Dict(slot) => Ok(match self.slots[slot as usize] {
                Slot::Entry(entry) => Value::Entry(entry),
                Slot::Frame(frame) => Value::Frame(frame),
                _ => value,
            }),
            _ => Ok(value),
        }
    }

    /// The closed list of these items.
    pub(crate) fn seq(&mut self, items: &[Value]) -> Result<u32, Fault> {
        if items.is_empty() {
            return Ok(EMPTY);
        }
        if !self.parts.is_empty() {
            // Gathering appends items: all of it before ours begin.
            for &item in items {
                if let Value::List(slot) = item {
                    self.gathered(slot)?;
                }
            }
        }
        let start = self.items.len();
        self.budget.room(&mut self.items, items.len())?;
        let mut hash = items.len() as u64;
        for &item in items {
            let item = self.closed(item)?;
            hash = mix(hash, item.word());
            self.items.push(item);
        }
        let hash = fold(hash);
        let (seqs, all) = (&self.seqs, &self.items);
        let equal = |number: u32| {
            let seq = seqs[number as usize];
            let known = all[seq.start as usize..][..seq.len as usize].iter();
            seq.len as usize == all.len() - start && known.zip(&all[start..]).all(|(a, b)| a.word() == b.word())
        };
        if let Some(number) = self.seq_index.find(hash, equal) {
            self.items.truncate(start);
            return Ok(number);
        }
        let number = number_of(self.seqs.len());
        let seq = Seq { start: number_of(start), len: number_of(items.len()), known: Known::Nothing };
        self.budget.push(&mut self.seqs, seq)?;
        self.seq_index.insert(&mut self.budget, hash, number)?;
        Ok(number)
    }

    /// Puts items into a list or dict that something may refer to.
    pub(crate) fn extend(&mut self, slot: u32, items: &[Value]) -> Result<(), Fault> {
        let part = match self.slots[slot as usize] {
            _ if items.is_empty() => return Ok(()),
            Slot::Closed(_) | Slot::Entry(_) | Slot::Frame(_) => {
                return Err(Fault::new(
                    self.budget.at,
                    "a list or entry changes after it was put into another: no recorder writes that",
                ));
            }
            _ => self.seq(items)?,
        };
        // A list among the items may have been this one.
        self.slots[slot as usize] = match self.slots[slot as usize] {
            Slot::Empty => Slot::Whole(part),
            Slot::Whole(first) => {
                let parts = number_of(self.parts.len());
                self.budget.push(&mut self.parts, Vec::new())?;
                self.budget.push(&mut self.parts[parts as usize], first)?;
                self.budget.push(&mut self.parts[parts as usize], part)?;
                Slot::Parts(parts)
            }
            Slot::Parts(parts) => {
                self.budget.push(&mut self.parts[parts as usize], part)?;
                Slot::Parts(parts)
            }
            _ => return Err(Fault::new(self.budget.at, "a list that contains itself: no recorder writes that")),
        };
        Ok(())
    }

    /// Whether a dict that something may refer to is still empty.
    pub(crate) fn is_untouched(&self, slot: u32) -> bool {
        self.slots[slot as usize] == Slot::Empty
    }

    /// Says what a dict that something may refer to was.
    pub(crate) fn resolve(&mut self, slot: u32, value: Value) {
        self.slots[slot as usize] = match value {
            Value::Entry(number) => Slot::Entry(number),
            Value::Frame(number) => Slot::Frame(number),
            _ => return,
        };
    }

    /// All items of a list or dict that something may refer to, as one closed list.
    fn gathered(&mut self, slot: u32) -> Result<u32, Fault> {
        match self.slots[slot as usize] {
            Slot::Whole(seq) | Slot::Closed(seq) => Ok(seq),
            Slot::Parts(parts) => {
                let start = self.items.len();
                let list = std::mem::take(&mut self.parts[parts as usize]);
                for &part in &list {
                    let part = self.seqs[part as usize];
                    let range = part.start as usize..(part.start + part.len) as usize;
                    self.budget.room(&mut self.items, range.len())?;
                    self.items.extend_from_within(range);
                }
                self.budget.release(list.capacity() * size_of::<u32>() + ALLOCATION_BYTES);
                let seq =
                    Seq { start: number_of(start), len: number_of(self.items.len() - start), known: Known::Nothing };
                let number = number_of(self.seqs.len());
                self.budget.push(&mut self.seqs, seq)?;
                self.slots[slot as usize] = Slot::Whole(number);
                Ok(number)
            }
            Slot::Empty | Slot::Entry(_) | Slot::Frame(_) => Ok(EMPTY),
        }
    }

    /// The items of a list or tuple; `None` for anything else.
    pub(crate) fn list(&mut self, value: Value) -> Result<Option<u32>, Fault> {
        Ok(match value {
            Value::NewList => Some(EMPTY),
            Value::Seq(seq) => Some(seq),
            Value::List(slot) => Some(self.gathered(slot)?),
            _ => None,
        })
    }

    /// The keys and values of a dict, in turn; `None` for anything else.
    pub(crate) fn dict(&mut self, value: Value) -> Result<Option<u32>, Fault> {
        Ok(match value {
            Value::NewDict => Some(EMPTY),
            Value::Pairs(seq) => Some(seq),
            Value::Dict(slot) if !matches!(self.slots[slot as usize], Slot::Entry(_) | Slot::Frame(_)) => {
                Some(self.gathered(slot)?)
            }
            _ => None,
        })
    }

    /// How many items a closed list has.
    #[inline]
    pub(crate) fn len(&self, seq: u32) -> usize {
        self.seqs[seq as usize].len as usize
    }

    /// An item of a closed list.
    #[inline]
    pub(crate) fn item(&self, seq: u32, index: usize) -> Value {
        self.items(seq)[index]
    }

    /// The items of a closed list.
    #[inline]
    pub(crate) fn items(&self, seq: u32) -> &[Value] {
        let seq = self.seqs[seq as usize];
        &self.items[seq.start as usize..][..seq.len as usize]
    }

    /// What is known of a closed list.
    #[inline]
    pub(crate) fn known(&self, seq: u32) -> Known {
        self.seqs[seq as usize].known
    }

    /// Remembers what a closed list is.
    pub(crate) fn remember(&mut self, seq: u32, known: Known) {
        self.seqs[seq as usize].known = known;
    }
}
