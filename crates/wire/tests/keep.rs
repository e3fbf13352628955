//! Acknowledged means kept: what a server answers while frames are on their way to the disk, and when they cannot get
//! there.
mod common;

use common::step_batch;
use mycroft_wire::{
    Client, ClientConfig, Endpoint, Kept, Listener, ListenerHandle, Promise, Receipt, Received, ServerConfig, Sink,
};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What the sink was given: the step of the frame's first batch, and what was to be done with it.
#[derive(Debug)]
struct Given {
    step: u64,
    diagnose: bool,
    keep: bool,
    promise: Option<Promise>,
}

/// Hands everything to the test, which keeps or breaks the promises.
struct Tested {
    given: Mutex<Sender<Given>>,
    keeps: Arc<AtomicBool>,
}

impl Sink for Tested {
    fn take(&self, received: Received) -> Receipt {
        let (promise, receipt) = Receipt::promised();
        let (promise, receipt) = if received.keep { (Some(promise), receipt) } else { (None, Receipt::of(Kept::No)) };
        let step = match received.batches[0].records[0] {
            mycroft_record::Record::StepMark(mark) => mark.step,
            ref other => panic!("{other:?}"),
        };
        let given = Given { step, diagnose: received.diagnose, keep: received.keep, promise };
        self.given.lock().unwrap().send(given).unwrap();
        receipt
    }

    fn keeps(&self) -> bool {
        self.keeps.load(Ordering::SeqCst)
    }
}

struct Rig {
    listener: ListenerHandle,
    given: Receiver<Given>,
    keeps: Arc<AtomicBool>,
}

fn rig() -> Rig {
    let (sender, given) = channel();
    let keeps = Arc::new(AtomicBool::new(false));
    let sink = Tested { given: Mutex::new(sender), keeps: Arc::clone(&keeps) };
    let listener = Listener::bind(&"127.0.0.1:0".parse().unwrap(), ServerConfig::default()).unwrap();
    Rig { listener: listener.serve_sink(Arc::new(sink), Arc::new(|_, _| {})), given, keeps }
}

fn client(endpoint: &Endpoint) -> Client {
    let config = ClientConfig { send_timeout: Duration::from_millis(100), ..ClientConfig::default() };
    Client::connect(endpoint, &config).unwrap()
}

fn given(rig: &Rig) -> Given {
    rig.given.recv_timeout(Duration::from_secs(60)).expect("the sink is given a frame")
}

/// Lets the client read until `done`.
fn until(client: &mut Client, done: impl Fn(&Client) -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !done(client) {
        assert!(Instant::now() < end, "never: {:?}", client.stats());
        let _ = client.flush(Duration::from_millis(5));
    }
}

#[test]
fn frames_are_taken_without_waiting_and_acknowledged_when_they_are_kept() {
    let rig = rig();
    let mut client = client(&rig.listener.local_endpoint());
    for step in 0..64 {
        client.send(&step_batch("job", 0, step)).unwrap();
    }
    assert!(client.send(&step_batch("job", 0, 64)).is_err(), "the credit is used up");
    let mut all: Vec<Given> = (0..64).map(|_| given(&rig)).collect();
    assert!(all.iter().enumerate().all(|(n, g)| g.step == n as u64 && g.diagnose && g.keep));
    // The second is kept before the first: nothing can be acknowledged yet.
    all.remove(1).promise.take().unwrap().keep();
    assert!(client.flush(Duration::from_millis(200)).is_err());
    assert_eq!(client.stats().acknowledged, 0);
    all.remove(0).promise.take().unwrap().keep();
    until(&mut client, |client| client.stats().acknowledged == 2);
    all.into_iter().for_each(|given| given.promise.unwrap().keep());
    client.flush(Duration::from_secs(60)).unwrap();
}

#[test]
fn what_cannot_be_kept_is_diagnosed_once_and_sent_again_when_there_is_room() {
    let rig = rig();
    let mut client = client(&rig.listener.local_endpoint());
    for step in 0..3 {
        client.send(&step_batch("job", 0, step)).unwrap();
    }
    let [first, second, third] = [given(&rig), given(&rig), given(&rig)];
    first.promise.unwrap().keep();
    drop(second.promise); // The disk is full,
    third.promise.unwrap().keep(); // for a moment.
    until(&mut client, |client| client.stats().acknowledged == 1);
    // The credit comes back all the same: the agent can go on for ever, and is diagnosed.
    for step in 3..203 {
        client.send(&step_batch("job", 0, step)).unwrap();
        let next = given(&rig);
        assert!(next.step == step && next.diagnose, "{next:?}");
        // The server may learn of the second while this one is on its way; then it is told no, too.
        assert!(!next.keep || step < 67, "{next:?}");
    }
    assert_eq!(client.stats().acknowledged, 1);
    assert_eq!(client.stats().unacknowledged, 202);
    rig.keeps.store(true, Ordering::SeqCst);
    until(&mut client, |client| !client.is_connected());
    client.reconnect().unwrap();
    let mut kept = Vec::new();
    while client.stats().acknowledged < 203 {
        let _ = client.flush(Duration::from_millis(5));
        while let Ok(given) = rig.given.try_recv() {
            assert!(!given.diagnose, "the brain has it already: {given:?}");
            if let Some(promise) = given.promise {
                promise.keep();
                kept.push(given.step);
            }
        }
    }
    kept.insert(1, 2);
    assert_eq!(kept, (1..203).collect::<Vec<u64>>(), "each once, and the third was kept before");
}

#[test]
fn a_disk_that_hangs_does_not_stop_the_diagnosis() {
    let rig = rig();
    let mut client = client(&rig.listener.local_endpoint());
    client.send(&step_batch("job", 0, 0)).unwrap();
    let hanging = given(&rig);
    for step in 1..64 {
        client.send(&step_batch("job", 0, step)).unwrap();
    }
    // After two seconds the frame counts as not kept, and the credit comes back.
    for step in 64..100 {
        while client.send(&step_batch("job", 0, step)).is_err() {}
    }
    let steps: Vec<u64> = (1..100).map(|_| given(&rig).step).collect();
    assert_eq!(steps, (1..100).collect::<Vec<u64>>());
    assert_eq!(client.stats().acknowledged, 0);
    drop(hanging);
}
