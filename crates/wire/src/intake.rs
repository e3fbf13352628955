//! Frames of one agent on their way in: handed over in the order of their sequence, acknowledged in that order when
//! they are kept.
//!
//! An acknowledgement names the highest sequence up to which everything is kept. Once a frame cannot be kept, those
//! behind it are handed over for diagnosis only, and the agent gets its credit back without an acknowledgement: it goes
//! on sending and holds what it sent. When there is room again the connection is ended, and the agent sends all of it
//! once more.
use crate::attendance::Attendance;
use crate::codec;
use crate::proto::Message;
use crate::receipt::{Kept, Receipt};
use mycroft_record::{Batch, Record};
use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Frames without acknowledgement per agent: 6.4 s of frames every 100 ms.
pub(super) const CREDIT_FRAMES: u32 = 64;
/// Times a frame is tried on which the handler panics: a passing cause (no memory, no disk) deserves another try, a
/// defect comes back each time, and the frame must not keep the agent from sending what follows.
pub(super) const HANDLER_TRIES: u32 = 3;
/// Longest that a frame may be on its way to the disk before it counts as not kept: a write of a megabyte to a disk that
/// does 1 MB/s, twice. The agent goes on being diagnosed, and sends the frame again.
const KEEP_PATIENCE: Duration = Duration::from_secs(2);
/// Late frames remembered of an agent: its credit, for several connections.
const LATE_MAX: usize = 16 * CREDIT_FRAMES as usize;
/// Longest that a reconnecting agent waits for what its previous connection still had on its way to the disk.
const TAKEOVER_PATIENCE: Duration = Duration::from_secs(1);

/// A frame that an agent sent.
#[derive(Debug)]
pub struct Received {
    /// What is known of the agent's clock, where that is news (`ClockOffset`): it belongs before the batches.
    pub told: Vec<Batch>,
    /// What it holds. What an agent itself says of its clock is left out: only a server measures it.
    pub batches: Vec<Batch>,
    /// Its bytes as they came, checked; none where something was left out.
    pub frame: Option<Vec<u8>>,
    /// It has not been handed over before: it is to be diagnosed.
    pub diagnose: bool,
    /// It is to be kept, and the receipt says when it is.
    pub keep: bool,
}

/// Takes the frames of agents.
pub trait Sink: Send + Sync {
    /// Takes a frame. The agent's next frame is handed over when this returns, before the receipt is known. A sink that
    /// panics is given the frame again, whole.
    fn take(&self, received: Received) -> Receipt;

    /// Whether frames that could not be kept may be sent again now.
    fn keeps(&self) -> bool {
        true
    }

    /// Is told who comes, goes and is refused, by the thread of the connection.
    fn attends(&self, _who: Attendance<'_>) {}
}

/// A sink that keeps nothing: what it has taken in is acknowledged.
pub(super) struct Plain(pub(super) std::sync::Arc<dyn Fn(Vec<Batch>) + Send + Sync>);

impl Sink for Plain {
    fn take(&self, received: Received) -> Receipt {
        let Received { mut told, mut batches, .. } = received;
        told.append(&mut batches);
        (self.0)(told);
        Receipt::of(Kept::Yes)
    }
}

/// How far an agent's frames are.
#[derive(Default)]
pub(super) struct Progress {
    /// Everything up to here is acknowledged or rejected.
    last: u64,
    /// Everything up to here was handed over for diagnosis.
    handed: u64,
    /// The connection that may hand over frames: the agent's newest.
    owner: u64,
    /// The only host whose records it may hand over; `None`: any.
    only: Option<String>,
    /// Highest sequence that the owner has sent.
    newest: u64,
    /// Handed over, and not answered yet; in the order of their sequence.
    in_flight: VecDeque<InFlight>,
    /// A frame could not be kept; those behind it are not, either, until they come again.
    is_unkept: bool,
    /// Kept although one before was not.
    kept_ahead: BTreeSet<u64>,
    /// Frames that took too long on their way to the disk; they may still get there.
    late: Vec<(u64, Receipt)>,
    /// The frame on which the handler panicked, until it is done with.
    failing: Option<Failing>,
}

/// A frame that the handler did not get through.
#[derive(Clone, Copy, Default)]
struct Failing {
    sequence: u64,
    /// Panics so far.
    tries: u32,
}

/// A frame that waits for its answer.
struct InFlight {
    sequence: u64,
    bytes: u64,
    since: Instant,
    state: State,
}

enum State {
    Handed(Receipt),
    /// It came before on this connection, or is acknowledged: only its credit goes back.
    Duplicate,
    Rejected(String),
}

/// What became of a frame that was handed over.
pub(super) enum Taken {
    /// It is on its way, with so many records of kinds that only newer agents know.
    OnItsWay { skipped_records: u64 },
    /// It has come before.
    Duplicate,
    /// It will never be taken.
    Rejected,
    /// The handler panicked, for the n-th time.
    Panicked { tries: u32 },
    /// Another connection of this agent has taken over.
    Superseded,
}

impl Progress {
    /// A new connection of the agent takes over, for records of only this host; gives the highest sequence that the agent need
    /// not send again.
    pub(super) fn take_over(&mut self, connection: u64, only: Option<String>) -> u64 {
        let deadline = Instant::now() + TAKEOVER_PATIENCE;
        for waiting in &self.in_flight {
            if let State::Handed(receipt) = &waiting.state {
                receipt.wait(deadline.saturating_duration_since(Instant::now()));
            }
        }
        self.settle(&mut Vec::new());
        // What is still not known is sent again; at worst it is kept twice.
        let unknown = self.in_flight.drain(..).filter_map(|flying| flying.receipt().map(|r| (flying.sequence, r)));
        self.late.extend(unknown);
        self.late.retain(|(sequence, _)| *sequence > self.last);
        self.late.truncate(LATE_MAX);
        self.is_unkept = false;
        self.newest = self.last;
        (self.owner, self.only) = (connection, only);
        self.last
    }

    /// Hands a frame over.
    pub(super) fn hand_over(
        &mut self,
        connection: u64,
        sequence: u64,
        frame: Vec<u8>,
        sink: &dyn Sink,
        tell: &mut dyn FnMut(&[Batch]) -> Vec<Batch>,
    ) -> Taken {
        if self.owner != connection {
            return Taken::Superseded;
        }
        let bytes = frame.len() as u64;
        if sequence <= self.newest {
            self.in_flight.push_back(InFlight::of(sequence, bytes, State::Duplicate));
            return Taken::Duplicate;
        }
        let mut failing = self.failing.filter(|f| f.sequence == sequence).unwrap_or_default();
        failing.sequence = sequence;
        let came_late = |(late, receipt): &(u64, Receipt)| *late == sequence && receipt.outcome() == Some(Kept::Yes);
        let is_kept = self.kept_ahead.contains(&sequence) || self.late.iter().any(came_late);
        let (diagnose, keep) = (sequence > self.handed, !self.is_unkept && !is_kept);
        // Unwind safety: the closure changes nothing of ours but what was told of the clock, which is forgotten with the
        // connection. The sink is the server's own business.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let (received, skipped_records) = open(frame, diagnose, keep, tell).map_err(|error| error.to_string())?;
            let is_foreign = |batch: &&Batch| self.only.as_deref().is_some_and(|host| *batch.source.host != *host);
            if let Some(foreign) = received.batches.iter().find(is_foreign) {
                return Err(format!(
                    "records of host {}, for which the agent's token or certificate is not",
                    foreign.source.host
                ));
            }
            Ok::<_, String>((sink.take(received), skipped_records))
        }));
        let (state, taken) = match outcome {
            Ok(Ok((receipt, skipped_records))) => {
                let receipt = match (is_kept, keep) {
                    (true, _) => Receipt::of(Kept::Yes),
                    (false, true) => receipt,
                    (false, false) => Receipt::of(Kept::No),
                };
                (State::Handed(receipt), Taken::OnItsWay { skipped_records })
            }
            Ok(Err(text)) => (State::Rejected(text), Taken::Rejected),
            Err(_) => {
                failing.tries += 1;
                if failing.tries < HANDLER_TRIES {
                    self.failing = Some(failing);
                    return Taken::Panicked { tries: failing.tries };
                }
                let text = format!("the server failed {} times on this frame; see its log", failing.tries);
                (State::Rejected(text), Taken::Panicked { tries: failing.tries })
            }
        };
        self.failing = None;
        self.newest = sequence;
        self.handed = self.handed.max(sequence);
        self.in_flight.push_back(InFlight::of(sequence, bytes, state));
        taken
    }

    /// Appends the answers that are known, oldest first, encoded.
    pub(super) fn settle(&mut self, answers: &mut Vec<u8>) {
        while let Some(front) = self.in_flight.front() {
            let kept = match &front.state {
                State::Rejected(_) | State::Duplicate => None,
                State::Handed(receipt) => match receipt.outcome() {
                    None if front.since.elapsed() < KEEP_PATIENCE => return,
                    outcome => Some(outcome.unwrap_or(Kept::No)),
                },
            };
            if let (Some(Kept::No), Some(receipt)) = (kept, front.receipt().filter(|r| r.outcome().is_none())) {
                self.late.push((front.sequence, receipt));
            }
            let Some(InFlight { sequence, bytes, state, .. }) = self.in_flight.pop_front() else { return };
            self.is_unkept |= kept == Some(Kept::No);
            if !self.is_unkept {
                self.last = self.last.max(sequence);
                self.kept_ahead.retain(|ahead| *ahead > sequence);
                self.late.retain(|(late, _)| *late > sequence);
            } else if kept == Some(Kept::Yes) {
                // Only its acknowledgement is withheld.
                self.kept_ahead.insert(sequence);
            }
            let message = match state {
                State::Rejected(text) => Message::Reject { sequence, bytes, text },
                State::Handed(_) | State::Duplicate => Message::Ack { sequence: self.last, bytes },
            };
            answers.append(&mut message.encode());
        }
    }

    /// What the oldest frame waits for; none: nothing waits.
    pub(super) fn waits_for(&self) -> Option<Receipt> {
        self.in_flight.front().map(|front| front.receipt().unwrap_or_else(|| Receipt::of(Kept::Yes)))
    }

    /// Whether the agent has used up its credit, so that nothing more need be read now.
    pub(super) fn is_full(&self) -> bool {
        self.in_flight.len() >= CREDIT_FRAMES as usize
    }

    /// Whether frames wait to be sent again, and nothing that was handed over may still get to the disk.
    pub(super) fn is_unkept(&self) -> bool {
        self.is_unkept && self.late.iter().all(|(_, receipt)| receipt.outcome().is_some())
    }
}

/// Opens a frame; also says how many records of it only newer agents know.
fn open(
    frame: Vec<u8>,
    diagnose: bool,
    keep: bool,
    tell: &mut dyn FnMut(&[Batch]) -> Vec<Batch>,
) -> Result<(Received, u64), codec::DecodeError> {
    let codec::Decoded { mut batches, skipped_records } = codec::decode(&frame)?;
    let is_claim = |record: &Record| matches!(record, Record::ClockOffset(_));
    let as_came = !batches.iter().any(|batch| batch.records.iter().any(is_claim));
    if !as_came {
        batches.iter_mut().for_each(|batch| batch.records.retain(|record| !is_claim(record)));
    }
    let told = tell(&batches);
    Ok((Received { told, batches, frame: as_came.then_some(frame), diagnose, keep }, skipped_records))
}

impl InFlight {
    fn of(sequence: u64, bytes: u64, state: State) -> InFlight {
        InFlight { sequence, bytes, since: Instant::now(), state }
    }

    /// What it waits for; none: its answer is known.
    fn receipt(&self) -> Option<Receipt> {
        match &self.state {
            State::Handed(receipt) => Some(receipt.share()),
            State::Rejected(_) | State::Duplicate => None,
        }
    }
}
