//! What the communicators among the flows of a capture are for.
use super::suspects::addresses_of;
use mycroft_diagnose::flow::{Basis, Members, Sent, Use, Used, uses};
use mycroft_flow::limits::Grain;
use mycroft_flow::{Curve, WireFlow};
use serde::Serialize;
use std::fmt::Write;
use std::net::IpAddr;

/// Groups of one use as JSON.
#[derive(Serialize)]
pub(super) struct CommunicatorsJson {
    /// `data parallel`, `tensor parallel`, `pipeline parallel`, `expert parallel`, `context parallel` or `numbers`.
    r#use: &'static str,
    /// Ranks of each.
    ranks: u32,
    /// Whether `ranks` are all; else others may be inside of hosts.
    is_exact: bool,
    /// What tells the use: `shape`, `volume` or `usual`.
    basis: &'static str,
    /// Addresses of each group, or of each part of one that is seen.
    groups: Vec<Vec<String>>,
}

/// What was found, and the addresses by number.
pub(super) struct Communicators {
    addresses: Vec<IpAddr>,
    uses: Vec<Used>,
    /// Flows that could not be looked at, since not all of their curves were kept.
    unkept: usize,
}

/// Looks at all flows with payload; operations lie `gap_ns` apart.
pub(super) fn of<'a>(grain: Grain, flows: &[(&WireFlow, &'a Curve)], gap_ns: u64) -> Communicators {
    let addresses = addresses_of(flows);
    let number = |address: IpAddr| addresses.binary_search(&address).map_or(0, |number| number as u32);
    let with_payload = flows.iter().filter(|(_, curve)| curve.exchange.payload_bytes > 0);
    let (kept, unkept): (Vec<_>, Vec<_>) = with_payload.partition(|(_, curve)| curve.unkept_epochs == 0);
    let of = |(key, curve): &(&WireFlow, &'a Curve)| Sent {
        from: number(key.source),
        to: number(key.destination),
        epochs: &curve.points,
        operations: Vec::new(),
    };
    let sent: Vec<Sent<'_>> = kept.into_iter().map(of).collect();
    Communicators { uses: uses(&sent, grain.epoch_ns(), gap_ns), addresses, unkept: unkept.len() }
}

impl Communicators {
    /// In words.
    pub(super) fn text(&self) -> String {
        let mut text = String::from("\ncommunicators, by who sends to whom, where each rank has a NIC of its own\n");
        if self.uses.is_empty() {
            text.push_str("  none is known: that takes six operations of each flow, and more than one NIC\n");
        }
        for used in &self.uses {
            let (groups, members) = (used.groups.len(), used.members);
            let of = match members {
                Members::Exactly(ranks) => format!("{ranks} ranks"),
                Members::AtLeast(ranks) => format!("{ranks} ranks or more"),
            };
            let groups_of = if groups == 1 { "1 group".to_owned() } else { format!("{groups} groups") };
            let _ = writeln!(text, "  {}: {groups_of} of {of}, by {}", name(used.of), why(used.basis));
            for group in &used.groups {
                let _ = writeln!(text, "    {}", self.group(group).join(" "));
            }
        }
        if self.unkept > 0 {
            let _ = writeln!(text, "  not looked at: {} flows, whose curves are longer than what is kept", self.unkept);
        }
        text
    }

    fn group(&self, group: &[u32]) -> Vec<String> {
        group.iter().map(|number| self.addresses[*number as usize].to_string()).collect()
    }

    /// For programs.
    pub(super) fn json(&self) -> Vec<CommunicatorsJson> {
        let one = |used: &Used| {
            let (Members::Exactly(ranks) | Members::AtLeast(ranks)) = used.members;
            CommunicatorsJson {
                r#use: name(used.of),
                ranks,
                is_exact: matches!(used.members, Members::Exactly(_)),
                basis: match used.basis {
                    Basis::Shape => "shape",
                    Basis::Volume => "volume",
                    Basis::Usual => "usual",
                },
                groups: used.groups.iter().map(|group| self.group(group)).collect(),
            }
        };
        self.uses.iter().map(one).collect()
    }
}

fn name(of: Use) -> &'static str {
    match of {
        Use::Of(parallelism) => parallelism.as_str(),
        Use::Numbers => "numbers",
    }
}

fn why(basis: Basis) -> &'static str {
    match basis {
        Basis::Shape => "who sends to whom and when",
        Basis::Volume => "how much is sent and how often",
        Basis::Usual => "what usually crosses hosts",
    }
}
