//! What a server does with records, as a process of its own: it takes frames off its socket, feeds the brain and keeps
//! them in a store on disk, segments included, and acknowledges what is kept. Records of a simulated job come several
//! times as fast as they were made, as when agents send what they held while the server was away; its memory is looked at
//! meanwhile.
//!
//! The job is simulated before, and what its agents would send lies in a file: the machine's two cores are the server's.
use crate::job::{self, Fault};
use crate::used;
use mycroft_record::{Batch, HostName, HostTime, NANOS_PER_SEC};
use mycroft_serve::TICK;
use mycroft_serve::replay::Player;
use mycroft_sim::{Delivery, Scenario, Simulation};
use mycroft_store::{Arrival, Store, StoreConfig};
use mycroft_wire::codec;
use mycroft_wire::{Client, ClientConfig, Endpoint, Listener, Promise, Receipt, Received, ServerConfig, Sink};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// The word that makes this program the server.
pub(crate) const SERVE: &str = "serve";
/// Connections that stand for those of all agents.
pub(crate) const CONNECTIONS: usize = 4;
/// How often memory is looked at, seconds of the job.
const LOOK_S: u64 = 10;
/// Longest that the server may take for what it was sent.
const DRAIN: Duration = Duration::from_secs(60);
/// Frames that may wait for the brain, and for the disk: a second of eight ranks each, some 100 MB.
const WAITING: usize = 1 << 10;

/// How often the store is looked after.
const LOOK_AFTER: Duration = Duration::from_secs(1);
/// Frames that are written at once.
const TOGETHER: usize = 256;

/// What one frame held.
type Frame = Vec<Arc<Batch>>;

/// A frame on its way to the disk, and who waits for it.
type ToKeep = (Vec<u8>, usize, Promise);

/// As the server's own: the brain is fed, and the receipt comes when the frame is in the log.
struct Door {
    brain: SyncSender<Frame>,
    keeper: SyncSender<ToKeep>,
}

impl Sink for Door {
    fn take(&self, received: Received) -> Receipt {
        let records = received.batches.iter().map(|batch| batch.records.len()).sum();
        let came = received.frame.filter(|_| received.batches.iter().all(codec::is_round));
        let frame = came.unwrap_or_else(|| codec::encode(&received.batches).expect("it was a frame"));
        let (promise, receipt) = Receipt::promised();
        // Refused only when one of the two has failed, which says so itself.
        let _ = self.brain.send(received.batches.into_iter().map(Arc::new).collect());
        let _ = self.keeper.send((frame, records, promise));
        receipt
    }
}

/// The server: until its standard input ends, and everything that came before has been weighed.
pub(crate) fn serve(folder: &Path) {
    let endpoint = Endpoint::Unix(folder.join("socket"));
    let listener = Listener::bind(&endpoint, ServerConfig::default()).expect("the socket can be made");
    let store = Store::open(&folder.join("store"), StoreConfig::default()).expect("the store can be made");
    let (store, is_over) = (&store, &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (brain, for_brain) = sync_channel(WAITING);
        let (keeper, for_keeper) = sync_channel(WAITING);
        let weighing = scope.spawn(move || weigh(&for_brain));
        let keeping = scope.spawn(move || keep(store, &for_keeper));
        scope.spawn(|| look_after(store, is_over));
        let handle = listener.serve_sink(Arc::new(Door { brain, keeper }), Arc::new(|_, _| {}));
        println!("ready");
        let _ = std::io::stdin().read(&mut [0]);
        drop(handle);
        let cases = weighing.join().expect("the brain does not fail");
        let kept = keeping.join().expect("the store does not fail");
        is_over.store(true, Ordering::Relaxed);
        println!("cases {cases}\nkept_records {kept}");
    });
}

/// Feeds the brain, whose clock is that of the records; gives the number of cases.
fn weigh(frames: &Receiver<Frame>) -> usize {
    let mut player = Player::new(TICK);
    for batch in frames.iter().flatten() {
        player.deliver(batch.collected_at, &batch);
    }
    player.finish(Duration::ZERO).values().map(|played| played.report.cases.len()).sum()
}

/// Appends frames to the log, many with one write; gives the number of records.
fn keep(store: &Store, frames: &Receiver<ToKeep>) -> usize {
    let mut kept = 0;
    while let Ok(first) = frames.recv() {
        let mut together = vec![first];
        together.extend(frames.try_iter().take(TOGETHER - 1));
        let at = HostTime(NANOS_PER_SEC);
        let arrivals: Vec<Arrival<'_>> =
            together.iter().map(|(frame, records, _)| Arrival { at, frame, records: *records }).collect();
        store.append_frames(&arrivals).expect("the disk has room");
        for (_, records, promise) in together {
            promise.keep();
            kept += records;
        }
    }
    kept
}

/// Syncs the log and makes segments of full ones.
fn look_after(store: &Store, is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        store.maintain(HostTime(NANOS_PER_SEC)).expect("the disk has room");
        std::thread::sleep(LOOK_AFTER);
    }
}

/// One second of the job, as the agents of all hosts would send it.
type Second = Vec<Vec<u8>>;

pub(crate) fn measure(ranks: u32, seconds: u32, times: f64, folder: &Path) {
    std::fs::create_dir_all(folder).expect("the folder can be made");
    let file = folder.join("frames");
    let records = simulate(&job::scenario(ranks, Fault::None, seconds), 0, &file);
    let mut server = start(folder);
    let sent = play(&mut server, folder, &file, times);
    finish(server, records, ranks, seconds, &sent);
}

/// Simulates a job into a file, with its times so many nanoseconds later: of each second the number of frames, and of each frame its
/// length and bytes. Gives the number of records.
pub(crate) fn simulate(scenario: &Scenario, later_ns: u64, file: &Path) -> u64 {
    let (give, take) = sync_channel::<Vec<Delivery>>(1);
    let writer = File::create(file).expect("the file can be made");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut simulation = Simulation::new(scenario);
            while let Some(stretch) = simulation.next_stretch() {
                if give.send(stretch).is_err() {
                    return;
                }
            }
        });
        let mut writer = BufWriter::new(writer);
        let mut put = |bytes: &[u8]| writer.write_all(bytes).expect("there is room on the disk");
        let mut records = 0;
        for stretch in take {
            let (frames, count) = encode(stretch, later_ns);
            records += count;
            put(&(frames.len() as u32).to_le_bytes());
            for frame in frames {
                put(&(frame.len() as u32).to_le_bytes());
                put(&frame);
            }
        }
        records
    })
}

/// What an agent holds for a second goes into one frame.
fn encode(stretch: Vec<Delivery>, later_ns: u64) -> (Second, u64) {
    let mut by_host: BTreeMap<HostName, Vec<Batch>> = BTreeMap::new();
    let mut records = 0;
    for Delivery { mut batch, .. } in stretch {
        put_off(&mut batch, later_ns);
        records += batch.records.len() as u64;
        by_host.entry(batch.source.host.clone()).or_default().push(batch);
    }
    let encoded = by_host.values().map(|batches| codec::encode(batches).expect("within the format's limits"));
    (encoded.collect(), records)
}

fn put_off(batch: &mut Batch, later_ns: u64) {
    let put_off = |time: &mut HostTime| {
        if time.is_some() {
            *time = *time + later_ns;
        }
    };
    put_off(&mut batch.collected_at);
    batch.records.iter_mut().for_each(|record| record.each_time(put_off));
}

/// The process that is measured.
struct Backend {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Backend {
    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the server says something");
        line.trim().to_owned()
    }
}

/// This program as the server that a word names.
pub(crate) fn itself(word: &str, folder: &Path) -> Child {
    let program = std::env::current_exe().expect("this program has a path");
    let mut server = Command::new(program);
    server.args([word.as_ref(), folder.as_os_str()]).stdin(Stdio::piped()).stdout(Stdio::piped());
    server.spawn().expect("the server can be started")
}

fn start(folder: &Path) -> Backend {
    let mut process = itself(SERVE, folder);
    let output = BufReader::new(process.stdout.take().expect("it is piped"));
    let mut server = Backend { process, output };
    assert_eq!(server.line(), "ready");
    server
}

/// Memory of the server at a time of the job.
struct Looked {
    second: u64,
    bytes: u64,
}

/// What became of sending.
struct Sent {
    took: Duration,
    /// Of the server.
    processor: Duration,
    looks: Vec<Looked>,
}

/// Sends everything, `times` as fast as it was made, or as fast as the server takes it.
fn play(server: &mut Backend, folder: &Path, file: &Path, times: f64) -> Sent {
    let endpoint = Endpoint::Unix(folder.join("socket"));
    let config = ClientConfig { send_timeout: DRAIN, ..ClientConfig::default() };
    let mut clients: Vec<Client> =
        (0..CONNECTIONS).map(|_| Client::connect(&endpoint, &config).expect("the server listens")).collect();
    let pid = server.process.id().to_string();
    let mut reader = BufReader::with_capacity(1 << 20, File::open(file).expect("the file was written"));
    let begun = Instant::now();
    let mut looks = Vec::new();
    let mut second = 0;
    while let Some(count) = read_number(&mut reader) {
        for number in 0..count {
            let due = begun + Duration::from_secs_f64((second as f64 + f64::from(number) / f64::from(count)) / times);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let mut frame = vec![0; read_number(&mut reader).expect("the file is whole") as usize];
            reader.read_exact(&mut frame).expect("the file is whole");
            clients[number as usize % CONNECTIONS].send_frame(&frame).expect("the server takes it");
        }
        second += 1;
        if second % LOOK_S == 0 {
            looks.push(Looked { second, bytes: used::memory_of(&pid) });
        }
    }
    clients.iter_mut().for_each(|client| client.flush(DRAIN).expect("the server acknowledges"));
    Sent { took: begun.elapsed(), processor: used::of_process(&pid), looks }
}

pub(crate) fn read_number(reader: &mut impl Read) -> Option<u32> {
    let mut bytes = [0; 4];
    reader.read_exact(&mut bytes).ok()?;
    Some(u32::from_le_bytes(bytes))
}

/// Stops the server when it has weighed everything.
fn finish(mut server: Backend, records: u64, ranks: u32, seconds: u32, sent: &Sent) {
    let begun = Instant::now();
    drop(server.process.stdin.take());
    let (cases, kept) = (server.line(), server.line());
    let behind = begun.elapsed();
    assert_eq!(cases, "cases 0", "the job is healthy");
    assert!(server.process.wait().expect("the server ends").success(), "the server failed");
    println!("records_per_rank_second {:.1}", records as f64 / f64::from(ranks) / f64::from(seconds));
    println!("times_real {:.2}", f64::from(seconds) / (sent.took + behind).as_secs_f64());
    println!("processor_ns_per_record {:.0}", sent.processor.as_nanos() as f64 / records.max(1) as f64);
    assert_eq!(kept, format!("kept_records {records}"));
    println!("records {records}");
    for look in &sent.looks {
        println!("memory_at_{} {}", look.second, look.bytes);
    }
    println!("resident_bytes_max {}", sent.looks.iter().map(|look| look.bytes).max().unwrap_or(0));
}
