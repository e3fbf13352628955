//! Slow ranks in profilers' traces of several ranks, in the form that torch's profiler writes.
use mycroft_diagnose::stacks::{Autopsy, Outcome, Question, autopsy};
use mycroft_formats::{Naming, assemble, read};
use mycroft_record::{Rank, What};
use std::fmt::Write as _;

const RANKS: u64 = 4;
const STEPS: u64 = 8;
/// What a collective takes when all are there, and what a rank computes before it; microseconds.
const TRANSFER: u64 = 2_000;
const COMPUTE: u64 = 10_000;

/// What rank, iteration and collective need beside what all need: microseconds of computing, elements.
struct Extra {
    late: fn(u64, u64) -> u64,
    elements: fn(u64) -> u64,
    steps: u64,
}

const NONE: Extra = Extra { late: |_, _| 0, elements: |_| 4096, steps: STEPS };

/// The trace of a rank whose clock is off by `rank` seconds: two collectives an iteration.
fn trace(rank: u64, extra: &Extra) -> String {
    let mut events = String::new();
    let mut now = 1_000_000 * (rank + 1);
    for step in 0..extra.steps {
        let begun = now;
        for at in 0..2 {
            // Some noise, so that somebody is last by chance.
            let own = |rank: u64| {
                COMPUTE + (rank * 7 + step * 13 + at * 5) % 4 * 20 + if at == 0 { (extra.late)(rank, step) } else { 0 }
            };
            let all = (0..RANKS).map(own).max().unwrap_or(0);
            let (start, end) = (now + own(rank), now + all + TRANSFER);
            let _ = write!(
                events,
                r#"{{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", "pid": 0, "tid": 7,
                "ts": {start}.125, "dur": {}, "args": {{"Collective name": "allreduce", "In msg nelems": {},
                "Group size": {RANKS}, "Process Group Name": "0", "Process Group Description": "default_pg",
                "Process Group Ranks": "[0, 1, 2, 3]"}}}},"#,
                end - start,
                (extra.elements)(rank)
            );
            now = end;
        }
        let _ = write!(
            events,
            r#"{{"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#{step}", "ts": {begun}, "dur": {}}},"#,
            now - begun
        );
    }
    format!(
        r#"{{"schemaVersion": 1, "distributedInfo": {{"backend": "nccl", "rank": {rank}, "world_size": {RANKS}}},
        "traceEvents": [{events}{{"ph": "M", "name": "process_name"}}], "traceName": "t"}}"#
    )
}

fn of(extra: &Extra) -> Autopsy {
    let one = |rank| read(&format!("host_{rank}.pt.trace.json"), trace(rank, extra).as_bytes(), &Naming::default());
    let bundle = assemble((0..RANKS).map(one).collect()).expect("one file for each rank");
    assert_eq!(bundle.traces.len(), RANKS as usize);
    autopsy(&bundle, &Question::default())
}

fn rules(answer: &Autopsy) -> Vec<&str> {
    answer.because.iter().map(|reason| &*reason.rule).collect()
}

#[test]
fn who_comes_last_in_each_iteration_is_named() {
    let answer = of(&Extra { late: |rank, _| if rank == 2 { 5_000 } else { 0 }, ..NONE });
    let named: Vec<Rank> = answer.blamed().map(|(rank, ..)| rank).collect();
    assert_eq!((answer.outcome, &*named), (Outcome::Fault(What::Slowdown), &[Rank(2)][..]), "{:?}", answer.because);
    let text = &answer.because[0].text;
    assert!(text.contains("costs its peers 5.0 ms of an iteration") && text.contains("in 8 of 8 iterations"), "{text}");
}

#[test]
fn nobody_is_named_where_all_come_alike() {
    let answer = of(&NONE);
    assert_eq!((answer.outcome, answer.suspects.len(), rules(&answer)), (Outcome::Healthy, 0, vec!["trace.even"]));
    // All compute longer: nobody waits.
    let answer = of(&Extra { late: |_, _| 30_000, ..NONE });
    assert_eq!((answer.suspects.len(), rules(&answer)), (0, vec!["trace.even"]));
}

/// A profiler that lost the first collective of one rank pairs each with another's: their ends do not fit.
#[test]
fn what_does_not_belong_together_is_not_compared() {
    let extra = Extra { late: |rank, step| if rank == 2 { 5_000 + 3_000 * (step % 3) } else { 0 }, ..NONE };
    let one = |rank| {
        let mut text = trace(rank, &extra);
        let lost = if rank == 1 { text.find("ncclDev") } else { text.rfind("ncclDev") };
        text.replace_range(lost.expect("a kernel").., &text[lost.expect("a kernel")..].replacen("ncclDev", "other", 1));
        read(&format!("host_{rank}.pt.trace.json"), text.as_bytes(), &Naming::default())
    };
    let bundle = assemble((0..RANKS).map(one).collect()).expect("one file for each rank");
    let answer = autopsy(&bundle, &Question::default());
    assert_eq!((answer.outcome, answer.suspects.len()), (Outcome::Unknown, 0), "{:?}", answer.because);
}

/// Of four ranks that are alike one is last in four iterations of four now and then.
#[test]
fn a_few_iterations_accuse_nobody() {
    let answer = of(&Extra { late: |rank, _| if rank == 2 { 5_000 } else { 0 }, steps: 4, ..NONE });
    assert_eq!((rules(&answer), answer.suspects.len()), (vec!["trace.wanders"], 0), "{:?}", answer.because);
}

#[test]
fn uneven_work_is_nobodys_fault() {
    let wanders = of(&Extra { late: |rank, step| if (step * 3) % RANKS == rank { 6_000 } else { 0 }, ..NONE });
    assert_eq!((wanders.suspects.len(), rules(&wanders)), (0, vec!["trace.wanders"]));
    assert_eq!(wanders.outcome, Outcome::Fault(What::Slowdown));
    let uneven = Extra {
        late: |rank, _| if rank == 2 { 5_000 } else { 0 },
        elements: |rank| 4096 + 2048 * (rank / 2 % 2),
        ..NONE
    };
    let uneven = of(&uneven);
    assert_eq!((uneven.suspects.len(), rules(&uneven)), (0, vec!["trace.uneven-work"]));
}

/// What NCCL's Inspector writes of a rank: times in collectives and numbers, no time of day. One operation in seven was lost.
fn inspected(rank: u64, late: fn(u64, u64) -> u64) -> String {
    let mut lines = String::new();
    for seq in (1..=400).filter(|seq| !(seq + rank).is_multiple_of(7)) {
        let own = |rank: u64| COMPUTE + (rank * 7 + seq * 13) % 4 * 20 + late(rank, seq);
        let all = (0..RANKS).map(own).max().unwrap_or(0);
        let _ = writeln!(
            lines,
            r#"{{"header":{{"id":"0x9f","rank":{rank},"n_ranks":{RANKS},"nnodes":1}},"metadata":{{"hostname":"n1","pid":{}}},"#,
            rank + 70
        );
        lines.pop();
        let _ = writeln!(
            lines,
            r#""coll_perf":{{"coll":"AllReduce","coll_sn":{seq},"coll_msg_size_bytes":4096,"coll_exec_time_us":{}}}}}"#,
            all - own(rank) + TRANSFER
        );
    }
    lines
}

fn of_inspector(late: fn(u64, u64) -> u64) -> Autopsy {
    let one = |rank| read(&format!("n1-pid{}.log", rank + 70), inspected(rank, late).as_bytes(), &Naming::default());
    let bundle = assemble((0..RANKS).map(one).collect()).expect("one file for each rank");
    assert_eq!(bundle.traces.len(), RANKS as usize);
    autopsy(&bundle, &Question::default())
}

#[test]
fn times_in_collectives_without_a_time_of_day_tell_who_comes_last() {
    let answer = of_inspector(|rank, _| if rank == 2 { 1_500 } else { 0 });
    let named: Vec<Rank> = answer.blamed().map(|(rank, ..)| rank).collect();
    assert_eq!((answer.outcome, &*named), (Outcome::Fault(What::Slowdown), &[Rank(2)][..]), "{:?}", answer.because);
    let text = &answer.because[0].text;
    assert!(text.contains("in 20 of 20 parts") && text.contains("n1-pid70.log to n1-pid73.log"), "{text}");
    let even = of_inspector(|_, _| 0);
    assert_eq!((even.outcome, rules(&even)), (Outcome::Healthy, vec!["trace.even"]));
    let wanders = of_inspector(|rank, seq| if seq / 20 % RANKS == rank { 1_500 } else { 0 });
    assert_eq!((wanders.blamed().count(), rules(&wanders)), (0, vec!["trace.wanders"]), "{:?}", wanders.because);
}

/// Ranks of communicators of two do not tell which process of the job is meant.
#[test]
fn ranks_of_communicators_that_are_not_of_the_job_name_nobody() {
    let one = |pid: u64| {
        let text = inspected(pid % 2, |rank, _| if rank == 1 { 1_500 } else { 0 });
        read(&format!("n1-pid{pid}.log"), text.as_bytes(), &Naming::default())
    };
    let bundle = assemble((0..4).map(one).collect()).expect("nothing clashes");
    assert!(bundle.traces.is_empty() && bundle.notes[0].contains("none is of the whole job"), "{:?}", bundle.notes);
}
