//! Connections that have not shown yet who they are: few, and the first to go when there are too many.
use crate::stream::Closer;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// One of them.
struct Stranger {
    /// None: over a unix socket.
    from: Option<IpAddr>,
    closer: Closer,
}

/// All of a listener, by number, which grows with time.
#[derive(Default)]
pub(super) struct Strangers {
    here: BTreeMap<u64, Stranger>,
}

impl Strangers {
    /// Lets one in. When there are more than `most`, one is put out: the oldest of the address that has the most, so that
    /// who connects a thousand times puts out himself. True: one was put out.
    pub(super) fn enter(&mut self, number: u64, from: Option<IpAddr>, closer: Closer, most: usize) -> bool {
        self.here.insert(number, Stranger { from, closer });
        if self.here.len() <= most {
            return false;
        }
        let Some(number) = self.victim() else { return false };
        if let Some(stranger) = self.here.remove(&number) {
            stranger.closer.close();
        }
        true
    }

    fn victim(&self) -> Option<u64> {
        let mut of: BTreeMap<Option<IpAddr>, (usize, u64)> = BTreeMap::new();
        for (number, stranger) in &self.here {
            of.entry(stranger.from).or_insert((0, *number)).0 += 1;
        }
        // Of addresses with as many, the one whose oldest is older.
        of.into_values().max_by_key(|(count, oldest)| (*count, u64::MAX - oldest)).map(|(_, oldest)| oldest)
    }

    /// Takes one out: it has become an agent, or is gone. None: it was put out meanwhile.
    pub(super) fn leave(&mut self, number: u64) -> Option<Closer> {
        self.here.remove(&number).map(|stranger| stranger.closer)
    }

    /// Ends them all.
    pub(super) fn close(&self) {
        self.here.values().for_each(|stranger| stranger.closer.close());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    #[test]
    fn who_connects_most_puts_out_himself() {
        let mut strangers = Strangers::default();
        let mut others = Vec::new();
        let mut enter = |number: u64, from: u8| {
            let (own, other) = UnixStream::pair().expect("sockets");
            others.push(other);
            strangers.enter(number, Some(IpAddr::from([10, 0, 0, from])), Closer::Unix(Arc::new(own)), 4)
        };
        assert!(!enter(1, 7));
        assert!((2..5).all(|number| !enter(number, 9)), "room for four");
        assert!((5..200).all(|number| enter(number, 9)), "each puts one out");
        assert!(strangers.leave(1).is_some(), "the one from elsewhere is still there");
        assert_eq!(strangers.here.keys().copied().collect::<Vec<_>>(), [197, 198, 199], "the newest");
    }
}
