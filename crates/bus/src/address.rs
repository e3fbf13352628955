//! Where a bus is: `kafka://HOST:PORT[,HOST:PORT]/TOPIC`.
use std::fmt;
use std::str::FromStr;

/// What an address begins with.
const SCHEME: &str = "kafka://";
/// Longest name of a topic that brokers take.
const TOPIC_BYTES_MAX: usize = 249;

/// Brokers, of whom one suffices to hear of the others, and a topic.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BusAddress {
    brokers: Vec<String>,
    topic: String,
}

/// Text that is no address.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "{reason}: expected kafka://HOST:PORT/TOPIC, several brokers with commas between them, for example kafka://k1:9092,k2:9092/mycroft"
)]
pub struct BadAddress {
    reason: String,
}

impl BusAddress {
    /// The brokers, each HOST:PORT.
    pub fn brokers(&self) -> &[String] {
        &self.brokers
    }

    /// The topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }
}

impl FromStr for BusAddress {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<BusAddress, BadAddress> {
        let bad = |reason: String| BadAddress { reason };
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return Err(bad(format!("{text:?} does not begin with {SCHEME}")));
        };
        // Not shown: what stands there may be a password.
        if rest.contains('@') {
            return Err(bad("a user or password has no place in the address of a bus".to_owned()));
        }
        let Some((brokers, topic)) = rest.split_once('/') else {
            return Err(bad(format!("{text:?} names no topic")));
        };
        let is_fit = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if topic.is_empty()
            || topic.len() > TOPIC_BYTES_MAX
            || !topic.chars().all(is_fit)
            || [".", ".."].contains(&topic)
        {
            return Err(bad(format!("{topic:?} is no name of a topic")));
        }
        let brokers: Vec<String> = brokers.split(',').map(str::to_owned).collect();
        for broker in &brokers {
            let is_good = broker.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && !host.contains(['/', '?', ' ']) && port.parse::<u16>().is_ok_and(|port| port > 0)
            });
            if !is_good {
                return Err(bad(format!("{broker:?} is not HOST:PORT")));
            }
        }
        Ok(BusAddress { brokers, topic: topic.to_owned() })
    }
}

impl fmt::Display for BusAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.brokers.join(","), self.topic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_brokers_and_a_topic() {
        let address: BusAddress = "kafka://k1:9092,[::1]:9093/mycroft.train-7".parse().expect("an address");
        assert_eq!(address.brokers(), ["k1:9092", "[::1]:9093"]);
        assert_eq!(address.topic(), "mycroft.train-7");
        assert_eq!(address.to_string(), "kafka://k1:9092,[::1]:9093/mycroft.train-7");
    }

    #[test]
    fn what_is_no_address_is_refused_with_what_is_wrong() {
        for (text, told) in [
            ("k1:9092/t", "does not begin with kafka://"),
            ("kafka://k1:9092", "names no topic"),
            ("kafka://k1:9092/", "no name of a topic"),
            ("kafka://k1:9092/a/b", "no name of a topic"),
            ("kafka://k1:9092/..", "no name of a topic"),
            ("kafka://k1/t", "\"k1\" is not HOST:PORT"),
            ("kafka://k1:0/t", "is not HOST:PORT"),
            ("kafka://k1:9092,/t", "\"\" is not HOST:PORT"),
            ("kafka://u:hunter2@k1:9092/t", "no place"),
        ] {
            let refused = text.parse::<BusAddress>().expect_err(text).to_string();
            assert!(refused.contains(told) && refused.contains("kafka://HOST:PORT/TOPIC"), "{text}: {refused}");
            assert!(!refused.contains("hunter2"), "{refused}");
        }
    }
}
