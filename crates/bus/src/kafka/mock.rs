//! Brokers inside this process, of librdkafka: for tests and demonstrations. They keep the newest 5 MB of each partition.
use crate::BusAddress;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::{BaseProducer, BaseRecord, DefaultProducerContext, Producer as _};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};
use std::time::Duration;

/// Brokers with one topic. They listen on 127.0.0.1, on ports that are free, until this is dropped.
pub struct MockBrokers {
    cluster: MockCluster<'static, DefaultProducerContext>,
    address: BusAddress,
}

impl std::fmt::Debug for MockBrokers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MockBrokers").field(&self.address).finish()
    }
}

impl MockBrokers {
    /// Starts one broker with a topic of so many partitions.
    ///
    /// # Panics
    /// The system gives no port, or the name is none of a topic.
    pub fn start(topic: &str, partitions: u32) -> MockBrokers {
        let cluster = MockCluster::new(1).expect("a broker starts");
        cluster.create_topic(topic, partitions.cast_signed(), 1).expect("the topic is made");
        let address = format!("kafka://{}/{topic}", cluster.bootstrap_servers());
        MockBrokers { cluster, address: address.parse().expect("an address") }
    }

    /// Where it is.
    pub fn address(&self) -> &BusAddress {
        &self.address
    }

    /// Cuts all connections, and takes none.
    ///
    /// # Panics
    /// There is no broker.
    pub fn down(&self) {
        self.cluster.broker_down(-1).expect("a broker");
    }

    /// Takes connections again.
    ///
    /// # Panics
    /// There is no broker.
    pub fn up(&self) {
        self.cluster.broker_up(-1).expect("a broker");
    }

    /// Writes a record as any program may.
    ///
    /// # Panics
    /// The broker does not take it.
    pub fn write(&self, key: &[u8], value: &[u8]) {
        let mut settings = rdkafka::ClientConfig::new();
        settings.set("bootstrap.servers", self.cluster.bootstrap_servers()).set("partitioner", "murmur2");
        let producer: BaseProducer = settings.create().expect("a client");
        producer.send(BaseRecord::to(self.address.topic()).key(key).payload(value)).map_err(|(e, _)| e).expect("room");
        producer.flush(Duration::from_secs(60)).expect("the broker takes it");
    }

    /// Writes many records by one client.
    ///
    /// # Panics
    /// There is no memory for a client.
    pub fn writer(&self) -> MockWriter {
        let mut settings = rdkafka::ClientConfig::new();
        settings.set("bootstrap.servers", self.cluster.bootstrap_servers()).set("partitioner", "murmur2");
        MockWriter { producer: settings.create().expect("a client"), topic: self.address.topic().to_owned() }
    }

    /// Cuts the connection at each of the next so many requests to write, instead of carrying them out.
    pub fn cut_writes(&self, times: usize) {
        let cut = RDKafkaRespErr::RD_KAFKA_RESP_ERR__TRANSPORT;
        self.cluster.request_errors(RDKafkaApiKey::Produce, &vec![cut; times]);
    }

    /// Answers each of the next so many requests to write with an error that the client does not get over by itself.
    pub fn refuse_writes(&self, times: usize) {
        let refused = RDKafkaRespErr::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
        self.cluster.request_errors(RDKafkaApiKey::Produce, &vec![refused; times]);
    }
}

/// Writes records that are ready, as the agents of many hosts do together.
pub struct MockWriter {
    producer: BaseProducer,
    topic: String,
}

impl std::fmt::Debug for MockWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("MockWriter").field(&self.topic).finish()
    }
}

impl MockWriter {
    /// Gives a record to the client, and waits while that has no room.
    ///
    /// # Panics
    /// The client does not take it.
    pub fn write(&self, key: &[u8], value: &[u8]) {
        let full = KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull);
        while let Err((error, _)) = self.producer.send(BaseRecord::to(&self.topic).key(key).payload(value)) {
            assert_eq!(error, full, "a record cannot be written");
            self.producer.poll(Duration::from_millis(10));
        }
        self.producer.poll(Duration::ZERO);
    }

    /// Waits until the broker has everything.
    ///
    /// # Panics
    /// It does not take it within a minute.
    pub fn flush(&self) {
        self.producer.flush(Duration::from_secs(60)).expect("the broker takes it");
    }
}
