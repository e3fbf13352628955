//! An answer like those of large jobs: pairs of ranks in groups of one name, nearly all that was issued still scheduled,
//! no call stacks, and ranks of which nothing tells whom they wait for.
use super::sample::{blame, empty, ranks, wait};
use mycroft_diagnose::stacks::{Autopsy, Cause, Cell, CellMark, Conduct, GroupGrid, Outcome, RankRow, Role};
use mycroft_diagnose::{Evidence, Reason};
use mycroft_record::{Category, HostTime, What};

/// The name that all groups have.
pub(crate) const NAME: &str = "TENSOR_MODEL_PARALLEL_GROUP";

/// 2025-09-23 06:55:05.880 UTC.
const SINCE: HostTime = HostTime(1_758_610_505_880_000_000);

/// Ranks 12 and 14 of 16 are stuck inside an operation that their peers left.
pub(crate) fn stuck() -> Autopsy {
    let mut answer = empty(Outcome::Fault(What::Hang));
    answer.ranks = ranks(&(0..16).collect::<Vec<_>>());
    answer.category = Some(Category::Gpu);
    answer.cause = Some(Cause::KernelHang);
    answer.group = NAME.into();
    answer.seq = Some(42_806);
    answer.collective = "_all_gather_base".into();
    for rank in [12, 14] {
        blame(&mut answer, rank, "node-3", 0.9, Conduct { role: Role::Stuck, doing: String::new(), at: None });
    }
    let at = Evidence { rank: None, op: None, flow: None, at: SINCE };
    let reason = |rule: &'static str, text: &str| Reason { rule: rule.into(), text: text.into(), evidence: vec![at] };
    answer.because = vec![
        reason("frontier.left-behind", "rank 13 went through #42806, in which rank 12 stayed"),
        reason("dump.records", "#42806: rank 12 record 90083 (_dump_12)"),
        reason("frontier.left-behind", "rank 15 went through #42806, in which rank 14 stayed"),
        reason("dump.records", "#42806: rank 14 record 90083 (_dump_14)"),
    ];
    answer.do_next = vec!["on rank 12 and rank 14: nvidia-smi -q and dmesg for Xid messages".into()];
    answer.blast_radius = vec![
        wait(&[13], &[12], "all_reduce TENSOR_AND_CONTEXT_PARALLEL_GROUP #3456"),
        wait(&[15], &[14], "all_reduce TENSOR_AND_CONTEXT_PARALLEL_GROUP #3456"),
        wait(&[1, 9], &[13], "the oldest open transfer 13->1 PIPELINE_MODEL_PARALLEL_GROUP"),
        wait(&[3, 11], &[15], "the oldest open transfer 15->3 PIPELINE_MODEL_PARALLEL_GROUP"),
    ];
    for pair in [0, 2, 4, 6, 8] {
        let text = format!("_all_gather_base {NAME} #{}", 39_407 + pair);
        let others: Vec<u32> = [pair, pair + 1].into_iter().filter(|rank| ![1, 3, 9].contains(rank)).collect();
        answer.blast_radius.push(wait(&others, &[], &text));
    }
    answer.op_names = vec!["nccl:_all_gather_base".into(), "nccl:all_reduce".into()];
    answer.grid = (0..8).map(|pair| group(2 * pair)).collect();
    answer
}

/// A pair: of the last one only that a rank left behind is scheduled where its peer is done.
fn group(first: u32) -> GroupGrid {
    let row = |rank: u32| RankRow {
        rank: ranks(&[rank])[0],
        cells: (0..20)
            .map(|column| {
                let is_left_behind = [12, 14].contains(&rank) && column == 0;
                let is_through = [13, 15].contains(&rank) && column == 0;
                let mark = if is_left_behind && rank == 12 { CellMark::First } else { CellMark::Plain };
                Cell { column, op: column % 2, stack: u32::MAX, state: if is_through { 2 } else { 0 }, mark }
            })
            .collect(),
    };
    GroupGrid {
        label: NAME.into(),
        rows: vec![row(first), row(first + 1)],
        columns: (0..20).map(|i| format!("#{}", 42_806 + i)).collect(),
        first_wrong: (first == 12).then_some(0),
    }
}

/// All wait for rank 2 of a job that is only slow.
pub(crate) fn slow() -> Autopsy {
    let mut answer = empty(Outcome::Fault(What::Slowdown));
    answer.ranks = ranks(&[0, 1, 2, 3]);
    answer.blast_radius = vec![wait(&[0, 1, 3], &[2], "all_reduce default_pg #10")];
    answer
}
