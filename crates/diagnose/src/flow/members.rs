//! Who belongs together: senders and receivers that flows of one kind connect are one communicator, whenever they send.
use std::collections::{BTreeMap, BTreeSet};

/// The smallest number of the communicator of each sender and receiver, from all flows of one kind.
pub(super) fn communicators(ways: impl IntoIterator<Item = (u32, u32)>) -> BTreeMap<u32, u32> {
    let mut neighbours: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for (from, to) in ways {
        neighbours.entry(from).or_default().insert(to);
        neighbours.entry(to).or_default().insert(from);
    }
    let mut of = BTreeMap::new();
    for first in neighbours.keys() {
        let mut next = vec![*first];
        while let Some(member) = next.pop() {
            if of.contains_key(&member) {
                continue;
            }
            of.insert(member, *first);
            next.extend(&neighbours[&member]);
        }
    }
    of
}

/// Whether each of those that send sends to all others.
pub(super) fn is_mesh(ways: &BTreeSet<(u32, u32)>) -> bool {
    let senders: BTreeSet<u32> = ways.iter().map(|(from, _)| *from).collect();
    let to_all = |from: &u32| senders.iter().all(|to| to == from || ways.contains(&(*from, *to)));
    senders.len() > 2 && ways.len() == senders.len() * (senders.len() - 1) && senders.iter().all(to_all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_flows_connect_is_one() {
        let of = communicators([(0, 1), (5, 7), (1, 2), (7, 5), (2, 0)]);
        assert_eq!(of, BTreeMap::from([(0, 0), (1, 0), (2, 0), (5, 5), (7, 5)]));
    }

    #[test]
    fn a_mesh_lacks_no_way() {
        let mut ways: BTreeSet<(u32, u32)> =
            (0..4).flat_map(|from| (0..4).map(move |to| (from, to))).filter(|(from, to)| from != to).collect();
        assert!(is_mesh(&ways));
        ways.remove(&(2, 3));
        assert!(!is_mesh(&ways));
    }
}
