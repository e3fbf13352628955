//! A bus of Kafka's protocol, by librdkafka.
mod context;
pub mod mock;
mod producer;
mod split;
mod topic;

pub use producer::way;
pub use topic::KafkaTopic;

use crate::{BusAddress, BusSecurity};
use rdkafka::ClientConfig;
use std::time::Duration;

/// Longest that a broker may be asked for what is known of a topic.
const ASK_LIMIT: Duration = Duration::from_secs(5);

/// What is the same of all clients.
fn client(address: &BusAddress, security: &BusSecurity) -> Result<ClientConfig, String> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", address.brokers().join(","))
        .set("client.id", "mycroft")
        // A topic that a broker makes by itself has one partition, and nobody knows of it.
        .set("allow.auto.create.topics", "false")
        .set("reconnect.backoff.ms", "50")
        .set("reconnect.backoff.max.ms", "1000")
        .set("topic.metadata.refresh.interval.ms", "10000")
        .set("socket.timeout.ms", "10000")
        .set("log.connection.close", "false");
    let is_tls = security.ca_pem.is_some();
    if is_tls && !cfg!(feature = "kafka-tls") {
        return Err("this program was built without TLS for a bus (cargo feature `kafka-tls`)".to_owned());
    }
    if let Some(ca) = &security.ca_pem {
        config.set("ssl.ca.location", ca.display().to_string());
        config.set("ssl.endpoint.identification.algorithm", "https");
    }
    if let Some((cert, key)) = &security.identity {
        config.set("ssl.certificate.location", cert.display().to_string());
        config.set("ssl.key.location", key.display().to_string());
    }
    if let Some(sasl) = &security.sasl {
        if sasl.mechanism != "PLAIN" && !cfg!(feature = "kafka-tls") {
            let mechanism = &sasl.mechanism;
            return Err(format!(
                "this program was built without {mechanism} (cargo feature `kafka-tls`); PLAIN is there"
            ));
        }
        config.set("sasl.mechanism", &sasl.mechanism);
        config.set("sasl.username", &sasl.user).set("sasl.password", &sasl.password);
    }
    let protocol = match (is_tls, security.sasl.is_some()) {
        (false, false) => "plaintext",
        (true, false) => "ssl",
        (false, true) => "sasl_plaintext",
        (true, true) => "sasl_ssl",
    };
    config.set("security.protocol", protocol);
    Ok(config)
}
