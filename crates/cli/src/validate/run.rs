//! Runs a plan at the gates, pass by pass.
use super::gates::HeldJob;
use super::groups::Members;
use mycroft_diagnose::validate::{Check, CheckResult, LinkMeasure, LinkResult, Pair, Pass, Plan, Times, Work};
use mycroft_record::Rank;
use mycroft_ring::gate::hold::{HoldError, Order};
use mycroft_ring::gate::task::{Answer, Ending, Kind, Times as Measured};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// What was measured.
#[derive(Default)]
pub(super) struct Results {
    /// By ranks alone.
    pub(super) checks: Vec<CheckResult>,
    /// Of ways.
    pub(super) links: Vec<LinkResult>,
    /// What was not, and why; each once.
    pub(super) missing: BTreeSet<String>,
}

/// Runs the passes of a plan until the time is over.
pub(super) fn run(
    held: &mut HeldJob<'_>,
    plan: &Plan,
    members: &Members,
    bytes: u64,
    until: Instant,
    results: &mut Results,
) -> Result<(), HoldError> {
    for (number, pass) in plan.passes.iter().enumerate() {
        let left = until.saturating_duration_since(Instant::now());
        if left < Duration::from_nanos(pass.usual_ns) {
            results.missing.insert(format!("passes from {number} on: the time was over"));
            break;
        }
        let within = left.min(Duration::from_nanos(pass.at_most_ns));
        let answers = held.run(&orders(pass, members, bytes, within / 2), within)?;
        take(pass, members, &answers, results);
    }
    Ok(())
}

fn kind(check: Check) -> Kind {
    match check {
        Check::Device => Kind::Device,
        Check::Copy => Kind::Copy,
        Check::Processor => Kind::Processor,
        Check::Host => Kind::Host,
    }
}

fn orders(pass: &Pass, members: &Members, bytes: u64, patience: Duration) -> Vec<Order> {
    let pair = |pair: &Pair| {
        let keeper = (members.place(pair.one.rank)?, pair.one.place);
        let guest = (members.place(pair.other.rank)?, pair.other.place);
        Some(Order::Pair { keeper, guest, comm: pair.comm, bytes, patience })
    };
    match &pass.work {
        Work::Alone { check, ranks } => {
            let places = ranks.iter().filter_map(|rank| members.place(*rank));
            places.map(|rank| Order::Alone { rank, kind: kind(*check) }).collect()
        }
        Work::Pairs(pairs) => pairs.iter().filter_map(pair).collect(),
    }
}

fn take(pass: &Pass, members: &Members, answers: &BTreeMap<usize, Answer>, results: &mut Results) {
    let answer = |rank: Rank| members.place(rank).and_then(|place| answers.get(&place));
    match &pass.work {
        Work::Alone { check, ranks } => {
            for rank in ranks {
                match done(answer(*rank)) {
                    Ok(answer) => results.checks.extend(parts(*rank, *check, answer)),
                    Err(why) => {
                        results.missing.insert(format!("{} of rank {rank}: {why}", check.as_str()));
                    }
                }
            }
        }
        Work::Pairs(pairs) => {
            for pair in pairs {
                let (one, other) = (pair.one.rank, pair.other.rank);
                match (done(answer(one)), done(answer(other))) {
                    (Ok(at_one), Ok(at_other)) => {
                        let between_hosts = members.host(one) != members.host(other);
                        for (from, to, sender, receiver) in
                            [(other, one, at_other, at_one), (one, other, at_one, at_other)]
                        {
                            results.links.extend(way(from, to, between_hosts, [sender, receiver]));
                            if has_latency(sender, receiver) {
                                results.missing.remove(&busy(from, to));
                            } else {
                                results.missing.insert(busy(from, to));
                            }
                        }
                    }
                    (Err(why), Err(NO_ANSWER)) | (Err(_), Err(why)) | (Err(why), Ok(_)) | (Ok(_), Err(why)) => {
                        results.missing.insert(format!("the way between ranks {one} and {other}: {why}"));
                    }
                }
            }
        }
    }
}

/// Also where the other of a pair gave a reason, and this one was not asked.
const NO_ANSWER: &str = "no answer in time";

fn done(answer: Option<&Answer>) -> Result<&Answer, &'static str> {
    match answer.map(|answer| (answer.ending, answer)) {
        None => Err(NO_ANSWER),
        Some((Ending::Done, answer)) => Ok(answer),
        Some((Ending::Unable, _)) => {
            Err("the process has nothing to test it with (no device of the CPU library; GPUs are not there yet)")
        }
        Some((Ending::Unknown, _)) => Err("the communicator is gone"),
        Some((Ending::Apart, _)) => {
            Err("the two did not meet (another PID namespace, no connection between their hosts, or one was too late)")
        }
        Some((Ending::Failed, _)) => Err("a call of the collective library failed"),
        Some((Ending::Endless, _)) => Err("it did not end; the process runs no more tests"),
    }
}

fn times(of: Measured) -> Option<Times> {
    (of.fastest_ns > 0).then(|| Times { fastest_ns: of.fastest_ns.into(), median_ns: of.median_ns.into() })
}

fn parts(rank: Rank, check: Check, answer: &Answer) -> Vec<CheckResult> {
    let part = |(part, value): (u32, &Measured)| Some(CheckResult { rank, check, part, times: times(*value)? });
    (0..).zip(&answer.values).filter_map(part).collect()
}

/// Whether small messages between the two say how long the way takes: both have a time for them.
fn has_latency(sender: &Answer, receiver: &Answer) -> bool {
    [sender.values[SENT + 1], receiver.values[1]].iter().all(|value| value.fastest_ns > 0)
}

/// Said where none of a direction's passes gave a latency.
fn busy(from: Rank, to: Rank) -> String {
    format!("the latency from rank {from} to rank {to}: their threads waited for a processor instead")
}

/// Where an answer has what was sent, after what was received.
const SENT: usize = 2;

/// What the receiver measured of its direction; a latency only where no thread of either waited for a processor instead.
fn way(from: Rank, to: Rank, between_hosts: bool, [sender, receiver]: [&Answer; 2]) -> Vec<LinkResult> {
    let has_latency = has_latency(sender, receiver);
    let of = |(measure, value): (LinkMeasure, &Measured)| {
        let counts = measure == LinkMeasure::Bandwidth || has_latency;
        Some(LinkResult { from, to, between_hosts, measure, times: times(*value).filter(|_| counts)? })
    };
    [LinkMeasure::Bandwidth, LinkMeasure::Latency].into_iter().zip(&receiver.values).filter_map(of).collect()
}
