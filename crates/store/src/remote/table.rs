//! The tables, and what is asked of them.
//!
//! `mycroft_records` has the rows, `mycroft_segments` says which count: an attempt to send a segment counts when it stands
//! there. So a segment is there whole or not at all, although nothing here is a transaction.
use super::address::ClickHouseAt;
use super::error::RecordsError;
use super::http::Link;
use super::rows::{self, OWN, Own, type_of};
use crate::segment::{Arrived, Rows, layout};
use mycroft_record::time::date_of_day;
use mycroft_record::{Batch, HostTime, NANOS_PER_SEC};
use std::collections::BTreeMap;

const RECORDS: &str = "mycroft_records";
const SEGMENTS: &str = "mycroft_segments";
/// Rows of one INSERT: 65,536 of some 200 bytes are 13 MB.
const ROWS_MAX: usize = 1 << 16;
/// The first version whose tables forget parts by themselves, whole ones only.
const FIRST_WITH_TTL: (u32, u32) = (20, 3);
const DAY_S: u64 = 86_400;
/// Longer is not said to a server: 54 years from 2026 on end before its seconds do, and later times begin anew in 1970.
const TTL_DAYS_MAX: u64 = 20_000;

/// A segment that is in the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Segment {
    pub(crate) log: u64,
    attempt: u64,
    rows: u64,
    /// When its last batch arrived, seconds since 1970.
    pub(crate) at: u32,
    /// How often it was sent: rows that the server had lost are sent again.
    pub(crate) nth: u32,
}

impl Segment {
    /// Whether so many rows are all of it.
    pub(crate) fn is_whole(&self, rows: u64) -> bool {
        rows == self.rows
    }
}

/// The tables, as one store uses them.
#[derive(Debug)]
pub(crate) struct Table {
    link: Link,
    store: String,
}

/// Seconds of a time, as `DateTime` has them: until 2106.
fn seconds(at: HostTime) -> u32 {
    u32::try_from(at.0 / NANOS_PER_SEC).unwrap_or(u32::MAX)
}

/// Text in a statement.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

impl Table {
    /// Nothing is asked yet.
    ///
    /// # Errors
    /// The file of the authority cannot be used.
    pub(crate) fn new(at: &ClickHouseAt, store: &str) -> Result<Table, RecordsError> {
        Ok(Table { link: Link::new(at)?, store: store.to_owned() })
    }

    /// Makes what is missing of the tables, which forget rows after so many days. False: this server's tables forget nothing
    /// by themselves.
    ///
    /// # Errors
    /// The server is away or refuses.
    pub(crate) fn prepare(&self, days: u64) -> Result<bool, RecordsError> {
        let (days, making) = (days.min(TTL_DAYS_MAX), "making the tables of");
        let version = self.link.ask("asking for the version of", "SELECT version()")?;
        let forgets = parsed_version(&version).is_some_and(|version| version >= FIRST_WITH_TTL);
        for (name, columns, by) in [
            (
                RECORDS,
                record_columns(),
                "toYYYYMMDD(segment_at) ORDER BY (job, segment_at, store, log, batch, position)",
            ),
            (SEGMENTS, segment_columns(), "toYYYYMM(segment_at) ORDER BY (store, log)"),
        ] {
            let ttl = match forgets {
                true => format!(" TTL segment_at + toIntervalDay({days}) SETTINGS ttl_only_drop_parts = 1"),
                false => String::new(),
            };
            let told: Vec<String> = columns.iter().map(|(name, kind)| format!("`{name}` {kind}")).collect();
            let told = told.join(", ");
            let make = format!("CREATE TABLE IF NOT EXISTS {name} ({told}) ENGINE = MergeTree PARTITION BY {by}{ttl}");
            self.link.ask(making, &make)?;
            let there = self.columns(name)?;
            for (column, kind) in columns.iter().filter(|(column, _)| !there.contains_key(column)) {
                self.link.ask(making, &format!("ALTER TABLE {name} ADD COLUMN `{column}` {kind}"))?;
            }
            if forgets {
                self.forget_after(name, days)?;
            }
        }
        Ok(forgets)
    }

    /// Sets after how many days rows are forgotten, where it is another number: to set the same again is work for the server.
    fn forget_after(&self, name: &str, days: u64) -> Result<(), RecordsError> {
        let setting = "setting the retention of";
        let told = format!(
            "SELECT create_table_query FROM system.tables WHERE database = currentDatabase() AND name = '{name}'"
        );
        let wanted = format!("toIntervalDay({days})");
        if !self.link.ask(setting, &told)?.contains(&wanted) {
            self.link.ask(setting, &format!("ALTER TABLE {name} MODIFY TTL segment_at + {wanted}"))?;
        }
        Ok(())
    }

    /// Names and types of a table's columns.
    fn columns(&self, name: &str) -> Result<BTreeMap<String, String>, RecordsError> {
        let statement = format!(
            "SELECT name, type FROM system.columns WHERE database = currentDatabase() AND table = '{name}' FORMAT TabSeparated"
        );
        let told = self.link.ask("listing the columns of", &statement)?;
        let pair = |line: &str| line.split_once('\t').map(|(name, kind)| (name.to_owned(), kind.to_owned()));
        Ok(told.lines().filter_map(pair).collect())
    }

    /// The segments of this store that are there, by log.
    ///
    /// # Errors
    /// The server is away, refuses, or has no tables.
    pub(crate) fn segments(&self) -> Result<BTreeMap<u64, Segment>, RecordsError> {
        let listing = "listing the segments of";
        let statement = format!(
            "SELECT log, attempt, rows, toUInt32(segment_at), nth FROM {SEGMENTS} WHERE store = {} FORMAT TabSeparated",
            quoted(&self.store)
        );
        let told = self.link.ask(listing, &statement)?;
        let mut found: BTreeMap<u64, Segment> = BTreeMap::new();
        for line in told.lines() {
            let numbers: Option<Vec<u64>> = line.split('\t').map(|number| number.parse().ok()).collect();
            let Some([log, attempt, rows, at, nth]) = numbers.as_deref().and_then(|all| <[u64; 5]>::try_from(all).ok())
            else {
                return Err(self.link.failed(listing, format!("no segment: {line:?}")));
            };
            let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
            let segment = Segment { log, attempt, rows, at: small(at), nth: small(nth) };
            // Two attempts count where nobody learned that the first did: the same one for every reader.
            let is_newer = |other: &Segment| (segment.nth, other.attempt) > (other.nth, attempt);
            if found.get(&log).is_none_or(is_newer) {
                found.insert(log, segment);
            }
        }
        Ok(found)
    }

    /// Sends a segment's batches, counts them there, and enters the segment. `attempt` was never used before; `goes_on` is asked
    /// between two pieces.
    ///
    /// # Errors
    /// The server is away or refuses, or has not all rows; the segment does not count then.
    pub(crate) fn send(
        &self,
        (log, attempt, nth): (u64, u64, u32),
        arrived: Vec<Arrived>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Option<Segment>, RecordsError> {
        let (arrivals, batches): (Vec<HostTime>, Vec<Batch>) =
            arrived.into_iter().map(|Arrived { at, batch }| (at, batch)).unzip();
        let all = Rows::new(&batches, &arrivals);
        let at = arrivals.iter().max().map_or(0, |at| seconds(*at));
        let own = Own { store: &self.store, log, attempt, at };
        let writing = "writing records to";
        let names: Vec<String> = record_columns().into_iter().map(|(name, _)| format!("`{name}`")).collect();
        let statement = format!("INSERT INTO {RECORDS} ({}) FORMAT RowBinary", names.join(", "));
        let mut piece = Vec::new();
        for some in all.rows.chunks(ROWS_MAX) {
            if !goes_on() {
                return Ok(None);
            }
            piece.clear();
            some.iter().for_each(|row| rows::put(&mut piece, &all, row, &own));
            self.link.insert(writing, &statement, &piece)?;
        }
        let segment = Segment { log, attempt, rows: all.rows.len() as u64, at, nth };
        let there = self.count(&segment)?;
        if there != segment.rows {
            let why = format!("it acknowledged {} rows and has {there}; they are sent again", segment.rows);
            return Err(self.link.failed(writing, why));
        }
        self.enter(&segment)?;
        Ok(Some(segment))
    }

    fn enter(&self, segment: &Segment) -> Result<(), RecordsError> {
        let Segment { log, attempt, rows, at, nth } = segment;
        let statement = format!(
            "INSERT INTO {SEGMENTS} (store, log, attempt, rows, segment_at, nth) VALUES ({}, {log}, {attempt}, {rows}, {at}, {nth})",
            quoted(&self.store)
        );
        self.link.ask("entering a segment into", &statement).map(drop)
    }

    /// How many rows of a segment are there.
    ///
    /// # Errors
    /// The server is away or refuses.
    pub(crate) fn count(&self, segment: &Segment) -> Result<u64, RecordsError> {
        let counting = "counting records of";
        let told = self.link.ask(counting, &format!("SELECT count() FROM {RECORDS} WHERE {}", self.which(segment)))?;
        told.trim().parse().map_err(|_| self.link.failed(counting, format!("no number: {told:?}")))
    }

    /// The batches of a segment, as its file has them; none where it is older than is kept.
    ///
    /// # Errors
    /// The server is away, refuses, or has not all rows.
    pub(crate) fn read(&self, segment: &Segment) -> Result<Vec<Arrived>, RecordsError> {
        let reading = "reading records of";
        if self.count(segment)? == 0 {
            return Ok(Vec::new());
        }
        let there = self.columns(RECORDS)?;
        // Columns that only newer releases write are not looked at; columns that older ones lack read as null.
        let known: Vec<usize> =
            (0..layout().columns.len()).filter(|index| there.contains_key(&layout().columns[*index].name)).collect();
        if let Some(lacks) =
            layout().columns.iter().find(|column| !column.optional && !there.contains_key(&column.name))
        {
            return Err(self.link.failed(reading, format!("{RECORDS} has no column {}", lacks.name)));
        }
        let names: Vec<String> = known.iter().map(|index| format!("`{}`", layout().columns[*index].name)).collect();
        let statement =
            format!("SELECT {} FROM {RECORDS} WHERE {} FORMAT RowBinary", names.join(", "), self.which(segment));
        let body = self.link.rows(reading, &statement)?;
        let told =
            |why: String| self.link.failed(reading, format!("segment {} ({} rows): {why}", segment.log, segment.rows));
        rows::read(body, &known, segment.rows).map_err(told)
    }

    /// Where the rows of a segment are: the time lets the server look into one day.
    fn which(&self, segment: &Segment) -> String {
        let Segment { log, attempt, at, .. } = segment;
        format!(
            "segment_at = toDateTime({at}) AND store = {} AND log = {log} AND attempt = {attempt}",
            quoted(&self.store)
        )
    }

    /// Deletes whole days whose records all arrived before `oldest`, where tables forget nothing by themselves. Of all stores that
    /// use them.
    ///
    /// # Errors
    /// The server is away or refuses.
    pub(crate) fn drop_days(&self, oldest: HostTime) -> Result<(), RecordsError> {
        let dropping = "deleting old records of";
        // The name of a partition is its day: what the server tells of times in it depends on its version.
        let (year, month, day) = date_of_day(oldest.0 / NANOS_PER_SEC / DAY_S);
        let first = (year * 100 + month) * 100 + day;
        let list = format!(
            "SELECT DISTINCT partition FROM system.parts WHERE database = currentDatabase() AND table = '{RECORDS}' AND active \
             FORMAT TabSeparated"
        );
        let told = self.link.ask(dropping, &list)?;
        for old in told.lines().filter_map(|name| name.parse::<u64>().ok()).filter(|name| *name < first) {
            self.link.ask(dropping, &format!("ALTER TABLE {RECORDS} DROP PARTITION {old}"))?;
        }
        Ok(())
    }
}

/// Columns of `mycroft_records`.
fn record_columns() -> Vec<(String, String)> {
    let own = OWN.iter().map(|(name, kind)| ((*name).to_owned(), (*kind).to_owned()));
    own.chain(layout().columns.iter().map(|column| (column.name.clone(), type_of(column)))).collect()
}

/// Columns of `mycroft_segments`.
fn segment_columns() -> Vec<(String, String)> {
    let columns = [
        ("store", "String"),
        ("log", "UInt64"),
        ("attempt", "UInt64"),
        ("rows", "UInt64"),
        ("segment_at", "DateTime('UTC')"),
        ("nth", "UInt32"),
    ];
    columns.map(|(name, kind)| (name.to_owned(), kind.to_owned())).to_vec()
}

fn parsed_version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.trim().split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_statements() {
        assert_eq!(quoted("a'b\\"), "'a\\'b\\\\'");
        assert_eq!([parsed_version("18.16.1\n"), parsed_version("26.9.1.1")], [Some((18, 16)), Some((26, 9))]);
        let names: Vec<String> = record_columns().into_iter().map(|(name, _)| name).collect();
        let mut once = names.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), names.len(), "a column of ours has the name of a segment's");
    }
}
