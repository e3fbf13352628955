//! Agents of jobs of two ranks on two hosts, whose records go by some way in real time.
#![allow(dead_code, reason = "each test binary uses some of it")]
use crate::stalled::{HEALTHY, ITERATION, batch, done, hello, iterations, now, op};
use mycroft_record::{Batch, HostTime, JobName, NANOS_PER_MS, OpState, Record, StepMark};
use mycroft_wire::{Carrier, ClientConfig, Way, codec};
use std::time::{Duration, Instant};

/// Agents ship so often.
const EVERY: Duration = Duration::from_millis(100);

/// Where agents connect.
pub(crate) struct Rig(Way);

impl Rig {
    pub(crate) fn new(way: Way) -> Rig {
        Rig(way)
    }

    /// A job that has been well for a while.
    pub(crate) fn job(&self, name: &str) -> Feeder {
        let agent = |rank: u32| {
            let config = ClientConfig { host: format!("host{rank}"), ..ClientConfig::default() };
            self.0.connect(&config).expect("somebody is there")
        };
        let origin = now() - HEALTHY * ITERATION;
        let mut job =
            Job { name: name.into(), agents: [0, 1].map(agent), origin, sent: [0; 2], ended: 0, is_stalled: false };
        for rank in 0..2 {
            job.send(batch(rank, origin, hello(rank, origin), 0));
        }
        Feeder::of(job)
    }
}

/// A job that is fed.
pub(crate) trait Fed {
    fn name(&self) -> &str;

    /// Sends what there is to send.
    fn feed(&mut self);

    /// Rank 1 does not enter the next operation.
    fn stall(&mut self);

    /// Rank 1 enters it, if it had not, and all goes on.
    fn go_on(&mut self);

    /// Step marks that must not be lost, by rank: 1 to these.
    fn acknowledged(&self) -> [u64; 2];
}

struct Job {
    name: JobName,
    /// Of each rank's host.
    agents: [Box<dyn Carrier>; 2],
    /// Frames sent by each agent, as they are told by their step marks.
    sent: [u64; 2],
    /// Iteration n ends at `origin + n * ITERATION`.
    origin: HostTime,
    /// So many iterations have ended.
    ended: u64,
    is_stalled: bool,
}

/// Jobs that are fed together.
pub(crate) struct Feeder {
    jobs: Vec<Box<dyn Fed>>,
    fed_at: Instant,
}

impl Feeder {
    /// Feeds a job.
    pub(crate) fn of(job: impl Fed + 'static) -> Feeder {
        Feeder { jobs: vec![Box::new(job)], fed_at: Instant::now() - EVERY }
    }

    /// Feeds another job, too.
    pub(crate) fn join(&mut self, other: Feeder) {
        self.jobs.extend(other.jobs);
    }

    /// Rank 1 does not enter the next operation of any job.
    pub(crate) fn stall(&mut self) {
        self.jobs.iter_mut().for_each(|job| job.stall());
    }

    /// As `stall`, of one job.
    pub(crate) fn stall_one(&mut self, name: &str) {
        self.jobs.iter_mut().filter(|job| job.name() == name).for_each(|job| job.stall());
    }

    /// Rank 1 enters it, and all goes on.
    pub(crate) fn go_on(&mut self) {
        self.jobs.iter_mut().for_each(|job| job.go_on());
    }

    /// Step marks that must not be lost, by job and rank: 1 to these.
    pub(crate) fn acknowledged(&self) -> Vec<(JobName, [u64; 2])> {
        self.jobs.iter().map(|job| (job.name().into(), job.acknowledged())).collect()
    }

    /// Sends what there is to send, in time.
    pub(crate) fn feed(&mut self) {
        std::thread::sleep(EVERY.saturating_sub(self.fed_at.elapsed()));
        self.fed_at = Instant::now();
        self.jobs.iter_mut().for_each(|job| job.feed());
    }
}

impl Job {
    fn send(&mut self, mut batch: Batch) {
        batch.source.job = self.name.clone();
        codec::round_to_micros(&mut batch);
        let rank = batch.source.process.map_or(0, |process| process.rank.0 as usize);
        self.sent[rank] += 1;
        batch.records.push(Record::StepMark(StepMark { at: batch.collected_at, step: self.sent[rank] }));
        let frame = codec::encode(&[batch]).expect("it fits");
        let agent = &mut self.agents[rank];
        // As an agent does: what was not taken is sent again.
        while agent.send_frame(&frame).is_err() {
            let _ = agent.reconnect();
        }
    }

    /// Rank 0 is in the operation that rank 1 does not enter.
    fn waits(&self, at: HostTime) -> Record {
        let began = self.origin + self.ended * ITERATION - 20 * NANOS_PER_MS;
        Record::OpState(OpState {
            sampled_at: at,
            op: op(0, self.ended, began),
            kernels_started: 1,
            kernels_stopped: 0,
            flows_started: 0,
            flows_done: 0,
        })
    }
}

impl Fed for Job {
    fn name(&self) -> &str {
        &self.name
    }

    fn stall(&mut self) {
        self.feed();
        self.is_stalled = true;
    }

    fn go_on(&mut self) {
        if !self.is_stalled {
            return;
        }
        let (at, seq) = (now(), self.ended);
        let began = self.origin + seq * ITERATION - 20 * NANOS_PER_MS;
        for rank in 0..2 {
            self.send(batch(rank, at, vec![done(rank, seq, began, at)], 0));
        }
        self.origin = at - seq * ITERATION;
        (self.ended, self.is_stalled) = (seq + 1, false);
    }

    fn feed(&mut self) {
        let (at, from) = (now(), self.ended);
        if !self.is_stalled {
            self.ended = (at.since_ns(self.origin) / ITERATION + 1).max(from);
        }
        for rank in 0..2 {
            let mut records = iterations(rank, self.origin, from, self.ended);
            let is_inside = self.is_stalled && rank == 0;
            if is_inside {
                records.push(self.waits(at));
            }
            self.send(batch(rank, at, records, u32::from(is_inside)));
        }
    }

    fn acknowledged(&self) -> [u64; 2] {
        self.agents.each_ref().map(|agent| agent.unacknowledged().start - 1)
    }
}
