//! The server's end: partitions by explicit assignment, from where it says. No consumer group takes part; one's name only files
//! how far everything is kept.
use super::context::Context;
use super::{ASK_LIMIT, client};
use crate::{Begin, BusAddress, BusError, BusSecurity, Fetched, Part, Topic};
use mycroft_record::{HostTime, NANOS_PER_MS};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::RDKafkaErrorCode;
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use std::time::Duration;
use tracing::warn;

/// Under this name brokers keep how far everything is kept.
const GROUP: &str = "mycroft";

/// Longest that a broker may take to say that it is there.
const CHECK_LIMIT: Duration = Duration::from_secs(1);

/// Where brokers know no times, so many records are looked through at most for the last minutes: of a hundred hosts a minute.
const BACK_MAX: i64 = 1 << 16;

/// A topic of brokers.
#[derive(Debug)]
pub struct KafkaTopic {
    address: BusAddress,
    settings: ClientConfig,
}

impl KafkaTopic {
    /// The topic of an address. No broker is asked yet.
    ///
    /// # Errors
    /// This program was built without what the settings ask for.
    pub fn new(address: &BusAddress, security: &BusSecurity) -> Result<KafkaTopic, BusError> {
        let bus = address.to_string();
        let mut settings = client(address, security).map_err(|reason| BusError { operation: "using", bus, reason })?;
        settings
            .set("group.id", GROUP)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            // What is not there any more is passed over.
            .set("auto.offset.reset", "earliest")
            .set("fetch.wait.max.ms", "100")
            // Of each partition, in memory of the client.
            .set("queued.max.messages.kbytes", "16384");
        Ok(KafkaTopic { address: address.clone(), settings })
    }

    fn consumer(&self, operation: &'static str) -> Result<BaseConsumer<Context>, BusError> {
        let created = self.settings.create_with_context(Context::default());
        created.map_err(|error| self.failed(operation, error.to_string()))
    }

    fn failed(&self, operation: &'static str, reason: String) -> BusError {
        BusError { operation, bus: self.address.to_string(), reason }
    }
}

impl Topic for KafkaTopic {
    fn name(&self) -> String {
        self.address.topic().to_owned()
    }

    fn partitions(&self) -> Result<u32, BusError> {
        const ASKING: &str = "asking for the partitions of";
        let topic = self.address.topic();
        let consumer = self.consumer(ASKING)?;
        let metadata = consumer.fetch_metadata(Some(topic), ASK_LIMIT).map_err(|error| {
            let said = consumer.context().error().map(|said| format!(" ({said})")).unwrap_or_default();
            self.failed(ASKING, format!("{error}{said}; check that brokers run there and that the address is right"))
        })?;
        let found = metadata.topics().iter().find(|found| found.name() == topic);
        if let Some(error) = found.and_then(|found| found.error()) {
            return Err(self.failed(ASKING, format!("{}; make the topic first", RDKafkaErrorCode::from(error))));
        }
        match found.map_or(0, |found| found.partitions().len()) {
            0 => Err(self.failed(ASKING, "there is no such topic; make it first".to_owned())),
            partitions => Ok(partitions as u32),
        }
    }

    fn part(&self, partition: u32) -> Result<Box<dyn Part>, BusError> {
        let consumer = self.consumer("reading")?;
        let (topic, bus) = (self.address.topic().to_owned(), self.address.to_string());
        // As brokers number them.
        let partition = partition.cast_signed();
        let settings = self.settings.clone();
        Ok(Box::new(KafkaPart { settings, consumer, is_assigned: false, topic, bus, partition }))
    }
}

/// A partition that is read.
struct KafkaPart {
    settings: ClientConfig,
    consumer: BaseConsumer<Context>,
    /// It has been told where to read.
    is_assigned: bool,
    topic: String,
    bus: String,
    partition: i32,
}

impl KafkaPart {
    fn failed(&self, operation: &'static str, reason: &impl ToString) -> BusError {
        let bus = format!("partition {} of {}", self.partition, self.bus);
        BusError { operation, bus, reason: reason.to_string() }
    }

    fn list(&self, offset: Offset) -> Result<TopicPartitionList, BusError> {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.topic, self.partition, offset)
            .map_err(|error| self.failed("reading", &error))?;
        Ok(list)
    }

    /// Whether a record is not older.
    fn is_since(&mut self, offset: i64, since: HostTime) -> Result<bool, BusError> {
        self.go_to(offset)?;
        let fetched = self.next(CHECK_LIMIT)?;
        Ok(fetched.is_some_and(|fetched| fetched.at >= since))
    }

    fn number(&self, list: &TopicPartitionList) -> Option<i64> {
        match list.find_partition(&self.topic, self.partition)?.offset() {
            Offset::Offset(offset) => Some(offset),
            _ => None,
        }
    }
}

impl Part for KafkaPart {
    fn begin(&mut self, since: HostTime) -> Result<Begin, BusError> {
        let (low, end) = self
            .consumer
            .fetch_watermarks(&self.topic, self.partition, ASK_LIMIT)
            .map_err(|error| self.failed("asking for the ends of", &error))?;
        let asked = self.list(Offset::Offset((since.0 / NANOS_PER_MS).cast_signed()))?;
        let found = self.consumer.offsets_for_times(asked, ASK_LIMIT);
        let found = found.map_err(|error| self.failed("looking for a time in", &error))?;
        let by_time = match self.number(&found) {
            Some(offset) => offset,
            // Brokers that know no times say so of everything, such as those of librdkafka.
            None if end > low && self.is_since(end - 1, since)? => low.max(end - BACK_MAX),
            None => end,
        };
        let committed = self.consumer.committed_offsets(self.list(Offset::Invalid)?, ASK_LIMIT);
        let committed = committed.map_err(|error| self.failed("asking how far is kept of", &error))?;
        // Of what nobody has kept anything, nothing is kept.
        let kept = self.number(&committed).unwrap_or(low).clamp(low, end);
        let from = by_time.clamp(low, kept);
        self.go_to(from)?;
        Ok(Begin { from, kept, end })
    }

    fn next(&mut self, wait: Duration) -> Result<Option<Fetched>, BusError> {
        let Some(polled) = self.consumer.poll(wait) else { return Ok(None) };
        let message = polled.map_err(|error| {
            let said = self.consumer.context().error().map(|said| format!(" ({said})")).unwrap_or_default();
            self.failed("reading", &format!("{error}{said}"))
        })?;
        self.consumer.context().is_well();
        let millis = message.timestamp().to_millis().unwrap_or(0).max(0).cast_unsigned();
        Ok(Some(Fetched {
            offset: message.offset(),
            at: HostTime(millis.saturating_mul(NANOS_PER_MS)),
            key: message.key().unwrap_or_default().to_vec(),
            value: message.payload().unwrap_or_default().to_vec(),
        }))
    }

    fn end(&mut self) -> Result<i64, BusError> {
        let asked = self.consumer.fetch_watermarks(&self.topic, self.partition, CHECK_LIMIT);
        asked.map(|(_, end)| end).map_err(|error| {
            let said = self.consumer.context().error().map(|said| format!(" ({said})")).unwrap_or_default();
            self.failed("reading", &format!("{error}{said}"))
        })
    }

    fn go_to(&mut self, offset: i64) -> Result<(), BusError> {
        let list = self.list(Offset::Offset(offset))?;
        // A client that is told of another place and is told again, or ended, before it has left the one before ends this process
        // (librdkafka 2.12 stops a fetcher twice and asserts). So none is told twice.
        if std::mem::replace(&mut self.is_assigned, true) {
            let created = self.settings.create_with_context(Context::default());
            self.consumer = created.map_err(|error| self.failed("reading", &error))?;
        }
        self.consumer.assign(&list).map_err(|error| self.failed("reading", &error))
    }

    fn keep(&mut self, offset: i64) -> Result<(), BusError> {
        let list = self.list(Offset::Offset(offset))?;
        let noted = self.consumer.commit(&list, CommitMode::Async);
        noted.map_err(|error| {
            warn!(%error, "how far partition {} of {} is kept cannot be noted: {error}", self.partition, self.bus);
            self.failed("noting how far is kept of", &error)
        })
    }
}
