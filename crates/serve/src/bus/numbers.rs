//! Numbers of cases of servers on a bus: each has a range of its own, for ever, so that a case keeps its number when another server
//! goes on with it.
use crate::upkeep::NUMBERS_LEFT_OUT;
use mycroft_store::meta::{Leased, SHARED_FROM};
use mycroft_store::{Store, StoreError};
use std::time::Duration;

/// Numbers of a range: a thousand a day for three years.
const RANGE: u64 = SHARED_FROM;
/// Ranges that there may be: more servers than ever share a database.
const RANGES_MAX: u64 = 4096;
/// What a server has for good it has for a century.
pub(super) const FOR_GOOD: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// The number that the next case of this server gets.
///
/// # Errors
/// The database does not answer, or no range is left.
pub(crate) fn next_number(store: &Store, server: &str) -> Result<u64, StoreError> {
    if !store.is_meta_shared() {
        // Rows of a file that cannot be read now may have higher ones.
        let left_out = if store.meta_trouble().is_some() { NUMBERS_LEFT_OUT } else { 0 };
        return Ok(highest(store, RANGE)? + left_out + 1);
    }
    for range in 1..RANGES_MAX {
        // The first that is its own, or nobody's: whoever took one keeps it, so its own comes before what is free.
        let leased = store.take_lease(&format!("bus numbers {range}"), server, FOR_GOOD)?;
        if let Leased::Ours(_) = leased {
            return Ok(highest(store, range * RANGE)? + 1);
        }
    }
    let why = format!(
        "all {RANGES_MAX} ranges of numbers are taken; delete those of servers that are gone from mycroft_leases"
    );
    Err(StoreError::NotKept { why })
}

/// The highest number that was given in a range; where there is none, the number before its first.
fn highest(store: &Store, from: u64) -> Result<u64, StoreError> {
    Ok(store.highest_case(from, from + RANGE)?.max(from))
}
