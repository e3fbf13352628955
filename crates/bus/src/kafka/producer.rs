//! The agent's end: frames into partitions, each kept until all in-sync replicas have it.
use super::client;
use super::context::Context;
use super::split::{FRAME_BYTES_MAX, split};
use crate::{BusAddress, BusSecurity, Entry};
use mycroft_wire::{Carrier, ClientConfig, Way, WireClock, WireError, random_id, this_machine};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use std::collections::VecDeque;
use std::ops::Range;
use std::time::{Duration, Instant};

/// Frames that wait for the brokers at most, as by the wire: 6.4 s of frames each 100 ms. Then records go to the spool.
const HELD_FRAMES_MAX: usize = 64;
/// Their bytes at most, as by the wire.
const HELD_BYTES_MAX: usize = 64 << 20;
/// Brokers that have not taken anything for so long are away.
const SILENT_MAX: Duration = Duration::from_secs(5);
/// Processes and communicators are told anew so often, for a server that takes over and reads the last minutes, or less of a large
/// job: some ten records a rank, where a rank sends 60 to 140 a second.
const ANEW_EVERY: Duration = Duration::from_secs(10);
/// Room for the head of a record beside its frame.
const RECORD_BYTES_MAX: usize = FRAME_BYTES_MAX + 8192;
/// Rejected frames kept for the one who asks.
const REJECTED_KEPT: usize = 64;
/// Deliveries are looked for so often while somebody waits.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A record on its way.
struct Record {
    /// Of all records of this agent.
    sequence: u64,
    key: String,
    value: Vec<u8>,
    is_taken: bool,
}

/// A frame on its way.
struct Pending {
    number: u64,
    frame: Vec<u8>,
    records: Vec<Record>,
}

/// The end.
struct Producer {
    address: BusAddress,
    security: BusSecurity,
    config: ClientConfig,
    clock: WireClock,
    inner: Option<BaseProducer<Context>>,
    agent: u64,
    machine: u64,
    next_number: u64,
    next_sequence: u64,
    pending: VecDeque<Pending>,
    rejected: VecDeque<Vec<u8>>,
    last_reject: Option<String>,
    /// When brokers took something last, or nothing waited.
    heard_at: Instant,
    until: Option<Instant>,
}

/// The way of an agent's frames into a bus.
pub fn way(address: &BusAddress, security: &BusSecurity) -> Way {
    let (shown, address, security) = (address.to_string(), address.clone(), security.clone());
    Way::new(shown, move |config| Ok(Box::new(Producer::connect(&address, &security, config)?)))
        .telling_anew(ANEW_EVERY)
}

impl Producer {
    fn connect(address: &BusAddress, security: &BusSecurity, config: &ClientConfig) -> Result<Producer, WireError> {
        let mut producer = Producer {
            address: address.clone(),
            security: security.clone(),
            config: config.clone(),
            clock: config.clock.clone(),
            inner: None,
            agent: random_id(),
            machine: config.machine.unwrap_or_else(this_machine),
            next_number: 1,
            next_sequence: 1,
            pending: VecDeque::new(),
            rejected: VecDeque::new(),
            last_reject: None,
            heard_at: Instant::now(),
            until: None,
        };
        producer.reconnect()?;
        Ok(producer)
    }

    fn away(&self, reason: impl Into<String>) -> WireError {
        WireError::Away { endpoint: self.address.to_string(), reason: reason.into() }
    }

    fn end_of(&self, limit: Duration) -> Instant {
        let end = Instant::now() + limit;
        self.until.map_or(end, |until| end.min(until))
    }

    /// A client of librdkafka, which keeps the order of a partition and writes nothing twice while it lives.
    fn client(&self) -> Result<BaseProducer<Context>, WireError> {
        let mut settings = client(&self.address, &self.security).map_err(|reason| self.away(reason))?;
        settings
            .set("enable.idempotence", "true")
            .set("acks", "all")
            // Who gives up is this end, which has a spool.
            .set("message.timeout.ms", "0")
            .set("request.timeout.ms", "5000")
            .set("linger.ms", "5")
            .set("message.max.bytes", RECORD_BYTES_MAX.to_string())
            // Frames are compressed already.
            .set("compression.type", "none")
            .set("partitioner", "murmur2");
        settings.create_with_context(Context::default()).map_err(|error| self.away(error.to_string()))
    }

    /// Takes what brokers have said, at most after `wait`.
    fn hear(&mut self, wait: Duration) -> Result<(), WireError> {
        let Some(inner) = &self.inner else { return Err(self.away("the client has ended; connect again")) };
        inner.poll(wait);
        let delivered = inner.context().take_delivered();
        let mut failed = None;
        for (sequence, outcome) in delivered {
            let Some(at) = self.pending.iter().position(|pending| pending.has(sequence)) else { continue };
            match outcome {
                Ok(()) => {
                    self.heard_at = Instant::now();
                    self.pending[at].take(sequence);
                }
                Err(code) if is_hopeless(code) => self.reject(at, &code.to_string()),
                Err(code) => failed = Some(code),
            }
        }
        while self.pending.pop_front_if(|pending| pending.is_taken()).is_some() {}
        if self.pending.is_empty() {
            self.heard_at = Instant::now();
        }
        match failed {
            // What it holds is in doubt: it is sent again, with the same numbers, by another client.
            Some(code) => {
                self.inner = None;
                Err(self.away(code.to_string()))
            }
            None => Ok(()),
        }
    }

    fn reject(&mut self, at: usize, why: &str) {
        self.last_reject = Some(why.to_owned());
        if let Some(pending) = self.pending.remove(at) {
            self.rejected.push_back(pending.frame);
            if self.rejected.len() > REJECTED_KEPT {
                self.rejected.pop_front();
            }
        }
    }

    /// Whether brokers have been silent for long while something waits for them.
    fn check_silence(&self) -> Result<(), WireError> {
        if self.heard_at.elapsed() < SILENT_MAX {
            return Ok(());
        }
        let said = self.inner.as_ref().and_then(|inner| inner.context().error());
        Err(self.away(said.unwrap_or_else(|| "no broker has taken anything for 5 s".to_owned())))
    }

    fn wait_room(&mut self, bytes: usize) -> Result<(), WireError> {
        let waited = self.config.send_timeout;
        let deadline = self.end_of(waited);
        loop {
            let held: usize = self.pending.iter().map(|pending| pending.frame.len()).sum();
            let is_room = self.pending.is_empty() || held + bytes <= HELD_BYTES_MAX;
            if is_room && self.pending.len() < HELD_FRAMES_MAX {
                return Ok(());
            }
            self.check_silence()?;
            if Instant::now() >= deadline {
                return Err(WireError::NoCredit { endpoint: self.address.to_string(), waited });
            }
            self.hear(LOOK_EVERY)?;
        }
    }

    /// Gives records of a frame that brokers have not taken to the client.
    fn write(&self, pending: &Pending) -> Result<(), KafkaError> {
        let Some(inner) = &self.inner else { return Ok(()) };
        for record in pending.records.iter().filter(|record| !record.is_taken) {
            let sent = BaseRecord::with_opaque_to(self.address.topic(), Box::new(record.sequence))
                .key(&record.key)
                .payload(&record.value);
            inner.send(sent).map_err(|(error, _)| error)?;
        }
        Ok(())
    }

    fn records(&mut self, frame: &[u8]) -> Result<Vec<Record>, String> {
        let mut records = Vec::new();
        for (job, frame) in split(frame)? {
            let sequence = self.next_sequence;
            self.next_sequence += 1;
            let entry = Entry {
                agent: self.agent,
                machine: self.machine,
                sequence,
                sent: self.clock.now(),
                host: self.config.host.clone(),
                software: concat!("mycroft ", env!("CARGO_PKG_VERSION")).to_owned(),
                frame,
            };
            records.push(Record { sequence, key: job.to_string(), value: entry.encode(), is_taken: false });
        }
        Ok(records)
    }
}

impl Pending {
    fn has(&self, sequence: u64) -> bool {
        self.records.iter().any(|record| record.sequence == sequence)
    }

    fn take(&mut self, sequence: u64) {
        self.records.iter_mut().filter(|record| record.sequence == sequence).for_each(|record| record.is_taken = true);
    }

    fn is_taken(&self) -> bool {
        self.records.iter().all(|record| record.is_taken)
    }
}

impl Carrier for Producer {
    fn send_frame(&mut self, frame: &[u8]) -> Result<(), WireError> {
        self.hear(Duration::ZERO)?;
        self.wait_room(frame.len())?;
        let number = self.next_number;
        self.next_number += 1;
        match self.records(frame) {
            Ok(records) => {
                let pending = Pending { number, frame: frame.to_vec(), records };
                if self.write(&pending).is_err() {
                    // The next call says so; another client sends it again.
                    self.inner = None;
                }
                self.pending.push_back(pending);
            }
            Err(why) => {
                self.last_reject = Some(why);
                self.rejected.push_back(frame.to_vec());
            }
        }
        Ok(())
    }

    fn poll(&mut self) -> Result<(), WireError> {
        self.hear(Duration::ZERO)?;
        self.check_silence()
    }

    fn flush(&mut self, timeout: Duration) -> Result<(), WireError> {
        let deadline = self.end_of(timeout);
        while !self.pending.is_empty() {
            if Instant::now() >= deadline {
                let (endpoint, frames) = (self.address.to_string(), self.pending.len());
                return Err(WireError::NotAcknowledged { endpoint, frames, waited: timeout });
            }
            self.hear(LOOK_EVERY)?;
        }
        Ok(())
    }

    fn reconnect(&mut self) -> Result<(), WireError> {
        let is_new = self.inner.is_none();
        let inner = match self.inner.take() {
            Some(inner) => inner,
            None => self.client()?,
        };
        let wait = self.end_of(self.config.connect_timeout).saturating_duration_since(Instant::now());
        let topic = self.address.topic().to_owned();
        let found = inner.client().fetch_metadata(Some(&topic), wait);
        let said = inner.context().error();
        if !is_new {
            // What it holds it goes on sending, whatever the answer.
            self.inner = Some(inner);
        } else if found.is_ok() {
            self.inner = Some(inner);
            for at in 0..self.pending.len() {
                let written = self.write(&self.pending[at]);
                if let Err(error) = written {
                    self.inner = None;
                    return Err(self.away(error.to_string()));
                }
            }
        }
        let metadata = found.map_err(|error| {
            let why = said.map_or_else(|| error.to_string(), |said| format!("{error} ({said})"));
            self.away(format!("{why}; check that brokers run there and that the address is right"))
        })?;
        let partitions = metadata.topics().iter().find(|found| found.name() == topic);
        if let Some(error) = partitions.and_then(|found| found.error()) {
            return Err(self.away(format!("topic {topic}: {}; make it first", RDKafkaErrorCode::from(error))));
        }
        if partitions.is_none_or(|found| found.partitions().is_empty()) {
            return Err(self.away(format!(
                "there is no topic {topic}; make it first, with as many partitions as servers may share"
            )));
        }
        if let Some(inner) = &self.inner {
            inner.context().is_well();
        }
        self.heard_at = Instant::now();
        Ok(())
    }

    fn unacknowledged(&self) -> Range<u64> {
        self.pending.front().map_or(self.next_number, |oldest| oldest.number)..self.next_number
    }

    fn into_unacked(self: Box<Self>) -> Vec<Vec<u8>> {
        self.pending.into_iter().map(|pending| pending.frame).collect()
    }

    fn take_rejected(&mut self) -> Vec<Vec<u8>> {
        self.rejected.drain(..).collect()
    }

    fn last_reject(&self) -> Option<&str> {
        self.last_reject.as_deref()
    }

    fn wait_until_at_most(&mut self, by: Instant) {
        self.until = Some(by);
    }
}

/// Whether sending the same again can never work.
fn is_hopeless(code: RDKafkaErrorCode) -> bool {
    matches!(code, RDKafkaErrorCode::MessageSizeTooLarge | RDKafkaErrorCode::InvalidRecord)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kafka::KafkaTopic;
    use crate::kafka::mock::MockBrokers;
    use crate::{Seen, Topic};
    use mycroft_record::{Batch, HostTime, Record as Told, Source, StepMark};
    use mycroft_wire::codec;

    fn frame(step: u64) -> Vec<u8> {
        let source = Source { job: "train".into(), host: "host0".into(), process: None };
        let at = HostTime(step * 1000);
        let records = vec![Told::StepMark(StepMark { at, step })];
        codec::encode(&[Batch { source, collected_at: at, records }]).expect("it fits")
    }

    /// The client ends after brokers took records, and before it says so: they are sent again under the same numbers.
    #[test]
    fn what_is_in_doubt_comes_twice_and_counts_once() {
        let brokers = MockBrokers::start("mycroft", 1);
        let security = BusSecurity::default();
        let mut producer = Producer::connect(brokers.address(), &security, &ClientConfig::default()).expect("a broker");
        (1..=20).for_each(|step| producer.send_frame(&frame(step)).expect("room"));
        // The broker has all of them, and nobody has asked the client.
        let inner = producer.inner.take().expect("a client");
        while inner.in_flight_count() > 0 {
            inner.poll(LOOK_EVERY);
        }
        drop(inner);
        assert!(producer.poll().is_err() && producer.unacknowledged() == (1..21));
        producer.reconnect().expect("a broker");
        producer.flush(Duration::from_secs(60)).expect("taken");
        assert_eq!(producer.unacknowledged(), 21..21);
        let topic = KafkaTopic::new(brokers.address(), &security).expect("a topic");
        let mut part = topic.part(0).expect("a partition");
        let begin = part.begin(HostTime(1)).expect("a broker");
        let (mut seen, mut steps, mut next) = (Seen::default(), Vec::new(), begin.from);
        while next < begin.end {
            let Some(fetched) = part.next(Duration::from_secs(1)).expect("read") else { continue };
            next = fetched.offset + 1;
            let entry = Entry::decode(&fetched.value).expect("a record");
            if seen.is_new(entry.agent, entry.sequence) {
                steps.push(codec::decode(&entry.frame).expect("a frame").batches[0].collected_at.0 / 1000);
            }
        }
        assert_eq!((begin.end, steps), (40, (1..=20).collect()));
    }
}
