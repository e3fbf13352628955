//! Rows of a segment as ClickHouse's RowBinary, both ways. Columns are those of a segment (`docs/formats/store.md`), and
//! before them whose row it is.
use crate::segment::{Arrived, Batches, FileColumn, MAX_ROWS, Physical, Row, Rows, intern, layout, take_row, whole};
use mycroft_wire::cells::Interner;
use std::collections::BTreeMap;
use std::io::{BufReader, ErrorKind, Read};

/// Columns that say whose row it is, with their types: `segment_at` is when the last batch of the segment arrived, so that all rows
/// of a segment are kept equally long.
pub(super) const OWN: [(&str, &str); 4] =
    [("store", "String"), ("log", "UInt64"), ("attempt", "UInt64"), ("segment_at", "DateTime('UTC')")];
/// Longest text that is read, as in segments.
const TEXT_BYTES_MAX: usize = mycroft_wire::codec::MAX_STRING_BYTES;

/// The type of a segment's column.
pub(super) fn type_of(column: &FileColumn) -> String {
    let bare = match column.physical {
        Physical::Text => "String",
        Physical::Flag => "UInt8",
        Physical::Int32 => "Int32",
        Physical::Int64 if column.annotation.starts_with("INTEGER") => "UInt64",
        // Times, in microseconds since 1970 or from another.
        Physical::Int64 => "Int64",
    };
    if column.optional { format!("Nullable({bare})") } else { bare.to_owned() }
}

/// Whose row it is.
pub(super) struct Own<'a> {
    pub(super) store: &'a str,
    pub(super) log: u64,
    pub(super) attempt: u64,
    /// Seconds.
    pub(super) at: u32,
}

/// Appends a row.
pub(super) fn put(out: &mut Vec<u8>, rows: &Rows<'_>, row: &Row, own: &Own<'_>) {
    put_text(out, own.store);
    out.extend_from_slice(&own.log.to_le_bytes());
    out.extend_from_slice(&own.attempt.to_le_bytes());
    out.extend_from_slice(&own.at.to_le_bytes());
    for (index, column) in layout().columns.iter().enumerate() {
        if column.physical == Physical::Text {
            put_optional(out, column, rows.text(index, row), put_text);
        } else {
            put_optional(out, column, rows.value(index, row), |out, value| match column.physical {
                Physical::Flag => out.push(u8::from(value != 0)),
                // The low half, as in a segment.
                Physical::Int32 => out.extend_from_slice(&(value as u32).to_le_bytes()),
                Physical::Int64 | Physical::Text => out.extend_from_slice(&value.to_le_bytes()),
            });
        }
    }
}

fn put_optional<V: Default>(out: &mut Vec<u8>, column: &FileColumn, value: Option<V>, put: impl Fn(&mut Vec<u8>, V)) {
    match value {
        None if column.optional => out.push(1),
        value => {
            if column.optional {
                out.push(0);
            }
            put(out, value.unwrap_or_default());
        }
    }
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut length = text.len();
    while length >= 0x80 {
        out.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    out.extend_from_slice(text.as_bytes());
}

/// The batches of all rows, which have these columns of the layout in this order.
///
/// # Errors
/// What is wrong with them. An answer that breaks off, or ends in a message, is no row.
pub(super) fn read(from: impl Read, columns: &[usize], expected: u64) -> Result<Vec<Arrived>, String> {
    if expected > MAX_ROWS as u64 {
        return Err(format!("{expected} rows, at most {MAX_ROWS} are written"));
    }
    let mut from = BufReader::with_capacity(1 << 18, from);
    let mut strings = Interner::default();
    let mut known: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    let mut batches: Batches = BTreeMap::new();
    let mut line = vec![None; layout().columns.len()];
    for nth in 0..expected {
        for &index in columns {
            let column = &layout().columns[index];
            let value = cell(&mut from, column, &mut strings, &mut known);
            line[index] = value.map_err(|why| format!("row {nth} of {expected}, column {}: {why}", column.name))?;
        }
        take_row(&line, &strings, &mut batches)?;
    }
    let mut more = Vec::new();
    let behind = from.take(200).read_to_end(&mut more).map_err(|error| error.to_string())?;
    if behind > 0 {
        return Err(format!("more than {expected} rows, or a message: {}", String::from_utf8_lossy(&more)));
    }
    Ok(whole(batches))
}

fn cell(
    from: &mut impl Read,
    column: &FileColumn,
    strings: &mut Interner,
    known: &mut BTreeMap<Vec<u8>, u64>,
) -> Result<Option<u64>, String> {
    if column.optional && bytes::<1>(from)? != [0] {
        return Ok(None);
    }
    Ok(Some(match column.physical {
        Physical::Flag => u64::from(bytes::<1>(from)?[0]),
        Physical::Int32 => u64::from(u32::from_le_bytes(bytes(from)?)),
        Physical::Int64 => u64::from_le_bytes(bytes(from)?),
        Physical::Text => {
            let text = text(from)?;
            match known.get(&text) {
                Some(number) => *number,
                None => {
                    let number = intern(std::str::from_utf8(&text).map_err(|error| error.to_string())?, strings)?;
                    known.insert(text, number);
                    number
                }
            }
        }
    }))
}

fn bytes<const N: usize>(from: &mut impl Read) -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    from.read_exact(&mut bytes).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => "the answer ends there".to_owned(),
        _ => error.to_string(),
    })?;
    Ok(bytes)
}

fn text(from: &mut impl Read) -> Result<Vec<u8>, String> {
    let (mut length, mut shift) = (0_usize, 0);
    loop {
        let [byte] = bytes::<1>(from)?;
        length |= usize::from(byte & 0x7f) << shift;
        shift += 7;
        if byte & 0x80 == 0 {
            break;
        }
        if shift > 21 {
            return Err("a text that is too long".to_owned());
        }
    }
    if length > TEXT_BYTES_MAX {
        return Err(format!("a text of {length} bytes"));
    }
    let mut text = vec![0; length];
    from.read_exact(&mut text).map_err(|error| error.to_string())?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::{Batch, HostTime, NANOS_PER_SEC, Record, Source, StepMark};

    #[test]
    fn what_breaks_off_is_an_error_and_never_a_panic() {
        let at = HostTime(1_700_000_000 * NANOS_PER_SEC);
        let source = Source { job: "j".into(), host: "h".into(), process: None };
        let records = (0..20).map(|step| Record::StepMark(StepMark { at: at + step * 1000, step })).collect();
        let (batches, arrivals) = ([Batch { source, collected_at: at, records }], [at]);
        let rows = Rows::new(&batches, &arrivals);
        let mut whole = Vec::new();
        for row in &rows.rows {
            let mut one = Vec::new();
            put(&mut one, &rows, row, &Own { store: "", log: 1, attempt: 2, at: 3 });
            // Behind the columns that say whose it is: an empty text, two numbers, seconds.
            whole.extend_from_slice(&one[1 + 8 + 8 + 4..]);
        }
        let columns: Vec<usize> = (0..layout().columns.len()).collect();
        let read_back = read(&whole[..], &columns, 20).expect("whole");
        assert_eq!(read_back, [Arrived { at, batch: batches[0].clone() }]);
        for cut in (0..whole.len()).step_by(7) {
            assert!(read(&whole[..cut], &columns, 20).is_err(), "cut at {cut}");
        }
        assert!(read(&whole[..], &columns, 19).unwrap_err().contains("more than 19"));
        for at in (0..whole.len()).step_by(3) {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x55;
            let _ = read(&damaged[..], &columns, 20);
        }
    }
}
