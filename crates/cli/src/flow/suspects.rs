//! Who among the senders of a capture is slow, late or stopped.
use super::intake::Seen;
use super::operations;
use super::ranks::Ranks;
use super::text::{bytes, rate, time};
use mycroft_diagnose::flow::{Rule, Sent, Sign, Suspect, suspects};
use mycroft_flow::limits::Grain;
use mycroft_flow::{Curve, WireFlow};
use serde::Serialize;
use std::fmt::Write;
use std::net::IpAddr;

/// A suspect as JSON.
#[derive(Serialize)]
pub(super) struct SuspectJson {
    source: String,
    /// Its receivers in these operations.
    destinations: Vec<String>,
    /// `slow`, `held`, `late` or `stopped`.
    sign: &'static str,
    /// Bytes per second and flow while it sends, its own and the middle one of its peers.
    #[serde(skip_serializing_if = "Option::is_none")]
    actual_bytes_per_sec: Option<[f64; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    late_ns: Option<u64>,
    /// What interruptions cost in an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_ns: Option<u64>,
    /// Bytes that it sent of the operation that did not end, and those of a whole one.
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_bytes: Option<[u64; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    since_ns: Option<u64>,
    operations: u32,
    peers: u32,
}

/// Those of all flows with payload, and their addresses.
pub(super) struct Told {
    senders: Vec<IpAddr>,
    /// What they are called.
    names: Vec<String>,
    found: Vec<Suspect>,
    /// Flows that could not be looked at, since not all of their curves were kept.
    unkept: usize,
}

/// Both ends of all flows, in order.
pub(super) fn addresses_of(flows: &[(&WireFlow, &Curve)]) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = flows.iter().flat_map(|(key, _)| [key.source, key.destination]).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Looks for them.
pub(super) fn of(seen: &Seen, grain: Grain, flows: &[(&WireFlow, &Curve)], rule: &Rule, ranks: &Ranks) -> Told {
    let senders = addresses_of(flows);
    let number = |address: IpAddr| senders.binary_search(&address).map_or(0, |number| number as u32);
    let with_payload: Vec<_> = flows.iter().filter(|(_, curve)| curve.exchange.payload_bytes > 0).collect();
    let sent: Vec<Sent<'_>> = with_payload
        .iter()
        .filter_map(|(key, curve)| {
            let operations = operations::of(curve, grain, rule)?;
            Some(Sent { from: number(key.source), to: number(key.destination), epochs: &curve.points, operations })
        })
        .collect();
    let unkept = with_payload.len() - sent.len();
    let until_ns = seen.span_ns.map_or(0, |span| span.1);
    let found = suspects(sent, grain.epoch_ns(), rule.gap_ns, until_ns);
    let names = senders.iter().map(|address| ranks.sender(*address, flows)).collect();
    Told { senders, names, found, unkept }
}

impl Told {
    /// In words.
    pub(super) fn text(&self, begin_ns: u64) -> String {
        let mut text = String::from("\n");
        match self.found.len() {
            0 => text.push_str(
                "no sender is slower than its peers while it sends, later or has stopped, as far as this shows\n",
            ),
            1 => text.push_str("1 suspect\n"),
            count => {
                let _ = writeln!(text, "{count} suspects");
            }
        }
        for suspect in &self.found {
            let _ = writeln!(text, "  {}", self.line(suspect, begin_ns));
        }
        if self.unkept > 0 {
            let _ = writeln!(text, "  not looked at: {} flows, whose curves are longer than what is kept", self.unkept);
        }
        text
    }

    fn address(&self, number: u32) -> IpAddr {
        self.senders[number as usize]
    }

    fn name(&self, number: u32) -> &str {
        self.names.get(number as usize).map_or("?", String::as_str)
    }

    fn line(&self, suspect: &Suspect, begin_ns: u64) -> String {
        let from = self.name(suspect.from);
        let peers = suspect.peers;
        let of = match suspect.rounds {
            1 => "in 1 operation".to_owned(),
            rounds => format!("in {rounds} operations"),
        };
        match suspect.sign {
            Sign::Slow { rate: own, usual } => {
                let path = match &suspect.to[..] {
                    [to] => format!("the path to {}", self.name(*to)),
                    to => format!("the path to one of its {} receivers", to.len()),
                };
                let share = 100.0 * own / usual;
                let (own, usual) = (rate(own), rate(usual));
                format!(
                    "{from} sends slowly: {own} a flow while it sends, {share:.0} % of the usual {usual} of {peers} others, {of}: its NIC, PCIe or link, or {path}"
                )
            }
            Sign::Late { by_ns } => {
                let by = time(by_ns);
                format!(
                    "{from} begins late: it is silent before for {by} longer than the middle one of {peers} others, {of}: what its host or GPU does before"
                )
            }
            Sign::Held { by_ns } => {
                let by = time(by_ns);
                format!(
                    "{from} is interrupted again and again, {by} of an operation, and is the first of {peers} others that goes on, {of}: its host is busy otherwise"
                )
            }
            Sign::Stopped { sent: 0, since_ns, .. } => {
                let at = time(since_ns.saturating_sub(begin_ns));
                format!(
                    "{from} did not begin an operation that {peers} others were in, at {at}: its process, host or GPU, or its NIC if that went down before"
                )
            }
            Sign::Stopped { sent, whole, since_ns } => {
                let at = time(since_ns.saturating_sub(begin_ns));
                let (sent, whole) = (bytes(sent), bytes(whole));
                format!(
                    "{from} stopped first: {sent} of {whole} sent until {at}, least of {peers} others: its NIC or link, or its GPU"
                )
            }
        }
    }

    /// For programs.
    pub(super) fn json(&self) -> Vec<SuspectJson> {
        let one = |suspect: &Suspect| {
            let (mut rates, mut late_ns, mut held_ns, mut sent_bytes, mut since_ns) = (None, None, None, None, None);
            let sign = match suspect.sign {
                Sign::Slow { rate, usual } => {
                    rates = Some([rate, usual]);
                    "slow"
                }
                Sign::Late { by_ns } => {
                    late_ns = Some(by_ns);
                    "late"
                }
                Sign::Held { by_ns } => {
                    held_ns = Some(by_ns);
                    "held"
                }
                Sign::Stopped { sent, whole, since_ns: at_ns } => {
                    (sent_bytes, since_ns) = (Some([sent, whole]), Some(at_ns));
                    "stopped"
                }
            };
            SuspectJson {
                source: self.address(suspect.from).to_string(),
                destinations: suspect.to.iter().map(|to| self.address(*to).to_string()).collect(),
                sign,
                actual_bytes_per_sec: rates,
                late_ns,
                held_ns,
                sent_bytes,
                since_ns,
                operations: suspect.rounds,
                peers: suspect.peers,
            }
        };
        self.found.iter().map(one).collect()
    }
}
