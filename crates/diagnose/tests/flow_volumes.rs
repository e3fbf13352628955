//! Expected volumes against algorithms that really move data between made-up ranks.
use mycroft_diagnose::flow::{Asked, Shape};
use mycroft_record::OpKind;
use std::collections::{BTreeMap, BTreeSet};

/// Bytes by sender and receiver.
type Sent = BTreeMap<(u64, u64), u64>;

fn expected(kind: OpKind, shape: Shape, bytes: u64, ranks: u64) -> Option<u64> {
    Asked { kind, shape, bytes, ranks }.bytes_to_peer()
}

/// Whose contributions to each part a rank holds.
type Held = Vec<Vec<BTreeSet<u64>>>;

/// One part goes from each rank to the next, in each of n - 1 steps; the first to go is the rank's own number plus `from`.
fn around(held: &mut Held, from: u64, part_bytes: u64, sent: &mut Sent) {
    let ranks = held.len() as u64;
    for step in 0..ranks - 1 {
        let going: Vec<(u64, u64, BTreeSet<u64>)> = (0..ranks)
            .map(|rank| {
                let part = (rank + from + ranks - step) % ranks;
                (rank, part, held[rank as usize][part as usize].clone())
            })
            .collect();
        for (rank, part, whose) in going {
            let next = (rank + 1) % ranks;
            held[next as usize][part as usize].extend(whose);
            *sent.entry((rank, next)).or_default() += part_bytes;
        }
    }
}

#[test]
fn a_ring_sends_what_the_table_says() {
    for ranks in 2..12u64 {
        let part_bytes = 1000;
        let own = |rank| (0..ranks).map(|_| BTreeSet::from([rank])).collect::<Vec<_>>();
        let mut held: Held = (0..ranks).map(own).collect();
        let mut scattered = Sent::new();
        around(&mut held, 0, part_bytes, &mut scattered);
        for rank in 0..ranks {
            let part = (rank + 1) % ranks;
            assert_eq!(held[rank as usize][part as usize].len() as u64, ranks, "reduced by all");
        }
        let mut sent = scattered.clone();
        around(&mut held, 1, part_bytes, &mut sent);
        assert!(held.iter().flatten().all(|part| part.len() as u64 == ranks), "everybody has everything");
        let only = |sent: &Sent| {
            assert_eq!(sent.len() as u64, ranks, "each rank has one receiver");
            sent.values().copied().collect::<BTreeSet<u64>>().into_iter().collect::<Vec<_>>()
        };
        let all = part_bytes * ranks;
        assert_eq!(only(&sent), [expected(OpKind::AllReduce, Shape::Ring, all, ranks).expect("known")]);
        let half = only(&scattered);
        assert_eq!(half, [expected(OpKind::ReduceScatter, Shape::Ring, part_bytes, ranks).expect("known")]);
        assert_eq!(half, [expected(OpKind::AllGather, Shape::Ring, part_bytes, ranks).expect("known")]);
    }
}

/// Up to the root and down again, with `name` saying which rank stands at each place of a heap.
fn tree(ranks: u64, bytes: u64, name: impl Fn(u64) -> u64, sent: &mut Sent) {
    let mut has: Vec<BTreeSet<u64>> = (0..ranks).map(|place| BTreeSet::from([place])).collect();
    for place in (1..ranks).rev() {
        let parent = (place - 1) / 2;
        let whose = has[place as usize].clone();
        has[parent as usize].extend(whose);
        *sent.entry((name(place), name(parent))).or_default() += bytes;
    }
    assert_eq!(has[0].len() as u64, ranks, "reduced at the root");
    for place in 1..ranks {
        let parent = (place - 1) / 2;
        has[place as usize] = has[parent as usize].clone();
        *sent.entry((name(parent), name(place))).or_default() += bytes;
    }
    assert!(has.iter().all(|has| has.len() as u64 == ranks), "everybody has everything");
}

#[test]
fn a_tree_and_two_trees_send_what_the_table_says() {
    for ranks in 2..20u64 {
        let all = 2_000;
        let mut one = Sent::new();
        tree(ranks, all, |place| place, &mut one);
        let each = expected(OpKind::AllReduce, Shape::Tree, all, ranks).expect("known");
        assert!(one.values().all(|sent| *sent == each), "to parent and to children alike");
        let (mut first, mut second) = (Sent::new(), Sent::new());
        tree(ranks, all / 2, |place| place, &mut first);
        tree(ranks, all / 2, |place| ranks - 1 - place, &mut second);
        let each = expected(OpKind::AllReduce, Shape::DoubleTree, all, ranks).expect("known");
        assert!(first.values().chain(second.values()).all(|sent| *sent == each));
        // However they go, all together send the same.
        let ring = expected(OpKind::AllReduce, Shape::Ring, all * ranks, ranks).expect("known") * ranks;
        assert_eq!(one.values().sum::<u64>() * ranks, ring);
        assert_eq!((first.values().sum::<u64>() + second.values().sum::<u64>()) * ranks, ring);
    }
}

#[test]
fn what_no_algorithm_does_has_no_volume() {
    assert_eq!(expected(OpKind::Send, Shape::Direct, 77, 2), Some(77));
    assert_eq!(expected(OpKind::AllToAll, Shape::Direct, 77, 8), Some(77));
    assert_eq!(expected(OpKind::Broadcast, Shape::Ring, 77, 8), Some(77));
    for (kind, shape) in [(OpKind::AllGather, Shape::Tree), (OpKind::Send, Shape::Ring), (OpKind::Unknown, Shape::Ring)]
    {
        assert_eq!(expected(kind, shape, 77, 8), None);
    }
    assert_eq!(expected(OpKind::AllReduce, Shape::Ring, 77, 1), None, "nobody to send to");
    assert_eq!(expected(OpKind::AllReduce, Shape::Ring, u64::MAX, 3), None, "more than a number holds");
}

#[test]
fn queue_pairs_share_and_each_sends_most_of_its_share() {
    let asked = Asked { kind: OpKind::AllReduce, shape: Shape::Ring, bytes: 1 << 26, ranks: 4 };
    assert_eq!(asked.bytes_to_peer(), Some(100_663_296));
    assert_eq!(asked.volume(2), Some(50_331_648 / 20 * 19 + 50_331_648 % 20 * 19 / 20));
    assert_eq!(asked.volume(0), None);
}
