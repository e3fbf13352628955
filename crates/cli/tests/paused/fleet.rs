//! Agents of a simulated job: each speaks to the server over a connection of its own, as an agent does.
use crate::host::{Host, Meetings};
use crate::job::Job;
use mycroft_ring::gate::said::{request_of, shown_bytes};
use mycroft_wire::{Client, ClientConfig, Endpoint, GateSaid};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often an agent whose ranks are held looks for what the server says.
const POLL_EVERY: Duration = Duration::from_millis(3);
/// A thread has so many agents.
const AGENTS_A_THREAD: usize = 16;

/// All agents of a job, connected.
pub(crate) struct Fleet {
    threads: Vec<(Sender<()>, JoinHandle<Vec<Host>>)>,
}

impl Fleet {
    pub(crate) fn start(job: Job, name: &'static str, wire: &str) -> Fleet {
        let endpoint = Endpoint::Tcp(wire.to_owned());
        let (meetings, epoch) = (Meetings::default(), Instant::now());
        let agent = |number: u32| {
            let machine = Some(u64::from(number) + 1);
            let config = ClientConfig { host: format!("node{number}"), machine, ..ClientConfig::default() };
            let client = Client::connect(&endpoint, &config).unwrap();
            (client, Host::new(job, number, meetings.clone()))
        };
        let mut agents: Vec<(Client, Host)> = (0..job.hosts()).map(agent).collect();
        let mut threads = Vec::new();
        while !agents.is_empty() {
            let own = agents.split_off(agents.len().saturating_sub(AGENTS_A_THREAD));
            let (stop, stopped) = channel();
            threads.push((stop, std::thread::spawn(move || serve(own, name, epoch, &stopped))));
        }
        Fleet { threads }
    }

    /// Ends all agents: what became of their hosts.
    pub(crate) fn stop(self) -> Vec<Host> {
        let stop = |(stop, thread): (Sender<()>, JoinHandle<Vec<Host>>)| {
            drop(stop);
            thread.join().expect("agents did not panic")
        };
        self.threads.into_iter().flat_map(stop).collect()
    }
}

/// Serves these agents until they are stopped.
fn serve(mut agents: Vec<(Client, Host)>, name: &str, epoch: Instant, stopped: &Receiver<()>) -> Vec<Host> {
    while stopped.recv_timeout(POLL_EVERY) == Err(RecvTimeoutError::Timeout) {
        for (client, host) in &mut agents {
            client.poll().expect("the server is there");
            for said in client.take_gate_requests() {
                let (job, request) = request_of(&said.bytes).expect("a request");
                assert_eq!(job, name);
                let bytes = shown_bytes(&host.answer(request, now_ns(epoch)));
                client.send_gate_answer(GateSaid { bytes, ..said }).expect("the server is there");
            }
            host.turn(now_ns(epoch));
        }
    }
    agents.into_iter().map(|(_, host)| host).collect()
}

fn now_ns(epoch: Instant) -> u64 {
    epoch.elapsed().as_nanos() as u64
}
