//! Which queue pairs are of one communicator, and what it looks like: a ring, an exchange of all with all, or a chain of messages
//! there and back.
use super::lane::Lane;
use std::collections::{BTreeMap, BTreeSet};

/// What the flows of a group look like.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Shape {
    /// All begin together and send different amounts, or more than two exchange.
    Mesh,
    /// Messages there and back, not at the same time.
    Chain,
    /// All send the same at the same time, each to the next one, around.
    Ring,
    /// The same, not around: other members are on the hosts between.
    Part,
}

/// Senders and receivers that do one thing together.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Group {
    pub(super) shape: Shape,
    pub(super) members: BTreeSet<u32>,
    /// From whom to whom.
    pub(super) ways: BTreeSet<(u32, u32)>,
    /// Most and fewest bytes of an operation of a way.
    pub(super) range: (u64, u64),
    /// Operations of a way.
    pub(super) operations: usize,
    /// Bytes that a sender sends, to all its receivers.
    pub(super) bytes: u64,
    /// Of a chain: messages that go one way before the first comes back. So many stages are the first sender and those behind it.
    pub(super) ahead: usize,
}

/// All groups.
pub(super) fn groups(lanes: &[Lane<'_>]) -> Vec<Group> {
    let mut left = Left::of(lanes);
    let mut found = left.exchanges();
    found.extend(left.chains());
    found.extend(left.rings());
    found
}

/// Queue pairs that are of no group yet.
struct Left<'l, 'a> {
    lanes: &'l [Lane<'a>],
    by_way: BTreeMap<(u32, u32), Vec<usize>>,
}

impl<'l, 'a> Left<'l, 'a> {
    fn of(lanes: &'l [Lane<'a>]) -> Left<'l, 'a> {
        let mut by_way: BTreeMap<(u32, u32), Vec<usize>> = BTreeMap::new();
        lanes.iter().enumerate().for_each(|(at, lane)| by_way.entry((lane.from, lane.to)).or_default().push(at));
        Left { lanes, by_way }
    }

    /// Those of a way.
    fn on(&self, way: (u32, u32)) -> &[usize] {
        self.by_way.get(&way).map_or(&[], |lanes| lanes)
    }

    fn remove(&mut self, gone: &BTreeSet<usize>) {
        self.by_way.values_mut().for_each(|lanes| lanes.retain(|lane| !gone.contains(lane)));
        self.by_way.retain(|_, lanes| !lanes.is_empty());
    }

    /// Pairs of queue pairs, there and back, for which `is` holds, without those of `known`.
    fn pairs(&self, known: &BTreeSet<usize>, is: impl Fn(&Lane<'_>, &Lane<'_>) -> bool) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        let is = |there: usize, back: usize| {
            !known.contains(&there) && !known.contains(&back) && is(&self.lanes[there], &self.lanes[back])
        };
        for ((from, to), there) in self.by_way.iter().filter(|((from, to), _)| from < to) {
            for one in there {
                let back = self.on((*to, *from)).iter().find(|other| is(*one, **other));
                found.extend(back.map(|back| (*one, *back)));
            }
            for one in self.on((*to, *from)) {
                let there = there.iter().find(|other| is(**other, *one));
                found.extend(there.map(|there| (*there, *one)));
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Exchanges of all with all, and rings of two: both begin together.
    fn exchanges(&mut self) -> Vec<Group> {
        let mut pairs = self.pairs(&BTreeSet::new(), |one, other| one.goes_with(other) && !one.takes_turns_with(other));
        let known: BTreeSet<usize> = pairs.iter().flat_map(|(there, back)| [*there, *back]).collect();
        pairs.extend(self.pairs(&known, |one, other| one.begins_with(other) && !one.takes_turns_with(other)));
        let all: BTreeSet<usize> = pairs.iter().flat_map(|(there, back)| [*there, *back]).collect();
        let mut sets = Sets::of(self.lanes.len());
        pairs.iter().for_each(|(there, back)| sets.join(*there, *back));
        // Of one sender those that go together.
        let mut by_sender: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for lane in &all {
            let firsts = by_sender.entry(self.lanes[*lane].from).or_default();
            let like = |first: &&usize| {
                let (one, other) = (&self.lanes[**first], &self.lanes[*lane]);
                one.goes_with(other) || one.to != other.to && one.begins_at_once_with(other)
            };
            match firsts.iter().find(like) {
                Some(first) => sets.join(*first, *lane),
                None => firsts.push(*lane),
            }
        }
        let found = sets.groups(&all).into_iter().map(|of| self.exchange(&of)).collect();
        self.remove(&all);
        found
    }

    fn exchange(&self, of: &[usize]) -> Group {
        let group = self.group(Shape::Ring, of);
        let is_even = || of.iter().all(|lane| self.lanes[of[0]].goes_with(&self.lanes[*lane]));
        let shape = if group.members.len() == 2 && is_even() { Shape::Ring } else { Shape::Mesh };
        Group { shape, ..group }
    }

    fn chains(&mut self) -> Vec<Group> {
        let pairs = self.pairs(&BTreeSet::new(), |one, other| one.takes_turns_with(other));
        let all: BTreeSet<usize> = pairs.iter().flat_map(|(there, back)| [*there, *back]).collect();
        let mut sets = Sets::of(self.lanes.len());
        let mut first: BTreeMap<u32, usize> = BTreeMap::new();
        for (there, back) in &pairs {
            sets.join(*there, *back);
            for end in [self.lanes[*there].from, self.lanes[*there].to] {
                sets.join(*first.entry(end).or_insert(*there), *there);
            }
        }
        let run = |(there, back): &(usize, usize)| {
            let (there, back) = (&self.lanes[*there], &self.lanes[*back]);
            there.longest_run(back).max(back.longest_run(there))
        };
        let group = |of: Vec<usize>| {
            let ahead = pairs.iter().filter(|(there, _)| of.contains(there)).map(run).max().unwrap_or(0);
            Group { ahead, ..self.group(Shape::Chain, &of) }
        };
        let found = sets.groups(&all).into_iter().map(group).collect();
        self.remove(&all);
        found
    }

    fn rings(&mut self) -> Vec<Group> {
        let all: BTreeSet<usize> = self.by_way.values().flatten().copied().collect();
        let mut sets = Sets::of(self.lanes.len());
        for lane in &all {
            let own = &self.lanes[*lane];
            let beside = self.on((own.from, own.to)).iter().copied();
            let after =
                self.by_way.range((own.to, 0)..=(own.to, u32::MAX)).flat_map(|(_, lanes)| lanes.iter().copied());
            for other in beside.chain(after).filter(|other| other != lane).collect::<Vec<_>>() {
                if !sets.are_one(*lane, other) && own.goes_with(&self.lanes[other]) {
                    sets.join(*lane, other);
                }
            }
        }
        let ring = |of: Vec<usize>| {
            let group = self.group(Shape::Ring, &of);
            let senders: BTreeSet<u32> = group.ways.iter().map(|(from, _)| *from).collect();
            let receivers: BTreeSet<u32> = group.ways.iter().map(|(_, to)| *to).collect();
            let is_closed = group.ways.len() == group.members.len() && senders == receivers;
            Group { shape: if is_closed { Shape::Ring } else { Shape::Part }, ..group }
        };
        sets.groups(&all).into_iter().map(ring).collect()
    }

    fn group(&self, shape: Shape, of: &[usize]) -> Group {
        let lanes = || of.iter().map(|lane| &self.lanes[*lane]);
        let ways: BTreeSet<(u32, u32)> = lanes().map(|lane| (lane.from, lane.to)).collect();
        let senders: BTreeSet<u32> = ways.iter().map(|(from, _)| *from).collect();
        let (most, least): (Vec<u64>, Vec<u64>) = lanes().map(Lane::range).unzip();
        Group {
            shape,
            members: ways.iter().flat_map(|(from, to)| [*from, *to]).collect(),
            range: (most.into_iter().max().unwrap_or(0), least.into_iter().min().unwrap_or(0)),
            operations: lanes().map(Lane::operations).max().unwrap_or(0),
            bytes: lanes().map(|lane| lane.bytes).sum::<u64>() / senders.len().max(1) as u64,
            ways,
            ahead: 0,
        }
    }
}

/// Sets of numbers that are joined.
struct Sets(Vec<usize>);

impl Sets {
    fn of(count: usize) -> Sets {
        Sets((0..count).collect())
    }

    fn first(&mut self, mut one: usize) -> usize {
        while self.0[one] != one {
            self.0[one] = self.0[self.0[one]];
            one = self.0[one];
        }
        one
    }

    fn join(&mut self, one: usize, other: usize) {
        let (one, other) = (self.first(one), self.first(other));
        self.0[one.max(other)] = one.min(other);
    }

    fn are_one(&mut self, one: usize, other: usize) -> bool {
        self.first(one) == self.first(other)
    }

    fn groups(&mut self, of: &BTreeSet<usize>) -> Vec<Vec<usize>> {
        let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        of.iter().for_each(|one| groups.entry(self.first(*one)).or_default().push(*one));
        groups.into_values().collect()
    }
}
