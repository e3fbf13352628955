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

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::{ClockOffset, NANOS_PER_SEC, Source, StepMark};

    const AT: HostTime = HostTime(1_700_000_000 * NANOS_PER_SEC);

    fn batch(job: &str, record: Record) -> Batch {
        let source = Source { job: job.into(), host: "host0".into(), process: None };
        Batch { source, collected_at: AT, records: vec![record] }
    }

    fn mark() -> Record {
        Record::StepMark(StepMark { at: AT, step: 1 })
    }

    fn record(key: &str, sequence: u64, sent: HostTime, batches: &[Batch]) -> Fetched {
        let frame = codec::encode(batches).expect("it fits");
        let (host, software) = ("host0".to_owned(), String::new());
        let entry = Entry { agent: 7, machine: 0, sequence, sent, host, software, frame };
        Fetched { offset: 0, at: AT, key: key.into(), value: entry.encode() }
    }

    #[test]
    fn batches_of_another_job_than_the_key_are_passed_over() {
        let mut opener = Opener::new(0);
        let mixed = [batch("a", mark()), batch("b", mark())];
        assert!(opener.open(&record("a", 1, AT, &mixed), AT).is_none(), "one of it is");
        assert!(opener.open(&record("a", 2, AT, &mixed[1..]), AT).is_none(), "all of it is");
        let opened = opener.open(&record("b", 3, AT, &mixed[1..]), AT).expect("it is the key's");
        assert_eq!((opened.batches, opened.told), (mixed[1..].to_vec(), Vec::new()));
    }

    /// Also a second time, for the disk alone.
    #[test]
    fn what_was_seen_is_opened_again_only_where_that_is_meant() {
        let (mut opener, batches) = (Opener::new(0), [batch("a", mark())]);
        let record = record("a", 1, AT, &batches);
        assert!(opener.open(&record, AT).is_some() && opener.open(&record, AT).is_none());
        let again = opener.open_again(&record, AT).expect("it is opened");
        assert_eq!((again.batches, again.frame), (batches.to_vec(), codec::encode(&batches).ok()));
    }

    #[test]
    fn what_an_agent_says_of_its_own_clock_is_left_out() {
        let claim = ClockOffset { at: AT, offset_ns: 5, drift_ppb: 0, bound_ns: 1, since: AT };
        let mut claimed = batch("a", Record::ClockOffset(claim));
        claimed.records.push(mark());
        let opened = Opener::new(0).open(&record("a", 1, AT, &[claimed]), AT).expect("it is opened");
        assert_eq!((opened.batches, opened.frame), (vec![batch("a", mark())], None), "nor is it kept as it came");
    }

    #[test]
    fn a_clock_that_is_ahead_is_told_before_its_batches_and_one_that_is_behind_is_not() {
        let batches = [batch("a", mark())];
        let told = |sent: HostTime, at: HostTime| {
            let opened = Opener::new(0).open(&record("a", 1, sent, &batches), at).expect("it is opened");
            opened.told.into_iter().flat_map(|told| told.records).collect::<Vec<_>>()
        };
        assert_eq!(told(AT, AT + NANOS_PER_SEC), [], "it may have been on its way for a second");
        let ahead = told(AT + NANOS_PER_SEC, AT);
        let [Record::ClockOffset(offset)] = ahead[..] else { panic!("{ahead:?}") };
        assert!(!offset.is_known() && offset.offset_ns == NANOS_PER_SEC.cast_signed(), "a guess: {offset:?}");
    }
}
