//! The network as a cause: of the ways that are slow, the NICs or the path that account for them.
use super::found::{Cause, SURE, SURELY_LONGER, Told, WORK, hosts_of};
use super::ways::{self, Ends};
use crate::blame::nic;
use crate::config::Config;
use crate::evidence::{COST, Evidence, LATELY, PAST_MIN, SLOWER, Subject, Track};
use crate::measure::Component;
use crate::timeline::Timeline;
use mycroft_record::{Category, HostName, HostTime, Place, Suspect};
use std::slice;

/// By how many standard deviations iterations must be longer than before where ways are slow for sure: by chance they are at one of 44
/// looks, and then since just when the ways are slow.
const LONGER: f64 = 2.0;

/// Ways that are slow, and what accounts for them.
pub(super) struct Network<'a> {
    slow: Vec<((HostName, HostName), &'a Track)>,
    ends: Ends,
    since: HostTime,
    /// It was slow when it was first known: others say what it should take.
    from_start: bool,
}

impl<'a> Network<'a> {
    /// What the ways say for sure, where that is enough to account for what iterations grew.
    pub(super) fn of(timeline: &Timeline, config: &Config, evidence: &'a Evidence, needed: f64) -> Option<Network<'a>> {
        let way = |((component, subject), track): (&'a (Component, Subject), &'a Track)| match (component, subject) {
            (Component::Wire, Subject::Way(from, to)) => Some(((from.clone(), to.clone()), track)),
            _ => None,
        };
        let (times, light) = (evidence.way_times(), evidence.light_times());
        let slower = |way: &(HostName, HostName)| {
            times.get(way).or_else(|| light.get(way)).is_some_and(|times| *times >= 1.0 + SLOWER)
        };
        // Of one that is slow for sure those tell what it is that are likely to be.
        let is_slow = |(way, track): &((HostName, HostName), &Track)| track.log_odds >= needed / 2.0 && slower(way);
        let slow: Vec<_> = evidence.tracks.iter().filter_map(way).filter(is_slow).collect();
        slow.iter().find(|(_, track)| track.log_odds >= needed)?;
        // What is nearer to what it was than to the slowest has another cause.
        let times_of = |way: &(HostName, HostName)| times.get(way).or_else(|| light.get(way)).copied().unwrap_or(1.0);
        let least = slow.iter().map(|(way, _)| times_of(way)).fold(f64::MAX, f64::min);
        let most = slow.iter().map(|(way, _)| times_of(way)).fold(1.0, f64::max);
        let slow: Vec<_> = slow.into_iter().filter(|(way, _)| times_of(way) >= most.sqrt()).collect();
        let ways: Vec<&(HostName, HostName)> = slow.iter().map(|(way, _)| way).collect();
        let most = worst(&slow)?.1;
        let since = most.onset();
        // Of a line of which others take a share that much less is left.
        let share = WORK * (1.0 - 1.0 / (1.0 + most.mean()));
        let shared = || ways::shared(&ways, &nic::busy_since(timeline, config, since, share));
        let ends = shared().or_else(|| ways::ends_of(&ways, least, &times, &light))?;
        let from_start = slow.iter().any(|(way, _)| evidence.was_slow_at_first(way));
        let network = Network { slow, ends, since, from_start };
        // Where nothing tells a NIC from what it is connected to, somebody may stand out yet.
        let (sigmas, rows) = match network.ends {
            Ends::All => (SURELY_LONGER, PAST_MIN),
            Ends::Nics(_) | Ends::Shared(_) | Ends::Path(_) => (LONGER, 0),
            Ends::Either(_) | Ends::Rather(_) => (LONGER, LATELY as u32),
        };
        let is_longer = evidence.longer(since).is_none_or(|longer| longer.sigmas >= sigmas);
        let accounts = is_longer
            && network.worst().1.rows >= rows
            && match evidence.grown_ms(since) {
                (_, Some(more_ms)) if network.ends == Ends::All => evidence.work_ms() < (1.0 - WORK) * more_ms,
                (_, Some(more_ms)) => network.accounts_for(evidence, more_ms),
                // Slow from the start is what others are not.
                (_, None) => !(from_start && network.ends == Ends::All),
            };
        accounts.then_some(network)
    }

    /// The way that costs most.
    pub(super) fn worst(&self) -> &((HostName, HostName), &'a Track) {
        worst(&self.slow).expect("there is a slow way")
    }

    /// No iteration waits for them longer than data is under way longer on one after the other, milliseconds.
    fn more_ms(&self) -> f64 {
        self.slow.iter().map(|(_, track)| track.more_ms.max(0.0)).sum()
    }

    /// Whether it is clear whose NIC it is, or which path: only then it is a cause beside others.
    pub(super) fn is_clear(&self) -> bool {
        !matches!(self.ends, Ends::Either(_) | Ends::Rather(_) | Ends::All)
    }

    /// Whether they got slow later than something that began at a moment, so that iterations just before show what that costs.
    pub(super) fn is_later(&self, evidence: &Evidence, began: HostTime) -> bool {
        evidence.step_from(self.since).is_some_and(|from| from >= began)
    }

    /// Whether they account for what iterations grew. What a case is about that slowed iterations before, and does, is not counted in.
    fn accounts_for(&self, evidence: &Evidence, grown_ms: f64) -> bool {
        let is_own = |subject: &Subject| {
            let is_of = |(from, to): &(HostName, HostName)| *subject == Subject::Way(from.clone(), to.clone());
            self.slow.iter().any(|(way, _)| is_of(way))
        };
        match evidence.is_slowed_by_another(self.since, is_own) {
            true => self.accounts_for_step(evidence),
            false => self.more_ms() >= WORK * grown_ms,
        }
    }

    /// Whether iterations got longer when they got slow, by what counts, and they account for that.
    pub(super) fn accounts_for_step(&self, evidence: &Evidence) -> bool {
        let grown_ms = evidence.grown_ms(self.since).1;
        let step_ms = evidence.step_ms(self.since).into_iter().chain(grown_ms).reduce(f64::min);
        let least_ms = evidence.usual_ms().map_or(0.0, |(usual_ms, _)| COST * usual_ms);
        step_ms.is_some_and(|step_ms| step_ms >= least_ms && self.more_ms() >= WORK * step_ms)
    }

    /// In multiples of what counts.
    pub(super) fn times(&self) -> f64 {
        self.worst().1.mean() / SLOWER
    }

    /// Whether it is about a subject's host.
    pub(super) fn is_about(&self, timeline: &Timeline, subject: &Subject) -> bool {
        let hosts = self.ends.hosts();
        hosts_of(timeline, subject).iter().any(|host| hosts.contains(host))
    }

    /// The case of it, `confidence` of which is left beside other causes.
    pub(super) fn cause(&self, confidence: f64, cost: Told) -> Cause {
        let ((from, to), track) = self.worst();
        let text = format!("{}; {:.1} times as long where that costs most", self.text(), 1.0 + track.mean());
        Cause {
            key: (Component::Wire, Subject::Way(from.clone(), to.clone())),
            category: self.category(),
            suspects: self.suspects(confidence.min(SURE)),
            since: self.since,
            because: vec![Told { rule: "evidence.wire", text, at: track.until }, cost],
        }
    }

    fn suspects(&self, confidence: f64) -> Vec<Suspect> {
        let each = |hosts: &[HostName], confidence: f64| -> Vec<Suspect> {
            let place = |host: &HostName| Place::Host { host: host.clone() };
            hosts.iter().map(|host| Suspect { place: place(host), confidence }).collect()
        };
        match &self.ends {
            Ends::Nics(hosts) => each(hosts, confidence / hosts.len() as f64),
            Ends::Shared(hosts) | Ends::Either(hosts) | Ends::Path(hosts) => each(hosts, confidence / 2.0),
            // Of the two causes that fit it is at both, and the other at one.
            Ends::Rather([host, peer]) => {
                let of = |host, thirds| each(slice::from_ref(host), thirds * confidence / 3.0);
                [of(host, 2.0), of(peer, 1.0)].concat()
            }
            Ends::All => Vec::new(),
        }
    }

    fn text(&self) -> String {
        let slow = self.slow.len();
        let than = if self.from_start { "others that carry as much" } else { "before" };
        let are_of = |hosts| format!("all ways that take longer than {than} ({slow}) are those of {}", names(hosts));
        match &self.ends {
            Ends::Nics(hosts) if hosts.len() == 1 => format!("{}, and all others are as fast", are_of(hosts)),
            Ends::Nics(hosts) => are_of(hosts),
            Ends::Shared(hosts) => {
                format!("{}, whose interfaces carry more traffic of others than before", are_of(hosts))
            }
            Ends::Either(hosts) => format!(
                "only between {} the same bytes are under way for longer: the NIC of either, or what is between them",
                names(hosts)
            ),
            Ends::Rather([host, peer]) => format!(
                "only between {host} and {peer} the same bytes are under way for longer: the NIC of {host}, or what is \
                 between them",
            ),
            Ends::Path(hosts) => format!(
                "between {} the same bytes are under way for longer, while both are as fast as {than} towards others",
                names(hosts)
            ),
            Ends::All => "the same bytes are longer on their way between all hosts".to_owned(),
        }
    }

    fn category(&self) -> Category {
        match &self.ends {
            Ends::Nics(hosts) if hosts.len() == 1 => self.direction(&hosts[0]),
            Ends::Rather([host, _]) => self.direction(host),
            Ends::Either(_) => Category::NetworkSend,
            _ => Category::NetworkCongestion,
        }
    }

    /// What a host sends, or only what it receives.
    fn direction(&self, host: &HostName) -> Category {
        match self.slow.iter().any(|((from, _), _)| from == host) {
            true => Category::NetworkSend,
            false => Category::NetworkReceive,
        }
    }
}

type Slow<'a> = ((HostName, HostName), &'a Track);

fn worst<'a, 'b>(slow: &'b [Slow<'a>]) -> Option<&'b Slow<'a>> {
    slow.iter().max_by(|a, b| a.1.more_ms.total_cmp(&b.1.more_ms))
}

fn names(hosts: &[HostName]) -> String {
    hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}
