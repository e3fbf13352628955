//! Lines of torch's watchdog and of its checks, torch 1.x to 2.15; other vendors' builds change only names.
use super::words::{after, between, count_after, list, number_after, word};
use crate::opname;
use mycroft_record::Rank;
use mycroft_record::dump::OpName;
use mycroft_record::printed::{Fingerprint, Says, Stands};

/// Ranks that one line names at most: a job of 100,000.
const RANKS_MAX: usize = 1 << 17;

/// What one of torch's lines says; `None` where it says nothing.
pub(super) fn says(line: &str) -> Option<Says> {
    let told = || after(line, "dump signal due to a collective timeout from");
    if let Some(work) = after(line, "Watchdog caught collective operation timeout:") {
        return Some(Says::Stands(Box::new(Stands { status: status(line), ..timeout(line, work) })));
    }
    if let Some(by) = told() {
        let is_told = by.trim_start().starts_with("rank");
        return Some(Says::Stands(Box::new(Stands { status: Some(status(line)?), is_told, ..group(line) })));
    }
    const AT: &[&str] = &["work sequence id:", "detected by watchdog at work:", "Timeout at NCCL work:"];
    if let Some(seq) = AT.iter().find_map(|key| count_after(line, key)) {
        return Some(Says::Stands(Box::new(Stands { seq: Some(seq), status: status(line), ..group(line) })));
    }
    if let Some(rest) = after(line, "failed to pass monitoredBarrier") {
        let head = &line[..line.len() - rest.len()];
        let ranks = head.rfind("Rank").map(|at| list(head[at + 4..].trim_start_matches('s'), RANKS_MAX))?;
        return named("monitoredBarrier", ranks);
    }
    if let Some(rest) = after(line, "but didn't join collective #") {
        let head = &line[..line.find("finished collective")?];
        let ranks = list(head.rfind('[').map(|at| &head[at + 1..])?, RANKS_MAX);
        return named(&format!("collective #{}", word(rest, &[',', '(', '.'])), ranks);
    }
    None
}

fn named(what: &str, ranks: Vec<u32>) -> Option<Says> {
    let ranks: Vec<Rank> = ranks.into_iter().filter(|rank| *rank <= crate::RANK_MAX).map(Rank).collect();
    (!ranks.is_empty()).then(|| Says::NotThere(what.into(), ranks))
}

/// Whether a line begins a message of the watchdog and does not end it: texts of issues and terminals wrap lines.
pub(super) fn is_cut(line: &str) -> bool {
    let begins = |words: &str, ends: &str| after(line, words).is_some_and(|rest| !rest.contains(ends));
    begins("Watchdog caught collective operation timeout:", "milliseconds")
        || begins("work sequence id:", "ast completed work:")
        || begins("dump signal due to a collective timeout from", "last completed")
}

/// `WorkNCCL(SeqNum=19, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800093 milliseconds`.
fn timeout(line: &str, work: &str) -> Stands {
    let of = group(line);
    let number = |key: &str| number_after(work, key);
    Stands {
        seq: count_after(work, "SeqNum="),
        op: after(work, "OpType=").map(|op| op_name(word(op, &[',', ')']))),
        sizes: number("NumelIn=").zip(number("NumelOut=")),
        timeout_ms: count_after(work, "Timeout(ms)="),
        ran_ms: count_after(work, "ran for"),
        ..of
    }
}

/// `[PG ID 2 PG GUID 3(tp) Rank 1]`, `[PG 0 Rank 2]`, `[PG 0 (default_pg) Rank 2]`, `[Rank 2]`.
fn group(line: &str) -> Stands {
    let mut out = Stands::default();
    let member = |text: &str| text.rsplit_once("Rank ").and_then(|(_, number)| number.trim().parse().ok());
    if let Some(pg) = between(line, "[PG ", "]") {
        out.member = member(pg);
        let pg = pg.rsplit_once("Rank ").map_or(pg, |(head, _)| head).trim();
        out.pg_id = count_after(pg, "ID ").or_else(|| word(pg, &['(']).parse().ok());
        let guid = after(pg, "GUID ").unwrap_or_default();
        out.group = word(guid, &['(']).into();
        out.desc = between(pg, "(", ")").unwrap_or_default().into();
    } else if let Some(rank) = between(line, "[Rank ", "]") {
        out.member = rank.trim().parse().ok();
    }
    out
}

/// `last enqueued work: 79, last completed work: 77`, with the library's name before `work` in older versions.
fn status(line: &str) -> Option<(i64, i64)> {
    let number = |key: &str, other: &str| {
        let rest = after(line, key).or_else(|| after(line, other))?;
        number_after(rest.get(..40.min(rest.len()))?, "work:")
    };
    number("ast enqueued ", "last_enqueued_").zip(number("ast completed ", "last_completed_"))
}

/// Names of torch's C++ side as its recorder writes them.
fn op_name(name: &str) -> OpName {
    let lower = name.to_ascii_lowercase();
    let op = match lower.as_str() {
        "allreduce" => "all_reduce",
        "allreduce_coalesced" => "allreduce_coalesced",
        "allgather" => "all_gather",
        "_allgather_base" | "allgather_base" => "_all_gather_base",
        "allgather_coalesced" | "allgather_into_tensor_coalesced" => "all_gather_into_tensor_coalesced",
        "_reduce_scatter_base" => "_reduce_scatter_base",
        "reduce_scatter_tensor_coalesced" => "reduce_scatter_tensor_coalesced",
        "alltoall" => "all_to_all",
        "alltoall_base" => "all_to_all_single",
        other => other,
    };
    let parts = opname::parts(op);
    OpName { text: name.into(), op: op.into(), kind: parts.kind, ..OpName::default() }
}

/// The descriptions in `Detected mismatch between collectives on ranks. Rank 1 is running collective: ...`. Some versions
/// print the second without its number (`SequenceNumber=0OpType=..`): it has the first one's, where they met.
pub(super) fn fingerprints(line: &str) -> Vec<Fingerprint> {
    let mut out = Vec::new();
    let mut rest = line;
    while let Some(at) = rest.find(" is running collective: ") {
        let (head, tail) = rest.split_at(at);
        rest = &tail[" is running collective: ".len()..];
        let end = rest.find(" is running collective: ").unwrap_or(rest.len());
        let told = &rest[..end];
        let Some(rank) = head.rfind("Rank ").and_then(|at| head[at + 5..].trim().parse().ok()) else { continue };
        let (Some(seq), Some(op)) = (count_after(told, "SequenceNumber="), after(told, "OpType=")) else { continue };
        let op = op_name(word(op, &[',', ')']));
        let first = out.first().map(|first: &Fingerprint| first.seq);
        let seq = first.filter(|_| told.contains("SequenceNumber=0OpType=")).unwrap_or(seq);
        let dims = between(told, "TensorShape=[", "]").unwrap_or_default();
        let shape = dims.split(',').filter_map(|dim| dim.trim().parse().ok()).take(16).collect();
        let dtype = after(told, "TensorDtypes=").map(|dtype| word(dtype, &[',', ')'])).unwrap_or_default();
        out.push(Fingerprint { rank: Rank(rank), seq, op, shape, dtype: dtype.into() });
        if out.len() == 2 {
            break;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stands(line: &str) -> Stands {
        let Some(Says::Stands(stands)) = says(line) else { panic!("{line}") };
        *stands
    }

    #[test]
    fn the_watchdog_of_every_version_is_understood() {
        let new = stands(
            "[rank2]:[E810 03:04:10.9 ProcessGroupNCCL.cpp:683] [Rank 2] Watchdog caught collective operation timeout: \
             WorkNCCL(SeqNum=78, OpType=BROADCAST, NumelIn=80, NumelOut=81, Timeout(ms)=600000) ran for 600087 milliseconds \
             before timing out.",
        );
        assert_eq!(
            (new.seq, new.sizes, new.timeout_ms, new.ran_ms),
            (Some(78), Some((80, 81)), Some(600_000), Some(600_087))
        );
        assert_eq!((&*new.op.unwrap_or_default().op, new.member, new.status), ("broadcast", Some(2), None));
        let old =
            stands("[Rank 7] Watchdog caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE, Timeout(ms)=5)");
        assert_eq!((old.seq, old.sizes, old.member), (None, None, Some(7)));
        let at = stands(
            "[PG ID 2 PG GUID 3(tp_0) Rank 1]  failure detected by watchdog at work sequence id: 78 PG status: last \
             enqueued work: 79, last completed work: -1",
        );
        assert_eq!((&*at.group, &*at.desc, at.pg_id, at.member), ("3", "tp_0", Some(2), Some(1)));
        assert_eq!((at.seq, at.status), (Some(78), Some((79, -1))));
        for line in [
            "[PG 0 Rank 2] Timeout at NCCL work: 19, last enqueued NCCL work: 19, last completed NCCL work: 18.",
            "[PG 0 (default_pg) Rank 2] Exception (either an error or timeout) detected by watchdog at work: 19, last \
             enqueued NCCL work: 19, last completed NCCL work: 18.",
        ] {
            let at = stands(line);
            assert_eq!(
                (at.pg_id, at.member, at.seq, at.status),
                (Some(0), Some(2), Some(19), Some((19, 18))),
                "{line}"
            );
        }
        let told = stands(
            "[PG ID 0 PG GUID 0(default_pg) Rank 4] Received a dump signal due to a collective timeout from  rank 1 and we \
             will try our best to dump the debug info. Last enqueued HCCL work: 77, last completed HCCL work: 76.This is",
        );
        assert_eq!((told.is_told, told.status, told.seq), (true, Some((77, 76)), None));
    }

    #[test]
    fn who_did_not_come_is_read() {
        let ranks = |line: &str| match says(line) {
            Some(Says::NotThere(_, ranks)) => ranks.iter().map(|rank| rank.0).collect::<Vec<_>>(),
            other => panic!("{line}: {other:?}"),
        };
        assert_eq!(ranks("RuntimeError: Ranks 2, 5 failed to pass monitoredBarrier in 600000 ms"), [2, 5]);
        assert_eq!(ranks("[Rank 0]: Rank 3 failed to pass monitoredBarrier in 9 ms"), [3]);
        assert_eq!(ranks("\t - [1, 3] finished collective #7, but didn't join collective #8 (count from 1)"), [1, 3]);
    }

    #[test]
    fn fingerprints_come_in_pairs() {
        let both = fingerprints(
            "Detected mismatch between collectives on ranks. Rank 1 is running collective: CollectiveFingerPrint(\
             SequenceNumber=4, OpType=_ALLGATHER_BASE, TensorShape=[359, 1], TensorDtypes=BFloat16, TensorDeviceTypes=X), but \
             Rank 2 is running collective: CollectiveFingerPrint(SequenceNumber=4, OpType=BROADCAST, TensorShape=[1], \
             TensorDtypes=Long)",
        );
        assert_eq!(both.len(), 2);
        assert_eq!((both[0].rank.0, &*both[0].op.op, &*both[0].shape), (1, "_all_gather_base", &[359, 1][..]));
        assert_eq!((both[1].rank.0, both[1].seq, &*both[1].dtype), (2, 4, "Long"));
        assert!(fingerprints("Rank 1 is running collective: CollectiveFingerPrint(OpType=X)").is_empty());
    }
}
