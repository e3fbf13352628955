//! Parquet segments: records at rest, readable by any Parquet reader (`docs/formats/store.md`).
//!
//! One flat schema for all kinds. Times are whole microseconds: `time` is absolute, every other time is its distance
//! from `time` or from another time of the row, which is what one wants to look at and compresses best.
use mycroft_record::{Batch, HostTime, ProcessKey, Rank, Record, Source};
use mycroft_wire::cells::{self, CellType, Column, Interner, Kind};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::ColumnPath;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Rows of a segment: 512 Ki x (27 cells x 8 B + a record of 200 B) = 220 MB while it is written or read.
pub const MAX_ROWS: usize = 1 << 19;
/// Written into each file; a reader refuses a higher one.
const FORMAT_VERSION: u32 = 1;
const VERSION_KEY: &str = "mycroft.segment.version";
/// Written once in ten minutes in the background, read rarely: worth more effort than a frame.
const ZSTD_LEVEL: i32 = 6;
/// Longest text: see `codec::MAX_STRING_BYTES`; a file that says more is not ours.
const MAX_TEXT_BYTES: usize = mycroft_wire::codec::MAX_STRING_BYTES;
/// Different texts in a file, each an allocation.
const MAX_TEXTS: usize = 1 << 20;

/// How a column of the file holds its values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Physical {
    Text,
    Flag,
    Int32,
    Int64,
}

/// A column of the file: the fixed ones first, then every column of every kind once.
#[derive(Clone, Debug)]
pub(crate) struct FileColumn {
    pub(crate) name: String,
    pub(crate) physical: Physical,
    pub(crate) annotation: &'static str,
    /// Small ranges of numbers in time order: bits of differences; everything else goes into a dictionary.
    delta: bool,
    pub(crate) optional: bool,
    /// Time, whose distance is stored.
    time: bool,
}

const FIXED: [(&str, Physical, &str, bool, bool); 11] = [
    ("kind", Physical::Text, "STRING", false, false),
    ("job", Physical::Text, "STRING", false, false),
    ("host", Physical::Text, "STRING", false, false),
    ("rank", Physical::Int64, "INTEGER(64,false)", false, true),
    ("pid", Physical::Int64, "INTEGER(64,false)", false, true),
    ("nonce", Physical::Int64, "INTEGER(64,false)", false, true),
    ("collected_at", Physical::Int64, "TIMESTAMP(MICROS,true)", false, true),
    ("batch", Physical::Int32, "", true, false),
    ("position", Physical::Int32, "", true, false),
    ("time", Physical::Int64, "TIMESTAMP(MICROS,true)", true, true),
    ("arrived_at", Physical::Int64, "TIMESTAMP(MICROS,true)", false, true),
];
const KIND: usize = 0;
const JOB: usize = 1;
const HOST: usize = 2;
const RANK: usize = 3;
const PID: usize = 4;
const NONCE: usize = 5;
const COLLECTED_AT: usize = 6;
const BATCH: usize = 7;
const POSITION: usize = 8;
const TIME: usize = 9;
const ARRIVED_AT: usize = 10;

pub(crate) struct Layout {
    pub(crate) columns: Vec<FileColumn>,
    /// For each kind, for each of its columns, the file's column.
    of_kind: Vec<Vec<usize>>,
}

fn file_name(column: &Column) -> String {
    match (column.cell, column.name.strip_suffix("_at")) {
        (CellType::Time, Some(stem)) => format!("{stem}_us"),
        _ => column.name.to_owned(),
    }
}

/// The columns of a row: those of a segment, and of a table that takes its place.
pub(crate) fn layout() -> &'static Layout {
    static LAYOUT: OnceLock<Layout> = OnceLock::new();
    LAYOUT.get_or_init(|| {
        let fixed = FIXED.iter().map(|&(name, physical, annotation, delta, optional)| FileColumn {
            name: name.to_owned(),
            physical,
            annotation,
            delta,
            optional,
            time: false,
        });
        let mut columns: Vec<FileColumn> = fixed.collect();
        let mut of_kind = Vec::new();
        for &kind in Kind::ALL {
            let place = |column: &Column| {
                let new = file_column(column);
                match columns.iter().position(|c| c.name == new.name) {
                    Some(index) => {
                        assert!(columns[index].physical == new.physical, "{} means two things", new.name);
                        index
                    }
                    None => {
                        columns.push(new);
                        columns.len() - 1
                    }
                }
            };
            of_kind.push(cells::columns(kind).iter().map(place).collect());
        }
        Layout { columns, of_kind }
    })
}

fn file_column(column: &Column) -> FileColumn {
    let (physical, annotation) = match column.cell {
        CellType::At => (Physical::Int64, "TIMESTAMP(MICROS,true)"),
        CellType::Time => (Physical::Int64, ""),
        CellType::Number | CellType::Id => (Physical::Int64, "INTEGER(64,false)"),
        CellType::Signed => (Physical::Int32, ""),
        CellType::Flag => (Physical::Flag, ""),
        CellType::Text => (Physical::Text, "STRING"),
    };
    let delta = matches!(column.cell, CellType::At | CellType::Time) || matches!(column.name, "seq" | "nccl_seq");
    FileColumn {
        name: file_name(column),
        physical,
        annotation,
        delta,
        optional: true,
        time: column.cell == CellType::Time,
    }
}

fn schema_text() -> String {
    let mut text = "message record {\n".to_owned();
    for column in &layout().columns {
        let need = if column.optional { "OPTIONAL" } else { "REQUIRED" };
        let physical = match column.physical {
            Physical::Text => "BYTE_ARRAY",
            Physical::Flag => "BOOLEAN",
            Physical::Int32 => "INT32",
            Physical::Int64 => "INT64",
        };
        let annotation = if column.annotation.is_empty() { String::new() } else { format!(" ({})", column.annotation) };
        text.push_str(&format!("  {need} {physical} {}{annotation};\n", column.name));
    }
    text.push('}');
    text
}

fn properties() -> Result<WriterProperties, ParquetError> {
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(Some(MAX_ROWS))
        .set_created_by(concat!("mycroft ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(vec![KeyValue::new(VERSION_KEY.to_owned(), FORMAT_VERSION.to_string())]));
    for column in layout().columns.iter().filter(|c| c.delta) {
        let path = ColumnPath::from(column.name.as_str());
        builder = builder
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED);
    }
    Ok(builder.build())
}

/// A record among others.
pub(crate) struct Row {
    kind: Kind,
    pub(crate) batch: u32,
    position: u32,
    /// Where its cells begin.
    cells: usize,
}

/// The rows of batches, in the order of a segment.
pub(crate) struct Rows<'a> {
    batches: &'a [Batch],
    arrivals: &'a [HostTime],
    strings: Interner,
    cells: Vec<u64>,
    pub(crate) rows: Vec<Row>,
}

impl<'a> Rows<'a> {
    pub(crate) fn new(batches: &'a [Batch], arrivals: &'a [HostTime]) -> Rows<'a> {
        let mut all = Rows { batches, arrivals, strings: Interner::default(), cells: Vec::new(), rows: Vec::new() };
        for (number, batch) in batches.iter().enumerate() {
            for (position, record) in batch.records.iter().enumerate() {
                // Both are at most MAX_ROWS, or many batches without records, of which 2^32 do not fit in memory.
                let (batch, position) = (number as u32, position as u32);
                all.rows.push(Row { kind: Kind::of(record), batch, position, cells: all.cells.len() });
                cells::put(record, &mut all.strings, &mut all.cells);
            }
        }
        let mut rows = std::mem::take(&mut all.rows);
        rows.sort_by_cached_key(|row| {
            let batch = &batches[row.batch as usize];
            let record = &batch.records[row.position as usize];
            let process = batch.source.process.map(|p| (p.rank, p.pid, p.nonce));
            let place = (&batch.source.job, mycroft_wire::about::comm_of(record), process, &batch.source.host);
            (place, mycroft_wire::about::time_of(record), row.batch, row.position)
        });
        all.rows = rows;
        all
    }

    fn source(&self, row: &Row) -> &Source {
        &self.batches[row.batch as usize].source
    }

    /// The value of a column in a row, `None` for null.
    pub(crate) fn value(&self, column: usize, row: &Row) -> Option<u64> {
        let process = self.source(row).process;
        match column {
            RANK => process.map(|p| u64::from(p.rank.0)),
            PID => process.map(|p| u64::from(p.pid)),
            NONCE => process.map(|p| u64::from(p.nonce)),
            COLLECTED_AT => micros(self.batches[row.batch as usize].collected_at.0),
            BATCH => Some(u64::from(row.batch)),
            POSITION => Some(u64::from(row.position)),
            TIME => micros(self.cells[row.cells]),
            ARRIVED_AT => self.arrivals.get(row.batch as usize).and_then(|at| micros(at.0)),
            _ => {
                let index = layout().of_kind[row.kind as usize - 1].iter().position(|c| *c == column)?;
                let value = self.cells[row.cells + index];
                if !layout().columns[column].time {
                    return Some(value);
                }
                let reference = self.reference(row, cells::columns(row.kind)[index].reference);
                micros(value).map(|v| v.wrapping_sub(reference))
            }
        }
    }

    /// The time from which a distance counts: the reference column's, the row's own where that is unknown.
    fn reference(&self, row: &Row, column: usize) -> u64 {
        let time = self.cells[row.cells] / 1000;
        micros(self.cells[row.cells + column]).unwrap_or(time)
    }

    /// The text of a column in a row, `None` for null.
    pub(crate) fn text(&self, column: usize, row: &Row) -> Option<&str> {
        match column {
            KIND => Some(row.kind.as_str()),
            JOB => Some(&self.source(row).job),
            HOST => Some(&self.source(row).host),
            _ => self.value(column, row).map(|index| &*self.strings.strings()[index as usize]),
        }
    }
}

/// Whole microseconds of a time, `None` where it is unknown.
fn micros(nanos: u64) -> Option<u64> {
    (nanos != 0).then_some(nanos / 1000)
}

/// CRC-32C of a file.
fn checksum(file: &mut File) -> std::io::Result<u32> {
    let mut buffer = vec![0u8; 1 << 16];
    let mut crc = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(crc),
            count => crc = crc32c::crc32c_append(crc, &buffer[..count]),
        }
    }
}

/// Writes batches as one segment file and makes it durable; the caller renames it into place. Gives the checksum of
/// the file. `arrivals` says of each batch when it arrived; it is empty where that is not known.
///
/// Times must be whole microseconds (`codec::round_to_micros`), and records at most `MAX_ROWS`.
pub(crate) fn write(path: &Path, batches: &[Batch], arrivals: &[HostTime]) -> Result<u32, ParquetError> {
    let rows = Rows::new(batches, arrivals);
    let file = File::create(path)?;
    let schema = Arc::new(parse_message_type(&schema_text())?);
    let mut writer = SerializedFileWriter::new(file.try_clone()?, schema, Arc::new(properties()?))?;
    let mut group = writer.next_row_group()?;
    for (index, column) in layout().columns.iter().enumerate() {
        match column.physical {
            Physical::Text => {
                let value = |row: &Row| rows.text(index, row).map(|t| ByteArray::from(t.as_bytes().to_vec()));
                write_column::<ByteArrayType, _>(&mut group, &rows, column, &value)?;
            }
            Physical::Flag => {
                write_column::<BoolType, _>(&mut group, &rows, column, &|row| rows.value(index, row).map(|v| v != 0))?;
            }
            Physical::Int32 => {
                let value = |row: &Row| rows.value(index, row).map(|v| (v as u32).cast_signed());
                write_column::<Int32Type, _>(&mut group, &rows, column, &value)?;
            }
            Physical::Int64 => {
                let value = |row: &Row| rows.value(index, row).map(u64::cast_signed);
                write_column::<Int64Type, _>(&mut group, &rows, column, &value)?;
            }
        }
    }
    group.close()?;
    writer.close()?;
    file.sync_all()?;
    Ok(checksum(&mut File::open(path)?)?)
}

type Group<'a> = parquet::file::writer::SerializedRowGroupWriter<'a, File>;

fn write_column<T: DataType, F: Fn(&Row) -> Option<T::T>>(
    group: &mut Group<'_>,
    rows: &Rows<'_>,
    column: &FileColumn,
    value: &F,
) -> Result<(), ParquetError> {
    let optional: Vec<Option<T::T>> = rows.rows.iter().map(value).collect();
    let levels: Vec<i16> = optional.iter().map(|v| i16::from(v.is_some())).collect();
    let values: Vec<T::T> = optional.into_iter().flatten().collect();
    let Some(mut writer) = group.next_column()? else {
        return Err(ParquetError::General(format!("no place for column {}", column.name)));
    };
    writer.typed::<T>().write_batch(&values, column.optional.then_some(&levels), None)?;
    writer.close()
}

/// Values of one column of a file, taken row by row.
struct Values {
    present: Option<Vec<i16>>,
    values: std::vec::IntoIter<u64>,
    row: usize,
}

impl Values {
    fn next(&mut self) -> Option<u64> {
        let present = self.present.as_ref().is_none_or(|p| p.get(self.row).is_some_and(|level| *level > 0));
        self.row += 1;
        if present { self.values.next() } else { None }
    }
}

/// A batch of a file, and when it arrived (`NONE` where the file does not say).
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Arrived {
    pub(crate) at: HostTime,
    pub(crate) batch: Batch,
}

/// Reads a segment back into the batches it was made of, in their order, if its checksum is the given one.
///
/// # Errors
/// A text that says what is wrong with the file. Whatever the file holds, this does not panic.
pub(crate) fn read(path: &Path, expected: u32) -> Result<Vec<Arrived>, String> {
    let found = File::open(path).and_then(|mut file| checksum(&mut file)).map_err(|e| e.to_string())?;
    if found != expected {
        return Err(format!("checksum {found:08x}, its name says {expected:08x}; the file was damaged or cut short"));
    }
    read_unchecked(path)
}

fn read_unchecked(path: &Path) -> Result<Vec<Arrived>, String> {
    // The parquet crate is written with damage in mind, but a file is not worth a server.
    std::panic::catch_unwind(|| read_file(path)).unwrap_or_else(|_| Err("it makes the Parquet reader fail".to_owned()))
}

fn read_file(path: &Path) -> Result<Vec<Arrived>, String> {
    let say = |e: ParquetError| e.to_string();
    let file = File::open(path).map_err(|e| e.to_string())?;
    let reader = SerializedFileReader::new(file).map_err(say)?;
    let metadata = reader.metadata().file_metadata();
    let version = metadata.key_value_metadata().into_iter().flatten().find(|kv| kv.key == VERSION_KEY);
    match version.and_then(|kv| kv.value.as_deref()?.parse::<u32>().ok()) {
        Some(FORMAT_VERSION) => {}
        Some(newer) => return Err(format!("segment version {newer}, this release reads {FORMAT_VERSION}")),
        None => return Err("a Parquet file, but not one of mycroft's".to_owned()),
    }
    let rows: i64 = metadata.num_rows();
    if !(0..=MAX_ROWS as i64).contains(&rows) {
        return Err(format!("{rows} rows, at most {MAX_ROWS} are written"));
    }
    let mut batches: Batches = BTreeMap::new();
    for group in 0..reader.num_row_groups() {
        read_group(&reader, group, &mut batches)?;
    }
    Ok(whole(batches))
}

/// The batches of whose rows all were taken.
pub(crate) fn whole(batches: Batches) -> Vec<Arrived> {
    let whole = batches.into_values().map(|(Arrived { at, batch }, records)| Arrived {
        at,
        batch: Batch { records: records.into_values().collect(), ..batch },
    });
    whole.collect()
}

/// The batches of a file by number, and their records by position.
pub(crate) type Batches = BTreeMap<u32, (Arrived, BTreeMap<u32, Record>)>;

fn read_group(reader: &SerializedFileReader<File>, group: usize, batches: &mut Batches) -> Result<(), String> {
    let group = reader.get_row_group(group).map_err(|e| e.to_string())?;
    let rows = usize::try_from(group.metadata().num_rows()).unwrap_or(usize::MAX);
    if rows > MAX_ROWS {
        return Err(format!("a row group of {rows} rows"));
    }
    let mut strings = Interner::default();
    let schema = group.metadata().schema_descr_ptr();
    let mut columns: Vec<Option<Values>> = Vec::new();
    for column in &layout().columns {
        // Columns that only newer releases write are not looked at; columns that older ones lack read as null.
        let index = schema.columns().iter().position(|c| c.name() == column.name);
        let values = match index {
            None if !column.optional => return Err(format!("column {} is missing", column.name)),
            None => None,
            Some(index) => {
                let reader = group.get_column_reader(index).map_err(|e| e.to_string())?;
                Some(
                    read_column(reader, column, rows, &mut strings)
                        .map_err(|e| format!("column {}: {e}", column.name))?,
                )
            }
        };
        columns.push(values);
    }
    let mut line = vec![None; columns.len()];
    for _ in 0..rows {
        for (slot, column) in line.iter_mut().zip(&mut columns) {
            *slot = column.as_mut().and_then(Values::next);
        }
        take_row(&line, &strings, batches)?;
    }
    Ok(())
}

fn read_column(
    reader: ColumnReader,
    column: &FileColumn,
    rows: usize,
    strings: &mut Interner,
) -> Result<Values, String> {
    let optional = column.optional;
    let (present, values) = match (column.physical, reader) {
        (Physical::Int64, ColumnReader::Int64ColumnReader(r)) => {
            let (present, values) = read_values(r, optional, rows)?;
            (present, values.into_iter().map(i64::cast_unsigned).collect())
        }
        (Physical::Int32, ColumnReader::Int32ColumnReader(r)) => {
            let (present, values) = read_values(r, optional, rows)?;
            (present, values.into_iter().map(|v| u64::from(v.cast_unsigned())).collect())
        }
        (Physical::Flag, ColumnReader::BoolColumnReader(r)) => {
            let (present, values) = read_values(r, optional, rows)?;
            (present, values.into_iter().map(u64::from).collect())
        }
        (Physical::Text, ColumnReader::ByteArrayColumnReader(r)) => {
            let (present, values) = read_values(r, optional, rows)?;
            let mut indexes = Vec::with_capacity(values.len());
            for value in values {
                indexes.push(intern_text(&value, strings)?);
            }
            (present, indexes)
        }
        _ => return Err("has another type than mycroft writes".to_owned()),
    };
    Ok(Values { present, values: values.into_iter(), row: 0 })
}

fn intern_text(value: &ByteArray, strings: &mut Interner) -> Result<u64, String> {
    let text = value.as_utf8().map_err(|e| e.to_string())?;
    intern(text, strings)
}

/// The number of a text.
///
/// # Errors
/// It is longer than those that mycroft writes, or there are too many.
pub(crate) fn intern(text: &str, strings: &mut Interner) -> Result<u64, String> {
    if text.len() > MAX_TEXT_BYTES || strings.strings().len() > MAX_TEXTS {
        return Err("has too long or too many texts".to_owned());
    }
    Ok(strings.intern(&Arc::from(text)))
}

type LevelsAndValues<T> = (Option<Vec<i16>>, Vec<T>);

fn read_values<T: DataType>(
    mut reader: ColumnReaderImpl<T>,
    optional: bool,
    rows: usize,
) -> Result<LevelsAndValues<T::T>, String> {
    let mut levels = Vec::new();
    let mut values = Vec::new();
    let mut total = 0;
    while total < rows {
        let wanted = optional.then_some(&mut levels);
        let (records, ..) = reader.read_records(rows - total, wanted, None, &mut values).map_err(|e| e.to_string())?;
        if records == 0 {
            return Err(format!("ends after {total} of {rows} rows"));
        }
        total += records;
    }
    Ok((optional.then_some(levels), values))
}

/// Takes a row, whose texts are numbers in `strings`.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn take_row(line: &[Option<u64>], strings: &Interner, batches: &mut Batches) -> Result<(), String> {
    let text = |column: usize| {
        let index = line[column].and_then(|i| usize::try_from(i).ok());
        index.and_then(|i| strings.strings().get(i)).cloned().ok_or_else(|| format!("column {column} has no text"))
    };
    let small = |column: usize| -> Result<Option<u32>, String> {
        let wide = |_| format!("{} is out of range", FIXED[column].0);
        line[column].map(|v| u32::try_from(v).map_err(wide)).transpose()
    };
    // Kinds that only a newer release knows are left out.
    let Some(kind) = Kind::from_text(&text(KIND)?) else { return Ok(()) };
    let (Some(number), Some(position)) = (small(BATCH)?, small(POSITION)?) else {
        return Err("a row without batch or position".to_owned());
    };
    if let Entry::Vacant(place) = batches.entry(number) {
        let process = match (small(RANK)?, small(PID)?, small(NONCE)?) {
            (Some(rank), Some(pid), Some(nonce)) => Some(ProcessKey { rank: Rank(rank), pid, nonce }),
            _ => None,
        };
        let source = Source { job: text(JOB)?, host: text(HOST)?, process };
        let time = |column: usize| HostTime(line[column].unwrap_or(0).wrapping_mul(1000));
        let batch = Batch { source, collected_at: time(COLLECTED_AT), records: Vec::new() };
        place.insert((Arrived { at: time(ARRIVED_AT), batch }, BTreeMap::new()));
    }
    let columns = cells::columns(kind);
    let mut cells_of = [0u64; cells::MAX_COLUMNS];
    for (index, (column, place)) in columns.iter().zip(&layout().of_kind[kind as usize - 1]).enumerate() {
        cells_of[index] = match (line[*place], column.cell) {
            (None, _) => 0,
            (Some(value), CellType::At) => value.wrapping_mul(1000),
            (Some(distance), CellType::Time) => {
                let reference = if cells_of[column.reference] == 0 { cells_of[0] } else { cells_of[column.reference] };
                (reference / 1000).wrapping_add(distance).wrapping_mul(1000)
            }
            (Some(value), _) => value,
        };
    }
    let record = cells::take(kind, strings.strings(), cells_of.into_iter().take(columns.len()))
        .map_err(|column| format!("{column} of a {} is out of range", kind.as_str()))?;
    if let Some((_, records)) = batches.get_mut(&number) {
        records.insert(position, record);
    }
    Ok(())
}

#[cfg(test)]
#[path = "segment_tests.rs"]
mod tests;
