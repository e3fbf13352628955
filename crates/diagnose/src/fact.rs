//! Facts: what the detectors saw, typed, each with the records that show it. They accuse nobody: `case` weighs them.
mod words;

use crate::case::{Evidence, Reason};
use mycroft_record::{
    ExitStatus, FlowCounters, HostName, HostTime, NANOS_PER_MS, NANOS_PER_SEC, OpMeta, ProxyHeld, Rank,
};
use std::sync::Arc;
use words::{chunks, stopped};
pub(crate) use words::{ranks_text, ranks_within};

/// The rule of [`Fact::StuckInside`].
pub(crate) const STUCK_INSIDE: &str = "hang.stuck-inside";
/// The rule of [`Fact::Wander`].
pub(crate) const WANDER: &str = "watch.pauses-wander";
/// The rule of [`Fact::LateAgain`].
pub(crate) const LATE_AGAIN: &str = "watch.late-again";
/// The rule of [`Fact::NicDown`].
pub(crate) const NIC_DOWN: &str = "nic.down";
/// The rule of [`Fact::GpuNotReady`].
pub(crate) const LEFT_UNTOUCHED: &str = "chunk.gpu-not-ready";
/// Threads that wait for a processor for so many thousandths of the time in which they could run wait longer than they run:
/// they are late for a second at a time.
pub(crate) const STARVED_MILLI: f64 = 500.0;
/// Cores are full when so many thousandths of them are busy.
pub(crate) const FULL_MILLI: f64 = 950.0;
/// A slice that takes so long and comes all the same crawls: others take some milliseconds.
pub(crate) const CRAWLS_NS: u64 = NANOS_PER_SEC;

/// An operation and what people call it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct OpRef {
    /// What the waiting rank knows of it.
    pub(crate) meta: OpMeta,
    /// E.g. `AllReduce DP_0 #17`.
    pub(crate) label: String,
}

/// Seen by `watch` or `blame`.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Fact {
    /// Nothing that these ranks wait for, directly or not, moves any more (Algorithm 1, failure trigger).
    Stalled { waiting: Vec<Rank>, since: HostTime, waited_ns: u64, threshold_ns: u64, why: String },
    /// A process is gone although its communicators were in use.
    Dead { rank: Rank, host: HostName, at: HostTime, in_flight: u32, status: ExitStatus },
    /// Every thread of a process is stopped by a signal or a debugger.
    Stopped { rank: Rank, host: HostName, since: HostTime, proxies: Option<ProxyHeld> },
    /// The host never issued what its peers wait in, and has nothing else in flight (Table 4: not started).
    NeverIssued { rank: Rank, host: HostName, op: OpRef, waiting: Vec<Rank>, idle_since: HostTime, finalized: bool },
    /// The host issued it, the device never started it and is in nothing else.
    NeverRan { rank: Rank, host: HostName, op: OpRef, waiting: Vec<Rank>, issued_at: HostTime },
    /// The device has slots to fill and data to fill them with, and does not (Table 4: GPU not ready).
    GpuNotReady { rank: Rank, host: HostName, op: OpRef, evidence: Evidence, counters: FlowCounters, strong: bool },
    /// Ready data of `from` does not reach `to`, which is waiting for it (Table 4: not transmitted, not delivered).
    NotDelivered {
        from: (Rank, HostName),
        to: (Rank, HostName),
        op: OpRef,
        evidence: Evidence,
        send: FlowCounters,
        since: HostTime,
        /// The longest that a slice of it was under way that did arrive.
        longest_ns: u64,
        served_meanwhile: bool,
    },
    /// All members are in it, none moves, and no flow shows why (intra-host transport).
    StuckInside { op: OpRef, members: Vec<(Rank, HostName, HostTime)> },
    /// A rank that others wait for has not been seen lately: unknown.
    NoData { rank: Rank, host: HostName, waiting: Vec<Rank>, last_seen: HostTime, gap: bool },
    /// A cycle of waiting. `left`: those whose past shows that they left their order; `left_out`: and went on without what
    /// was their turn.
    Cycle { edges: Vec<(Rank, OpRef, Rank)>, hosts: Vec<HostName>, left: Vec<(Rank, HostName)>, left_out: bool },
    /// Ranks disagree on what operation number n is. `never_before`: those that have not done such a thing before, where
    /// the others have. `out_of_turn`: those that have never done it after what they did before, where the others have.
    Mismatch {
        op: OpRef,
        camps: Vec<(String, Vec<(Rank, HostName)>)>,
        kinds_differ: bool,
        never_before: Vec<Rank>,
        out_of_turn: Vec<Rank>,
    },
    /// A rank that others wait for left no usable dump.
    NoDump { rank: Rank, host: HostName, op: OpRef, waiting: Vec<Rank>, why: String },
    /// What the stacks of a rank show.
    Doing { rank: Rank, text: String, source: Arc<str> },
    /// The place in the program where the paths of ranks part.
    PathsPart { op: OpRef, odd: Vec<Rank>, odd_at: String, peers_at: String },
    /// A rank does not do what it always did at this place.
    BreaksPast { rank: Rank, op: OpRef, instead_of: String },
    /// Between two operations of `comm`, the first of them issued at `at`, the rank issued so many collectives fewer than all its
    /// `peers` there, and as many as they before and after.
    /// `own`: one of `comm`, between two operations of others; else one of others, between two of `comm`.
    LeftOut { rank: Rank, host: HostName, comm: String, own: bool, at: HostTime, fewer: usize, peers: usize },
    /// Peers are through an operation in which these ranks still are.
    LeftBehind { op: OpRef, stuck: Vec<Rank>, left: Vec<Rank> },
    /// All members are in it and none is through. `started`: all were seen running on their devices.
    NoneCompleted { op: OpRef, members: Vec<Rank>, started: bool },
    /// What the members of an uneven exchange send is not what they expect.
    SplitsDiffer { op: OpRef, sent: i64, expected: i64 },
    /// A rank came late to operations that were completed all the same.
    CameLate { rank: Rank, op: OpRef, late_ms: f64, times: usize, waited_ms: f64 },
    /// Entries of dumps, or lines of logs: rank, and the record or the lines with their file.
    Records { op: OpRef, entries: Vec<(Rank, String)> },
    /// An interface went down.
    NicDown { host: HostName, nic: Arc<str>, at: HostTime },
    /// The job's threads on a host wait longer for a processor, in thousandths of the time in which they are ready to run.
    /// `busy_milli`: thousandths of its cores that are busy.
    CpuWait { host: HostName, now_milli: f64, base_milli: f64, busy_milli: f64 },
    /// All cores of a host are busy since the job stands still, thousandths: its threads get them, but come no further.
    CpuFull { host: HostName, now_milli: f64, base_milli: f64 },
    /// Ranks of a host issue operations much more slowly one after the other than they did, and others' do not; or all do beside
    /// those of other hosts, whose pace is `base_us` then.
    SlowCalls { host: HostName, ranks: usize, now_us: f64, base_us: f64, beside: bool },
    /// Others waited for ranks of a host to issue what they had issued, or for a device there to touch its slots, again and
    /// again, if not for long.
    LateAgain { host: HostName, times: usize, within_ns: u64, is_device: bool },
    /// All others have waited for one rank after another, and gone on each time: ranks that pause in turn.
    Wander { stops: usize, ranks: usize },
    /// Iterations take longer (Algorithm 1, straggler trigger): `slow` of the last `of`, or the one that runs where `of` is 0.
    SlowIterations { base_ms: f64, now_ms: f64, factor: f64, slow: usize, of: usize, since: HostTime, why: String },
}

fn ms(ns: u64) -> f64 {
    ns as f64 / NANOS_PER_MS as f64
}

/// `rank 3`, `ranks 0-3,8`; `no rank` where there is none.
pub(crate) fn these(ranks: &[Rank]) -> String {
    match ranks {
        [] => "no rank".to_owned(),
        [only] => format!("rank {only}"),
        several => format!("ranks {}", ranks_text(several)),
    }
}

/// Ranks with a verb: `rank 5 waits`, `ranks 1,2 wait`, `no rank waits`.
pub(crate) fn these_do(ranks: &[Rank], one: &str, many: &str) -> String {
    format!("{} {}", these(ranks), if ranks.len() > 1 { many } else { one })
}

fn of_rank(rank: Rank, at: HostTime) -> Vec<Evidence> {
    vec![Evidence { rank: Some(rank), op: None, flow: None, at }]
}

fn of_op(rank: Rank, op: &OpRef, at: HostTime) -> Vec<Evidence> {
    vec![Evidence { rank: Some(rank), op: Some(op.meta.id), flow: None, at }]
}

impl Fact {
    /// The rule's stable name.
    pub(crate) fn rule(&self) -> &'static str {
        match self {
            Fact::Stalled { .. } => "watch.stall",
            Fact::Dead { .. } => "hang.process-gone",
            Fact::Stopped { proxies, .. } => proxies.map_or("hang.process-stopped", |_| "hang.proxy-held"),
            Fact::NeverIssued { .. } => "hang.never-issued",
            Fact::NeverRan { .. } => "hang.never-ran",
            Fact::GpuNotReady { .. } => LEFT_UNTOUCHED,
            Fact::NotDelivered { .. } => "chunk.not-delivered",
            Fact::StuckInside { .. } => STUCK_INSIDE,
            Fact::NoData { .. } => "unknown.no-data",
            Fact::Cycle { .. } => "graph.cycle",
            Fact::Mismatch { .. } => "graph.mismatch",
            Fact::NoDump { .. } => "dump.missing",
            Fact::Doing { .. } => "stack.doing",
            Fact::PathsPart { .. } => "stack.paths-part",
            Fact::BreaksPast { .. } => "history.break",
            Fact::LeftOut { .. } => "turns.left-out",
            Fact::LeftBehind { .. } => "frontier.left-behind",
            Fact::NoneCompleted { .. } => "frontier.none-completed",
            Fact::SplitsDiffer { .. } => "args.splits",
            Fact::CameLate { .. } => "late.history",
            Fact::Records { .. } => "dump.records",
            Fact::NicDown { .. } => NIC_DOWN,
            Fact::CpuWait { .. } => "host.cpu-wait",
            Fact::CpuFull { .. } => "host.cpu-full",
            Fact::SlowCalls { .. } => "host.slow-calls",
            Fact::LateAgain { .. } => LATE_AGAIN,
            Fact::Wander { .. } => WANDER,
            Fact::SlowIterations { .. } => "watch.slow-iterations",
        }
    }

    /// The fact as a reason of a case: one sentence with its numbers, and its records.
    pub(crate) fn reason(&self) -> Reason {
        Reason { rule: self.rule().into(), text: self.text(), evidence: self.evidence() }
    }

    fn text(&self) -> String {
        match self {
            Fact::Stalled { .. }
            | Fact::Dead { .. }
            | Fact::Stopped { .. }
            | Fact::NeverIssued { .. }
            | Fact::NeverRan { .. }
            | Fact::StuckInside { .. }
            | Fact::NoData { .. }
            | Fact::Cycle { .. }
            | Fact::Mismatch { .. } => self.text_of_hang(),
            Fact::GpuNotReady { .. } | Fact::NotDelivered { .. } | Fact::NicDown { .. } => self.text_of_chunks(),
            Fact::NoDump { .. }
            | Fact::Doing { .. }
            | Fact::PathsPart { .. }
            | Fact::BreaksPast { .. }
            | Fact::LeftOut { .. }
            | Fact::LeftBehind { .. }
            | Fact::NoneCompleted { .. }
            | Fact::SplitsDiffer { .. }
            | Fact::CameLate { .. }
            | Fact::Records { .. } => self.text_of_dumps(),
            Fact::Wander { stops, ranks } => format!(
                "all others have waited {stops} times within an hour, for {ranks} ranks in turn, and the job went on each time"
            ),
            _ => self.text_of_rate(),
        }
    }

    fn text_of_hang(&self) -> String {
        match self {
            Fact::Stalled { waiting, waited_ns, threshold_ns, why, .. } => format!(
                "nothing that {} for has moved for {:.0} ms (threshold {:.0} ms: {why})",
                these_do(waiting, "waits", "wait"),
                ms(*waited_ns),
                ms(*threshold_ns)
            ),
            Fact::Dead { rank, in_flight, status, .. } => {
                let by = status.in_brackets();
                format!(
                    "the process of rank {rank} is gone{by} with {in_flight} operations in flight and communicators in use"
                )
            }
            Fact::Stopped { rank, proxies, .. } => stopped(*rank, proxies.as_ref()),
            Fact::NeverIssued { rank, op, waiting, finalized, .. } => format!(
                "rank {rank} never issued {}, in which {}, and has nothing else in flight{}",
                op.label,
                these_do(waiting, "waits", "wait"),
                if *finalized { "; it has finalized its communicators" } else { "" }
            ),
            Fact::NeverRan { rank, op, waiting, .. } => format!(
                "rank {rank} issued {} but its device never started it and is in no other operation; {}",
                op.label,
                these_do(waiting, "waits", "wait")
            ),
            Fact::StuckInside { op, members } => format!(
                "{} in {}, {}",
                these_do(&members.iter().map(|(rank, _, _)| *rank).collect::<Vec<_>>(), "is", "are all"),
                op.label,
                match members.len() {
                    1 => "does not move, and no flow shows why",
                    _ => "none moves, and no flow shows which of them stopped",
                }
            ),
            Fact::NoData { rank, waiting, gap, .. } => format!(
                "{} for rank {rank}, {}: its state is unknown",
                these_do(waiting, "waits", "wait"),
                if *gap { "whose records were lost lately" } else { "which has not been sampled lately" }
            ),
            Fact::Cycle { edges, .. } => {
                let steps: Vec<String> = edges
                    .iter()
                    .map(|(from, op, to)| format!("rank {from} waits in {} for rank {to}", op.label))
                    .collect();
                format!("a cycle: {}", steps.join("; "))
            }
            Fact::Mismatch { op, camps, never_before, out_of_turn, .. } => {
                let sides: Vec<String> = camps
                    .iter()
                    .map(|(what, who)| {
                        format!("{what} on {}", these(&who.iter().map(|(rank, _)| *rank).collect::<Vec<_>>()))
                    })
                    .collect();
                let before = match (never_before.is_empty(), out_of_turn.is_empty()) {
                    (false, _) => format!("; never before on {}", these(never_before)),
                    (true, false) => format!("; never before at this point on {}", these(out_of_turn)),
                    (true, true) => String::new(),
                };
                format!("ranks disagree on what {} is: {}{before}", op.label, sides.join(", "))
            }
            _ => String::new(),
        }
    }

    fn text_of_dumps(&self) -> String {
        match self {
            Fact::NoDump { rank, op, waiting, why, .. } => {
                format!("{} in {} for rank {rank}, {why}", these_do(waiting, "waits", "wait"), op.label)
            }
            Fact::Doing { rank, text, source } => format!("rank {rank} {text} ({source})"),
            Fact::PathsPart { op, odd, odd_at, peers_at } => format!(
                "paths part at {}: {} issued it from {odd_at}, their peers from {peers_at}",
                op.label,
                these(odd)
            ),
            Fact::BreaksPast { rank, op, instead_of } => {
                format!("rank {rank} issued {} where it always issued {instead_of} before", op.label)
            }
            Fact::LeftOut { rank, comm, own, fewer, peers, .. } => {
                let (between, of) = match own {
                    true => (String::new(), format!(" of {comm}")),
                    false => (format!("between two operations of {comm} "), String::new()),
                };
                let fewer = if *fewer == 1 { "one collective".to_owned() } else { format!("{fewer} collectives") };
                format!(
                    "{between}rank {rank} issued {fewer}{of} fewer than each of its {peers} peers there, once, and as many as they \
                     before and after"
                )
            }
            Fact::LeftBehind { op, stuck, left } => {
                format!("{} went through {}, in which {} stayed", these(left), op.label, these(stuck))
            }
            Fact::NoneCompleted { op, members, started } => format!(
                "{} all {} {} with equal arguments, and none is through",
                these(members),
                if *started { "started" } else { "issued" },
                op.label
            ),
            Fact::SplitsDiffer { op, sent, expected } => {
                format!("the members of {} send {sent} elements and expect {expected}", op.label)
            }
            Fact::CameLate { rank, op, late_ms, times, waited_ms } => format!(
                "rank {rank} came late {times} time{}, by up to {late_ms:.0} ms, and each time the job went on; {} has \
                 waited for {waited_ms:.0} ms as far as the dumps tell",
                if *times == 1 { "" } else { "s" },
                op.label
            ),
            Fact::Records { op, entries } => {
                let list: Vec<String> = entries.iter().map(|(rank, place)| format!("rank {rank} {place}")).collect();
                format!("{}: {}", op.label, list.join(", "))
            }
            _ => String::new(),
        }
    }

    fn text_of_chunks(&self) -> String {
        match self {
            Fact::GpuNotReady { rank, op, counters, .. } => {
                format!("the device of rank {rank} leaves its slots in {} untouched ({})", op.label, chunks(counters))
            }
            Fact::NotDelivered { from, to, op, send, longest_ns, served_meanwhile, .. } => format!(
                "data of rank {} ({}) in {} does not reach rank {} ({}), which waits for it ({}{}){}",
                from.0,
                from.1,
                op.label,
                to.0,
                to.1,
                chunks(send),
                match *longest_ns {
                    ns if ns >= CRAWLS_NS => format!(", one of which took {:.0} ms", ms(ns)),
                    _ => String::new(),
                },
                if *served_meanwhile { "; other ranks' data passed between these hosts meanwhile" } else { "" }
            ),
            Fact::NicDown { host, nic, .. } => format!("link {nic} of {host} is down"),
            _ => String::new(),
        }
    }

    fn text_of_rate(&self) -> String {
        match self {
            Fact::SlowIterations { base_ms, now_ms, of: 0, why, .. } => format!(
                "the iteration that runs has taken {:.1} times the usual {base_ms:.0} ms so far, {now_ms:.0} ms, and has not ended ({why})",
                now_ms / base_ms.max(1.0)
            ),
            Fact::SlowIterations { base_ms, now_ms, factor, slow, of, why, .. } => format!(
                "{slow} of the last {of} iterations took over {factor:.2}x the usual {base_ms:.0} ms, now {now_ms:.0} ms ({why})"
            ),
            Fact::CpuWait { host, now_milli, base_milli, busy_milli } => format!(
                "the job's threads on {host} wait for a processor {:.0} % of the time that they could run, {:.0} % before; its \
                 cores are {:.0} % busy",
                now_milli / 10.0,
                base_milli / 10.0,
                busy_milli / 10.0
            ),
            Fact::CpuFull { host, now_milli, base_milli } => {
                format!("the cores of {host} are {:.0} % busy, {:.0} % before", now_milli / 10.0, base_milli / 10.0)
            }
            Fact::SlowCalls { host, ranks, now_us, base_us, beside: false } => format!(
                "{ranks} ranks of {host} take {now_us:.0} us from one call to the next, {base_us:.0} us before; those of other \
                 hosts do not"
            ),
            Fact::SlowCalls { host, ranks, now_us, base_us, beside: true } => format!(
                "all {ranks} ranks of {host} take {now_us:.0} us from one call to the next, those of other hosts {base_us:.0} us"
            ),
            Fact::LateAgain { host, times, within_ns, is_device } => format!(
                "all others have waited {times} times within {:.0} s for {}",
                ms(*within_ns) / 1e3,
                if *is_device {
                    format!("a device of {host} to fill or drain its slots")
                } else {
                    format!("ranks of {host} to issue an operation")
                }
            ),
            _ => String::new(),
        }
    }

    fn evidence(&self) -> Vec<Evidence> {
        match self {
            Fact::Stalled { waiting, since, .. } => {
                waiting.iter().take(4).flat_map(|rank| of_rank(*rank, *since)).collect()
            }
            Fact::Dead { rank, at, .. } => of_rank(*rank, *at),
            Fact::Stopped { rank, since, .. } => of_rank(*rank, *since),
            Fact::NeverIssued { rank, op, waiting, idle_since, .. } => {
                let mut out = of_rank(*rank, *idle_since);
                out.extend(waiting.iter().take(4).flat_map(|rank| of_op(*rank, op, op.meta.started_at)));
                out
            }
            Fact::NeverRan { rank, op, issued_at, .. } => of_op(*rank, op, *issued_at),
            Fact::GpuNotReady { evidence, .. } | Fact::NotDelivered { evidence, .. } => vec![*evidence],
            Fact::StuckInside { op, members } => {
                members.iter().take(8).flat_map(|(rank, _, started)| of_op(*rank, op, *started)).collect()
            }
            Fact::NoData { rank, last_seen, .. } => of_rank(*rank, *last_seen),
            Fact::Cycle { edges, .. } => {
                edges.iter().flat_map(|(rank, op, _)| of_op(*rank, op, op.meta.started_at)).collect()
            }
            Fact::Mismatch { op, camps, .. } => camps
                .iter()
                .filter_map(|(_, who)| who.first())
                .flat_map(|(rank, _)| of_op(*rank, op, op.meta.enqueued_at))
                .collect(),
            Fact::NoDump { op, waiting, .. } => {
                waiting.iter().take(4).flat_map(|rank| of_op(*rank, op, op.meta.enqueued_at)).collect()
            }
            Fact::Doing { rank, .. } => of_rank(*rank, HostTime::NONE),
            Fact::LeftOut { rank, at, .. } => of_rank(*rank, *at),
            Fact::BreaksPast { rank, op, .. } | Fact::CameLate { rank, op, .. } => {
                of_op(*rank, op, op.meta.enqueued_at)
            }
            Fact::PathsPart { op, odd: ranks, .. }
            | Fact::LeftBehind { op, stuck: ranks, .. }
            | Fact::NoneCompleted { op, members: ranks, .. } => {
                ranks.iter().take(8).flat_map(|rank| of_op(*rank, op, op.meta.enqueued_at)).collect()
            }
            Fact::Records { op, entries } => {
                entries.iter().flat_map(|(rank, _)| of_op(*rank, op, op.meta.enqueued_at)).collect()
            }
            _ => Vec::new(),
        }
    }
}
