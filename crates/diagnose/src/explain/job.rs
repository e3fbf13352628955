//! What slows the whole job: all devices, or all of the network. Nobody is named.
use super::found::{Cause, Told};
use super::ways::{self, Ends};
use crate::evidence::{COST, Evidence, PAST_MIN, SLOWER, Subject};
use crate::measure::Component;
use crate::timeline::Timeline;
use mycroft_record::{Category, HostName, Place, Suspect};
use std::collections::BTreeSet;

/// Iterations that grew by this share are worth a case that names nobody: milder than FALCON's mean losses of 12 and 16 %.
const DUE: f64 = 0.08;
//= mycroft 4.3
/// Where nothing shows why, only what the paper calls a straggler is told: the interval doubles.
const DOUBLED: f64 = 1.0;
/// Where the ways that are slow leave no other hosts.
const SURE: f64 = 0.75;
/// Of what iterations grew, all must compute and issue longer, or data must be under way for longer, by this share for that to be the
/// reason.
const WORK: f64 = 0.5;

/// Devices that are slower take longer for every piece of computation, more micro-batches only for the longest: both must have
/// grown. That issuing takes longer for all says nothing: more micro-batches look the same.
pub(super) fn cause(timeline: &Timeline, evidence: &Evidence, needed: f64) -> Option<Cause> {
    let subject = Subject::Job;
    let track = evidence.tracks.get(&(Component::Iteration, subject.clone()))?;
    if track.log_odds < needed || track.mean() < DUE {
        return None;
    }
    let common = |component| evidence.common.of(component);
    let hosts: BTreeSet<HostName> = timeline.ranks.by_slot().iter().map(|state| state.host.clone()).collect();
    let (now_ms, more_ms) = evidence.grown_ms(track.since);
    if more_ms.is_some_and(|more_ms| more_ms < DUE * (now_ms - more_ms)) {
        return None; // a few iterations did, not most of the last ones: checkpoints
    }
    let grew = format!("iterations take {now_ms:.0} ms, {:.0} ms more than before", more_ms.unwrap_or(0.0));
    let [wire, computation, rest] =
        [Component::Wire, Component::Computation, Component::Rest].map(|component| common(component).unwrap_or(1.0));
    // What goes between hosts may wait for nobody: then it accounts for nothing.
    let accounts = evidence.way_more_ms() >= WORK * more_ms.unwrap_or(0.0);
    let slow = ways::hosts(&evidence.way_times(), evidence.all_ways()).filter(|_| accounts);
    if slow.is_none() && track.rows < PAST_MIN {
        return None; // whoever it is may stand out yet
    }
    let (component, category, suspects, text) = if let Some(Ends { hosts, is_either }) = slow {
        let text =
            format!("all ways that take longer than before are those of {}, and all others are as fast", names(&hosts));
        let category = if hosts.len() == 1 { Category::NetworkSend } else { Category::NetworkCongestion };
        let suspects = hosts.iter().map(if is_either { half } else { suspect }).collect();
        (Component::Wire, category, suspects, text)
    } else if wire >= 1.0 + SLOWER {
        let text = format!("the same bytes are {wire:.1} times as long on their way between all hosts");
        let both = if hosts.len() == 2 { hosts.iter().map(half).collect() } else { Vec::new() };
        let category = if both.is_empty() { Category::NetworkCongestion } else { Category::NetworkSend };
        (Component::Wire, category, both, text)
    } else if computation >= 1.0 + COST && rest >= 1.0 + COST {
        let text = format!(
            "all devices compute {computation:.2} times as long, and {rest:.2} times between operations of one pass"
        );
        (Component::Computation, Category::Gpu, Vec::new(), text)
    } else if track.mean() >= DOUBLED && evidence.work_ms() < WORK * more_ms? {
        let text = "no rank, host or way stands out, and all compute and issue as before".to_owned();
        (Component::Iteration, Category::Unknown, Vec::new(), text)
    } else {
        return None; // more work for all
    };
    let told = |rule, text| Told { rule, text, at: track.until };
    let because = vec![told("job.wide", text), told("evidence.cost", grew)];
    Some(Cause { key: (component, subject), category, suspects, since: track.onset, because })
}

fn names(hosts: &[HostName]) -> String {
    hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

fn suspect(host: &HostName) -> Suspect {
    Suspect { place: Place::Host { host: host.clone() }, confidence: SURE }
}

fn half(host: &HostName) -> Suspect {
    Suspect { place: Place::Host { host: host.clone() }, confidence: 0.5 }
}
