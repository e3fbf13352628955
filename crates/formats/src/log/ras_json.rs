//! NCCL's RAS as JSON (2.28.7 and newer): communicators, their ranks, and how many operations of each kind a rank launched.
//!
//! The document is flat enough to be read key by key, in one pass and without a tree: a communicator begins with `hash`, a
//! rank with `rank`, its counts with `collective_counts`.
use super::ras;
use mycroft_record::Rank;
use mycroft_record::printed::{Counts, Kind, Says};
use std::collections::BTreeMap;

/// How much at the beginning is looked at for the words that only RAS writes.
const HEAD_BYTES: usize = 4 << 10;

/// Whether a JSON document is RAS's.
pub(crate) fn is_ras(bytes: &[u8]) -> bool {
    let head = &bytes[..bytes.len().min(HEAD_BYTES)];
    let has = |word: &[u8]| head.windows(word.len()).any(|window| window == word);
    has(b"\"communicators\"") && has(b"\"nccl_version\"")
}

/// One communicator while it is read.
#[derive(Default)]
struct Comm {
    hash: String,
    size: u32,
    /// Of each kind of operation: number launched -> ranks.
    counts: BTreeMap<String, BTreeMap<u64, Vec<Rank>>>,
    silent: Vec<Rank>,
}

/// What a document says; at most as many counts as its bytes pay for.
pub(crate) fn read(bytes: &[u8]) -> Vec<Says> {
    let mut room = bytes.len() / 8 + (16 << 10);
    let mut out = Vec::new();
    let mut comm: Option<Comm> = None;
    let (mut rank, mut is_missing, mut is_counts) = (None, false, false);
    let mut agree = true;
    for (key, value) in pairs(bytes) {
        let number = std::str::from_utf8(value).ok().and_then(|text| text.trim().parse::<u64>().ok());
        match key {
            b"hash" => {
                agree &= close(comm.take(), &mut out);
                let hash = String::from_utf8_lossy(&value[..value.len().min(32)]).into_owned();
                comm = Some(Comm { hash, ..Comm::default() });
                (rank, is_missing, is_counts) = (None, false, false);
            }
            b"size" => {
                if let Some(comm) = &mut comm {
                    comm.size = number.and_then(|size| u32::try_from(size).ok()).unwrap_or(0);
                }
            }
            b"missing_ranks" => (is_missing, is_counts) = (true, false),
            b"rank" => {
                is_counts = false;
                rank =
                    number.and_then(|rank| u32::try_from(rank).ok()).filter(|rank| *rank <= crate::RANK_MAX).map(Rank);
                if let (true, Some(comm), Some(rank), true) = (is_missing, &mut comm, rank, room > 0) {
                    room -= 1;
                    comm.silent.push(rank);
                }
            }
            b"collective_counts" => is_counts = true,
            b"ras" => is_counts = false,
            name if is_counts && name.len() <= 32 => {
                if let (Some(comm), Some(rank), Some(count), true) = (&mut comm, rank, number, room > 16) {
                    let name = String::from_utf8_lossy(name).into_owned();
                    let fresh = comm.counts.get(&name).is_none_or(|counts| !counts.contains_key(&count));
                    room -= if fresh { 16 } else { 1 };
                    comm.counts.entry(name).or_default().entry(count).or_default().push(rank);
                }
            }
            _ => {}
        }
    }
    agree &= close(comm, &mut out);
    if agree && out.is_empty() {
        let text = "every rank of every communicator has launched as many operations";
        out.push(Says::Event(Kind::CountsAgree, text.into()));
    }
    out
}

/// Says what a communicator shows; whether all its ranks agree.
fn close(comm: Option<Comm>, out: &mut Vec<Says>) -> bool {
    let Some(comm) = comm else { return true };
    let mut agree = true;
    for (name, counts) in comm.counts.iter().filter(|(_, counts)| counts.len() > 1) {
        let camps = counts
            .iter()
            .map(|(last, ranks)| (*last, u32::try_from(ranks.len()).unwrap_or(u32::MAX), ranks.clone()))
            .collect();
        let op = ras::op_name(name);
        out.push(Says::Counts(Box::new(Counts {
            comm: (*comm.hash).into(),
            op,
            camps,
            size: comm.size,
            silent: Vec::new(),
        })));
        agree = false;
    }
    if !comm.silent.is_empty() {
        let counts = Counts { comm: (*comm.hash).into(), size: comm.size, silent: comm.silent, ..Counts::default() };
        out.push(Says::Counts(Box::new(counts)));
        agree = false;
    }
    agree
}

/// Keys with their values; of a value that is a list or an object, nothing.
fn pairs(bytes: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let start = at + bytes.get(at..)?.iter().position(|byte| *byte == b'"')? + 1;
            let end = start + bytes.get(start..)?.iter().position(|byte| *byte == b'"')?;
            at = end + 1;
            let colon = at + bytes.get(at..)?.iter().position(|byte| !byte.is_ascii_whitespace())?;
            if bytes[colon] != b':' {
                continue;
            }
            let from = colon + 1 + bytes[colon + 1..].iter().position(|byte| !byte.is_ascii_whitespace())?;
            at = from;
            let key = &bytes[start..end];
            if bytes[from] == b'"' {
                let until = from + 1 + bytes.get(from + 1..)?.iter().position(|byte| *byte == b'"')?;
                at = until + 1;
                return Some((key, &bytes[from + 1..until]));
            }
            let len = bytes[from..].iter().position(|byte| matches!(byte, b',' | b'}' | b']' | b'{' | b'['));
            return Some((key, &bytes[from..from + len.unwrap_or(bytes.len() - from)]));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_that_differ_are_camps() {
        let rank = |rank: u32, count: u64| {
            format!(
                r#"{{"rank": {rank}, "host": "10.0.0.1", "status": {{"init_state": 0}}, "collective_counts": {{"Broadcast": 3, "AllReduce": {count}}}}}"#
            )
        };
        let text = |last: u64, missing: &str| {
            format!(
                r#"{{"nccl_version": "2.30.7", "communicators": [{{"hash": "0xab", "size": 3, "ranks": [{}, {}], "missing_ranks": [{missing}]}}], "ras": {{"timeouts_count": 0}}}}"#,
                rank(0, 7),
                rank(1, last)
            )
        };
        let differ = text(6, r#"{"rank": 2, "status": {"considered_dead": true}}"#);
        assert!(is_ras(differ.as_bytes()));
        let said = read(differ.as_bytes());
        let [Says::Counts(counts), Says::Counts(silent)] = said.as_slice() else { panic!("{said:?}") };
        assert_eq!((&*counts.op.op, counts.size), ("all_reduce", 3));
        assert_eq!(counts.camps, [(6, 1, vec![Rank(1)]), (7, 1, vec![Rank(0)])]);
        assert_eq!(silent.silent, [Rank(2)]);
        assert!(matches!(read(text(7, "").as_bytes()).as_slice(), [Says::Event(Kind::CountsAgree, _)]));
    }
}
