//! One rank: its dump asked for, its stacks and its children's taken, its dump collected. Runs in a thread of its own,
//! which may be left behind when the process cannot be read.
use super::access::{Target, start_ticks};
use super::recorder::{Asked, Recorder};
use super::spy::{self, Stacks};
use super::{Found, wait_until};
use crate::config::SpyProgram;
use mycroft_record::Rank;
use mycroft_wire::CaptureKind;
use mycroft_wire::sync::lock;
use std::collections::BTreeSet;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

/// Lets a few through at a time.
pub(crate) struct Gate {
    room: Mutex<usize>,
    freed: Condvar,
}

impl Gate {
    pub(crate) fn new(room: usize) -> Gate {
        Gate { room: Mutex::new(room.max(1)), freed: Condvar::new() }
    }

    /// Waits for room until then; `None`: there was none.
    fn enter(&self, until: Instant) -> Option<Inside<'_>> {
        let room = lock(&self.room);
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.freed.wait_timeout_while(room, left, |room| *room == 0);
        let (mut room, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *room = room.checked_sub(1)?;
        Some(Inside(self))
    }
}

struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        *lock(&self.0.room) += 1;
        self.0.freed.notify_one();
    }
}

/// What one thread does.
pub(crate) struct Task {
    pub(crate) target: Target,
    pub(crate) rank: Rank,
    pub(crate) kinds: Vec<CaptureKind>,
    pub(crate) begin: Instant,
    pub(crate) until: Instant,
    pub(crate) spy: Option<SpyProgram>,
    pub(crate) gate: Arc<Gate>,
    /// Processes of this host that are traced themselves.
    pub(crate) traced: BTreeSet<u32>,
}

impl Task {
    pub(crate) fn run(self, tell: &Sender<Found>) {
        wait_until(self.begin);
        let pid = self.target.pid();
        let known = (self.rank != Rank::UNKNOWN).then_some(self.rank.0);
        let dump = self.wants(CaptureKind::FlightRecorder).then(|| {
            self.target.is_there()?;
            let recorder = Recorder::of(&self.target, known)?;
            let asked = recorder.ask(&self.target, self.until);
            Ok::<(Recorder, Asked), String>((recorder, asked))
        });
        if self.wants(CaptureKind::Stacks) {
            for found in self.stacks() {
                self.tell(tell, found);
            }
            self.tell(tell, Found::Done { kind: CaptureKind::Stacks, rank: self.rank, pid });
        }
        if let Some(asked) = dump {
            let kind = CaptureKind::FlightRecorder;
            let taken = asked.and_then(|(recorder, asked)| {
                let rank = recorder.rank.ok_or("neither the tracer nor RANK in its environment tells its rank")?;
                recorder.take(&self.target, asked, self.until).map(|dump| (rank, dump))
            });
            self.tell(
                tell,
                match taken {
                    Ok((rank, (bytes, text))) => {
                        let name = format!("comm_lib_trace_rank_{rank}");
                        Found::File { kind, rank: self.rank, pid, name, bytes, text }
                    }
                    Err(text) => Found::Nothing { kind, rank: self.rank, pid, text },
                },
            );
            self.tell(tell, Found::Done { kind, rank: self.rank, pid });
        }
    }

    fn wants(&self, kind: CaptureKind) -> bool {
        self.kinds.contains(&kind)
    }

    /// Nobody listens when the time was up; then nothing is to be told.
    fn tell(&self, tell: &Sender<Found>, found: Found) {
        let _ = tell.send(found);
    }

    /// The stacks of the rank and of its children.
    fn stacks(&self) -> Vec<Found> {
        let (rank, pid) = (self.rank, self.target.pid());
        let nothing = |text: String| vec![Found::Nothing { kind: CaptureKind::Stacks, rank, pid, text }];
        if let Err(text) = self.target.check() {
            return nothing(text);
        }
        match self.target.is_python() {
            Ok(true) => {}
            Ok(false) => return nothing("not a Python process: its stacks cannot be read".to_owned()),
            Err(text) => return nothing(text),
        }
        let Some(program) = &self.spy else {
            return nothing("this agent was started without a stack reader".to_owned());
        };
        let mut pids = vec![pid];
        let own = |pid: &u32| start_ticks(*pid).is_some_and(|t| Target::new(*pid, t, true).is_python() == Ok(true));
        pids.extend(self.target.children(&self.traced).into_iter().filter(own));
        let Some(_inside) = self.gate.enter(self.until) else {
            return nothing("no time was left: other ranks of this host took it all".to_owned());
        };
        let read = spy::read(program, &pids, self.until);
        pids.into_iter().zip(read).map(|(of, stacks)| self.found(of, stacks)).collect()
    }

    fn found(&self, pid: u32, stacks: Stacks) -> Found {
        let rank = self.rank;
        let child = pid != self.target.pid();
        let kind = if child { CaptureKind::ChildStacks } else { CaptureKind::Stacks };
        match stacks {
            Ok(bytes) => {
                let name = match rank {
                    // The last number of a name is its rank, so a process without one is spelled in letters.
                    Rank::UNKNOWN => format!("pyspy_pid_{}_rank_unknown.json", in_letters(pid)),
                    rank => format!("pyspy_pid{pid}_rank_{}.json", rank.0),
                };
                Found::File { kind, rank, pid, name, bytes, text: String::new() }
            }
            Err(text) => Found::Nothing { kind, rank, pid, text },
        }
    }
}

/// A number with a letter for each digit: 0 is a.
fn in_letters(number: u32) -> String {
    number.to_string().bytes().map(|digit| char::from(digit - b'0' + b'a')).collect()
}
