//! What a coordinator and the requesters of several hosts say to each other, and as which bytes: `docs/formats/hold.md`.
//! Whoever carries it between them does not read it.
use super::hold::{Order, Who};
use super::plan::{Lane, View};
use super::task::{Answer, Ending, Kind, Times};
use super::words::TASK_VALUES;
use super::{LaneKey, LaneKind, Left};
use std::time::Duration;

/// Version of these bytes: the first of each message.
const VERSION: u8 = 1;
/// Longest reason that is carried.
const TEXT_BYTES_MAX: usize = 1024;

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
}

/// Requester to coordinator: what all ranks of the host show, in one order as long as the requester lives; none where no
/// process of the job lives there. Or why nobody is held there any more.
pub type Shown = Result<Vec<Seen>, String>;

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
        Ok(ranks) => {
            out.push(1);
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
        1 => Some(Ok(r.list(Reader::seen)?)),
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
                // Ways are ordered as pairs; unknown to whoever reads it.
                Kind::Pair(_) => 0,
            });
            place(out, rank);
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

fn put_duration(out: &mut Vec<u8>, time: Duration) {
    out.extend(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).to_le_bytes());
}

fn put_seen(out: &mut Vec<u8>, Seen { who, view, answer }: &Seen) {
    out.extend(who.pid.to_le_bytes());
    out.extend(who.rank.to_le_bytes());
    let flags = [view.has_gate, view.waiting, view.left.is_some(), answer.is_some()];
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
}

/// What is left to read.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn place(&mut self) -> Option<usize> {
        self.u32()?.try_into().ok()
    }

    fn text(&mut self) -> Option<String> {
        let length = self.place().filter(|length| *length <= TEXT_BYTES_MAX)?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }

    /// As many as are told: a count that is too large ends with the bytes, and takes no memory before.
    fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut list = Vec::new();
        for _ in 0..self.u32()? {
            list.push(one(self)?);
        }
        Some(list)
    }

    fn lanes(&mut self) -> Option<Vec<Lane>> {
        self.list(|r| {
            let (comm, kind) = (r.u64()?, LaneKind::from_code(r.u64()?)?);
            Some(Lane { key: LaneKey { comm, kind, own: r.u32()?, other: r.u32()? }, count: r.u64()? })
        })
    }

    fn order(&mut self) -> Option<Order> {
        let kind = match self.u8()? {
            1 => Kind::Device,
            2 => Kind::Copy,
            3 => Kind::Processor,
            4 => Kind::Host,
            5 => return self.pair(),
            _ => return None,
        };
        Some(Order::Alone { rank: self.place()?, kind })
    }

    fn pair(&mut self) -> Option<Order> {
        let (keeper, guest) = ((self.place()?, self.u32()?), (self.place()?, self.u32()?));
        let (comm, bytes, patience) = (self.u64()?, self.u64()?, Duration::from_nanos(self.u64()?));
        Some(Order::Pair { keeper, guest, comm, bytes, patience })
    }

    fn seen(&mut self) -> Option<Seen> {
        let who = Who { pid: self.u32()?, rank: self.u32()? };
        let flags = self.u8()?;
        let is_set = |bit: u8| flags & 1 << bit != 0;
        let (entries, left, untracked) = (self.u32()?, self.u32()?, self.u64()?);
        let view = View {
            has_gate: is_set(0),
            waiting: is_set(1),
            entries,
            left: is_set(2).then(|| Left::from_code(left)),
            untracked,
            lanes: self.lanes()?,
        };
        let answer = if is_set(3) { Some(self.answer()?) } else { None };
        Some(Seen { who, view, answer })
    }

    fn answer(&mut self) -> Option<Answer> {
        let ending = Ending::from_code(self.u32()?);
        let mut values = [Times::default(); TASK_VALUES];
        for value in &mut values {
            *value = Times { fastest_ns: self.u32()?, median_ns: self.u32()? };
        }
        Some(Answer { ending, values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lane(count: u64) -> Lane {
        Lane { key: LaneKey { comm: u64::MAX, kind: LaneKind::Recv, own: 3, other: 4 }, count }
    }

    fn requests() -> Vec<Request> {
        let pair = Order::Pair { keeper: (1, 2), guest: (3, 4), comm: 5, bytes: 6, patience: Duration::from_nanos(7) };
        vec![
            Request::Show,
            Request::Hold { for_ns: 1 << 40 },
            Request::RunTo(vec![(0, vec![lane(1), lane(2)]), (7, vec![])]),
            Request::Test(vec![Order::Alone { rank: 2, kind: Kind::Host }, pair]),
            Request::Release,
            Request::End,
        ]
    }

    fn shown() -> Vec<Shown> {
        let values = [Times { fastest_ns: 1, median_ns: 2 }; TASK_VALUES];
        let view = View {
            has_gate: true,
            waiting: true,
            entries: 9,
            left: Some(Left::Silence),
            untracked: 1,
            lanes: vec![lane(8)],
        };
        let answer = Some(Answer { ending: Ending::Apart, values });
        let seen = Seen { who: Who { pid: 1, rank: 2 }, view, answer };
        let other = Seen { answer: None, view: View::default(), ..seen.clone() };
        vec![Ok(vec![]), Ok(vec![seen, other]), Err("why \u{e9}".to_owned())]
    }

    #[test]
    fn what_is_said_is_read_as_it_was_and_nothing_shorter_is() {
        for request in requests() {
            let bytes = request_bytes("llama \u{e9}", &request);
            assert_eq!(request_of(&bytes), Some(("llama \u{e9}".to_owned(), request)));
            assert!((0..bytes.len()).all(|end| request_of(&bytes[..end]).is_none()));
        }
        for shown in shown() {
            let bytes = shown_bytes(&shown);
            assert_eq!(shown_of(&bytes), Some(shown));
            assert!((0..bytes.len()).all(|end| shown_of(&bytes[..end]).is_none()));
        }
    }

    #[test]
    fn another_version_and_counts_that_are_too_large_are_not_read() {
        let mut bytes = shown_bytes(&Ok(vec![]));
        bytes[2..].fill(0xff);
        assert_eq!(shown_of(&bytes), None);
        bytes[0] = VERSION + 1;
        assert_eq!((shown_of(&bytes), request_of(&bytes)), (None, None));
        let long = "\u{e9}".repeat(TEXT_BYTES_MAX);
        assert_eq!(shown_of(&shown_bytes(&Err(long))), Some(Err("\u{e9}".repeat(TEXT_BYTES_MAX / 2))));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

        /// Foreign bytes, and what is said with a byte of it changed: read or not, never a panic.
        #[test]
        fn foreign_bytes_are_read_or_not(foreign in proptest::collection::vec(any::<u8>(), 0..300), at in 0usize..4_096, byte: u8) {
            let _ = (request_of(&foreign), shown_of(&foreign));
            let requests = requests().into_iter().map(|request| request_bytes("job", &request));
            for mut bytes in requests.chain(shown().iter().map(shown_bytes)) {
                let at = at % bytes.len();
                bytes[at] = byte;
                let _ = (request_of(&bytes), shown_of(&bytes));
            }
        }
    }
}
