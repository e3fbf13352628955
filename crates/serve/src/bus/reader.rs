//! One partition that this server has: what came lately is read again, its cases are taken over, and from then on it is judged.
use super::around::Around;
use super::record::{Opened, Opener};
use crate::book::CASES_KEPT;
use crate::command::Command;
use crate::core::joined::Joining;
use crate::core::{Core, Parts};
use crate::upkeep::booked;
use crate::warm::{WARM_NS, recent};
use mycroft_bus::{BusError, Fetched, Part, partition_of};
use mycroft_record::HostTime;
use mycroft_store::Delivery;
use mycroft_wire::{Kept, Receipt, Received, Sink};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tracing::{info, warn};

/// How long to wait for a record before looking at other things.
const WAIT: Duration = Duration::from_millis(100);
/// A broker that gives nothing for so long of what it says that there is has no more of it. One whose connections were cut comes back within.
const QUIET_MAX: Duration = Duration::from_secs(10);
/// What is read back within so long is up to date.
const CAUGHT_UP: Duration = Duration::from_secs(1);
/// Where nothing comes, brokers are asked so often whether they are there.
const CHECK_EVERY: Duration = Duration::from_secs(2);
/// How far is kept is noted so often.
const NOTE_EVERY: Duration = Duration::from_secs(1);
/// Longest that a reader that stops waits for the disk.
const LAST_WAIT: Duration = Duration::from_millis(500);

/// The reader of one holding of one partition.
pub(super) struct Reader {
    pub(super) around: Arc<Around>,
    pub(super) part: u32,
    /// The number of the holding.
    pub(super) number: u64,
}

/// A partition that is being read.
struct Reading {
    log: Box<dyn Part>,
    opener: Opener,
    /// The next record.
    next: i64,
    /// Everything before was judged.
    judged: i64,
    /// What is on its way to the disk, oldest first.
    keeping: VecDeque<(i64, Receipt)>,
    /// Everything before is kept, and what of it brokers know.
    kept: i64,
    noted: i64,
    noted_at: Instant,
    /// The disk refused this one, and nothing behind it is kept.
    unkept: Option<i64>,
}

impl Reader {
    /// Runs until the lease is over, or the server stops.
    pub(super) fn run(self) {
        while self.is_ours() {
            match self.take_over() {
                Ok(Some(reading)) => self.follow(reading),
                Ok(None) => {}
                Err(error) => {
                    self.around.trouble(self.part, Some(error.to_string()));
                    self.around.pause();
                }
            }
        }
        self.around.trouble(self.part, None);
    }

    fn is_ours(&self) -> bool {
        !self.around.is_stopping() && self.around.held.is_ours(self.part, self.number)
    }

    /// Reads what came lately, and hands jobs and cases of this partition to the brain; `None`: it is not ours any more.
    fn take_over(&self) -> Result<Option<Reading>, BusError> {
        let begun = Instant::now();
        let around = &self.around;
        let mut log = around.topic.part(self.part)?;
        let now = (around.clock)();
        let from = log.begin(now - WARM_NS)?;
        let mut reading = Reading {
            log,
            opener: Opener::new(self.part),
            next: from.from,
            judged: from.end,
            keeping: VecDeque::new(),
            kept: from.kept,
            noted: from.kept,
            noted_at: begun,
            unkept: None,
        };
        let Some((past, records)) = self.read_all_back(&mut reading, from.end)? else { return Ok(None) };
        let (past, _) = recent(past.into_iter().map(Ok), (around.clock)());
        let part = self.part;
        let wanted = |job: &str| partition_of(job, around.partitions()) == part;
        let rows = match around.store.claim_cases(&wanted, CASES_KEPT) {
            Ok(rows) => rows,
            Err(error) => return Err(self.failed("taking over the cases of", &error)),
        };
        let cases: Vec<_> = rows.iter().filter_map(booked).collect();
        let jobs = past.iter().map(|one| &one.batch.source.job).chain(cases.iter().map(|case| &case.job));
        jobs.for_each(|job| {
            around.held.note(job, part);
        });
        if !self.is_ours() {
            return Ok(None);
        }
        around.book.admit(cases.clone());
        let core = Core::taken_over(self.parts(), (around.clock)(), &past, cases.clone());
        let (reply, answer) = oneshot::channel();
        if !around.inbox.ask(Command::Join(Joining { core: Box::new(core), reply })) || answer.blocking_recv().is_err()
        {
            return Err(self.failed("taking over", &"the server has too much to do"));
        }
        around.trouble(part, None);
        let (cases, spent) = (cases.iter().filter(|case| case.is_open()).count(), begun.elapsed().as_millis());
        info!(
            part,
            records, cases, "partition {part}: taken, {records} records read again, {cases} open cases, in {spent} ms"
        );
        Ok(Some(reading))
    }

    /// What came lately up to `end`, and what came while that was read, in its order, and how many records that were; `None`: the partition
    /// is not ours any more. What waits until everything is read would be judged as if it had just come.
    fn read_all_back(&self, reading: &mut Reading, end: i64) -> Result<Option<(Vec<Delivery>, u64)>, BusError> {
        let (mut past, mut records, mut end, mut before) = (VecDeque::new(), 0, end, Duration::MAX);
        loop {
            let (begun, now) = (Instant::now(), (self.around.clock)());
            let Some(read) = self.read_back(reading, end, now, &mut past)? else { return Ok(None) };
            records += read;
            // What came before it was taken is judged no more, also where it comes late: a stall that was over long ago would be told as new.
            reading.judged = reading.next.max(end);
            let (newest, took) = (reading.log.end()?, begun.elapsed());
            // Brokers may give no more than comes: then that is judged as late as it is.
            if took < CAUGHT_UP || newest <= end || took >= before {
                return Ok(Some((Vec::from(past), records)));
            }
            (end, before) = (newest, took);
        }
    }

    /// Reads up to `end` and gives how many records that were; `None`: as above.
    fn read_back(
        &self,
        reading: &mut Reading,
        end: i64,
        now: HostTime,
        past: &mut VecDeque<Delivery>,
    ) -> Result<Option<u64>, BusError> {
        let (mut records, mut heard) = (0, Instant::now());
        while reading.next < end {
            if !self.is_ours() {
                return Ok(None);
            }
            let Some(fetched) = reading.log.next(WAIT)? else {
                if heard.elapsed() > QUIET_MAX {
                    break;
                }
                continue;
            };
            heard = Instant::now();
            records += 1;
            reading.next = fetched.offset + 1;
            let (at, offset) = (fetched.at.min(now), fetched.offset);
            let Some(Opened { told, batches, frame }) = reading.opener.open(&fetched, at) else { continue };
            if at >= now - WARM_NS {
                let arrived = told.iter().chain(&batches).cloned();
                past.extend(arrived.map(|batch| Delivery { arrives_at: at, batch }));
            }
            if offset >= reading.kept {
                self.hand_over(reading, offset, Received { told, batches, frame, diagnose: false, keep: true });
            }
            self.settle(reading);
        }
        Ok(Some(records))
    }

    /// Judges and keeps what comes.
    fn follow(&self, mut reading: Reading) {
        let mut heard = Instant::now();
        while self.is_ours() {
            // What is said in passing is not news: brokers come and go, and reading goes on by itself.
            if let Ok(Some(fetched)) = reading.log.next(WAIT) {
                self.take(&mut reading, &fetched);
                heard = Instant::now();
                self.around.trouble(self.part, None);
            } else if heard.elapsed() > CHECK_EVERY {
                let checked = reading.log.end();
                heard = Instant::now();
                self.around.trouble(self.part, checked.err().map(|error| error.to_string()));
            }
            self.settle(&mut reading);
        }
        let deadline = Instant::now() + LAST_WAIT;
        while let Some((_, receipt)) = reading.keeping.front()
            && receipt.wait(deadline.saturating_duration_since(Instant::now())).is_some()
        {
            self.settle(&mut reading);
        }
        reading.noted_at = deadline - 2 * NOTE_EVERY;
        self.settle(&mut reading);
    }

    fn take(&self, reading: &mut Reading, fetched: &Fetched) {
        let (now, offset) = ((self.around.clock)(), fetched.offset);
        if offset > reading.next && reading.next > 0 {
            let lost = offset - reading.next;
            warn!(
                lost,
                "partition {}: the brokers do not have {lost} records any more that nobody has read", self.part
            );
        }
        reading.next = offset + 1;
        let is_again = offset < reading.judged;
        reading.judged = reading.judged.max(reading.next);
        let opened = if is_again { reading.opener.open_again(fetched, now) } else { reading.opener.open(fetched, now) };
        let Some(Opened { told, batches, frame }) = opened else { return };
        let is_known = batches.iter().all(|batch| self.around.held.note(&batch.source.job, self.part));
        let (diagnose, keep) = (!is_again && is_known, reading.unkept.is_none());
        self.hand_over(reading, offset, Received { told, batches, frame, diagnose, keep });
    }

    fn hand_over(&self, reading: &mut Reading, offset: i64, received: Received) {
        let keep = received.keep;
        let receipt = self.around.intake.take(received);
        if keep {
            reading.keeping.push_back((offset, receipt));
        }
    }

    /// Notes what the disk has. What it refused is read again when it takes something.
    fn settle(&self, reading: &mut Reading) {
        while let Some(outcome) = reading.keeping.front().and_then(|(_, receipt)| receipt.outcome())
            && let Some((offset, _)) = reading.keeping.pop_front()
        {
            match outcome {
                Kept::Yes if reading.unkept.is_none() => reading.kept = offset + 1,
                Kept::Yes => {}
                Kept::No => drop(reading.unkept.get_or_insert(offset)),
            }
        }
        // Not while it is read for the first time.
        let may_go_back = reading.next <= reading.judged;
        if may_go_back && reading.keeping.is_empty() && reading.unkept.is_some() && self.around.intake.keeps() {
            let again = reading.unkept.take().unwrap_or(reading.next);
            match reading.log.go_to(again) {
                Ok(()) => reading.next = again,
                Err(_) => reading.unkept = Some(again),
            }
        }
        // Records of a holding that is over may be another's to note.
        let is_due = reading.noted_at.elapsed() >= NOTE_EVERY && reading.kept > reading.noted;
        if is_due && self.around.held.is_ours(self.part, self.number) {
            reading.noted_at = Instant::now();
            if reading.log.keep(reading.kept).is_ok() {
                reading.noted = reading.kept;
            }
        }
    }

    fn parts(&self) -> Parts {
        let around = &self.around;
        Parts {
            make: Arc::clone(&around.make),
            tick_ns: around.tick_ns,
            book: Arc::clone(&around.book),
            named: Arc::clone(&around.stats.named),
            series: Arc::clone(&around.series),
            stopwatch: None,
            is_live: true,
        }
    }

    fn failed(&self, operation: &'static str, reason: &impl ToString) -> BusError {
        let bus = format!("partition {} of {}", self.part, self.around.topic.name());
        BusError { operation, bus, reason: reason.to_string() }
    }
}
