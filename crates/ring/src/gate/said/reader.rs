//! Reads what was said, which may be anything.
use crate::gate::hold::Order;
use crate::gate::plan::Lane;
use crate::gate::task::{Answer, Ending, Kind, Place, Remote, Times, Way};
use crate::gate::words::TASK_VALUES;
use crate::gate::{LaneKey, LaneKind};
use std::net::Ipv6Addr;
use std::time::Duration;

/// Longest reason that is carried.
pub(super) const TEXT_BYTES_MAX: usize = 1024;

/// What is left to read.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn place(&mut self) -> Option<usize> {
        self.u32()?.try_into().ok()
    }

    pub(super) fn text(&mut self) -> Option<String> {
        let length = self.place().filter(|length| *length <= TEXT_BYTES_MAX)?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        String::from_utf8(text.to_vec()).ok()
    }

    /// As many as are told: a count that is too large ends with the bytes, and takes no memory before.
    pub(super) fn list<T>(&mut self, mut one: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let mut list = Vec::new();
        for _ in 0..self.u32()? {
            list.push(one(self)?);
        }
        Some(list)
    }

    pub(super) fn lanes(&mut self) -> Option<Vec<Lane>> {
        self.list(|r| {
            let (comm, kind) = (r.u64()?, LaneKind::from_code(r.u64()?)?);
            Some(Lane { key: LaneKey { comm, kind, own: r.u32()?, other: r.u32()? }, count: r.u64()? })
        })
    }

    pub(super) fn order(&mut self) -> Option<Order> {
        let kind = match self.u8()? {
            1 => Kind::Device,
            2 => Kind::Copy,
            3 => Kind::Processor,
            4 => Kind::Host,
            5 => return self.pair(),
            6 => {
                let rank = self.place()?;
                return Some(Order::Alone {
                    rank,
                    kind: Kind::Pair(self.way(|_, remote| Some(Place::Accept(remote)))?),
                });
            }
            7 => {
                let rank = self.place()?;
                let place = |r: &mut Self, remote| Some(Place::Connect(remote, r.u16()?));
                return Some(Order::Alone { rank, kind: Kind::Pair(self.way(place)?) });
            }
            _ => return None,
        };
        Some(Order::Alone { rank: self.place()?, kind })
    }

    fn way(&mut self, place: impl Fn(&mut Self, Remote) -> Option<Place>) -> Option<Way> {
        let (peer, comm, bytes, patience_ns) = (self.u32()?, self.u64()?, self.u64()?, self.u64()?);
        let remote = Remote { address: Ipv6Addr::from(self.take::<16>()?), nonce: self.u64()? };
        Some(Way { comm, peer, place: place(self, remote)?, bytes, patience_ns })
    }

    /// An address; none where all its bytes are zero.
    pub(super) fn address(&mut self) -> Option<Option<Ipv6Addr>> {
        let address = Ipv6Addr::from(self.take::<16>()?);
        Some((!address.is_unspecified()).then_some(address))
    }

    fn pair(&mut self) -> Option<Order> {
        let (keeper, guest) = ((self.place()?, self.u32()?), (self.place()?, self.u32()?));
        let (comm, bytes, patience) = (self.u64()?, self.u64()?, Duration::from_nanos(self.u64()?));
        Some(Order::Pair { keeper, guest, comm, bytes, patience })
    }

    pub(super) fn answer(&mut self) -> Option<Answer> {
        let ending = Ending::from_code(self.u32()?);
        let mut values = [Times::default(); TASK_VALUES];
        for value in &mut values {
            *value = Times { fastest_ns: self.u32()?, median_ns: self.u32()? };
        }
        Some(Answer { ending, values })
    }
}
