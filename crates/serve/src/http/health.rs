//! The server's own state: what it took in, what it dropped, what is wrong with it.
use super::Shared;
use crate::api::{DroppedJson, HealthJson, QueueJson, TimeJson};
use crate::stats::get;
use mycroft_record::text::printable_within;
use mycroft_wire::sync::lock;
use mycroft_wire::{ListenerHandle, ServerStats};
use std::collections::BTreeSet;

/// Names in a message.
const NAMES_SHOWN: usize = 8;

impl Shared {
    /// What the agents' listeners have done, all together.
    pub(crate) fn wire(&self) -> ServerStats {
        let mut sum = ServerStats::default();
        for one in lock(&self.listeners).iter().map(ListenerHandle::stats) {
            sum.connections += one.connections;
            sum.refused += one.refused;
            sum.put_out += one.put_out;
            sum.frames += one.frames;
            sum.bytes += one.bytes;
            sum.duplicates += one.duplicates;
            sum.rejected += one.rejected;
            sum.handler_panics += one.handler_panics;
            sum.skipped_records += one.skipped_records;
        }
        sum
    }

    /// What is wrong with the server, one sentence each.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut problems = self.stats.problems();
        let panics = self.wire().handler_panics;
        if panics > 0 {
            problems.push(format!(
                "the server failed {panics} times on what agents sent, frames it failed on three times are lost: \
                 send its log to the developers"
            ));
        }
        let listeners = lock(&self.listeners);
        let named: BTreeSet<String> = listeners.iter().flat_map(ListenerHandle::shared_names).collect();
        let tight = listeners.first().map(ListenerHandle::shares).filter(|shares| shares.is_tight);
        drop(listeners);
        if !named.is_empty() {
            let shown: Vec<_> = named.iter().take(NAMES_SHOWN).map(|name| printable_within(name, 64)).collect();
            problems.push(format!(
                "agents of several machines call their host the same ({} names, {}): their records mix, give each another \
                 name with --host",
                named.len(),
                shown.join(", ")
            ));
        }
        if let Some(shares) = tight
            && self.wire().connections * 10 >= shares.agents * 9
        {
            problems.push(format!(
                "the limit of open files leaves room for {} agents and almost all are here: raise it (ulimit -n, \
                 LimitNOFILE) or add a server",
                shares.agents
            ));
        }
        problems
    }

    /// The server's own state.
    pub(crate) fn health(&self) -> HealthJson {
        let problems = self.problems();
        let fill = self.inbox.fill();
        // Before the jobs: whoever sees that there were too many sees all that there are.
        let dropped = DroppedJson {
            queue: fill.dropped,
            store: get(&self.stats.dropped_store),
            jobs: get(&self.stats.dropped_jobs),
            limits: get(&self.stats.dropped_limits),
        };
        HealthJson {
            status: if problems.is_empty() { "ok" } else { "degraded" }.to_owned(),
            problems,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            now: TimeJson::exact((self.clock)()),
            uptime_s: self.stats.started.elapsed().as_secs_f64(),
            agents_connected: self.wire().connections as u64,
            hosts_heard: get(&self.stats.hosts_heard),
            jobs: self.stats.jobs().len() as u64,
            open_cases: self.book.open_count(None),
            batches: get(&self.stats.batches),
            records: get(&self.stats.records),
            lag_ms: get(&self.stats.lag_ms),
            queue: QueueJson { batches: fill.batches as u64, records: fill.records as u64 },
            dropped,
            engine_panics: get(&self.stats.engine_panics),
            clocks: self.stats.clocks.json(),
            disk: *lock(&self.stats.disk),
        }
    }
}
