//! What stands out, and what is made of it.
use crate::evidence::{COST, SLOWER, Subject, Track, WAITS};
use crate::measure::Component;
use crate::timeline::Timeline;
use mycroft_record::{Category, HostName, HostTime, Suspect};

/// Surest: of 493 cases of 720000..721000 that nothing speaks against so many were right (docs/results/slowdowns.md).
pub(super) const SURE: f64 = 0.93;

/// What else stands out is the cause twice as often as its share of both says: of 60 cases beside which something had a share of
/// 0.05 to 0.35 it was of 18 (720000..721000, docs/results/slowdowns.md).
pub(super) const OTHERS: f64 = 2.0;

/// By how many standard deviations iterations must be longer than before where the whole job or all of its network is named: by chance they
/// are at one of 700 looks, beside what else has to be so.
pub(super) const SURELY_LONGER: f64 = 3.0;

/// Who stands out by this share of what another does stands out as much.
const AS_MUCH: f64 = 0.8;

/// Of what iterations grew, what ways, all ranks of a host or all ranks take longer must be this share to be the reason.
pub(super) const WORK: f64 = 0.5;

/// What is in each of these places for as long as one of them is.
pub(crate) type Key = (Component, Subject);

/// Why iterations take longer.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Cause {
    pub(crate) key: Key,
    pub(crate) category: Category,
    /// Most likely first; nobody where it is all of the job.
    pub(crate) suspects: Vec<Suspect>,
    pub(crate) since: HostTime,
    pub(crate) because: Vec<Told>,
}

/// A sentence of why, by what rule, and until when it was seen.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Told {
    pub(crate) rule: &'static str,
    pub(crate) text: String,
    pub(crate) at: HostTime,
}

/// What counts of a component, as a share.
pub(super) fn counts(component: Component) -> f64 {
    match component {
        Component::Wire => SLOWER,
        Component::Waiting => WAITS,
        _ => COST,
    }
}

/// Something that stands out.
pub(super) struct Found<'a> {
    pub(super) component: Component,
    pub(super) subject: &'a Subject,
    pub(super) track: &'a Track,
    /// In multiples of what counts.
    pub(super) times: f64,
}

impl Found<'_> {
    /// Whether it is free of waiting for others.
    pub(super) fn is_own(&self) -> bool {
        matches!(self.component, Component::Computation | Component::Issue | Component::Waiting)
    }

    /// Whether it stands out in the same way and about as much.
    pub(super) fn is_as(&self, other: &Found<'_>) -> bool {
        let is_same = std::mem::discriminant(self.subject) == std::mem::discriminant(other.subject);
        is_same && self.component == other.component && (AS_MUCH..=1.0 / AS_MUCH).contains(&(self.times / other.times))
    }
}

/// The hosts that a subject is of.
pub(super) fn hosts_of(timeline: &Timeline, subject: &Subject) -> Vec<HostName> {
    match subject {
        Subject::Rank(slot) => vec![timeline.ranks.at(*slot).host.clone()],
        Subject::Host(host) => vec![host.clone()],
        Subject::Way(from, to) => vec![from.clone(), to.clone()],
        Subject::Job => Vec::new(),
    }
}
