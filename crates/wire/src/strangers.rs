//! Connections that have not shown yet who they are: few, and the first to go when there are too many.
use std::collections::BTreeMap;
use std::net::IpAddr;

/// One of them.
#[derive(Debug)]
struct Stranger<T> {
    /// None: over a unix socket.
    from: Option<IpAddr>,
    closer: T,
}

/// All of a listener, by number, which grows with time; `T` ends a connection.
#[derive(Debug)]
pub struct Strangers<T> {
    here: BTreeMap<u64, Stranger<T>>,
}

impl<T> Default for Strangers<T> {
    fn default() -> Strangers<T> {
        Strangers { here: BTreeMap::new() }
    }
}

impl<T> Strangers<T> {
    /// Lets one in. When there are more than `most`, one is put out: the oldest of the address that has the most, so that
    /// who connects a thousand times puts out himself. Gives what ends that one.
    pub fn enter(&mut self, number: u64, from: Option<IpAddr>, closer: T, most: usize) -> Option<T> {
        self.here.insert(number, Stranger { from, closer });
        if self.here.len() <= most {
            return None;
        }
        self.here.remove(&self.victim()?).map(|stranger| stranger.closer)
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
    pub fn leave(&mut self, number: u64) -> Option<T> {
        self.here.remove(&number).map(|stranger| stranger.closer)
    }

    /// What ends each of them.
    pub fn closers(&self) -> impl Iterator<Item = &T> {
        self.here.values().map(|stranger| &stranger.closer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_connects_most_puts_out_himself() {
        let mut strangers = Strangers::default();
        let mut enter =
            |number: u64, from: u8| strangers.enter(number, Some(IpAddr::from([10, 0, 0, from])), number, 4).is_some();
        assert!(!enter(1, 7));
        assert!((2..5).all(|number| !enter(number, 9)), "room for four");
        assert!((5..200).all(|number| enter(number, 9)), "each puts one out");
        assert_eq!(strangers.leave(1), Some(1), "the one from elsewhere is still there");
        assert_eq!(strangers.here.keys().copied().collect::<Vec<_>>(), [197, 198, 199], "the newest");
    }
}
