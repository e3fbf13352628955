//! The search: from the present placement and from one that gathers slow devices, host by host to where it does least
//! harm; then a proof by branch and bound that nothing is faster, as far as the limits go.
use super::model::Job;
use super::odd::{Odd, Score};
use std::collections::BTreeSet;

/// Odd hosts looked at while climbing: some 0.3 s in a release build.
const CLIMB_LOOKS: u64 = 8_000_000;
/// Odd hosts looked at for the proof.
const PROOF_LOOKS: u64 = 8_000_000;
/// Columns that a host may be moved to, beside its own: those about other odd hosts, and empty ones.
const COLUMNS_LOOKED_AT: usize = 96;

/// The best placement found, and whether none is faster.
pub(super) fn best(job: &Job, present: &[usize]) -> (Vec<usize>, bool) {
    let mut odd = Odd::new(job, present);
    if odd.hosts.is_empty() {
        return (present.to_vec(), true);
    }
    let mut looks = Looks { left: CLIMB_LOOKS };
    let mut found = (odd.score(), odd.positions.clone());
    for start in [odd.positions.clone(), gathered(job, &odd)] {
        odd.put(&start);
        climb(job, &mut odd, &mut looks);
        let (score, positions) = (odd.score(), odd.positions.clone());
        if key(&score) < key(&found.0) {
            found = (score, positions);
        }
        looks.left = looks.left.max(CLIMB_LOOKS / 2);
    }
    let mut proof = Proof { best: found, looks: Looks { left: PROOF_LOOKS } };
    let is_exact = proof.run(&mut odd);
    odd.put(&proof.best.1);
    settle(&mut odd);
    (odd.placement(present), is_exact)
}

/// What decides between placements that are final.
fn key(score: &Score) -> (u64, u32, u32, u32) {
    (score.time_ns, score.stages, score.outer, score.moved)
}

struct Looks {
    left: u64,
}

impl Looks {
    /// One look; `None` when there are no more.
    fn score(&mut self, odd: &mut Odd<'_>) -> Option<Score> {
        self.left = self.left.checked_sub(odd.known as u64 + 1)?;
        Some(odd.score())
    }
}

/// Slow devices in as few stages as hold them (FALCON 5.3): the slowest together, where a stage has least to do, inner stages
/// first. The others stay where they are, or go to the first place that is free.
fn gathered(job: &Job, odd: &Odd<'_>) -> Vec<usize> {
    let (rows, columns) = (job.stages_ns.len(), job.columns());
    let mut stages: Vec<usize> = (0..rows).collect();
    let is_outer = |stage: usize| stage == 0 || stage + 1 == rows;
    stages.sort_by_key(|&stage| (job.stages_ns[stage], is_outer(stage), stage));
    let mut places = stages.iter().flat_map(|stage| (0..columns).map(move |column| stage * columns + column));
    let mut taken = BTreeSet::new();
    let present: BTreeSet<usize> = odd.positions.iter().copied().collect();
    let mut positions = odd.positions.clone();
    for slow in (0..odd.hosts.len()).filter(|&host| odd.is_slow(host)) {
        if let Some(place) = places.next() {
            positions[slow] = place;
            taken.insert(place);
        }
    }
    for other in (0..odd.hosts.len()).filter(|&host| !odd.is_slow(host)) {
        if !taken.insert(positions[other]) {
            let free = (0..job.hosts.len()).find(|place| !taken.contains(place) && !present.contains(place));
            let free = free.or_else(|| (0..job.hosts.len()).find(|place| !taken.contains(place)));
            positions[other] = free.unwrap_or(positions[other]);
            taken.insert(positions[other]);
        }
    }
    positions
}

/// Puts one host after the other where the job is fastest, until no one of them makes it faster.
fn climb(job: &Job, odd: &mut Odd<'_>, looks: &mut Looks) {
    let Some(mut now) = looks.score(odd) else { return };
    let mut still = 0;
    for host in (0..odd.hosts.len()).cycle() {
        let from = odd.positions[host];
        let mut better = None;
        for to in targets(job, odd, host) {
            odd.swap(host, to);
            let score = looks.score(odd);
            odd.swap(host, from);
            let Some(score) = score else { return };
            if score < better.map_or(now, |(score, _)| score) {
                better = Some((score, to));
            }
        }
        if let Some((score, to)) = better {
            odd.swap(host, to);
            (now, still) = (score, 0);
        } else {
            still += 1;
            if still == odd.hosts.len() {
                return;
            }
        }
    }
}

/// Where a host may go: every stage of its own column, of columns with or beside odd hosts, and of the first that are empty.
fn targets(job: &Job, odd: &Odd<'_>, host: usize) -> Vec<usize> {
    let columns = job.columns();
    let of = |position: usize| position % columns;
    let own = of(odd.positions[host]);
    let about = |&position: &usize| [of(position), of(position + 1), of(position + columns - 1)];
    let occupied: BTreeSet<usize> = odd.positions.iter().flat_map(about).collect();
    let empty = (0..columns).filter(|column| !occupied.contains(column)).take(3);
    let mut chosen: BTreeSet<usize> = empty.chain([own]).collect();
    let left = COLUMNS_LOOKED_AT.saturating_sub(chosen.len());
    let step = occupied.len().div_ceil(left.max(1)).max(1);
    chosen.extend(occupied.into_iter().step_by(step));
    let rows = 0..job.stages_ns.len();
    let places = rows.flat_map(|row| chosen.iter().map(move |column| row * columns + column));
    places.filter(|&place| place != odd.positions[host]).collect()
}

/// Hosts that are alike keep their own places where one of them is to stand there.
fn settle(odd: &mut Odd<'_>) {
    for host in 0..odd.hosts.len() {
        let first = odd.first(host);
        if let Some(other) = odd.who(first).filter(|&other| other != host && odd.are_alike(host, other)) {
            odd.swap(other, odd.positions[host]);
        }
    }
}

/// Tries every placement of odd hosts, one after the other, unless those placed already make the job as slow as the best that is
/// known: more slow hosts never make it faster.
struct Proof {
    best: (Score, Vec<usize>),
    looks: Looks,
}

impl Proof {
    /// Whether all were tried.
    fn run(&mut self, odd: &mut Odd<'_>) -> bool {
        let all = odd.hosts.len();
        odd.put_first();
        let is_whole = self.place(odd, 0).is_some();
        odd.known = all;
        is_whole
    }

    fn place(&mut self, odd: &mut Odd<'_>, next: usize) -> Option<()> {
        odd.known = next + 1;
        let columns = odd.columns();
        // All columns may be turned together around their rings: the first host keeps its own.
        let (start, step) = if next == 0 { (odd.positions[0] % columns, columns) } else { (0, 1) };
        let is_after_alike = |odd: &Odd<'_>, place: usize| {
            next == 0 || !odd.are_alike(next - 1, next) || next == 1 || place > odd.positions[next - 1]
        };
        for place in (start..odd.places()).step_by(step) {
            if odd.is_at(place, next) || !is_after_alike(odd, place) {
                continue;
            }
            let from = odd.positions[next];
            odd.swap(next, place);
            odd.known = next + 1;
            let score = self.looks.score(odd);
            let go_on = score.map(|score| (score, score.time_ns < self.best.0.time_ns));
            let result = match go_on {
                None => None,
                Some((_, false)) => Some(()),
                Some((_, true)) if next + 1 < odd.hosts.len() => self.place(odd, next + 1),
                Some((score, true)) => {
                    self.best = (score, odd.positions.clone());
                    Some(())
                }
            };
            odd.swap(next, from);
            result?;
        }
        Some(())
    }
}
