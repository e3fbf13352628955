//! Tests of ranks on several hosts. Two ranks of different hosts meet over a connection (`talk`): first the one that accepts it
//! is ordered, and when its host shows at which port it does, the other.
use super::{Exchange, HeldHosts, LOOK_EVERY};
use crate::clock::monotonic_ns;
use crate::gate::hold::{HoldError, Order, ns};
use crate::gate::said::Request;
use crate::gate::task::{Answer, Kind, Place, Remote, Way};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A way between hosts of which only one end is ordered yet.
struct Half {
    keeper: usize,
    guest: usize,
    /// What the guest does, but for the port.
    way: Way,
    remote: Remote,
}

/// Orders of one pass.
#[derive(Default)]
struct Orders {
    by_host: BTreeMap<usize, Vec<Order>>,
    /// Ranks that are to answer.
    ordered: BTreeSet<usize>,
    halves: Vec<Half>,
}

impl<E: Exchange> HeldHosts<'_, E> {
    /// As [`crate::gate::hold::Held::run`].
    ///
    /// # Errors
    /// A rank or a host is gone, went on, or runs no tests: all are let go.
    pub fn run(&mut self, orders: &[Order], within: Duration) -> Result<BTreeMap<usize, Answer>, HoldError> {
        let mut all = Orders::default();
        orders.iter().for_each(|order| self.add(order, &mut all));
        let Orders { by_host, mut ordered, mut halves } = all;
        self.order(by_host)?;
        let end_ns = monotonic_ns().saturating_add(ns(within));
        loop {
            let answers: BTreeMap<usize, Answer> = ordered.iter().filter_map(|rank| self.answer(*rank)).collect();
            // Of a way whose one end has nothing to do any more nobody orders the other.
            halves.retain(|half| !answers.contains_key(&half.keeper));
            if halves.is_empty() && answers.len() == ordered.len() || monotonic_ns() >= end_ns {
                return Ok(answers);
            }
            let guests = self.guests(&mut halves, &mut ordered);
            if guests.is_empty() {
                std::thread::sleep(LOOK_EVERY);
                self.look()?;
            } else {
                self.order(guests)?;
            }
        }
    }

    /// Tells hosts what their ranks do; the others only that they are still held.
    fn order(&mut self, mut orders: BTreeMap<usize, Vec<Order>>) -> Result<(), HoldError> {
        let request = |host: &usize| {
            let orders = orders.remove(host);
            (*host, orders.map_or(Request::Show, Request::Test))
        };
        let requests = self.hosts.seen.keys().map(request).collect();
        self.hosts.exchange(requests)?;
        self.hosts.still_here()
    }

    /// What a rank answered to its order.
    fn answer(&self, rank: usize) -> Option<(usize, Answer)> {
        Some((rank, self.hosts.shown_by(rank)?.answer?))
    }

    /// Orders of those whose other end accepts a connection by now.
    fn guests(&self, halves: &mut Vec<Half>, ordered: &mut BTreeSet<usize>) -> BTreeMap<usize, Vec<Order>> {
        let mut orders: BTreeMap<usize, Vec<Order>> = BTreeMap::new();
        halves.retain(|half| {
            let port = self.hosts.shown_by(half.keeper).and_then(|seen| seen.port);
            let (Some(port), Some((host, rank))) = (port, self.hosts.ranks.get(half.guest).copied()) else {
                return true;
            };
            let kind = Kind::Pair(Way { place: Place::Connect(half.remote, port), ..half.way });
            orders.entry(host).or_default().push(Order::Alone { rank, kind });
            ordered.insert(half.guest);
            false
        });
        orders
    }

    /// An order as the hosts of its ranks understand it. A way between hosts without an address is left out.
    fn add(&self, order: &Order, all: &mut Orders) {
        let place = |rank: usize| self.hosts.ranks.get(rank).copied();
        match *order {
            Order::Alone { rank, kind } => {
                let Some((host, at)) = place(rank) else { return };
                all.by_host.entry(host).or_default().push(Order::Alone { rank: at, kind });
                all.ordered.insert(rank);
            }
            Order::Pair { keeper, guest, comm, bytes, patience } => {
                let (Some((host, one)), Some((of_guest, other))) = (place(keeper.0), place(guest.0)) else { return };
                if host == of_guest {
                    let (keeper_there, guest_there) = ((one, keeper.1), (other, guest.1));
                    let order = Order::Pair { keeper: keeper_there, guest: guest_there, comm, bytes, patience };
                    all.by_host.entry(host).or_default().push(order);
                    all.ordered.extend([keeper.0, guest.0]);
                    return;
                }
                let way = |peer| Way { comm, peer, place: Place::Own, bytes, patience_ns: ns(patience) };
                // Others cannot reach an address that a host has for itself only.
                let is_open = |host: &usize| {
                    let address = self.hosts.addresses.get(host);
                    address.is_some_and(|address| !address.to_canonical().is_loopback())
                };
                let swap = !is_open(&host) && is_open(&of_guest);
                let (keeper, guest) = if swap { (guest, keeper) } else { (keeper, guest) };
                let Some((host, rank)) = place(keeper.0) else { return };
                let Some(address) = self.hosts.addresses.get(&host).copied() else { return };
                let remote = Remote { address, nonce: nonce() };
                let kind = Kind::Pair(Way { place: Place::Accept(remote), ..way(guest.1) });
                all.by_host.entry(host).or_default().push(Order::Alone { rank, kind });
                all.ordered.insert(keeper.0);
                all.halves.push(Half { keeper: keeper.0, guest: guest.0, way: way(keeper.1), remote });
            }
        }
    }
}

/// A number that a stranger does not guess: each [`RandomState`] has keys that come from the system's random numbers.
fn nonce() -> u64 {
    RandomState::new().hash_one(())
}
