//! Holds this host's ranks of a job on behalf of a coordinator, which speaks through the server (docs/decisions/016-the-gate.md).
//! Off unless the agent is told that it may. A thread of its own does it: ranks go on when the server or this process is gone.
use crate::stats::Shared;
use mycroft_ring::gate::hold::{Requester, SILENCE};
use mycroft_ring::gate::said::{Here, Request, Shown, request_of, shown_bytes};
use mycroft_wire::GateSaid;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Between two looks at ranks that are held: one that is behind goes on by an entry at each.
const LOOK_EVERY: Duration = Duration::from_micros(500);

/// Sessions of coordinators: one at a time.
pub(crate) struct Holder {
    /// Whether it may, and where the segments are.
    may_hold: bool,
    directory: PathBuf,
    shared: Arc<Shared>,
    session: Option<Session>,
    /// Answers that take no session.
    ready: Vec<GateSaid>,
}

struct Session {
    number: u64,
    requests: Sender<GateSaid>,
    answers: Receiver<GateSaid>,
    thread: JoinHandle<()>,
}

impl Holder {
    pub(crate) fn new(may_hold: bool, directory: PathBuf, shared: Arc<Shared>) -> Holder {
        Holder { may_hold, directory, shared, session: None, ready: Vec::new() }
    }

    /// Takes what a coordinator said, over a connection to the server that begins at `address`: there other hosts reach this one.
    pub(crate) fn take(&mut self, said: GateSaid, address: Option<IpAddr>) {
        self.forget_ended();
        let (session, number) = (said.session, said.number);
        if let Err(shown) = self.try_take(said, address.map(mapped)) {
            self.ready.push(GateSaid { session, number, bytes: shown_bytes(&shown) });
        }
    }

    fn try_take(&mut self, said: GateSaid, address: Option<Ipv6Addr>) -> Result<(), Shown> {
        let no = |why: &str| Err(Err(why.to_owned()));
        let Some((job, request)) = request_of(&said.bytes) else {
            return no("the agent does not understand it: it is of another version than the command");
        };
        match &self.session {
            Some(session) if session.number != said.session => return no("the agent holds ranks for another command"),
            Some(_) => {}
            None if !self.may_hold => {
                let is_here = self.shared.watched().iter().any(|watched| watched.job.as_ref() == job.as_str());
                return if is_here {
                    no("the agent may not hold ranks: start it with --may-hold")
                } else {
                    Err(Ok(Here::default()))
                };
            }
            // Nothing is held.
            None if request == Request::End => return Err(Ok(Here::default())),
            None => self.session = Some(self.begin(said.session, job, address).map_err(Err)?),
        }
        match self.session.as_ref().map(|session| session.requests.send(said)) {
            Some(Ok(())) => Ok(()),
            _ => no("the agent's session ended just now"),
        }
    }

    fn begin(&self, number: u64, job: String, address: Option<Ipv6Addr>) -> Result<Session, String> {
        let (requests, asked) = channel();
        let (answer, answers) = channel();
        let directories = [self.directory.clone()];
        let body = move || run(&directories, &job, address, &asked, &answer);
        let thread = Builder::new().name("mycroft-hold".to_owned()).spawn(body);
        let thread = thread.map_err(|error| format!("starting a thread: {error}; raise the limit of processes"))?;
        Ok(Session { number, requests, answers, thread })
    }

    fn forget_ended(&mut self) {
        if let Some(session) = self.session.take_if(|session| session.thread.is_finished()) {
            self.ready.extend(session.answers.try_iter());
        }
    }

    /// Whether requests are to be looked for often.
    pub(crate) fn is_active(&self) -> bool {
        self.session.is_some() || !self.ready.is_empty()
    }

    /// Gives answers to `send`. What fails to be sent is over: the server has lost this agent.
    pub(crate) fn hand_over<E>(&mut self, mut send: impl FnMut(GateSaid) -> Result<(), E>) -> Result<(), E> {
        if let Some(session) = &self.session {
            self.ready.extend(session.answers.try_iter());
        }
        self.forget_ended();
        self.ready.drain(..).try_for_each(&mut send)
    }

    /// The server is gone: all go on.
    pub(crate) fn abandon(&mut self) {
        self.session = None;
        self.ready.clear();
    }
}

fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

/// The thread of a session: until it is ended, the coordinator says nothing more, or nobody asks it any more.
fn run(
    directories: &[PathBuf],
    job: &str,
    address: Option<Ipv6Addr>,
    requests: &Receiver<GateSaid>,
    answers: &Sender<GateSaid>,
) {
    let mut requester: Option<Requester> = None;
    loop {
        let holds = requester.as_ref().is_some_and(Requester::holds);
        let said = match requests.recv_timeout(if holds { LOOK_EVERY } else { 2 * SILENCE }) {
            Ok(said) => said,
            Err(RecvTimeoutError::Timeout) if holds => {
                requester.iter_mut().for_each(Requester::turn);
                continue;
            }
            Err(_) => return,
        };
        let request = request_of(&said.bytes).map_or(Request::End, |(_, request)| request);
        let is_last = request == Request::End;
        let shown = match &mut requester {
            Some(requester) => requester.answer(request),
            None => match Requester::open(directories, job, address) {
                Ok(Some(opened)) => requester.insert(opened).answer(request),
                Ok(None) => Ok(Here::default()),
                Err(error) => Err(error.to_string()),
            },
        };
        let answer = GateSaid { session: said.session, number: said.number, bytes: shown_bytes(&shown) };
        if answers.send(answer).is_err() || is_last || requester.is_none() {
            return;
        }
    }
}
