//! The way to the agents of a job's hosts: through the server that they are connected to.
use crate::api::{Api, ServerArgs};
use crate::mitigate::who;
use anyhow::{Context, Result, bail};
use mycroft_record::text::printable;
use mycroft_ring::gate::hold::{Exchange, Hosts};
use mycroft_ring::gate::said::{Request, Shown, request_bytes, shown_of};
use mycroft_serve::api::{GateAnswers, GateRequest, GateSaidJson, hex, unhex};
use std::time::{Duration, SystemTime};

/// Longest wait for agents that do not expect anything: they look for orders four times a second, and open segments then.
const FIRST_WITHIN: Duration = Duration::from_secs(3);
/// Longest wait for an answer later: shorter than the silence after which ranks go on.
const WITHIN: Duration = Duration::from_millis(1500);

/// A session with agents.
pub(super) struct Line {
    api: Api,
    token: Option<String>,
    job: String,
    session: u64,
    number: u32,
    /// Those that have something to say of the job.
    agents: Vec<String>,
}

/// The ranks of a job on the hosts of a server's agents.
///
/// # Errors
/// The server refuses, or agents do, or nobody has the job.
pub(super) fn open(job: &str, server: &ServerArgs, token: Option<String>) -> Result<Hosts<Line>> {
    if token.is_none() {
        bail!("--agents: say with --act-token-file which token lets you act; the server's own --act-token-file has it");
    }
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    // Unlike those of other commands that run now.
    let session = u64::from(since_1970.subsec_nanos()) << 32 | u64::from(std::process::id());
    let (api, job, agents) = (Api::new(server)?, job.to_owned(), Vec::new());
    let mut line = Line { api, token, job, session, number: 0, agents };
    let all = Some(hex(&request_bytes(&line.job, &Request::Show)));
    let (mut names, mut silent) = (Vec::new(), Vec::new());
    for said in line.say(all, Vec::new(), FIRST_WITHIN)? {
        let host = printable(&said.host).into_owned();
        match shown(&said) {
            // Not a host of this job.
            Ok(here) if here.ranks.is_empty() => {}
            Err(why) if !said.error.is_empty() => silent.push(format!("host {host}: {why}")),
            _ => {
                names.push(host);
                line.agents.push(said.agent);
            }
        }
    }
    let job = line.job.clone();
    Hosts::open(line, names, &job).with_context(|| match silent.is_empty() {
        true => "the job is not held".to_owned(),
        false => format!("the job is not held; no answer from {}", silent.join(", ")),
    })
}

/// What an agent says, or why it does not.
fn shown(said: &GateSaidJson) -> Shown {
    if !said.error.is_empty() {
        return Err(printable(&said.error).into_owned());
    }
    let shown = unhex(&said.bytes).and_then(|bytes| shown_of(&bytes));
    shown.unwrap_or_else(|| Err("the agent is of another version than this command".to_owned()))
}

impl Line {
    fn say(&mut self, all: Option<String>, to: Vec<GateSaidJson>, within: Duration) -> Result<Vec<GateSaidJson>> {
        let path = format!("/api/v1/gates/{}/{}", self.session, self.number);
        self.number = self.number.checked_add(1).context("too many exchanges")?;
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let request = GateRequest { who: who(), job: self.job.clone(), within_ms, all, to };
        let answers: GateAnswers = self.api.act(&path, self.token.as_deref(), &request)?;
        Ok(answers.agents)
    }
}

impl Exchange for Line {
    fn exchange(&mut self, requests: Vec<(usize, Request)>) -> Result<Vec<Shown>, String> {
        let said = |(agent, request): &(usize, Request)| GateSaidJson {
            agent: self.agents.get(*agent).cloned().unwrap_or_default(),
            bytes: hex(&request_bytes(&self.job, request)),
            ..GateSaidJson::default()
        };
        let to = requests.iter().map(said).collect();
        let answers = self.say(None, to, WITHIN).map_err(|error| format!("{error:#}"))?;
        if answers.len() != requests.len() {
            return Err("the server answered for other agents than were asked".to_owned());
        }
        Ok(answers.iter().map(shown).collect())
    }
}
