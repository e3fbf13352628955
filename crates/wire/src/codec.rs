//! Batches to bytes and back: the frame of `docs/formats/wire.md`.
//!
//! Columnar: all records of one kind lie together, column by column, each column in the cheapest of five encodings,
//! the whole compressed with zstd and covered by a CRC-32C. Decoding checks every size before it allocates.
use crate::bytes::{Reader, put_bits, put_varint, unzigzag, zigzag};
use crate::cells::{self, CellType, Column, Interner, Kind};
use mycroft_record::{Batch, HostTime, ProcessKey, Rank, Source};
use std::borrow::Borrow;
use std::io;
use std::sync::{Arc, Mutex};
use zstd::bulk::Decompressor;

pub use crate::cells::{is_round, round_to_micros};

/// First bytes of a frame.
pub const MAGIC: [u8; 4] = *b"MYCB";
/// Another major version cannot be read; one more is one that removes or changes something.
pub const MAJOR: u8 = 1;
/// A newer minor version only adds kinds or columns, which are skipped.
pub const MINOR: u8 = 0;
/// Bytes before the compressed part: magic 4, major, minor, reserved 2, records 4, raw 4, stored 4, crc 4.
pub const HEADER_BYTES: usize = 24;
/// 256 Ki records x 200 B in memory = 50 MiB. A host of 8 ranks makes about 5,000 in the 100 ms between frames.
pub const MAX_RECORDS: usize = 1 << 18;
/// 256 Ki records x 27 columns x 2 B, rounded up, = 16 MiB before compression; a frame that says more is refused.
pub const MAX_RAW_BYTES: usize = 16 << 20;
/// After compression; noise does not compress, and zstd then adds less than one byte in 256 plus 512.
pub const MAX_FRAME_BYTES: usize = HEADER_BYTES + MAX_RAW_BYTES + MAX_RAW_BYTES / 256 + 512;
/// Sources in a frame: 1,024 processes of a host are eight times the largest node known.
pub const MAX_BATCHES: usize = 1024;
/// Different strings in a frame: job, host, and names of communicators and interfaces.
pub const MAX_STRINGS: usize = 1 << 16;
/// Longest string; host names end at 255, NCCL's communicator names are shorter.
pub const MAX_STRING_BYTES: usize = 1024;
/// zstd's default: frames are made on training hosts, where CPU time counts.
const ZSTD_LEVEL: i32 = 3;

/// Low two bits of a column's tag: what was subtracted from each value.
const PLAIN: u8 = 0;
/// The value of the row before, zigzag.
const DELTA: u8 = 1;
/// The reference column's value of the same row, zigzag plus one; 0 stays 0.
const FROM_REFERENCE: u8 = 2;
/// Bits 4 and 5: how the differences are written. One for all rows.
const CONSTANT: u8 = 0 << 4;
/// Varints.
const VARINTS: u8 = 1 << 4;
/// The smallest as a varint, then blocks of bits above it.
const BITS: u8 = 2 << 4;
/// Count, values, then one byte a row.
const DICTIONARY: u8 = 3 << 4;
/// Every value was divided by 1,000 first.
const THOUSANDS: u8 = 0x80;
/// A dictionary's indexes are one byte each.
const MAX_DICTIONARY: usize = 127;

/// Why batches could not be encoded.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum EncodeError {
    /// More than one frame may hold.
    #[error("encoding a frame: {what} {found}, at most {max} fit; split the batches")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many there were.
        found: usize,
        /// The limit.
        max: usize,
    },
    /// zstd failed, which it does only without memory.
    #[error("encoding a frame: compression failed: {reason}")]
    Compress {
        /// What zstd said.
        reason: String,
    },
}

/// Why bytes are not a frame of this version.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// The bytes end too early.
    #[error("decoding a frame: {what} ends after {have} bytes, {need} expected; the frame is cut short")]
    Truncated {
        /// Which part.
        what: &'static str,
        /// Bytes there are.
        have: usize,
        /// Bytes there should be.
        need: usize,
    },
    /// Another kind of data.
    #[error("decoding a frame: starts with {found:02x?}, not with \"MYCB\"; this is not a frame of batches")]
    NotAFrame {
        /// The first bytes.
        found: [u8; 4],
    },
    /// A version this program cannot read.
    #[error(
        "decoding a frame: format version {found}, this program reads version {MAJOR}; use the same release on both sides"
    )]
    Version {
        /// Its major version.
        found: u8,
    },
    /// Damaged bytes.
    #[error("decoding a frame: checksum {found:08x}, computed {computed:08x}; the bytes were damaged on the way")]
    Checksum {
        /// What the frame says.
        found: u32,
        /// What its bytes give.
        computed: u32,
    },
    /// A size over its limit.
    #[error("decoding a frame: {found} {what}, at most {max} are allowed; the sender is broken or hostile")]
    TooLarge {
        /// Of what.
        what: &'static str,
        /// How many.
        found: u64,
        /// The limit.
        max: u64,
    },
    /// The parts do not fit together.
    #[error("decoding a frame: {what}; the sender is broken or hostile")]
    Malformed {
        /// Which parts and how.
        what: String,
    },
}

/// What a frame held.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Decoded {
    /// The batches, in the order they were encoded.
    pub batches: Vec<Batch>,
    /// Records of kinds that only a newer minor version knows, skipped.
    pub skipped_records: u64,
}

/// Encodes batches into one frame. Batches of several processes of a host compress better together.
///
/// # Errors
/// `TooMany` when a limit of the format is exceeded; nothing else in practice.
pub fn encode<B: Borrow<Batch>>(batches: &[B]) -> Result<Vec<u8>, EncodeError> {
    let records: usize = batches.iter().map(|b| b.borrow().records.len()).sum();
    limit("records", records, MAX_RECORDS)?;
    limit("batches", batches.len(), MAX_BATCHES)?;
    let mut strings = Interner::default();
    let mut tables = vec![Vec::new(); Kind::ALL.len()];
    for record in batches.iter().flat_map(|b| &b.borrow().records) {
        cells::put(record, &mut strings, &mut tables[Kind::of(record) as usize - 1]);
    }
    let mut sources = Vec::new();
    put_sources(&mut sources, batches, &mut strings);
    let mut raw = Vec::new();
    put_strings(&mut raw, &strings)?;
    raw.append(&mut sources);
    put_order(&mut raw, batches);
    for (&kind, table) in Kind::ALL.iter().zip(&tables) {
        if !table.is_empty() {
            put_table(&mut raw, kind, table);
        }
    }
    limit("bytes", raw.len(), MAX_RAW_BYTES)?;
    let stored = zstd::bulk::compress(&raw, ZSTD_LEVEL).map_err(|e| EncodeError::Compress { reason: e.to_string() })?;
    let mut frame = Vec::with_capacity(HEADER_BYTES + stored.len());
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&[MAJOR, MINOR, 0, 0]);
    for size in [records, raw.len(), stored.len()] {
        // Each is below its limit, and all limits are below 2^32.
        frame.extend_from_slice(&crate::narrow::low_u32(size as u64).to_le_bytes());
    }
    let crc = crc32c::crc32c_append(crc32c::crc32c(&frame), &stored);
    frame.extend_from_slice(&crc.to_le_bytes());
    frame.extend_from_slice(&stored);
    Ok(frame)
}

fn limit(what: &'static str, found: usize, max: usize) -> Result<(), EncodeError> {
    if found > max { Err(EncodeError::TooMany { what, found, max }) } else { Ok(()) }
}

fn put_strings(raw: &mut Vec<u8>, strings: &Interner) -> Result<(), EncodeError> {
    limit("strings", strings.strings().len(), MAX_STRINGS)?;
    put_varint(raw, strings.strings().len() as u64);
    for text in strings.strings() {
        limit("bytes in a name", text.len(), MAX_STRING_BYTES)?;
        put_varint(raw, text.len() as u64);
        raw.extend_from_slice(text.as_bytes());
    }
    Ok(())
}

fn put_sources<B: Borrow<Batch>>(raw: &mut Vec<u8>, batches: &[B], strings: &mut Interner) {
    put_varint(raw, batches.len() as u64);
    for batch in batches.iter().map(B::borrow) {
        put_varint(raw, strings.intern(&batch.source.job));
        put_varint(raw, strings.intern(&batch.source.host));
        match &batch.source.process {
            None => raw.push(0),
            Some(process) => {
                raw.push(1);
                put_varint(raw, u64::from(process.rank.0));
                put_varint(raw, u64::from(process.pid));
                put_varint(raw, u64::from(process.nonce));
            }
        }
        put_varint(raw, batch.collected_at.0);
        put_varint(raw, batch.records.len() as u64);
    }
}

/// Runs of equal kinds over the records of all batches.
fn put_order<B: Borrow<Batch>>(raw: &mut Vec<u8>, batches: &[B]) {
    let mut runs: Vec<(Kind, u64)> = Vec::new();
    for record in batches.iter().flat_map(|b| &b.borrow().records) {
        match runs.last_mut() {
            Some((kind, length)) if *kind == Kind::of(record) => *length += 1,
            _ => runs.push((Kind::of(record), 1)),
        }
    }
    put_varint(raw, runs.len() as u64);
    for (kind, length) in runs {
        raw.push(kind as u8);
        put_varint(raw, length);
    }
}

fn put_table(raw: &mut Vec<u8>, kind: Kind, table: &[u64]) {
    let columns = cells::columns(kind);
    let width = columns.len();
    let mut body = Vec::new();
    put_varint(&mut body, width as u64);
    let column_of = |index: usize| -> Vec<u64> { table.iter().skip(index).step_by(width).copied().collect() };
    for (index, column) in columns.iter().enumerate() {
        let encoded = encode_column(column, &column_of(index), &|| column_of(column.reference));
        put_varint(&mut body, encoded.len() as u64);
        body.extend_from_slice(&encoded);
    }
    raw.push(kind as u8);
    put_varint(raw, (table.len() / width) as u64);
    put_varint(raw, body.len() as u64);
    raw.append(&mut body);
}

/// The shortest of the encodings that can hold the column.
fn encode_column(column: &Column, values: &[u64], reference: &dyn Fn() -> Vec<u64>) -> Vec<u8> {
    let is_time = matches!(column.cell, CellType::At | CellType::Time);
    let scale = if is_time && values.iter().all(|v| v % 1000 == 0) { 1000 } else { 1 };
    let flag = if scale == 1000 { THOUSANDS } else { 0 };
    let plain: Vec<u64> = values.iter().map(|v| v / scale).collect();
    let mut best = pack(PLAIN | flag, &plain);
    let mut previous = 0u64;
    let delta = |v: &u64| zigzag(v.wrapping_sub(std::mem::replace(&mut previous, *v)));
    keep_shorter(&mut best, pack(DELTA | flag, &plain.iter().map(delta).collect::<Vec<u64>>()));
    if column.cell == CellType::Time {
        let code = |(v, r): (&u64, u64)| match *v {
            0 => Some(0),
            value => zigzag(value.wrapping_sub(r / scale)).checked_add(1),
        };
        // A distance of exactly -2^63 has no code; such a column is stored another way.
        if let Some(distances) = plain.iter().zip(reference()).map(code).collect::<Option<Vec<u64>>>() {
            keep_shorter(&mut best, pack(FROM_REFERENCE | flag, &distances));
        }
    }
    best
}

fn keep_shorter(best: &mut Vec<u8>, candidate: Vec<u8>) {
    if candidate.len() < best.len() {
        *best = candidate;
    }
}

/// Writes the differences the shortest way. Dictionaries and varints must win clearly over bits, because zstd shortens
/// them further; hence no finer choice.
fn pack(tag: u8, differences: &[u64]) -> Vec<u8> {
    let smallest = differences.iter().copied().min().unwrap_or(0);
    if differences.iter().all(|d| *d == smallest) {
        let mut out = vec![tag | CONSTANT];
        put_varint(&mut out, smallest);
        return out;
    }
    let mut best = vec![tag | VARINTS];
    for difference in differences {
        put_varint(&mut best, *difference);
    }
    let mut bits = vec![tag | BITS];
    put_varint(&mut bits, smallest);
    let above: Vec<u64> = differences.iter().map(|d| d - smallest).collect();
    put_bits(&mut bits, &above);
    keep_shorter(&mut best, bits);
    if let Some(dictionary) = pack_dictionary(tag, differences) {
        keep_shorter(&mut best, dictionary);
    }
    best
}

fn pack_dictionary(tag: u8, differences: &[u64]) -> Option<Vec<u8>> {
    let mut distinct: Vec<u64> = Vec::new();
    let mut indexes = Vec::with_capacity(differences.len());
    for difference in differences {
        let index = match distinct.iter().position(|d| d == difference) {
            Some(index) => index,
            None if distinct.len() < MAX_DICTIONARY => {
                distinct.push(*difference);
                distinct.len() - 1
            }
            None => return None,
        };
        indexes.push(u8::try_from(index).ok()?);
    }
    let mut out = vec![tag | DICTIONARY];
    put_varint(&mut out, distinct.len() as u64);
    for value in &distinct {
        put_varint(&mut out, *value);
    }
    out.extend_from_slice(&indexes);
    Some(out)
}

/// The checked header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    /// Records inside.
    pub records: u32,
    /// Bytes before compression.
    pub raw_bytes: u32,
    /// Bytes of the whole frame, header included.
    pub frame_bytes: usize,
}

/// Reads a frame's header: magic, version and limits are checked, the checksum is not.
///
/// # Errors
/// Names the first part that is not as it should be.
pub fn header(frame: &[u8]) -> Result<FrameHeader, DecodeError> {
    let Some(head) = frame.first_chunk::<HEADER_BYTES>() else {
        return Err(DecodeError::Truncated { what: "the header", have: frame.len(), need: HEADER_BYTES });
    };
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if head[..4] != MAGIC {
        return Err(DecodeError::NotAFrame { found: [head[0], head[1], head[2], head[3]] });
    }
    if head[4] != MAJOR {
        return Err(DecodeError::Version { found: head[4] });
    }
    let (records, raw_bytes, stored) = (word(8), word(12), word(16));
    at_most("records", u64::from(records), MAX_RECORDS)?;
    at_most("bytes after decompression", u64::from(raw_bytes), MAX_RAW_BYTES)?;
    at_most("compressed bytes", u64::from(stored), MAX_FRAME_BYTES - HEADER_BYTES)?;
    Ok(FrameHeader { records, raw_bytes, frame_bytes: HEADER_BYTES + stored as usize })
}

fn at_most(what: &'static str, found: u64, max: usize) -> Result<(), DecodeError> {
    if found > max as u64 { Err(DecodeError::TooLarge { what, found, max: max as u64 }) } else { Ok(()) }
}

fn malformed<T>(what: impl Into<String>) -> Result<T, DecodeError> {
    Err(DecodeError::Malformed { what: what.into() })
}

/// Decodes exactly one frame.
///
/// # Errors
/// Any byte out of place gives an error; memory is bounded by the limits of this module whatever the bytes are.
pub fn decode(frame: &[u8]) -> Result<Decoded, DecodeError> {
    let head = header(frame)?;
    if frame.len() != head.frame_bytes {
        return Err(DecodeError::Truncated { what: "the frame", have: frame.len(), need: head.frame_bytes });
    }
    let (front, stored) = frame.split_at(HEADER_BYTES);
    let found = u32::from_le_bytes([front[20], front[21], front[22], front[23]]);
    let computed = crc32c::crc32c_append(crc32c::crc32c(&front[..20]), stored);
    if found != computed {
        return Err(DecodeError::Checksum { found, computed });
    }
    let mut bench = Workbench::take();
    let decoded = decode_stored(stored, head, &mut bench);
    bench.give_back();
    decoded
}

fn decode_stored(stored: &[u8], head: FrameHeader, bench: &mut Workbench) -> Result<Decoded, DecodeError> {
    bench
        .decompress(stored, head.raw_bytes as usize)
        .map_err(|e| DecodeError::Malformed { what: format!("the compressed part cannot be read ({e})") })?;
    if bench.raw.len() != head.raw_bytes as usize {
        return malformed("the decompressed size differs from the header's");
    }
    let mut reader = Reader::new(&bench.raw);
    match decode_raw(&mut reader, head.records as usize, &mut bench.tables) {
        Some(decoded) => decoded,
        None => malformed("the content ends inside a value"),
    }
}

/// Workbenches that wait for the next frame: frames are decoded on as many processors as there are, whatever the number
/// of connections.
const BENCHES_KEPT: usize = 16;
/// Of each of their buffers; larger ones are freed. 16 x 14 x 1 MiB = 224 MiB, where frames of all kinds are that large.
const BUFFER_KEPT: usize = 1 << 20;

/// What decoding a frame needs besides what it gives. Making it anew costs as much as a small frame: the allocator gives
/// blocks of some ten kilobytes back to the system, which clears them again.
#[derive(Default)]
struct Workbench {
    decompressor: Option<Decompressor<'static>>,
    raw: Vec<u8>,
    /// By kind.
    tables: Vec<Table>,
}

static BENCHES: Mutex<Vec<Workbench>> = Mutex::new(Vec::new());

impl Workbench {
    fn take() -> Workbench {
        crate::sync::lock(&BENCHES).pop().unwrap_or_default()
    }

    fn give_back(mut self) {
        if self.raw.capacity() > BUFFER_KEPT {
            self.raw = Vec::new();
        }
        for table in &mut self.tables {
            if table.cells.capacity() * size_of::<u64>() > BUFFER_KEPT {
                *table = Table::default();
            }
        }
        let mut benches = crate::sync::lock(&BENCHES);
        if benches.len() < BENCHES_KEPT {
            benches.push(self);
        }
    }

    fn decompress(&mut self, stored: &[u8], capacity: usize) -> io::Result<()> {
        let decompressor = match &mut self.decompressor {
            Some(decompressor) => decompressor,
            none => none.insert(Decompressor::new()?),
        };
        self.raw.clear();
        self.raw.reserve_exact(capacity);
        decompressor.decompress_to_buffer(stored, &mut self.raw)?;
        Ok(())
    }
}

type Step<T> = Option<Result<T, DecodeError>>;

/// `None`: the bytes ended or a number was malformed.
macro_rules! step {
    ($e:expr) => {
        match $e {
            Ok(value) => value,
            Err(error) => return Some(Err(error)),
        }
    };
}

fn decode_raw(r: &mut Reader<'_>, records: usize, tables: &mut Vec<Table>) -> Step<Decoded> {
    let strings = step!(take_strings(r)?);
    let (batches, lengths) = step!(take_sources(r, &strings)?);
    if lengths.iter().sum::<usize>() != records {
        return Some(malformed("the batches do not add up to the header's record count"));
    }
    let runs = step!(take_order(r, records)?);
    tables.resize_with(Kind::ALL.len(), Table::default);
    tables.iter_mut().for_each(Table::clear);
    let mut total = 0usize;
    while !r.is_empty() {
        let code = r.u8()?;
        let rows = r.varint_usize()?;
        let body = r.sized_bytes()?;
        total = total.saturating_add(rows);
        let kind = Kind::from_code(code);
        if total > records || kind.is_some_and(|kind| tables[kind as usize - 1].rows > 0) {
            return Some(malformed(format!("kind {code} has {rows} rows, more than the frame has room for")));
        }
        if let Some(kind) = kind {
            step!(take_table(kind, rows, &mut Reader::new(body), &mut tables[kind as usize - 1])?);
        }
    }
    Some(assemble(batches, &lengths, runs, tables, &strings))
}

fn take_strings(r: &mut Reader<'_>) -> Step<Vec<Arc<str>>> {
    let count = r.varint()?;
    step!(at_most("strings", count, MAX_STRINGS));
    let mut strings = Vec::new();
    for _ in 0..count {
        let bytes = r.sized_bytes()?;
        step!(at_most("bytes in a name", bytes.len() as u64, MAX_STRING_BYTES));
        match std::str::from_utf8(bytes) {
            Ok(text) => strings.push(Arc::from(text)),
            Err(_) => return Some(malformed("a name is not UTF-8")),
        }
    }
    Some(Ok(strings))
}

/// The batches without their records, and how many each has.
fn take_sources(r: &mut Reader<'_>, strings: &[Arc<str>]) -> Step<(Vec<Batch>, Vec<usize>)> {
    let count = r.varint()?;
    step!(at_most("batches", count, MAX_BATCHES));
    let (mut batches, mut lengths) = (Vec::with_capacity(usize::try_from(count).ok()?), Vec::new());
    for _ in 0..count {
        let (job, host) = (r.varint_usize()?, r.varint_usize()?);
        let (Some(job), Some(host)) = (strings.get(job), strings.get(host)) else {
            return Some(malformed("a batch names a string that is not in the table"));
        };
        let process = match r.u8()? {
            0 => None,
            1 => Some(ProcessKey { rank: Rank(r.varint_u32()?), pid: r.varint_u32()?, nonce: r.varint_u32()? }),
            other => return Some(malformed(format!("a source has flag {other}, expected 0 or 1"))),
        };
        let source = Source { job: Arc::clone(job), host: Arc::clone(host), process };
        let collected_at = HostTime(r.varint()?);
        let records = r.varint()?;
        step!(at_most("records in a batch", records, MAX_RECORDS));
        batches.push(Batch { source, collected_at, records: Vec::new() });
        lengths.push(usize::try_from(records).ok()?);
    }
    Some(Ok((batches, lengths)))
}

fn take_order(r: &mut Reader<'_>, records: usize) -> Step<Vec<(u8, usize)>> {
    let count = r.varint()?;
    step!(at_most("runs", count, records));
    let mut runs = Vec::new();
    let mut total = 0usize;
    for _ in 0..count {
        let (code, length) = (r.u8()?, r.varint_usize()?);
        total = total.saturating_add(length);
        runs.push((code, length));
    }
    if total != records {
        return Some(malformed("the order of kinds does not add up to the header's record count"));
    }
    Some(Ok(runs))
}

/// The cells of one kind, of which so many rows are in a batch already.
#[derive(Default)]
struct Table {
    /// Column after column, of `rows` cells each.
    cells: Vec<u64>,
    rows: usize,
    taken: usize,
}

impl Table {
    /// Keeps the room.
    fn clear(&mut self) {
        self.cells.clear();
        (self.rows, self.taken) = (0, 0);
    }
}

/// The cells of a row.
struct Row<'a> {
    cells: &'a [u64],
    at: usize,
    rows: usize,
}

impl Iterator for Row<'_> {
    type Item = u64;
    fn next(&mut self) -> Option<u64> {
        let cell = self.cells.get(self.at).copied();
        self.at += self.rows;
        cell
    }
}

fn take_table(kind: Kind, rows: usize, r: &mut Reader<'_>, table: &mut Table) -> Step<()> {
    let known = cells::columns(kind);
    let width = r.varint_usize()?;
    // `rows` is at most MAX_RECORDS: 54 MiB.
    table.cells.reserve_exact(rows * width.min(known.len()));
    table.rows = rows;
    for index in 0..width {
        let bytes = r.sized_bytes()?;
        // Columns after the known ones are a newer minor version's additions.
        if let Some(column) = known.get(index)
            && take_column(&mut Reader::new(bytes), rows, column.reference * rows, &mut table.cells).is_none()
        {
            return Some(malformed(format!("column {} of {} is damaged", column.name, kind.as_str())));
        }
    }
    if !r.is_empty() {
        return Some(malformed(format!("{} has bytes after its last column", kind.as_str())));
    }
    Some(Ok(()))
}

/// Appends a column to the cells of those before it; the one that it may refer to begins at `reference`.
fn take_column(r: &mut Reader<'_>, rows: usize, reference: usize, cells: &mut Vec<u64>) -> Option<()> {
    let tag = r.u8()?;
    let scale = if tag & THOUSANDS != 0 { 1000 } else { 1 };
    let begin = cells.len();
    unpack(r, tag & 0x30, rows, cells)?;
    let (before, values) = cells.split_at_mut(begin);
    match tag & !(THOUSANDS | 0x30) {
        PLAIN => {}
        DELTA => {
            let mut previous = 0u64;
            for value in &mut *values {
                previous = previous.wrapping_add(unzigzag(*value));
                *value = previous;
            }
        }
        FROM_REFERENCE => {
            for (value, reference) in values.iter_mut().zip(before.get(reference..)?.get(..rows)?) {
                if *value != 0 {
                    *value = (reference / scale).wrapping_add(unzigzag(*value - 1));
                }
            }
        }
        _ => return None,
    }
    if scale != 1 {
        let mut is_over = false;
        for value in &mut *values {
            is_over |= *value > u64::MAX / scale;
            *value = value.wrapping_mul(scale);
        }
        if is_over {
            return None;
        }
    }
    r.is_empty().then_some(())
}

fn unpack(r: &mut Reader<'_>, packing: u8, rows: usize, values: &mut Vec<u64>) -> Option<()> {
    let begin = values.len();
    match packing {
        CONSTANT => values.resize(begin + rows, r.varint()?),
        VARINTS => {
            for _ in 0..rows {
                values.push(r.varint()?);
            }
        }
        BITS => {
            let smallest = r.varint()?;
            r.bits(rows, values)?;
            let mut is_over = false;
            for value in &mut values[begin..] {
                is_over |= *value > u64::MAX - smallest;
                *value = value.wrapping_add(smallest);
            }
            if is_over {
                return None;
            }
        }
        _ => {
            let count = r.varint_usize()?;
            if count > MAX_DICTIONARY {
                return None;
            }
            let mut distinct = [0; MAX_DICTIONARY];
            for value in &mut distinct[..count] {
                *value = r.varint()?;
            }
            for index in r.bytes(rows)? {
                values.push(*distinct[..count].get(usize::from(*index))?);
            }
        }
    }
    Some(())
}

fn assemble(
    mut batches: Vec<Batch>,
    lengths: &[usize],
    runs: Vec<(u8, usize)>,
    tables: &mut [Table],
    strings: &[Arc<str>],
) -> Result<Decoded, DecodeError> {
    let mut skipped_records = 0;
    let mut runs = runs.into_iter();
    let mut run = (0u8, 0usize);
    for (batch, &records) in batches.iter_mut().zip(lengths) {
        batch.records.reserve_exact(records);
        for _ in 0..records {
            while run.1 == 0 {
                // The runs and the batches add up to the same number, so there is one more.
                run = runs.next().unwrap_or((0, 1));
            }
            run.1 -= 1;
            let Some(kind) = Kind::from_code(run.0) else {
                skipped_records += 1;
                continue;
            };
            let table = &mut tables[kind as usize - 1];
            let row = table.taken;
            if row == table.rows {
                return malformed(format!("{} has fewer rows than the order says", kind.as_str()));
            }
            table.taken += 1;
            let cells = Row { cells: &table.cells, at: row, rows: table.rows };
            if let Err(column) = cells::push(kind, strings, cells, &mut batch.records) {
                return malformed(format!("{} row {row}: {column} is out of range", kind.as_str()));
            }
        }
        // What was skipped must not keep its room: memory is counted by records.
        batch.records.shrink_to_fit();
    }
    if tables.iter().any(|table| table.taken < table.rows) {
        return malformed("a kind has more rows than the order says");
    }
    Ok(Decoded { batches, skipped_records })
}
