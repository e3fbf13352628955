//! Agents by number: whose each number is, and what was handled under it.
use crate::intake::Progress;
use crate::refusal::Refusal;
use crate::refused::{End, refuse, shown};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Agents that are remembered: four times the connections. About 200 B each = 3 MiB; where each gives the longest names that a
/// hello takes, 20 MiB.
const AGENTS_MAX: usize = 4 * 4096;

/// What was handled of one agent.
pub(super) type Seen = Arc<Mutex<Progress>>;

/// Who uses a number. It is the same for as long as an agent's process lives: a number is drawn when that starts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Owner {
    /// Name of the host, as the agent says.
    pub(super) host: String,
    /// Name of the token that was shown; `None`: the server's own, or none at all.
    pub(super) token: Option<String>,
    /// What was shown is good for this host alone.
    pub(super) is_bound: bool,
}

impl Owner {
    /// The only host whose records it may send; `None`: any.
    pub(super) fn only(&self) -> Option<String> {
        self.is_bound.then(|| self.host.clone())
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "of host {}", shown(&self.host))?;
        self.token.as_ref().map_or(Ok(()), |token| write!(f, " with the token {token}"))
    }
}

/// One of them.
struct Known {
    owner: Owner,
    /// Rises with each connection.
    used: u64,
    seen: Seen,
}

/// All of a listener.
#[derive(Default)]
pub(super) struct Agents {
    known: BTreeMap<u64, Known>,
    clock: u64,
}

impl Agents {
    /// The memory of an agent, which only the one who used its number first gets.
    pub(super) fn get(&mut self, agent: u64, owner: &Owner) -> Result<Seen, End> {
        if let Some(known) = self.known.get(&agent).filter(|known| known.owner != *owner) {
            let first = &known.owner;
            let text = format!(
                "the number of this agent belongs to the one {first}, which used it first, and not to one {owner}: restart this \
                 agent, and it takes another; if it comes again, somebody reads what agents say, which TLS prevents"
            );
            return refuse(Refusal::NumberTaken, text);
        }
        self.clock += 1;
        if self.known.len() >= AGENTS_MAX
            && !self.known.contains_key(&agent)
            && let Some(victim) = self.victim()
        {
            self.known.remove(&victim);
        }
        let known =
            self.known.entry(agent).or_insert_with(|| Known { owner: owner.clone(), used: 0, seen: Seen::default() });
        known.used = self.clock;
        Ok(Arc::clone(&known.seen))
    }

    /// Who is forgotten when there are too many: of those that are away, the one that was away longest of the host that has
    /// the most, so that who comes under a thousand numbers pushes out himself. All that showed no token of their own count as one:
    /// they can say any host.
    fn victim(&self) -> Option<u64> {
        let mut of: BTreeMap<Option<&Owner>, (usize, u64, u64)> = BTreeMap::new();
        for (agent, known) in self.known.iter().filter(|(_, known)| Arc::strong_count(&known.seen) == 1) {
            let whose = known.owner.is_bound.then_some(&known.owner);
            let (count, oldest, victim) = of.entry(whose).or_insert((0, known.used, *agent));
            *count += 1;
            if known.used < *oldest {
                (*oldest, *victim) = (known.used, *agent);
            }
        }
        of.into_values().max_by_key(|(count, oldest, _)| (*count, u64::MAX - oldest)).map(|(_, _, victim)| victim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(host: &str, is_bound: bool) -> Owner {
        Owner { host: host.to_owned(), token: is_bound.then(|| host.to_owned()), is_bound }
    }

    #[test]
    fn who_uses_many_numbers_pushes_out_himself() {
        let mut agents = Agents::default();
        let (quiet, loud) = (of("quiet", true), of("loud", true));
        let mut get = |agent: u64, owner: &Owner| agents.get(agent, owner).map(|_| ()).is_ok();
        assert!(get(0, &quiet));
        assert!((1..3 * AGENTS_MAX as u64).all(|agent| get(agent, &loud)));
        assert!(!get(0, &loud), "it is still known whose it is");
        assert!(get(1, &quiet), "long forgotten");
        assert_eq!(agents.known.len(), AGENTS_MAX);
    }

    #[test]
    fn who_can_say_any_host_counts_once() {
        let mut agents = Agents::default();
        let bound = of("bound", true);
        let held: Vec<_> = (0..2).filter_map(|agent| agents.get(agent, &bound).ok()).collect();
        assert!(agents.get(2, &bound).is_ok());
        for agent in 3..2 * AGENTS_MAX as u64 {
            assert!(agents.get(agent, &of(&format!("host{agent}"), false)).is_ok());
        }
        assert!((0..3).all(|agent| agents.known.contains_key(&agent)), "those of tokens stay");
        assert_eq!(held.len(), 2);
    }
}
