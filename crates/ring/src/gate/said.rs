//! What a coordinator and the requesters of several hosts say to each other, and as which bytes: `docs/formats/hold.md`.
//! Whoever carries it between them does not read it.
mod reader;
#[cfg(test)]
mod tests;

use super::Left;
use super::hold::{Order, Who};
use super::plan::{Lane, View};
use super::task::{Answer, Kind, Place, Remote, Times, Way};
use reader::{Reader, TEXT_BYTES_MAX};
use std::net::Ipv6Addr;
use std::time::Duration;

/// Version of these bytes: the first of each message.
const VERSION: u8 = 2;

/// Coordinator to requester. Each is answered with [`Shown`], and each is a sign of life.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Show what the ranks show.
    Show,
    /// Hold all of them, for so long at most.
    Hold {
        /// Nanoseconds.
        for_ns: u64,
    },
    /// Let these go on until they have issued so much; what was told before does not count any more.
    RunTo(Vec<(u32, Vec<Lane>)>),
    /// Order tests; ranks are their places in what was shown.
    Test(Vec<Order>),
    /// Let all go on.
    Release,
    /// Let all go on, and leave their gates to others.
    End,
}

/// What one rank shows a coordinator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Who.
    pub who: Who,
    /// Its gate.
    pub view: View,
    /// What it answered to the latest order.
    pub answer: Option<Answer>,
    /// Where it accepts a connection for the latest order.
    pub port: Option<u16>,
}

/// What one host shows a coordinator.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Here {
    /// The host's address on its way to the server.
    pub address: Option<Ipv6Addr>,
    /// All ranks of the host, in one order as long as the requester lives; none where no process of the job lives there.
    pub ranks: Vec<Seen>,
}

/// Requester to coordinator; or why nobody is held there any more.
pub type Shown = Result<Here, String>;

/// The bytes of a request for the processes of a job.
pub fn request_bytes(job: &str, request: &Request) -> Vec<u8> {
    let mut out = vec![VERSION];
    put_text(&mut out, job);
    match request {
        Request::Show => out.push(1),
        Request::Hold { for_ns } => {
            out.push(2);
            out.extend(for_ns.to_le_bytes());
        }
        Request::RunTo(ranks) => {
            out.push(3);
            put_count(&mut out, ranks.len());
            for (rank, lanes) in ranks {
                out.extend(rank.to_le_bytes());
                put_lanes(&mut out, lanes);
            }
        }
        Request::Test(orders) => {
            out.push(4);
            put_count(&mut out, orders.len());
            orders.iter().for_each(|order| put_order(&mut out, order));
        }
        Request::Release => out.push(5),
        Request::End => out.push(6),
    }
    out
}

/// The job and the request of these bytes; `None` for those of another version, and for others.
pub fn request_of(bytes: &[u8]) -> Option<(String, Request)> {
    let mut r = Reader(bytes);
    if r.u8()? != VERSION {
        return None;
    }
    let job = r.text()?;
    let request = match r.u8()? {
        1 => Request::Show,
        2 => Request::Hold { for_ns: r.u64()? },
        3 => Request::RunTo(r.list(|r| Some((r.u32()?, r.lanes()?)))?),
        4 => Request::Test(r.list(Reader::order)?),
        5 => Request::Release,
        6 => Request::End,
        _ => return None,
    };
    Some((job, request))
}

/// The bytes of an answer.
pub fn shown_bytes(shown: &Shown) -> Vec<u8> {
    let mut out = vec![VERSION];
    match shown {
        Ok(Here { address, ranks }) => {
            out.push(1);
            out.extend(address.unwrap_or(Ipv6Addr::UNSPECIFIED).octets());
            put_count(&mut out, ranks.len());
            ranks.iter().for_each(|seen| put_seen(&mut out, seen));
        }
        Err(why) => {
            out.push(2);
            put_text(&mut out, why);
        }
    }
    out
}

/// The answer of these bytes; `None` for those of another version, and for others.
pub fn shown_of(bytes: &[u8]) -> Option<Shown> {
    let mut r = Reader(bytes);
    if r.u8()? != VERSION {
        return None;
    }
    match r.u8()? {
        1 => Some(Ok(Here { address: r.address()?, ranks: r.list(seen)? })),
        2 => Some(Err(r.text()?)),
        _ => None,
    }
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend(u32::try_from(count).unwrap_or(u32::MAX).to_le_bytes());
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    put_count(out, end);
    out.extend(&text.as_bytes()[..end]);
}

fn put_lanes(out: &mut Vec<u8>, lanes: &[Lane]) {
    put_count(out, lanes.len());
    for Lane { key, count } in lanes {
        out.extend(key.comm.to_le_bytes());
        out.extend(key.kind.code().to_le_bytes());
        out.extend(key.own.to_le_bytes());
        out.extend(key.other.to_le_bytes());
        out.extend(count.to_le_bytes());
    }
}

fn put_order(out: &mut Vec<u8>, order: &Order) {
    let place = |out: &mut Vec<u8>, place: usize| put_count(out, place);
    match *order {
        Order::Alone { rank, kind } => {
            out.push(match kind {
                Kind::Device => 1,
                Kind::Copy => 2,
                Kind::Processor => 3,
                Kind::Host => 4,
                Kind::Pair(Way { place: Place::Accept(_), .. }) => 6,
                Kind::Pair(Way { place: Place::Connect(..), .. }) => 7,
                // Ways in a host are ordered as pairs; unknown to whoever reads it.
                Kind::Pair(_) => 0,
            });
            place(out, rank);
            if let Kind::Pair(way) = kind {
                put_way(out, &way);
            }
        }
        Order::Pair { keeper, guest, comm, bytes, patience } => {
            out.push(5);
            for (rank, own) in [keeper, guest] {
                place(out, rank);
                out.extend(own.to_le_bytes());
            }
            out.extend(comm.to_le_bytes());
            out.extend(bytes.to_le_bytes());
            put_duration(out, patience);
        }
    }
}

fn put_way(out: &mut Vec<u8>, way: &Way) {
    out.extend(way.peer.to_le_bytes());
    out.extend(way.comm.to_le_bytes());
    out.extend(way.bytes.to_le_bytes());
    out.extend(way.patience_ns.to_le_bytes());
    if let Place::Accept(Remote { address, nonce }) | Place::Connect(Remote { address, nonce }, _) = way.place {
        out.extend(address.octets());
        out.extend(nonce.to_le_bytes());
    }
    if let Place::Connect(_, port) = way.place {
        out.extend(port.to_le_bytes());
    }
}

fn put_duration(out: &mut Vec<u8>, time: Duration) {
    out.extend(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).to_le_bytes());
}

fn put_seen(out: &mut Vec<u8>, Seen { who, view, answer, port }: &Seen) {
    out.extend(who.pid.to_le_bytes());
    out.extend(who.rank.to_le_bytes());
    let flags = [view.has_gate, view.waiting, view.left.is_some(), answer.is_some(), port.is_some()];
    out.push((0..).zip(flags).map(|(bit, is_set)| u8::from(is_set) << bit).sum());
    out.extend(view.entries.to_le_bytes());
    out.extend(view.left.map_or(0, |left| left as u32).to_le_bytes());
    out.extend(view.untracked.to_le_bytes());
    put_lanes(out, &view.lanes);
    if let Some(Answer { ending, values }) = answer {
        out.extend((*ending as u32).to_le_bytes());
        for Times { fastest_ns, median_ns } in values {
            out.extend(fastest_ns.to_le_bytes());
            out.extend(median_ns.to_le_bytes());
        }
    }
    if let Some(port) = port {
        out.extend(port.to_le_bytes());
    }
}

fn seen(r: &mut Reader<'_>) -> Option<Seen> {
    let who = Who { pid: r.u32()?, rank: r.u32()? };
    let flags = r.u8()?;
    let is_set = |bit: u8| flags & 1 << bit != 0;
    let (entries, left, untracked) = (r.u32()?, r.u32()?, r.u64()?);
    let view = View {
        has_gate: is_set(0),
        waiting: is_set(1),
        entries,
        left: is_set(2).then(|| Left::from_code(left)),
        untracked,
        lanes: r.lanes()?,
    };
    let answer = if is_set(3) { Some(r.answer()?) } else { None };
    let port = if is_set(4) { Some(r.u16()?) } else { None };
    Some(Seen { who, view, answer, port })
}
