//! Carries what the command that holds a job says to agents, and their answers back (docs/decisions/016-the-gate.md). The server
//! neither reads nor keeps it: an exchange is over when all have answered or its time is.
use crate::api::{GateAnswers, GateRequest, GateSaidJson, hex, unhex};
use mycroft_wire::sync::lock;
use mycroft_wire::{GATE_BYTES_MAX, GateSaid, ListenerHandle, NotOrdered};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout_at};

/// Longest wait for answers: less than what a client waits for the server.
const WITHIN_MAX: Duration = Duration::from_secs(4);
/// Why there is no answer, until there is one.
const SILENT: &str = "the agent does not answer";
/// How often it is looked whether those that have not answered are still connected.
const GONE_LOOK: Duration = Duration::from_millis(100);
/// Exchanges at once: one of each of so many commands.
const EXCHANGES_MAX: usize = 16;

/// Listener and connection.
type AgentKey = (usize, u64);
/// Session and number of an exchange.
type ExchangeKey = (u64, u32);

/// An answer, and whose it is.
type Answer = (AgentKey, Vec<u8>);

/// The exchanges under way.
pub(crate) struct Gates {
    listeners: Arc<Mutex<Vec<ListenerHandle>>>,
    waiting: Mutex<BTreeMap<ExchangeKey, UnboundedSender<Answer>>>,
}

/// Why an exchange does not take place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum NotExchanged {
    /// Bytes that are none, or too many.
    #[error("bytes: at most {GATE_BYTES_MAX} of them, in hex")]
    Bytes,
    /// The same exchange again, or too many.
    #[error("this exchange is under way, or {EXCHANGES_MAX} others are")]
    Busy,
}

impl Gates {
    pub(crate) fn new(listeners: &Arc<Mutex<Vec<ListenerHandle>>>) -> Gates {
        Gates { listeners: Arc::clone(listeners), waiting: Mutex::default() }
    }

    /// What an agent answered, on the connection of that listener.
    pub(crate) fn heard(&self, listener: usize, connection: u64, said: GateSaid) {
        if let Some(waiting) = lock(&self.waiting).get(&(said.session, said.number)) {
            // Fails when nobody waits any more.
            let _ = waiting.send(((listener, connection), said.bytes));
        }
    }

    /// Says something to agents, and waits for their answers.
    pub(crate) async fn exchange(&self, key: ExchangeKey, request: &GateRequest) -> Result<GateAnswers, NotExchanged> {
        let (tell, answers) = unbounded_channel();
        {
            let mut waiting = lock(&self.waiting);
            if waiting.len() >= EXCHANGES_MAX || waiting.contains_key(&key) {
                return Err(NotExchanged::Busy);
            }
            waiting.insert(key, tell);
        }
        // Whoever asks may go away meanwhile, and with it this future.
        let _forget = Forget(self, key);
        let mut asked = self.ask(key, request)?;
        let end = Instant::now() + WITHIN_MAX.min(Duration::from_millis(request.within_ms));
        self.gather(&mut asked, answers, end).await;
        Ok(GateAnswers { agents: asked.into_iter().map(|(_, said)| said).collect() })
    }

    /// Takes answers until all are there that may come.
    async fn gather(
        &self,
        asked: &mut [(AgentKey, GateSaidJson)],
        mut answers: UnboundedReceiver<Answer>,
        end: Instant,
    ) {
        while asked.iter().any(|(_, said)| said.error == SILENT) {
            match timeout_at(end.min(Instant::now() + GONE_LOOK), answers.recv()).await {
                Ok(Some((from, bytes))) => {
                    for (_, said) in asked.iter_mut().filter(|(agent, _)| *agent == from) {
                        (said.bytes, said.error) = (hex(&bytes), String::new());
                    }
                }
                Err(_) if Instant::now() < end => self.note_gone(asked),
                Ok(None) | Err(_) => return,
            }
        }
    }

    /// Nobody waits for those whose connection has ended.
    fn note_gone(&self, asked: &mut [(AgentKey, GateSaidJson)]) {
        let hosts = peers(&lock(&self.listeners));
        for (_, said) in asked.iter_mut().filter(|(agent, said)| said.error == SILENT && !hosts.contains_key(agent)) {
            said.error = NotOrdered::Gone.to_string();
        }
    }

    fn ask(
        &self,
        (session, number): ExchangeKey,
        request: &GateRequest,
    ) -> Result<Vec<(AgentKey, GateSaidJson)>, NotExchanged> {
        let bytes_of =
            |text: &str| unhex(text).filter(|bytes| bytes.len() <= GATE_BYTES_MAX).ok_or(NotExchanged::Bytes);
        let listeners = lock(&self.listeners);
        let hosts = peers(&listeners);
        let mut to: Vec<(AgentKey, Vec<u8>)> = Vec::new();
        if let Some(all) = &request.all {
            let bytes = bytes_of(all)?;
            to.extend(hosts.keys().map(|agent| (*agent, bytes.clone())));
        }
        for said in &request.to {
            // Of one that is none, as of one that is gone.
            to.push((key_of(&said.agent).unwrap_or((usize::MAX, 0)), bytes_of(&said.bytes)?));
        }
        let ask = |(agent, bytes): (AgentKey, Vec<u8>)| {
            let said = GateSaid { session, number, bytes };
            let asked = listeners.get(agent.0).map(|listener| listener.ask_gate(agent.1, said));
            let error = match asked {
                Some(Ok(())) => SILENT.to_owned(),
                Some(Err(why)) => why.to_string(),
                None => "there is no such agent".to_owned(),
            };
            let host = hosts.get(&agent).cloned().unwrap_or_default();
            (agent, GateSaidJson { agent: format!("{}-{}", agent.0, agent.1), host, bytes: String::new(), error })
        };
        Ok(to.into_iter().map(ask).collect())
    }
}

/// The agents that are connected, and their hosts.
fn peers(listeners: &[ListenerHandle]) -> BTreeMap<AgentKey, String> {
    let of = |(listener, handle): (usize, &ListenerHandle)| {
        handle.peers().into_iter().map(move |peer| ((listener, peer.connection), peer.host))
    };
    listeners.iter().enumerate().flat_map(of).collect()
}

fn key_of(agent: &str) -> Option<AgentKey> {
    let (listener, connection) = agent.split_once('-')?;
    Some((listener.parse().ok()?, connection.parse().ok()?))
}

struct Forget<'a>(&'a Gates, ExchangeKey);

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        lock(&self.0.waiting).remove(&self.1);
    }
}
