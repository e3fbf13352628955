//! Records by a bus: partitions that this server holds by leases, read and judged here while it does (docs/decisions/025-bus.md).
//!
//! ```text
//! leases (one thread) -> held -> reader (a thread each partition) -> intake, as from the wire
//!                          `---> brain: lets jobs go when their partition is lost
//! ```
mod around;
pub(crate) mod held;
mod leases;
mod numbers;
mod reader;
mod record;
pub(crate) mod source;

pub(crate) use around::around;
pub(crate) use numbers::next_number;

use crate::command::Command;
use crate::error::ServeError;
use crate::thread::spawn;
use around::Around;
use leases::{Gap, Leases, Round};
use reader::Reader;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tracing::info;

/// Longest that is waited until the brain has let a partition go, and its cases are written.
const LET_GO_WAIT: Duration = Duration::from_secs(2);

/// The threads of the bus.
pub(crate) struct Bus {
    around: Arc<Around>,
    server: String,
    thread: JoinHandle<()>,
}

impl Bus {
    /// Starts them.
    pub(crate) fn start(around: Around) -> Result<Bus, ServeError> {
        let around = Arc::new(around);
        let server = around.store.name()?;
        let (working, name) = (Arc::clone(&around), server.clone());
        let thread = spawn("mycroft-bus", move || run(&working, &name))?;
        Ok(Bus { around, server, thread })
    }

    /// Reads no more. What was read is still on its way.
    pub(crate) fn stop(self) -> Stopped {
        self.around.stop();
        // A panic was printed by the panic hook and concerns nobody who is stopping.
        let _ = self.thread.join();
        Stopped { around: self.around, server: self.server }
    }
}

/// A bus of which nothing is read any more.
pub(crate) struct Stopped {
    around: Arc<Around>,
    server: String,
}

impl Stopped {
    /// Gives the leases up: nobody judges any more, and everything is written.
    pub(crate) fn release(self) {
        let leases = leases_of(&self.around, &self.server);
        let parts = self.around.held.parts();
        let released = parts.iter().try_for_each(|part| leases.release(*part).map(|_| ()));
        if let Err(error) = released.and_then(|()| leases.leave().map(|_| ())) {
            info!(%error, "leases end by themselves: {error}");
        }
    }
}

fn leases_of<'a>(around: &'a Around, server: &str) -> Leases<'a> {
    Leases {
        store: &around.store,
        bus: around.topic.name(),
        server: server.to_owned(),
        held: &around.held,
        partitions: around.partitions(),
        gap: Gap::default(),
    }
}

/// Keeps leases, and a reader for each partition that is held.
fn run(around: &Arc<Around>, server: &str) {
    around.learn_partitions();
    let mut leases = leases_of(around, server);
    let mut readers: Vec<JoinHandle<()>> = Vec::new();
    while !around.is_stopping() {
        match leases.round() {
            Ok(Round { taken, surplus }) => {
                around.problem("bus.leases", None);
                for (part, number) in taken {
                    info!(part, "partition {part}: this server has it");
                    let reader = Reader { around: Arc::clone(around), part, number };
                    match spawn("mycroft-reader", move || reader.run()) {
                        Ok(reader) => readers.push(reader),
                        Err(error) => {
                            around.held.lose(part);
                            around.problem("bus.leases", Some(error.to_string()));
                        }
                    }
                }
                surplus.into_iter().for_each(|part| give_up(around, &leases, part));
            }
            Err(error) => around.problem(
                "bus.leases",
                Some(format!("leases of the bus cannot be had; jobs are diagnosed again when they can ({error})")),
            ),
        }
        readers.retain(|reader| !reader.is_finished());
        around.pause();
    }
    readers.into_iter().for_each(|reader| drop(reader.join()));
}

/// Hands a partition to servers that have fewer: first nobody judges it here, then its cases are written, then it is free. Where that
/// takes longer than the lease, the lease ends by itself.
fn give_up(around: &Around, leases: &Leases<'_>, part: u32) {
    let deadline = Instant::now() + LET_GO_WAIT;
    let (reply, mut answer) = oneshot::channel();
    if !around.inbox.ask(Command::LetGo { part, reply }) {
        return;
    }
    let jobs = around.wait_until(deadline, || answer.try_recv().ok());
    let is_written = around.wait_until(deadline, || around.book.is_written().then_some(()));
    if let (Some(jobs), Some(())) = (jobs, is_written) {
        around.book.let_go(&jobs);
        if leases.release(part).is_ok() {
            info!(part, "partition {part}: given up, other servers have fewer");
        }
    }
}
