//! What the client's own threads say: deliveries, errors, log lines.
use mycroft_wire::sync::lock;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{DeliveryResult, ProducerContext};
use std::sync::Mutex;
use tracing::{debug, warn};

/// What was said and not taken yet.
#[derive(Debug, Default)]
pub(super) struct Context {
    /// What became of records, by their sequence.
    delivered: Mutex<Vec<(u64, Result<(), RDKafkaErrorCode>)>>,
    /// The last error, until somebody answers again.
    error: Mutex<Option<String>>,
}

impl Context {
    /// What became of records since the last call.
    pub(super) fn take_delivered(&self) -> Vec<(u64, Result<(), RDKafkaErrorCode>)> {
        std::mem::take(&mut lock(&self.delivered))
    }

    /// The last error.
    pub(super) fn error(&self) -> Option<String> {
        lock(&self.error).clone()
    }

    /// Brokers answer.
    pub(super) fn is_well(&self) {
        *lock(&self.error) = None;
    }
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        // Brokers that come and go are told once, by whoever waits for them.
        match level {
            RDKafkaLogLevel::Emerg | RDKafkaLogLevel::Alert | RDKafkaLogLevel::Critical => warn!(facility, "{message}"),
            _ => debug!(facility, "{message}"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        debug!("{error}: {reason}");
        *lock(&self.error) = Some(reason.to_owned());
    }
}

impl ConsumerContext for Context {}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<u64>;

    fn delivery(&self, result: &DeliveryResult<'_>, sequence: Box<u64>) {
        let outcome = match result {
            Ok(_) => Ok(()),
            Err((error, _)) => Err(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Fail)),
        };
        if outcome.is_ok() {
            self.is_well();
        }
        lock(&self.delivered).push((*sequence, outcome));
    }
}
