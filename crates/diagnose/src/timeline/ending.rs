//! Who is gone, and what that says of the job: it ended, a part of it failed, or it is too early to tell.
use super::Timeline;
use super::rank::RankState;
use crate::fact::these;
use crate::life::{Ending, How};
use mycroft_record::{ExitStatus, HostName, HostTime, NANOS_PER_MS, Rank};
use std::collections::BTreeSet;

/// An agent looks at its processes this often (`agent::AgentConfig::sample_every`): of two that go in the same instant it,
/// or two agents, may see one in a look just after and the other in the next.
const LOOK_EVERY_NS: u64 = 100 * NANOS_PER_MS;
/// How far the clocks of two hosts may be apart: NTP lets a clock be off by up to 128 ms before it steps it (RFC 5905,
/// STEPT), and two hosts may be off in opposite directions.
const CLOCKS_APART_NS: u64 = 2 * 128 * NANOS_PER_MS;
/// Processes that are seen to be gone within this of each other may have gone in the same instant: one look between the two
/// ends, one that a busy host makes a period late, and clocks: 100 + 100 + 256 = 456 ms.
pub(crate) const SPREAD_NS: u64 = 2 * LOOK_EVERY_NS + CLOCKS_APART_NS;
/// A rank that lives is told of this often (`agent::SAMPLED_EVERY`), shipped within 100 ms and here within 100 ms more.
const SIGN_EVERY_NS: u64 = (500 + 100 + 100) * NANOS_PER_MS;
/// Who has given no sign of life this long after the first end was heard of gives none: 456 + 700 = 1,156 ms, which with the
/// 300 ms until it was heard of leaves 0.5 s of the two within which a crash is told.
pub(crate) const PATIENCE_NS: u64 = SPREAD_NS + SIGN_EVERY_NS;

/// What is known of those that are gone.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Exits {
    /// Nobody is gone, or only who ended as it should.
    Nobody,
    /// Somebody is gone, and the others have had no time yet to go as well, or to show that they live.
    Unclear,
    /// Somebody went first: the ranks that ended by themselves where that could be read, else empty.
    First(Vec<Rank>),
    /// The job is over.
    Over(Ending),
}

impl RankState {
    /// Its process is gone, in whatever way.
    pub(crate) fn is_gone(&self) -> bool {
        self.exit_clean.is_some() || self.dead_for_sure
    }

    /// When it last showed that it lives.
    fn lived_at(&self) -> HostTime {
        if self.alive { self.progress_at.max(self.sampled_at) } else { self.progress_at }
    }
}

impl Timeline {
    /// What those that are gone say. `crashed`: a case says already that somebody went first. `patience_over`: who has given
    /// no sign of life so far is not waited for any more.
    pub(crate) fn exits(&self, crashed: bool, patience_over: bool) -> Exits {
        let all = self.ranks.by_slot();
        if all.is_empty() || (self.leaving.is_empty() && !self.ended_well()) {
            return Exits::Nobody;
        }
        let failed: Vec<&RankState> = self.leaving().filter(|state| state.dead()).collect();
        let stay: Vec<&RankState> = all.iter().filter(|state| !state.is_gone() && !state.finalized()).collect();
        let Some(first) = Timeline::dead_since(&failed).min() else {
            return if stay.is_empty() { Exits::Over(self.finished(all)) } else { Exits::Nobody };
        };
        let lives = |state: &&RankState| state.knows_clock() && state.lived_at() > first + self.spread_ns();
        if stay.iter().any(lives) {
            return Exits::First(own_failures(&failed));
        }
        if stay.is_empty() {
            return self.all_gone(&failed, crashed);
        }
        if !patience_over {
            return Exits::Unclear;
        }
        // Who fell silent before is not known to have gone with the others, nor whose clock nobody knows.
        let silent_since = |state: &RankState| state.sampled_at + SIGN_EVERY_NS + self.spread_ns();
        let with_them = |state: &&RankState| state.knows_clock() && silent_since(state) >= first;
        if stay.iter().all(with_them) { self.all_gone(&failed, crashed) } else { Exits::First(Vec::new()) }
    }

    /// Within what ends are the same instant: also what clocks are known to be wrong by.
    fn spread_ns(&self) -> u64 {
        SPREAD_NS.saturating_add(self.clock_error_ns)
    }

    /// When these were gone by the clocks that are known; by any where none is.
    fn dead_since<'a>(gone: &'a [&RankState]) -> impl Iterator<Item = HostTime> + use<'a> {
        let is_any_known = gone.iter().any(|state| state.knows_clock());
        gone.iter().filter(move |state| state.knows_clock() || !is_any_known).map(|state| state.dead_since)
    }

    /// Nobody is left.
    fn all_gone(&self, failed: &[&RankState], crashed: bool) -> Exits {
        let all = self.ranks.by_slot();
        let gone: Vec<&RankState> = all.iter().filter(|state| state.dead_since.is_some()).collect();
        let (first, last) = (Timeline::dead_since(&gone).min(), Timeline::dead_since(&gone).max());
        let (Some(began), Some(at)) = (first, last) else { return Exits::Nobody };
        let own = own_failures(failed);
        let is_at_once = at.since_ns(began) <= self.spread_ns();
        let in_flight = failed.iter().any(|state| !state.live.is_empty());
        let all_zero = failed.iter().all(|state| state.status == ExitStatus::Code(0));
        if crashed || (!own.is_empty() && in_flight) || (!is_at_once && in_flight && !all_zero) {
            return if crashed { Exits::Over(self.failed(at)) } else { Exits::First(own) };
        }
        let by_signal = failed.iter().any(|state| matches!(state.status, ExitStatus::Signal(_)));
        if !by_signal && (all_zero || !in_flight) {
            return Exits::Over(self.finished(all));
        }
        Exits::Over(self.ended_from_outside(failed, at, at.since_ns(began)))
    }

    fn finished(&self, all: &[RankState]) -> Ending {
        let at = all.iter().map(|state| state.dead_since.max(state.left_at)).max().unwrap_or_default();
        let count = all.len();
        let because = if self.ended_well() {
            format!("all {count} ranks finalized their communicators")
        } else if all.iter().all(|state| state.ended_well() || state.status == ExitStatus::Code(0)) {
            format!("all {count} ranks ended with exit code 0")
        } else {
            format!("all {count} ranks are gone, and none was in an operation")
        };
        Ending { at, how: How::Finished, because }
    }

    fn ended_from_outside(&self, failed: &[&RankState], at: HostTime, within_ns: u64) -> Ending {
        let all = self.ranks.by_slot();
        let hosts: BTreeSet<&HostName> = all.iter().map(|state| &state.host).collect();
        let silent: Vec<Rank> =
            self.ranks.values().filter(|state| !state.dead_since.is_some()).map(|state| state.rank).collect();
        let known: BTreeSet<ExitStatus> =
            failed.iter().map(|state| state.status).filter(|status| *status != ExitStatus::Unknown).collect();
        let told: Vec<String> = known.iter().map(ToString::to_string).collect();
        let by = if told.is_empty() { String::new() } else { format!(" by {}", told.join(" or ")) };
        let (gone, hosts) = (all.len() - silent.len(), hosts.len());
        let alike = self.spread_ns() / NANOS_PER_MS;
        let mut because = format!(
            "{gone} ranks of {hosts} hosts were gone within {} ms{by}; up to {alike} ms are the same instant",
            within_ns / NANOS_PER_MS
        );
        if !silent.is_empty() {
            because.push_str(&format!("; nothing is heard of {} since", these(&silent)));
        }
        Ending { at, how: How::Outside, because }
    }

    /// Nobody is left, and somebody went first.
    fn failed(&self, at: HostTime) -> Ending {
        let first = self.leaving().filter(|state| state.dead()).min_by_key(|state| (state.dead_since, state.rank));
        let because = match first {
            Some(first) => {
                let later = at.since_ns(first.dead_since) as f64 / 1e9;
                format!("rank {} on {} went first, the last {later:.1} s after it", first.rank, first.host)
            }
            None => "a part of it was gone".to_owned(),
        };
        Ending { at, how: How::Failed, because }
    }

    /// How the present processes came to their end, when others take their place.
    pub(crate) fn replaced(&self, crashed: bool) -> Ending {
        let at = self.leaving().map(|state| state.dead_since).max().unwrap_or(self.newest_sample);
        match self.exits(crashed, true) {
            Exits::Over(ending) => ending,
            _ => self.failed(at),
        }
    }
}

/// The ranks that failed by themselves, where others were ended by a signal that is sent: a launcher that sees one fail ends
/// the others within milliseconds.
fn own_failures(failed: &[&RankState]) -> Vec<Rank> {
    // SIGHUP, SIGINT, SIGKILL, SIGUSR1, SIGUSR2 and SIGTERM come from outside, also where a shell or a handler made a code of
    // them.
    const SENT: [u8; 6] = [1, 2, 9, 10, 12, 15];
    let is_sent = |status: ExitStatus| match status {
        ExitStatus::Signal(signal) => SENT.contains(&signal),
        ExitStatus::Code(code) => SENT.iter().any(|signal| code == 128 + signal),
        ExitStatus::Unknown => false,
    };
    let is_own = |status: ExitStatus| !is_sent(status) && !matches!(status, ExitStatus::Unknown | ExitStatus::Code(0));
    let Some(first) = failed.iter().map(|state| state.dead_since).min() else { return Vec::new() };
    let is_sent_to = |state: &&&RankState| is_sent(state.status);
    let own: Vec<Rank> = failed
        .iter()
        .filter(|state| is_own(state.status) && state.dead_since.since_ns(first) <= SPREAD_NS)
        .map(|state| state.rank)
        .collect();
    // Where most end like that it is how the program answers a signal.
    if own.len() < failed.iter().filter(is_sent_to).count() { own } else { Vec::new() }
}
