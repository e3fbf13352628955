//! The clocks of hosts: every time of a record is put on the server's clock before anything is compared.
//!
//! Servers measure how far each host's clock is ahead and write it into the stream (`ClockOffset`). A host's clock is a
//! chain of lines, of which a new one begins when the clock was set; each time of a record is read by the line that held
//! when the clock showed it. A line is kept until what is measured contradicts it: corrections that wander would move
//! times that are past.
use mycroft_record::{Batch, ClockOffset, HostName, HostTime, NANOS_PER_MS, NANOS_PER_SEC, Record};
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

/// Clocks that differ by no more are taken as they are: what is compared across hosts allows for ten times that, and most
/// clusters are kept within a millisecond.
const CLOSE_NS: u64 = 5 * NANOS_PER_MS;
/// A clock that is off by more is told of: logs and stacks of its host have wrong times, too.
const TOLD_NS: u64 = 100 * NANOS_PER_MS;
/// What two measurements may differ by beyond their bounds, and what a correction is not worth changing for.
const FINE_NS: u64 = NANOS_PER_MS;
/// As fast as two clocks part at most, parts per billion (see `docs/formats/wire.md`).
const RATE_PPB_MAX: u64 = 1_000_000;
/// A clock that is not known may be wrong by so much, as far as silence is concerned: longer than any silence but the end.
pub(crate) const UNKNOWN_NS: u64 = 60 * NANOS_PER_SEC;
/// Lines kept per host: as many as a clock may be set during the longest operation in flight and its backlog.
const LINES_MAX: usize = 8;
/// Hosts whose clocks are kept: 100,000 ranks at 8 a host, eight times over; at 200 bytes 20 MB.
const HOSTS_MAX: usize = 100_000;
/// Nothing is collected before it has happened; more than this before is of another line.
const AHEAD_NS: u64 = NANOS_PER_SEC;
/// Hosts named in one caveat.
const NAMED_MAX: usize = 8;

/// What limits a report because of clocks.
#[derive(Debug)]
pub(crate) struct Limit {
    pub(crate) rule: &'static str,
    pub(crate) text: String,
    pub(crate) hosts: Vec<HostName>,
}

/// The clocks of a job's hosts.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    hosts: BTreeMap<HostName, HostClock>,
}

/// One host's clock.
#[derive(Debug)]
struct HostClock {
    /// Oldest first, never empty.
    lines: VecDeque<Line>,
    /// What was measured last.
    newest: ClockOffset,
}

/// How the clock ran until it was set again.
#[derive(Clone, Copy, Debug)]
struct Line {
    offset: ClockOffset,
    /// It holds from then on, by the server's clock.
    from: HostTime,
    /// Too far off to be taken as it is.
    is_off: bool,
}

impl Line {
    fn new(offset: ClockOffset, from: HostTime) -> Line {
        Line { offset, from, is_off: offset.offset_ns.unsigned_abs() > CLOSE_NS }
    }

    /// The server's time of what the clock showed.
    fn server(&self, host: HostTime) -> HostTime {
        if self.is_off { self.offset.server_time(host) } else { host }
    }
}

impl HostClock {
    fn new(offset: ClockOffset) -> HostClock {
        HostClock { lines: VecDeque::from([Line::new(offset, HostTime::NONE)]), newest: offset }
    }

    fn line(&self) -> &Line {
        &self.lines[self.lines.len() - 1]
    }

    fn take(&mut self, new: ClockOffset) {
        let last = *self.line();
        let was_set = new.since.is_some() && new.since != self.newest.since && new.since > last.from;
        let (told, is_known) = (last.offset.offset_at(new.at), new.is_known());
        let apart = told.abs_diff(new.offset_ns);
        let aged = new.at.since_ns(self.newest.at) / NANOS_PER_SEC * RATE_PPB_MAX + FINE_NS;
        let bound = |offset: &ClockOffset| if offset.is_known() { offset.bound_ns } else { TOLD_NS };
        // A guess since the same step is not contradicted but made good.
        let is_guess = !self.newest.is_known() && new.since == self.newest.since;
        let contradicts = !is_guess && apart > bound(&new).saturating_add(bound(&self.newest)).saturating_add(aged);
        if was_set || contradicts {
            // Another agent's connection, most often: it does not know what was before.
            let from = if was_set { new.since } else { self.newest.at };
            self.lines.push_back(Line::new(new, from));
            if self.lines.len() > LINES_MAX {
                self.lines.pop_front();
            }
        } else if let Some(line) = self.lines.back_mut() {
            let is_better = is_known && !line.offset.is_known();
            let is_as_good = is_known == line.offset.is_known();
            let allowed_ns = if is_known { new.bound_ns.max(FINE_NS) } else { FINE_NS };
            if is_better || (is_as_good && apart > allowed_ns) {
                line.offset = new;
            }
            line.is_off |= line.offset.offset_at(new.at).unsigned_abs() > CLOSE_NS;
        }
        self.newest = new;
    }

    /// How wrong corrected times may be.
    fn error_ns(&self) -> u64 {
        if !self.newest.is_known() {
            return UNKNOWN_NS;
        }
        let line = self.line();
        let corrected = if line.is_off { line.offset.offset_at(self.newest.at) } else { 0 };
        self.newest.bound_ns.saturating_add(corrected.abs_diff(self.newest.offset_ns)).min(UNKNOWN_NS - 1)
    }

    /// The server's time of what the clock showed when it was collected, and the number of the line that it is on.
    fn collected(&self, at: HostTime) -> (HostTime, usize) {
        let holds = |number: &usize| self.lines[*number].server(at) >= self.lines[*number].from;
        let number = (0..self.lines.len()).rev().find(holds).unwrap_or(0);
        (self.lines[number].server(at), number)
    }

    /// The server's time of what the clock showed in a record that was collected then.
    fn server(&self, shown: HostTime, (collected, newest): (HostTime, usize)) -> HostTime {
        let until = collected + AHEAD_NS;
        let on = |line: &Line| Some(line.server(shown)).filter(|at| *at >= line.from && *at <= until);
        let found =
            self.lines.range(1..=newest.max(1).min(self.lines.len() - 1)).rev().filter(|_| newest > 0).find_map(on);
        found.unwrap_or_else(|| self.lines[0].server(shown))
    }

    /// The batch with every time on the server's clock.
    fn correct(&self, batch: &Batch) -> Batch {
        let mut batch = batch.clone();
        let collected = self.collected(batch.collected_at);
        batch.collected_at = collected.0;
        for record in &mut batch.records {
            record.each_time(|time| {
                if time.is_some() {
                    *time = self.server(*time, collected);
                }
            });
        }
        batch
    }
}

impl Clocks {
    /// Takes in what a batch says of its host's clock; how wrong its corrected times may be now, if it says anything.
    pub(crate) fn take(&mut self, batch: &Batch) -> Option<u64> {
        let mut offsets = batch.records.iter().filter_map(|record| match record {
            Record::ClockOffset(offset) => Some(*offset),
            _ => None,
        });
        let first = offsets.next()?;
        let host = &batch.source.host;
        if self.hosts.len() >= HOSTS_MAX && !self.hosts.contains_key(host) {
            return None;
        }
        for offset in std::iter::once(first).chain(offsets) {
            match self.hosts.get_mut(host) {
                Some(clock) => clock.take(offset),
                None => drop(self.hosts.insert(host.clone(), HostClock::new(offset))),
            }
        }
        self.hosts.get(host).map(HostClock::error_ns)
    }

    /// The batch as it would be if its host's clock were the server's.
    pub(crate) fn correct<'a>(&self, batch: &'a Batch) -> Cow<'a, Batch> {
        match self.hosts.get(&batch.source.host) {
            Some(clock) if clock.lines.iter().any(|line| line.is_off) => Cow::Owned(clock.correct(batch)),
            _ => Cow::Borrowed(batch),
        }
    }

    /// What limits a report: clocks that are off, and clocks that nobody knows.
    pub(crate) fn caveats(&self) -> Vec<Limit> {
        let mut out = Vec::new();
        let mut say = |rule: &'static str, is_it: &dyn Fn(&ClockOffset) -> bool, rest: &str| {
            let found: Vec<(&HostName, &ClockOffset)> =
                self.hosts.iter().map(|(host, clock)| (host, &clock.newest)).filter(|(_, now)| is_it(now)).collect();
            if found.is_empty() {
                return;
            }
            let mut named: Vec<String> = found.iter().take(NAMED_MAX).map(|(host, now)| describe(host, now)).collect();
            if found.len() > NAMED_MAX {
                named.push(format!("{} more hosts", found.len() - NAMED_MAX));
            }
            let text = format!("{}; {rest}", named.join(", "));
            let hosts = found.into_iter().map(|(host, _)| host.clone()).collect();
            out.push(Limit { rule, text, hosts });
        };
        say(
            "clock-off",
            &|now| now.is_known() && now.offset_ns.unsigned_abs() > TOLD_NS,
            "times are corrected to the server's clock; set the clock: chronyc makestep",
        );
        say(
            "clock-unknown",
            &|now| !now.is_known(),
            "nobody there is accused by comparing times with other hosts; is the agent as new as the server, and does \
             something set the clock again and again?",
        );
        out
    }
}

/// The clock of one host in words.
fn describe(host: &HostName, now: &ClockOffset) -> String {
    let ms = |ns: u64| ns as f64 / NANOS_PER_MS as f64;
    let seconds = ms(now.offset_ns.unsigned_abs()) / 1e3;
    let word = if now.offset_ns < 0 { "behind" } else { "ahead" };
    if now.is_known() {
        format!("the clock of {host} is {seconds:.3} s {word} (within {:.1} ms)", ms(now.bound_ns))
    } else {
        format!("the clock of {host} is not known (about {seconds:.3} s {word})")
    }
}
