//! What a validation does to a finding: its first suspect is confirmed or cleared, or another one is found.
use super::{Check, Judgement, SlowPlace};
use mycroft_record::{Category, Finding, HostName, Place, Rank, Suspect};
use std::collections::BTreeMap;

/// What became of the first suspect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is slower than its peers.
    Confirmed,
    /// It was tested, is as fast as its peers, and so is everybody else.
    Cleared,
    /// It is as fast as its peers, and somebody else is not.
    Other,
    /// It was not tested, and nobody is slow.
    Untested,
}

impl Outcome {
    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Outcome::Confirmed => "confirmed",
            Outcome::Cleared => "cleared",
            Outcome::Other => "other",
            Outcome::Untested => "untested",
        }
    }
}

/// A finding after its validation.
#[derive(Clone, PartialEq, Debug)]
pub struct Weighed {
    /// What became of its first suspect.
    pub outcome: Outcome,
    /// What kind of fault it is now.
    pub category: Category,
    /// Whom it names now, most likely first.
    pub suspects: Vec<Suspect>,
}

/// How often a component that makes a job slow is slow in a test, too (not: what comes and goes, or heats up).
const SHOWS: f64 = 0.9;
/// How often one that does not is.
const SHOWS_BY_CHANCE: f64 = 0.02;
/// How sure a suspect is that only the validation found: it is slow, and whether that slows down the job is not shown.
const FOUND: f64 = 0.8;

/// By Bayes' rule: how sure a suspect of `confidence` is once it was tested.
fn after(confidence: f64, is_slow: bool) -> f64 {
    let prior = confidence.clamp(0.01, 0.99);
    let (guilty, innocent) = if is_slow { (SHOWS, SHOWS_BY_CHANCE) } else { (1.0 - SHOWS, 1.0 - SHOWS_BY_CHANCE) };
    prior * guilty / (prior * guilty + (1.0 - prior) * innocent)
}

/// Weighs a finding anew; `hosts` says where each rank is.
pub fn weigh(finding: &Finding, judgement: &Judgement, hosts: &BTreeMap<Rank, HostName>) -> Weighed {
    let mut suspects = finding.suspects.clone();
    let mut unexplained: Vec<SlowPlace> = judgement.slow.iter().map(|slow| slow.place).collect();
    let mut first = None;
    for (i, suspect) in suspects.iter_mut().enumerate() {
        let is_it = |slow: &SlowPlace| is_at(&suspect.place, slow, hosts);
        let slow: Option<SlowPlace> = unexplained.iter().copied().find(is_it);
        let was_tested = slow.is_some() || is_tested(&suspect.place, judgement, hosts);
        unexplained.retain(|slow| !is_it(slow));
        if was_tested {
            suspect.confidence = after(suspect.confidence, slow.is_some());
        }
        if i == 0 {
            first = Some((slow, was_tested));
        }
    }
    let found = unexplained.iter().map(|slow| Suspect { place: place_of(slow, hosts), confidence: FOUND });
    let has_found = !unexplained.is_empty();
    suspects.extend(found);
    suspects.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
    let (outcome, category) = match first {
        Some((Some(slow), _)) => (Outcome::Confirmed, confirmed_category(finding.category, &slow)),
        _ if !judgement.slow.is_empty() => {
            let named = unexplained.first().or(judgement.slow.first().map(|slow| &slow.place));
            (Outcome::Other, named.filter(|_| has_found).map_or(finding.category, category_of))
        }
        Some((None, true)) => (Outcome::Cleared, finding.category),
        _ => (Outcome::Untested, finding.category),
    };
    Weighed { outcome, category, suspects }
}

fn ranks_of(slow: &SlowPlace) -> Vec<Rank> {
    match slow {
        SlowPlace::Alone(rank, _) | SlowPlace::Ends(rank) => vec![*rank],
        SlowPlace::Link(one, other) => vec![*one, *other],
    }
}

/// Whether what is slow is this place.
fn is_at(place: &Place, slow: &SlowPlace, hosts: &BTreeMap<Rank, HostName>) -> bool {
    let at_host = |host: &HostName| ranks_of(slow).iter().any(|rank| hosts.get(rank) == Some(host));
    match (place, slow) {
        (Place::Rank { rank, .. }, SlowPlace::Alone(slow, _) | SlowPlace::Ends(slow)) => rank == slow,
        (Place::Host { host }, SlowPlace::Alone(..) | SlowPlace::Ends(_)) => at_host(host),
        (Place::Link { from, to }, SlowPlace::Link(..)) => at_host(from) && at_host(to),
        _ => false,
    }
}

/// Whether anything of this place was tested.
fn is_tested(place: &Place, judgement: &Judgement, hosts: &BTreeMap<Rank, HostName>) -> bool {
    let on = |rank: &Rank, host: &HostName| hosts.get(rank) == Some(host);
    let alone = judgement.checks.iter().filter(|row| row.ratio.is_some()).map(|row| row.result.rank);
    let mut links = judgement.links.iter().filter(|row| row.ratio.is_some()).map(|row| row.result);
    match place {
        Place::Rank { rank, .. } => alone.into_iter().any(|tested| tested == *rank),
        Place::Host { host } => alone.into_iter().any(|tested| on(&tested, host)),
        Place::Link { from, to } => links.any(|link| on(&link.from, from) && on(&link.to, to)),
    }
}

fn place_of(slow: &SlowPlace, hosts: &BTreeMap<Rank, HostName>) -> Place {
    let host = |rank: &Rank| hosts.get(rank).cloned().unwrap_or_default();
    match slow {
        SlowPlace::Alone(rank, _) | SlowPlace::Ends(rank) => Place::Rank { rank: *rank, host: host(rank) },
        SlowPlace::Link(one, other) => Place::Link { from: host(one), to: host(other) },
    }
}

/// What kind of fault it is that this is slow.
fn category_of(slow: &SlowPlace) -> Category {
    match slow {
        SlowPlace::Alone(_, Check::Device) => Category::Gpu,
        SlowPlace::Alone(_, Check::Copy) => Category::GpuCopy,
        SlowPlace::Alone(_, Check::Processor | Check::Host) => Category::HostThread,
        SlowPlace::Ends(_) => Category::NetworkSend,
        SlowPlace::Link(..) => Category::NetworkCongestion,
    }
}

/// A category that the test fits is kept: sending, receiving and congestion look alike to it.
fn confirmed_category(said: Category, slow: &SlowPlace) -> Category {
    let is_network =
        |category| matches!(category, Category::NetworkSend | Category::NetworkReceive | Category::NetworkCongestion);
    let shown = category_of(slow);
    if is_network(said) && is_network(shown) { said } else { shown }
}
