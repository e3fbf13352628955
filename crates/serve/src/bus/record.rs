//! Records of a partition as a server takes them in: opened, each once, and with what is known of their host's clock.
use mycroft_bus::{Entry, Fetched, Seen};
use mycroft_record::{Batch, HostTime, Record};
use mycroft_wire::clock::PeerClock;
use mycroft_wire::codec;
use std::collections::BTreeMap;
use tracing::warn;

/// Clocks of agents remembered, as the wire remembers agents.
const CLOCKS_MAX: usize = 16_384;

/// What a record holds.
#[derive(Debug)]
pub(super) struct Opened {
    /// What is told of the host's clock, before the batches.
    pub(super) told: Vec<Batch>,
    pub(super) batches: Vec<Batch>,
    /// The frame as it came; none where something was left out.
    pub(super) frame: Option<Vec<u8>>,
}

/// Opens the records of one partition.
pub(super) struct Opener {
    part: u32,
    seen: Seen,
    clocks: BTreeMap<u64, PeerClock>,
    /// Records that could not be opened.
    bad: u64,
}

impl Opener {
    /// One that has seen nothing.
    pub(super) fn new(part: u32) -> Opener {
        Opener { part, seen: Seen::default(), clocks: BTreeMap::new(), bad: 0 }
    }

    /// Opens a record that came at `at`; `None`: it was seen before, or is none of ours.
    pub(super) fn open(&mut self, fetched: &Fetched, at: HostTime) -> Option<Opened> {
        let (entry, opened) = self.opened(fetched)?;
        if !self.seen.is_new(entry.agent, entry.sequence) {
            return None;
        }
        if self.clocks.len() >= CLOCKS_MAX && !self.clocks.contains_key(&entry.agent) {
            self.clocks.pop_first();
        }
        let clock = self.clocks.entry(entry.agent).or_default();
        clock.heard(entry.sent, at);
        Some(Opened { told: clock.tell(&opened.batches, at), ..opened })
    }

    /// Opens a record that was opened before, to be kept only.
    pub(super) fn open_again(&mut self, fetched: &Fetched, _at: HostTime) -> Option<Opened> {
        self.opened(fetched).map(|(_, opened)| opened)
    }

    fn opened(&mut self, fetched: &Fetched) -> Option<(Entry, Opened)> {
        match read(fetched) {
            Ok(read) => Some(read),
            Err(why) => {
                self.bad += 1;
                if self.bad.is_power_of_two() {
                    let (part, offset, bad) = (self.part, fetched.offset, self.bad);
                    warn!(part, offset, bad, "partition {part}: record {offset} is passed over: {why} ({bad} so far)");
                }
                None
            }
        }
    }
}

/// A record as an agent wrote it. What an agent says of its own clock is left out, as by the wire.
fn read(fetched: &Fetched) -> Result<(Entry, Opened), String> {
    let entry = Entry::decode(&fetched.value).map_err(|error| error.to_string())?;
    let mut batches = codec::decode(&entry.frame).map_err(|error| error.to_string())?.batches;
    if let Some(other) = batches.iter().find(|batch| batch.source.job.as_bytes() != fetched.key) {
        return Err(format!("its key is not the job {}", other.source.job));
    }
    let is_claim = |record: &Record| matches!(record, Record::ClockOffset(_));
    let as_came = !batches.iter().any(|batch| batch.records.iter().any(is_claim));
    if !as_came {
        batches.iter_mut().for_each(|batch| batch.records.retain(|record| !is_claim(record)));
    }
    let frame = as_came.then(|| entry.frame.clone());
    Ok((entry, Opened { told: Vec::new(), batches, frame }))
}
