//! The first thing ranks tell each other, and what follows from all cards together.

use crate::abi::{Algo, Code, Fault, Proto, Res};
use crate::env::Identity;
use crate::personality::Personality;
use std::net::SocketAddr;

/// One rank of a communicator, as everybody knows it.
#[derive(Debug, Clone)]
pub struct Peer {
    /// Index of its host in order of first appearance.
    pub host: usize,
    /// Its process.
    pub pid: u32,
    /// Where its proxy listens.
    pub addr: Option<SocketAddr>,
}

/// One rank's card.
pub(super) struct Card {
    host_id: String,
    addr: SocketAddr,
    pub(super) channels: usize,
    pub(super) slot_bytes: usize,
    /// The algorithm that the rank asks for.
    pub(super) algo: Option<Algo>,
    /// The protocol that the rank asks for.
    pub(super) proto: Option<Proto>,
    personality: String,
    pid: u32,
}

impl Card {
    pub(super) fn of(identity: &Identity, addr: SocketAddr, channels: usize) -> Card {
        Card {
            host_id: identity.host_id.clone(),
            addr,
            channels,
            slot_bytes: identity.slot_bytes(),
            algo: identity.algo(),
            proto: identity.proto(),
            personality: Personality::current().name.to_owned(),
            pid: std::process::id(),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let algo = match self.algo {
            Some(Algo::Tree) => "tree",
            Some(Algo::Ring) => "ring",
            None => "",
        };
        let proto = self.proto.map_or("", |p| p.c_name().to_str().unwrap_or_default());
        let (addr, channels, slot) = (self.addr, self.channels, self.slot_bytes);
        format!("{addr}\n{channels}\n{slot}\n{algo}\n{proto}\n{}\n{}\n{}", self.personality, self.pid, self.host_id)
            .into()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Card> {
        let mut lines = std::str::from_utf8(bytes).ok()?.splitn(8, '\n');
        let addr = lines.next()?.parse().ok()?;
        let channels = lines.next()?.parse().ok()?;
        let slot_bytes = lines.next()?.parse().ok()?;
        let algo = match lines.next()? {
            "tree" => Some(Algo::Tree),
            "ring" => Some(Algo::Ring),
            _ => None,
        };
        let proto = Proto::from_name(lines.next()?);
        let personality = lines.next()?.to_owned();
        let pid = lines.next()?.parse().ok()?;
        Some(Card { host_id: lines.next()?.to_owned(), addr, channels, slot_bytes, algo, proto, personality, pid })
    }
}

/// Channels and bytes of a slot: what the most modest rank has.
pub(super) fn least(cards: &[Card]) -> (usize, usize) {
    let channels = cards.iter().map(|c| c.channels).min().unwrap_or(1).clamp(1, crate::env::CHANNELS_MAX);
    (channels, cards.iter().map(|c| c.slot_bytes).min().unwrap_or(1024).max(1024))
}

/// The personality of all ranks.
///
/// # Errors
/// They differ: each would cut the same operation in its own way.
pub(super) fn agreed(cards: &[Card]) -> Res<Personality> {
    let own = Personality::current();
    match cards.iter().position(|card| card.personality != own.name) {
        None => Ok(own),
        Some(rank) => {
            let (theirs, name) = (&cards[rank].personality, crate::personality::ENV);
            let text = format!("{name} differs between ranks: {} here, {theirs} on rank {rank}", own.name);
            Err(Fault::new(Code::InvalidUsage, text))
        }
    }
}

/// The ranks host by host, and where one of them is in that order.
pub(super) fn host_order(peers: &[Peer], rank: usize) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..peers.len()).collect();
    order.sort_by_key(|r| peers[*r].host);
    let pos = order.iter().position(|r| *r == rank).unwrap_or(0);
    (order, pos)
}

/// Everybody, with hosts numbered in the order of their first rank; and how many hosts there are.
pub(super) fn peers_of(cards: &[Card]) -> (Vec<Peer>, usize) {
    let mut hosts: Vec<&str> = Vec::new();
    let mut peers = Vec::with_capacity(cards.len());
    for card in cards {
        let host = hosts.iter().position(|h| *h == card.host_id).unwrap_or_else(|| {
            hosts.push(&card.host_id);
            hosts.len() - 1
        });
        peers.push(Peer { host, pid: card.pid, addr: Some(card.addr) });
    }
    (peers, hosts.len())
}
