//! Replay: recorded batches through the brain again, at full speed, with the recorded times for a clock.
use mycroft_diagnose::{Config, Engine, Report};
use mycroft_record::{Batch, HostTime, JobName};
use std::collections::BTreeMap;
use std::time::Duration;

/// Time after the last batch that is still weighed: long enough for any stall to be declared.
const TAIL: Duration = Duration::from_secs(3);

/// Feeds `batches` to one engine per job in the order they were collected, ticking as the server would (every `tick`
/// and whenever an engine says that something becomes due), and gives each job's last report. The same batches give
/// the same reports, byte for byte, in whatever order they are given.
pub fn replay(mut batches: Vec<Batch>, tick: Duration) -> BTreeMap<JobName, Report> {
    batches.sort_by(|a, b| (a.collected_at, &a.source).cmp(&(b.collected_at, &b.source)));
    let tick_ns = u64::try_from(tick.as_nanos()).unwrap_or(u64::MAX).max(1);
    let mut engines: BTreeMap<JobName, Engine> = BTreeMap::new();
    let Some((first, last)) = batches.first().zip(batches.last()).map(|(a, b)| (a.collected_at, b.collected_at)) else {
        return BTreeMap::new();
    };
    let mut clock = Clock { now: first, next_tick: first + tick_ns, tick_ns };
    for batch in &batches {
        clock.advance(&mut engines, batch.collected_at);
        let name = &batch.source.job;
        let engine = engines.entry(name.clone()).or_insert_with(|| Engine::new(name.clone(), Config::default()));
        engine.observe(batch);
    }
    clock.advance(&mut engines, last + u64::try_from(TAIL.as_nanos()).unwrap_or(u64::MAX));
    engines.into_iter().map(|(name, engine)| (name, engine.report(last))).collect()
}

/// The recorded time.
struct Clock {
    /// Of the last tick.
    now: HostTime,
    /// The next regular one.
    next_tick: HostTime,
    tick_ns: u64,
}

impl Clock {
    /// Ticks everything that is due up to `until`.
    fn advance(&mut self, engines: &mut BTreeMap<JobName, Engine>, until: HostTime) {
        loop {
            let check =
                engines.values().filter_map(|engine| engine.next_check(self.now)).filter(|&at| at > self.now).min();
            let next = check.map_or(self.next_tick, |at| at.min(self.next_tick));
            if next > until {
                return;
            }
            for engine in engines.values_mut() {
                engine.tick(next);
            }
            self.now = next;
            if next == self.next_tick {
                self.next_tick = next + self.tick_ns;
            }
        }
    }
}
