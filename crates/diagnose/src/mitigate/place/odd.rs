//! The same iteration time from odd hosts alone: what all others take is known beforehand, so that a look costs what is
//! odd, not what is there.
use super::model::{HEALTHY, Job, Pace, Waits, scaled};
use std::collections::BTreeMap;

/// No odd host.
const NONE: u32 = u32::MAX;

/// How good a placement is; less is better, the first number first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Score {
    pub(super) time_ns: u64,
    /// Columns, rows and rings that are as slow as the slowest: with one fewer the next one may make the job faster.
    pub(super) slowest: u32,
    /// Stages with slow devices.
    pub(super) stages: u32,
    /// Slow devices in the first and last stage, which have more to do.
    pub(super) outer: u32,
    /// Hosts that change places.
    pub(super) moved: u32,
}

/// Positions of the odd hosts of a job. The first `known` of them count, the others are taken for healthy.
pub(super) struct Odd<'a> {
    job: &'a Job,
    columns: usize,
    /// Which hosts are odd.
    pub(super) hosts: Vec<usize>,
    paces: Vec<Pace>,
    /// Slow paths from each to other odd hosts.
    paths: Vec<Vec<(u32, u32)>>,
    /// Where each is, and where it was at first.
    pub(super) positions: Vec<usize>,
    first: Vec<usize>,
    was_odd: Vec<bool>,
    /// The odd host at each position.
    at: Vec<u32>,
    pub(super) known: usize,
    healthy: Healthy,
    /// Room for the columns of a look.
    by_column: Vec<(usize, usize, usize)>,
}

/// What a healthy job takes.
struct Healthy {
    sum: u64,
    slowest: u64,
    ring: u64,
}

impl<'a> Odd<'a> {
    pub(super) fn new(job: &'a Job, present: &[usize]) -> Odd<'a> {
        let mut paths: BTreeMap<usize, Vec<(usize, u32)>> = BTreeMap::new();
        for path in job.paths.iter().filter(|path| path.network > HEALTHY) {
            paths.entry(path.ends.0).or_default().push((path.ends.1, path.network));
            paths.entry(path.ends.1).or_default().push((path.ends.0, path.network));
        }
        let is_odd = |host: &usize| job.hosts[*host] != Pace::HEALTHY || paths.contains_key(host);
        let mut hosts: Vec<usize> = (0..job.hosts.len()).filter(is_odd).collect();
        // Who does most harm is placed first.
        let harm = |host: usize| paths.get(&host).into_iter().flatten().map(|path| path.1).max().unwrap_or(0);
        hosts.sort_by_key(|&host| (std::cmp::Reverse((job.hosts[host], harm(host))), host));
        let number: BTreeMap<usize, u32> = hosts.iter().copied().zip(0..).collect();
        let of = |host: &usize| {
            let paths = paths.get(host).into_iter().flatten();
            paths.map(|&(other, network)| (number[&other], network)).collect()
        };
        let mut at = vec![NONE; present.len()];
        let mut positions = vec![0; hosts.len()];
        for (position, host) in present.iter().enumerate() {
            if let Some(&odd) = number.get(host) {
                (at[position], positions[odd as usize]) = (odd, position);
            }
        }
        let links = if job.stages_ns.len() > 1 { job.activations_ns } else { 0 };
        let healthy = Healthy {
            sum: job.stages_ns.iter().sum::<u64>() + links * (job.stages_ns.len() as u64 - 1),
            slowest: job.stages_ns.iter().copied().max().unwrap_or(0).max(links),
            ring: if job.columns() < 2 { 0 } else { job.gradients_ns.iter().copied().max().unwrap_or(0) },
        };
        Odd {
            job,
            columns: job.columns(),
            paces: hosts.iter().map(|&host| job.hosts[host]).collect(),
            paths: hosts.iter().map(of).collect(),
            first: positions.clone(),
            was_odd: at.iter().map(|odd| *odd != NONE).collect(),
            known: hosts.len(),
            by_column: Vec::with_capacity(hosts.len()),
            hosts,
            positions,
            at,
            healthy,
        }
    }

    /// Puts an odd host somewhere; who is there takes its place.
    pub(super) fn swap(&mut self, odd: usize, position: usize) {
        let (from, other) = (self.positions[odd], self.at[position]);
        self.at[from] = other;
        if let Some(moved) = self.positions.get_mut(other as usize) {
            *moved = from;
        }
        (self.at[position], self.positions[odd]) = (odd as u32, position);
    }

    /// Puts all of them elsewhere.
    pub(super) fn put(&mut self, positions: &[usize]) {
        self.positions.iter().for_each(|&position| self.at[position] = NONE);
        self.positions.copy_from_slice(positions);
        for (odd, &position) in self.positions.iter().enumerate() {
            self.at[position] = odd as u32;
        }
    }

    /// Where an odd host was at first.
    pub(super) fn first(&self, odd: usize) -> usize {
        self.first[odd]
    }

    /// Puts all of them where they were at first.
    pub(super) fn put_first(&mut self) {
        self.put(&self.first.clone());
    }

    /// Hosts of each stage.
    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// Whether one of the first `count` odd hosts is at a position.
    pub(super) fn is_at(&self, position: usize, count: usize) -> bool {
        (self.at[position] as usize) < count
    }

    /// Positions of the job.
    pub(super) fn places(&self) -> usize {
        self.at.len()
    }

    /// Whether two odd hosts are alike in every way, so that changing them changes nothing.
    pub(super) fn are_alike(&self, one: usize, other: usize) -> bool {
        self.paces[one] == self.paces[other] && self.paths[one].is_empty() && self.paths[other].is_empty()
    }

    /// Whose devices are slow.
    pub(super) fn is_slow(&self, odd: usize) -> bool {
        self.paces[odd].compute > HEALTHY
    }

    /// Who is at a position, if somebody is who counts.
    pub(super) fn who(&self, position: usize) -> Option<usize> {
        Some(self.at[position] as usize).filter(|&odd| odd < self.known)
    }

    /// Thousandths of the way between an odd host and whoever is at a position.
    fn between(&self, odd: usize, position: usize) -> u32 {
        let own = self.paces[odd].network;
        let Some(other) = self.who(position) else { return own };
        let paths = self.paths[odd].iter().filter(|(to, _)| *to as usize == other);
        let path = paths.map(|path| path.1).max().unwrap_or(HEALTHY);
        own.max(path).max(self.paces[other].network)
    }

    /// How good it is where they are.
    pub(super) fn score(&mut self) -> Score {
        let mut by_column = std::mem::take(&mut self.by_column);
        by_column.clear();
        let known = self.positions.iter().take(self.known).enumerate();
        by_column.extend(known.map(|(odd, &position)| (position % self.columns, position / self.columns, odd)));
        by_column.sort_unstable();
        let (pipelines, slow_columns) = match self.job.waits {
            Waits::EachIteration => self.columns_ns(&by_column),
            Waits::EachMicroBatch => (self.rows_ns(&by_column), 0),
        };
        by_column.sort_unstable_by_key(|&(column, stage, _)| (stage, column));
        let (ring, slow_rings) = self.rings_ns(&by_column);
        let (stages, outer) = self.slow_stages(&by_column);
        self.by_column = by_column;
        let moved = self.moved();
        Score { time_ns: pipelines + ring, slowest: slow_columns + slow_rings, stages, outer, moved }
    }

    /// The slowest column, and how many are as slow.
    fn columns_ns(&self, by_column: &[(usize, usize, usize)]) -> (u64, u32) {
        let time = |sum: u64, slowest: u64| sum + u64::from(self.job.micro_batches - 1) * slowest;
        let mut slowest = (time(self.healthy.sum, self.healthy.slowest), 0);
        for column in by_column.chunk_by(|one, other| one.0 == other.0) {
            let (mut sum, mut stage) = (self.healthy.sum, self.healthy.slowest);
            for &(_, row, odd) in column {
                for (own, usual) in self.parts(row, odd) {
                    sum += own - usual;
                    stage = stage.max(own);
                }
            }
            slowest = most(slowest, time(sum, stage));
        }
        slowest
    }

    /// What an odd host changes in its column: its stage, the link to the next, and the one before where nobody odd is.
    fn parts(&self, row: usize, odd: usize) -> impl Iterator<Item = (u64, u64)> {
        let (job, position) = (self.job, self.positions[odd]);
        let stage = (scaled(job.stages_ns[row], self.paces[odd].compute), job.stages_ns[row]);
        let link = |to: usize| (scaled(job.activations_ns, self.between(odd, to)), job.activations_ns);
        let after = (row + 1 < job.stages_ns.len()).then(|| link(position + self.columns));
        let before = (row > 0 && self.who(position - self.columns).is_none()).then(|| link(position - self.columns));
        std::iter::once(stage).chain(after).chain(before)
    }

    /// All rows where each waits for its slowest host in every micro-batch.
    fn rows_ns(&self, by_column: &[(usize, usize, usize)]) -> u64 {
        let (job, rows) = (self.job, self.job.stages_ns.len());
        let mut parts: Vec<u64> = job.stages_ns.clone();
        parts.resize(2 * rows - 1, job.activations_ns);
        for &(_, row, odd) in by_column {
            let position = self.positions[odd];
            parts[row] = parts[row].max(scaled(job.stages_ns[row], self.paces[odd].compute));
            let mut link = |index: usize, to: usize| {
                let own = scaled(job.activations_ns, self.between(odd, to));
                parts[rows + index] = parts[rows + index].max(own);
            };
            if row + 1 < rows {
                link(row, position + self.columns);
            }
            if row > 0 {
                link(row - 1, position - self.columns);
            }
        }
        let slowest = parts.iter().copied().max().unwrap_or(0);
        parts.iter().sum::<u64>() + u64::from(job.micro_batches - 1) * slowest
    }

    /// The slowest ring, and how many are as slow. `by_row` is in order of rows.
    fn rings_ns(&self, by_row: &[(usize, usize, usize)]) -> (u64, u32) {
        let mut slowest = (self.healthy.ring, 0);
        if self.columns < 2 {
            return slowest;
        }
        for row in by_row.chunk_by(|one, other| one.1 == other.1) {
            let path = |&(column, stage, odd): &(usize, usize, usize)| {
                let place = |column: usize| stage * self.columns + column % self.columns;
                self.between(odd, place(column + 1)).max(self.between(odd, place(column + self.columns - 1)))
            };
            let pace = row.iter().map(path).max().unwrap_or(HEALTHY);
            slowest = most(slowest, scaled(self.job.gradients_ns[row[0].1], pace));
        }
        slowest
    }

    fn slow_stages(&self, by_row: &[(usize, usize, usize)]) -> (u32, u32) {
        let last = self.job.stages_ns.len() - 1;
        let (mut stages, mut outer, mut before) = (0, 0, None);
        for &(_, stage, _) in by_row.iter().filter(|(_, _, odd)| self.is_slow(*odd)) {
            stages += u32::from(before != Some(stage));
            outer += u32::from(stage == 0 || stage == last);
            before = Some(stage);
        }
        (stages, outer)
    }

    /// Odd hosts that are elsewhere, and healthy ones that made room.
    fn moved(&self) -> u32 {
        let changed = self.positions.iter().zip(&self.first).filter(|(now, then)| now != then);
        changed.map(|(now, _)| 1 + u32::from(!self.was_odd[*now])).sum()
    }

    /// Which host is where: healthy hosts stay, and those that made room take what became free, in order.
    pub(super) fn placement(&self, present: &[usize]) -> Vec<usize> {
        let mut placement = present.to_vec();
        let is_free = |position: &usize| self.at[*position] == NONE && self.was_odd[*position];
        let mut free = (0..present.len()).filter(is_free);
        for (odd, &position) in self.positions.iter().enumerate() {
            let room = if self.was_odd[position] { None } else { free.next() };
            if let Some(free) = room {
                placement[free] = present[position];
            }
            placement[position] = self.hosts[odd];
        }
        placement
    }
}

/// The larger, and how often it came.
fn most((largest, count): (u64, u32), next: u64) -> (u64, u32) {
    match next.cmp(&largest) {
        std::cmp::Ordering::Less => (largest, count),
        std::cmp::Ordering::Equal => (largest, count + 1),
        std::cmp::Ordering::Greater => (next, 1),
    }
}
