//! The hot window: recent records in memory, found by (job, rank) without touching a disk. A batch is noted once, however
//! many records it has; whoever looks for some passes over those of the rank.
use mycroft_record::{Batch, CommId, HostName, HostTime, JobName, OpId, Rank, Record, Sampled, Source};
use mycroft_wire::cells;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// What the hot window may hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HotLimits {
    /// Records in all.
    pub records: usize,
    /// Their bytes in memory, about.
    pub bytes: usize,
    /// Batches collected longer before the newest than this leave.
    pub age: Duration,
}

impl Default for HotLimits {
    /// 2 Mi records or 1 GiB (half of a 4 GB server with room for the brain): at 10,000 ranks x 140 records a
    /// second 1.5 s, at 1,000 ranks 15 s, at 32 ranks the full ten minutes.
    fn default() -> HotLimits {
        HotLimits { records: 2 << 20, bytes: 1 << 30, age: Duration::from_secs(600) }
    }
}

/// (job, rank) pairs whose last state is remembered: ten times the largest job.
const MAX_LAST_STATES: usize = 1 << 20;

/// Which records a query wants; `None` everywhere means all.
#[derive(Clone, Debug, Default)]
pub struct Query {
    /// Of this job.
    pub job: Option<JobName>,
    /// Of this communicator.
    pub comm: Option<CommId>,
    /// Of this rank.
    pub rank: Option<Rank>,
    /// Of this operation.
    pub op: Option<OpId>,
    /// Not before.
    pub from: Option<HostTime>,
    /// Before.
    pub until: Option<HostTime>,
    /// At most this many, the newest; 0: all.
    pub limit: usize,
}

/// A record that was found, with the batch it lies in.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The time the record is about.
    pub at: HostTime,
    batch: Arc<Batch>,
    index: u32,
}

impl Hit {
    /// Whose record.
    pub fn source(&self) -> &Source {
        &self.batch.source
    }

    /// The record.
    pub fn record(&self) -> &Record {
        &self.batch.records[self.index as usize]
    }
}

/// The last that was heard of a rank.
#[derive(Clone, PartialEq, Debug)]
pub struct LastState {
    /// Its host.
    pub host: HostName,
    /// Time of its newest record.
    pub at: HostTime,
    /// The newest look at its live tables.
    pub sampled: Option<Sampled>,
    /// The newest record of an operation (state or completion).
    pub op: Option<Record>,
    /// Its process is gone.
    pub exited: bool,
}

/// What a reader of the tail gets.
#[derive(Clone, Debug, Default)]
pub struct Tail {
    /// The batches after the cursor, oldest first.
    pub batches: Vec<Arc<Batch>>,
    /// Where to go on.
    pub cursor: Cursor,
    /// Batches that had already left the hot window.
    pub missed: u64,
}

/// Where a reader of the tail is; the default is the beginning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Cursor(pub u64);

/// The window.
#[derive(Debug)]
pub(crate) struct Hot {
    limits: HotLimits,
    /// Number of the first batch that is still here; batches are numbered as they come.
    first: u64,
    batches: VecDeque<Arc<Batch>>,
    records: usize,
    bytes: usize,
    newest: HostTime,
    /// Numbers of the batches of each rank.
    ranks: BTreeMap<JobName, BTreeMap<Rank, VecDeque<u64>>>,
    last: BTreeMap<JobName, BTreeMap<Rank, LastState>>,
    /// How many of them there are.
    known: usize,
}

fn bytes_of(batch: &Batch) -> usize {
    // The batch with its names, and its number among its rank's.
    batch.records.len() * size_of::<Record>() + size_of::<Batch>() + size_of::<u64>() + 64
}

fn rank_of(source: &Source) -> Rank {
    source.process.map_or(Rank::UNKNOWN, |p| p.rank)
}

/// What a job has in `jobs`.
fn of_job<'a, T: Default>(jobs: &'a mut BTreeMap<JobName, T>, job: &JobName) -> &'a mut T {
    if !jobs.contains_key(job) {
        jobs.insert(Arc::clone(job), T::default());
    }
    jobs.get_mut(job).expect("it is there or was just inserted")
}

/// The records of a batch that a query wants.
fn hits_in<'a>(batch: &'a Arc<Batch>, query: &'a Query) -> impl Iterator<Item = Hit> + 'a {
    let comm = query.comm.or(query.op.map(|op| op.comm));
    batch.records.iter().enumerate().filter_map(move |(index, record)| {
        let at = cells::time_of(record);
        let early = query.from.is_some_and(|from| at < from);
        let late = query.until.is_some_and(|until| at >= until);
        let other = comm.is_some_and(|comm| cells::comm_of(record) != Some(comm))
            || query.op.is_some_and(|op| cells::op_of(record) != Some(op));
        (!early && !late && !other).then(|| Hit { at, batch: Arc::clone(batch), index: index as u32 })
    })
}

impl Hot {
    pub(crate) fn new(limits: HotLimits) -> Hot {
        Hot {
            limits,
            first: 0,
            batches: VecDeque::new(),
            records: 0,
            bytes: 0,
            newest: HostTime::NONE,
            ranks: BTreeMap::new(),
            last: BTreeMap::new(),
            known: 0,
        }
    }

    pub(crate) fn append(&mut self, batch: Arc<Batch>) {
        let number = self.first + self.batches.len() as u64;
        of_job(&mut self.ranks, &batch.source.job).entry(rank_of(&batch.source)).or_default().push_back(number);
        self.note_last(&batch);
        self.newest = self.newest.max(batch.collected_at);
        self.records += batch.records.len();
        self.bytes += bytes_of(&batch);
        self.batches.push_back(batch);
        self.trim(HostTime::NONE);
    }

    fn note_last(&mut self, batch: &Batch) {
        if batch.source.process.is_none() {
            return;
        }
        let rank = rank_of(&batch.source);
        if self.known >= MAX_LAST_STATES && !of_job(&mut self.last, &batch.source.job).contains_key(&rank) {
            self.forget_one();
        }
        let last = of_job(&mut self.last, &batch.source.job).entry(rank).or_insert_with(|| {
            self.known += 1;
            let host = Arc::clone(&batch.source.host);
            LastState { host, at: HostTime::NONE, sampled: None, op: None, exited: false }
        });
        if last.host != batch.source.host {
            last.host = Arc::clone(&batch.source.host);
        }
        let mut newest = None;
        let mut newest_at = last.op.as_ref().map_or(HostTime::NONE, cells::time_of);
        for record in &batch.records {
            let at = cells::time_of(record);
            last.at = last.at.max(at);
            match record {
                Record::Sampled(s) if last.sampled.is_none_or(|old| old.at <= s.at) => last.sampled = Some(*s),
                Record::OpState(_) | Record::OpDone(_) if newest_at <= at => {
                    (newest, newest_at) = (Some(record), at);
                }
                Record::ProcessExit(_) => last.exited = true,
                Record::Process(_) => last.exited = false,
                _ => {}
            }
        }
        if newest.is_some() {
            last.op = newest.cloned();
        }
    }

    /// Forgets the last state of the first rank of the first job.
    fn forget_one(&mut self) {
        while let Some(mut first) = self.last.first_entry() {
            if first.get_mut().pop_first().is_some() {
                self.known -= 1;
                return;
            }
            first.remove();
        }
    }

    /// Drops what exceeds the limits; `now` counts for the age when it is later than the newest batch.
    pub(crate) fn trim(&mut self, now: HostTime) {
        let age_ns = u64::try_from(self.limits.age.as_nanos()).unwrap_or(u64::MAX);
        let horizon = self.newest.max(now) - age_ns;
        while let Some(front) = self.batches.front() {
            let over = self.records > self.limits.records || self.bytes > self.limits.bytes;
            if !over && front.collected_at >= horizon {
                return;
            }
            self.drop_first();
        }
    }

    fn drop_first(&mut self) {
        let Some(batch) = self.batches.pop_front() else { return };
        self.records -= batch.records.len();
        self.bytes -= bytes_of(&batch);
        let rank = rank_of(&batch.source);
        let ranks = of_job(&mut self.ranks, &batch.source.job);
        let is_last = ranks.get_mut(&rank).is_some_and(|own| {
            own.pop_front();
            own.is_empty()
        });
        if is_last {
            ranks.remove(&rank);
        }
        if ranks.is_empty() {
            self.ranks.remove(&batch.source.job);
        }
        self.first += 1;
    }

    pub(crate) fn tail(&self, cursor: Cursor, max: usize) -> Tail {
        let from = cursor.0.max(self.first);
        // A cursor of the future (of an earlier run of the server) waits there.
        let skip = usize::try_from(from - self.first).unwrap_or(usize::MAX);
        let batches: Vec<Arc<Batch>> = self.batches.iter().skip(skip).take(max).cloned().collect();
        Tail { missed: from - cursor.0, cursor: Cursor(from + batches.len() as u64), batches }
    }

    pub(crate) fn query(&self, query: &Query) -> Vec<Hit> {
        let wanted = |job: &JobName| query.job.as_ref().is_none_or(|wanted| wanted == job);
        let ranks = self.ranks.iter().filter(|(job, _)| wanted(job)).flat_map(|(_, ranks)| ranks);
        let own = ranks.filter(|(rank, _)| query.rank.is_none_or(|wanted| wanted == **rank));
        let batches = own
            .flat_map(|(_, numbers)| numbers)
            .filter_map(|number| self.batches.get(usize::try_from(number.checked_sub(self.first)?).ok()?));
        let mut hits: Vec<Hit> = batches.flat_map(|batch| hits_in(batch, query)).collect();
        hits.sort_by_key(|hit| hit.at);
        if query.limit > 0 && hits.len() > query.limit {
            hits.drain(..hits.len() - query.limit);
        }
        hits
    }

    pub(crate) fn last_states(&self, job: &str) -> Vec<(Rank, LastState)> {
        let of_job = self.last.get(job).into_iter().flatten();
        of_job.map(|(rank, state)| (*rank, state.clone())).collect()
    }

    pub(crate) fn records(&self) -> usize {
        self.records
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::{ProcessKey, StepMark};

    #[test]
    fn the_last_states_kept_are_bounded_and_the_first_one_makes_room() {
        let mut hot = Hot::new(HotLimits::default());
        let hear = |hot: &mut Hot, job: &str, rank: u32| {
            let process = Some(ProcessKey { rank: Rank(rank), pid: 1, nonce: 1 });
            let source = Source { job: job.into(), host: "host0".into(), process };
            let records = vec![Record::StepMark(StepMark { at: HostTime(1000), step: 1 })];
            hot.append(Arc::new(Batch { source, collected_at: HostTime(1000), records }));
        };
        let ranks = |hot: &Hot, job: &str| hot.last_states(job).iter().map(|(rank, _)| rank.0).collect::<Vec<_>>();
        ["a", "b"].into_iter().for_each(|job| [1, 2].into_iter().for_each(|rank| hear(&mut hot, job, rank)));
        assert_eq!(hot.known, 4);
        hot.known = MAX_LAST_STATES;
        hear(&mut hot, "b", 2);
        assert_eq!((ranks(&hot, "a"), ranks(&hot, "b")), (vec![1, 2], vec![1, 2]), "who is known takes no room");
        [3, 4, 5].into_iter().for_each(|rank| hear(&mut hot, "b", rank));
        assert_eq!((ranks(&hot, "a"), ranks(&hot, "b")), (vec![], vec![2, 3, 4, 5]));
        assert_eq!(hot.known, MAX_LAST_STATES);
    }
}
