//! How long ranks wait while nothing is wrong, and from when on a wait is a stall.
use crate::blame::graph::Stillness;
use crate::config::Config;
use mycroft_record::{HostTime, NANOS_PER_MS, NANOS_PER_SEC};
use std::collections::VecDeque;

/// Waits kept, the longest; the second longest counts, so that one hiccup does not blunt the trigger.
const WAITS_KEPT: usize = 64;
/// For so long a job remembers them: checkpoints and evaluations come every few minutes to an hour.
pub(crate) const REMEMBERED_NS: u64 = 3_600 * NANOS_PER_SEC;

/// A wait that is over.
#[derive(Clone, Copy, Debug)]
struct Wait {
    since: HostTime,
    /// Longest time without progress, nanoseconds.
    ns: u64,
    /// There was no baseline of iterations then.
    is_young: bool,
}

/// What is known of a job's waits.
#[derive(Debug, Default)]
pub(super) struct Waits {
    kept: Vec<Wait>,
    /// Begin and nanoseconds of those that were too long, or came while something else was wrong: whether they were healthy shows
    /// by the iterations that they lie in.
    asked: VecDeque<(HostTime, u64)>,
    /// The wait that may still last: since when, and for how long.
    candidate: Option<(HostTime, u64)>,
    /// Iterations have no baseline.
    is_young: bool,
}

impl Waits {
    /// Takes note of whether iterations have a baseline. Waits from before it may have been of any kind: those that would have
    /// been stalls are forgotten then, the others a minute after they began.
    pub(super) fn begin(&mut self, config: &Config, has_baseline: bool, now: HostTime) {
        if has_baseline {
            let is_fresh =
                |wait: &Wait| wait.ns < config.stall_warmup_ns && now.since_ns(wait.since) < config.stall_start_ns;
            self.kept.retain(|wait| !wait.is_young || is_fresh(wait));
        }
        self.is_young = !has_baseline;
    }

    /// From how long on a wait is a stall, nanoseconds, and where that comes from. `computed`: the longest usual computation
    /// of a sampled rank, nanoseconds.
    ///
    /// Without a baseline of iterations nothing tells a long step from a stall but waits that the job went on after.
    pub(super) fn threshold(&self, config: &Config, computed: u64) -> (u64, String) {
        let longest = if self.is_young { self.second_longest() } else { self.second_longest().max(computed) };
        let (least, why) = match self.is_young {
            true => (config.stall_warmup_ns, "no baseline of healthy iterations yet"),
            false => (config.stall_floor_ns, "the floor; healthy waits are shorter"),
        };
        let learned = longest.saturating_mul(config.stall_wait_factor);
        if learned <= least {
            return (least, why.to_owned());
        }
        let kind = if self.is_young { "wait after which the job went on" } else { "healthy wait" };
        (learned, format!("{} x the longest {kind} of {} ms", config.stall_wait_factor, longest / NANOS_PER_MS))
    }

    /// Whether iterations have no baseline.
    pub(super) fn is_young(&self) -> bool {
        self.is_young
    }

    fn second_longest(&self) -> u64 {
        self.kept.get(1).map_or(0, |wait| wait.ns)
    }

    /// Waits in iterations that took no longer than usual are part of them, however long they are. `is_healthy`: whether the
    /// iterations of a time were as usual; `None`: not known yet.
    pub(super) fn confirm(&mut self, is_healthy: impl Fn(HostTime, HostTime) -> Option<bool>) {
        for (since, ns) in std::mem::take(&mut self.asked) {
            match is_healthy(since, since + ns) {
                Some(true) => self.keep(Wait { since, ns, is_young: false }),
                Some(false) => {}
                None => self.asked.push_back((since, ns)),
            }
        }
    }

    fn keep(&mut self, wait: Wait) {
        self.kept.retain(|other| wait.since.since_ns(other.since) < REMEMBERED_NS);
        self.kept.push(wait);
        self.kept.sort_by_key(|wait| std::cmp::Reverse(wait.ns));
        self.kept.truncate(WAITS_KEPT);
    }

    /// A wait counts as healthy once it is over (even the stillest ranks have moved after it), was no stall, and nothing
    /// else was suspicious. Without a baseline every wait that is over counts until there is one.
    pub(super) fn learn(&mut self, worst: &Stillness, threshold_ns: u64, is_quiet: bool) {
        let Some((since, ns)) = self.candidate else {
            self.candidate = Some((worst.since, worst.ns()));
            return;
        };
        if worst.since <= since {
            self.candidate = Some((since.min(worst.since), ns.max(worst.ns())));
            return;
        }
        if worst.since <= since + ns {
            return; // others are the stillest now; whether this wait is over shows later
        }
        self.candidate = Some((worst.since, worst.ns()));
        let is_short = ns < threshold_ns && is_quiet;
        if self.is_young || is_short {
            self.keep(Wait { since, ns, is_young: self.is_young });
        }
        if self.is_young || !is_short {
            self.asked.push_back((since, ns));
            if self.asked.len() > WAITS_KEPT {
                self.asked.pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: u64) -> HostTime {
        HostTime((1_000 + second) * NANOS_PER_SEC)
    }

    /// A wait from a second on, for so many, that is over; with a baseline of iterations unless it is young.
    fn wait(waits: &mut Waits, since: u64, seconds: u64, is_quiet: bool) {
        let (threshold_ns, _) = waits.threshold(&Config::default(), 0);
        waits.learn(&Stillness { since: at(since), until: at(since + seconds) }, threshold_ns, is_quiet);
        let later = Stillness { since: at(since + seconds + 1), until: at(since + seconds + 1) };
        waits.learn(&later, threshold_ns, is_quiet);
    }

    fn seconds(waits: &Waits) -> u64 {
        waits.threshold(&Config::default(), 0).0 / NANOS_PER_SEC
    }

    /// Generation of a minute between two trainings is a part of each iteration.
    #[test]
    fn long_waits_in_usual_iterations_are_no_stalls() {
        let (config, mut waits) = (Config::default(), Waits::default());
        waits.begin(&config, true, at(0));
        for since in [0, 100, 200] {
            wait(&mut waits, since, 60, true);
        }
        waits.confirm(|_, _| None);
        assert_eq!(seconds(&waits), 0, "nothing tells yet whether these iterations were as usual");
        waits.confirm(|_, _| Some(true));
        assert_eq!(seconds(&waits), 180);
        let mut others = Waits::default();
        others.begin(&config, true, at(0));
        [0, 100, 200].iter().for_each(|since| wait(&mut others, *since, 60, true));
        others.confirm(|_, _| Some(false));
        assert_eq!(seconds(&others), 0, "what made iterations longer was no part of them");
    }

    /// What a start takes tells nothing later: long waits at once, short ones after a minute.
    #[test]
    fn waits_from_before_a_baseline_are_forgotten() {
        let (config, mut waits) = (Config::default(), Waits::default());
        waits.begin(&config, false, at(0));
        for (since, seconds) in [(0, 30), (40, 30), (80, 4), (90, 4)] {
            wait(&mut waits, since, seconds, true);
        }
        assert_eq!(seconds(&waits), 90, "the job went on after waits of half a minute");
        waits.begin(&config, true, at(100));
        assert_eq!(seconds(&waits), 12);
        waits.begin(&config, true, at(151));
        assert_eq!(seconds(&waits), 0);
    }

    /// However many short ones come between, a wait is remembered for an hour.
    #[test]
    fn waits_are_remembered_for_an_hour() {
        let (config, mut waits) = (Config::default(), Waits::default());
        waits.begin(&config, true, at(0));
        [0, 10].iter().for_each(|since| wait(&mut waits, *since, 3, true));
        waits.confirm(|_, _| Some(true));
        (0..100).for_each(|nth| wait(&mut waits, 20 + 10 * nth, 0, true));
        assert_eq!(seconds(&waits), 9);
        wait(&mut waits, 4_000, 0, true);
        assert_eq!(seconds(&waits), 0);
    }
}
