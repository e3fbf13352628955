//! The lines of CSV and JSON as one Parquet file.
use super::pieces::Pieces;
use super::rows::{Row, rows};
use anyhow::Result;
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use std::io::Write;
use std::sync::Arc;

/// Rows of a group, which is put together in memory: 128 Ki of some 300 B are 40 MB.
const GROUP_ROWS: usize = 1 << 17;

/// How a cell is found in a row, and with it the type of its column.
enum Cell {
    Text(for<'r, 'a> fn(&'r Row<'a>) -> &'r str),
    Small(&'static str, fn(&Row<'_>) -> u32),
    MaybeSmall(fn(&Row<'_>) -> Option<u32>),
    Large(fn(&Row<'_>) -> u64),
    Time(fn(&Row<'_>) -> Option<u64>),
    Flag(fn(&Row<'_>) -> bool),
}

/// The columns, in the order of CSV; times bear another name since they are times here.
const COLUMNS: [(&str, Cell); 20] = [
    ("job", Cell::Text(|row| row.job)),
    ("host", Cell::Text(|row| row.host)),
    ("rank", Cell::MaybeSmall(|row| row.rank)),
    ("pid", Cell::MaybeSmall(|row| row.pid)),
    ("communicator", Cell::Text(|row| &row.communicator)),
    ("communicator_name", Cell::Text(|row| row.communicator_name)),
    ("class", Cell::Text(|row| row.class)),
    ("peer", Cell::MaybeSmall(|row| row.peer)),
    ("seq", Cell::Large(|row| row.seq)),
    ("kind", Cell::Text(|row| row.kind)),
    ("bytes", Cell::Large(|row| row.bytes)),
    ("datatype", Cell::Text(|row| row.datatype)),
    ("algorithm", Cell::Text(|row| row.algorithm)),
    ("protocol", Cell::Text(|row| row.protocol)),
    ("channels", Cell::Small("INTEGER(8,false)", |row| row.channels.into())),
    ("flows", Cell::Small("INTEGER(16,false)", |row| row.flows.into())),
    ("enqueued_at", Cell::Time(|row| row.enqueued_ns)),
    ("started_at", Cell::Time(|row| row.started_ns)),
    ("ended_at", Cell::Time(|row| row.ended_ns)),
    ("observed", Cell::Flag(|row| row.observed)),
];

fn schema() -> String {
    let field = |(name, cell): &(&str, Cell)| match cell {
        Cell::Text(_) => format!("REQUIRED BYTE_ARRAY {name} (STRING);"),
        Cell::Small(is, _) => format!("REQUIRED INT32 {name} ({is});"),
        Cell::MaybeSmall(_) => format!("OPTIONAL INT32 {name} (INTEGER(32,false));"),
        Cell::Large(_) => format!("REQUIRED INT64 {name} (INTEGER(64,false));"),
        Cell::Time(_) => format!("OPTIONAL INT64 {name} (TIMESTAMP(NANOS,true));"),
        Cell::Flag(_) => format!("REQUIRED BOOLEAN {name};"),
    };
    format!("message operations {{ {} }}", COLUMNS.iter().map(field).collect::<Vec<_>>().join(" "))
}

/// Writes Parquet; gives what was written.
pub(super) fn parquet(pieces: &Pieces, job: &str, write: impl FnMut(&[u8]) -> Result<()> + Send) -> Result<String> {
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default()));
    let schema = Arc::new(parse_message_type(&schema())?);
    let mut writer = SerializedFileWriter::new(super::rows::Through(write), schema, Arc::new(properties.build()))?;
    let (mut all, mut count) = (rows(pieces, job), 0);
    loop {
        let rows: Vec<Row<'_>> = all.by_ref().take(GROUP_ROWS).collect();
        if rows.is_empty() {
            writer.close()?;
            return Ok(format!("{count} operations"));
        }
        count += rows.len();
        let mut group = writer.next_row_group()?;
        for (_, cell) in &COLUMNS {
            column(&mut group, &rows, cell)?;
        }
        group.close()?;
    }
}

fn column<W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    rows: &[Row<'_>],
    cell: &Cell,
) -> Result<(), ParquetError> {
    match cell {
        Cell::Text(of) => {
            let values = rows.iter().map(|row| ByteArray::from(of(row).as_bytes().to_vec()));
            values_of::<ByteArrayType, W>(group, &values.collect::<Vec<_>>(), None)
        }
        Cell::Small(_, of) => {
            let values: Vec<i32> = rows.iter().map(|row| of(row).cast_signed()).collect();
            values_of::<Int32Type, W>(group, &values, None)
        }
        Cell::MaybeSmall(of) => {
            let values: Vec<i32> = rows.iter().filter_map(of).map(u32::cast_signed).collect();
            values_of::<Int32Type, W>(group, &values, Some(&levels(rows, |row| of(row).is_some())))
        }
        Cell::Large(of) => {
            let values: Vec<i64> = rows.iter().map(|row| of(row).cast_signed()).collect();
            values_of::<Int64Type, W>(group, &values, None)
        }
        Cell::Time(of) => {
            let values: Vec<i64> = rows.iter().filter_map(of).map(u64::cast_signed).collect();
            values_of::<Int64Type, W>(group, &values, Some(&levels(rows, |row| of(row).is_some())))
        }
        Cell::Flag(of) => values_of::<BoolType, W>(group, &rows.iter().map(of).collect::<Vec<_>>(), None),
    }
}

/// Where there is a value.
fn levels(rows: &[Row<'_>], is_there: impl Fn(&Row<'_>) -> bool) -> Vec<i16> {
    rows.iter().map(|row| i16::from(is_there(row))).collect()
}

fn values_of<T: DataType, W: Write + Send>(
    group: &mut SerializedRowGroupWriter<'_, W>,
    values: &[T::T],
    levels: Option<&[i16]>,
) -> Result<(), ParquetError> {
    let Some(mut writer) = group.next_column()? else {
        return Err(ParquetError::General("more columns than the schema has".to_owned()));
    };
    writer.typed::<T>().write_batch(values, levels, None)?;
    writer.close()
}
