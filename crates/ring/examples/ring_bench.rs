//! Cost of a record: `cargo run --release -p mycroft-ring --example ring_bench [SECONDS_PER_CASE]`, or in rounds and
//! beside LTTng-UST by `cargo xtask bench ring`, which reads the lines `NUMBER ns  CASE`; what a reader saw goes to
//! standard error.
//!
//! Times are processor time of the measured thread, so that what else runs on the machine counts only through caches.
//! Writer and reader are two processes, as in production. "eager" is a reader that never pauses, "agent" one that drains
//! every 100 ms. The event path is what one operation with one flow of four steps costs the job, clock readings included.
use mycroft_record::{
    Algorithm, ChannelId, CommId, CommRank, Datatype, Direction, OpClass, OpId, OpKind, OpSeq, Protocol,
};
use mycroft_ring::reader::DrainStats;
use mycroft_ring::{
    FlowBegin, FlowOwner, OpBegin, OpEnd, RawRecord, RawStepMark, RingWriter, SegmentConfig, SegmentReader,
    SegmentWriter, layout, now_ticks,
};
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What the agent does between two drains.
const AGENT_PAUSE: Duration = Duration::from_millis(100);
/// Segment sizes by name.
const SEGMENTS: [(&str, u64); 3] =
    [("small segment", 2 << 20), ("default segment", 64 << 20), ("large segment", 512 << 20)];
/// Writes between two looks at the clock.
const BURST: u64 = 10_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, role, path, pause_ms] = arguments.as_slice()
        && role == "read"
    {
        return read_until_removed(Path::new(path), Duration::from_millis(pause_ms.parse().unwrap_or(0)));
    }
    let seconds = arguments.get(1).and_then(|s| s.parse().ok()).unwrap_or(2.0);
    let limit = Duration::from_secs_f64(seconds);
    let dir = std::env::temp_dir();
    let dir = if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { dir };
    let dir = dir.join(format!("mycroft-bench-{}", std::process::id()));
    println!("{:.2} ns  clock reading alone", per_call(limit, now_ticks));
    stamped_case(&dir, limit);
    for (name, bytes) in SEGMENTS {
        for reader in [None, Some(AGENT_PAUSE), Some(Duration::ZERO)] {
            write_case(&dir, name, bytes, reader, limit);
        }
    }
    for (name, bytes) in &SEGMENTS[..2] {
        read_case(&dir, name, *bytes, limit);
    }
    event_case(&dir, limit);
    if let Err(e) = std::fs::remove_dir(&dir) {
        eprintln!("cannot remove {}: {e}", dir.display());
    }
}

fn segment(dir: &Path, bytes: u64) -> SegmentWriter {
    let config = SegmentConfig {
        dir,
        size_bytes: bytes,
        job: "bench",
        host: "bench",
        rank: 0,
        world_size: 1,
        local_rank: 0,
        gpu: -1,
    };
    match SegmentWriter::create(&config) {
        Ok(writer) => writer,
        Err(e) => {
            eprintln!("{e}");
            std::process::exit(2);
        }
    }
}

fn ring(writer: &SegmentWriter) -> RingWriter {
    writer.claim_ring().unwrap_or_else(|| unreachable!("a fresh segment has free rings"))
}

/// Processor time of the calling thread so far.
fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec of this frame; every Linux has this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Records of full size, as a completed operation is.
fn push_for(ring: &mut RingWriter, limit: Duration) -> (u64, Duration) {
    let mut n = 0u64;
    let begin = thread_time();
    loop {
        for _ in 0..BURST {
            let mut payload = [n; layout::PAYLOAD_WORDS];
            payload[0] = RawRecord::StepMark(RawStepMark { at_ticks: n, step: n }).encode()[0];
            ring.push_payload(&payload);
            n += 1;
        }
        let elapsed = thread_time() - begin;
        if elapsed >= limit {
            return (n, elapsed);
        }
    }
}

/// One record of 14 words and the time stamp of its event: what a tracepoint of LTTng stands beside.
fn stamped_case(dir: &Path, limit: Duration) {
    let writer = segment(dir, SEGMENTS[0].1);
    let mut ring = ring(&writer);
    let mut n = 0;
    let ns = per_call(limit, || {
        n += 1;
        let mut payload = [n; layout::PAYLOAD_WORDS];
        payload[1] = now_ticks();
        ring.push_payload(&payload);
    });
    println!("{ns:.2} ns  time-stamped record, small segment");
}

fn write_case(dir: &Path, name: &str, bytes: u64, reader: Option<Duration>, limit: Duration) {
    let writer = segment(dir, bytes);
    let mut ring = ring(&writer);
    let path = writer.path().map(Path::to_owned).unwrap_or_default();
    let child = reader.and_then(|pause| start_reader(&path, pause));
    let (records, elapsed) = push_for(&mut ring, limit);
    drop(ring);
    drop(writer);
    let label = match reader {
        None => "no reader".to_owned(),
        Some(Duration::ZERO) => "eager reader".to_owned(),
        Some(_) => "agent reader".to_owned(),
    };
    let ns = elapsed.as_nanos() as f64 / records as f64;
    println!("{ns:.2} ns  write, {name}, {label}");
    if let Some(mut child) = child {
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            let _ = std::io::BufReader::new(out).read_line(&mut line);
        }
        let _ = child.wait();
        eprintln!("write, {name}, {label}: {}", line.trim());
    }
}

fn start_reader(path: &Path, pause: Duration) -> Option<std::process::Child> {
    let mut command = Command::new(std::env::current_exe().ok()?);
    command.arg("read").arg(path).arg(pause.as_millis().to_string()).stdout(Stdio::piped());
    command.spawn().ok()
}

fn read_until_removed(path: &Path, pause: Duration) {
    let Ok(mut reader) = SegmentReader::open(path) else { return };
    let mut total = DrainStats::default();
    let mut out = Vec::new();
    let begin = Instant::now();
    loop {
        let removed = reader.is_removed();
        out.clear();
        let Ok(stats) = reader.drain(1 << 20, &mut out) else { return };
        total.read += stats.read;
        total.lost += stats.lost;
        total.damaged += stats.damaged;
        if removed && stats.read == 0 {
            break;
        }
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
    let rate = total.read as f64 / begin.elapsed().as_secs_f64() / 1e6;
    let _ = writeln!(
        std::io::stdout(),
        "reader: {} read ({rate:.1} M/s), {} lost, {} damaged",
        total.read,
        total.lost,
        total.damaged
    );
}

/// A reader alone with full rings: what draining costs.
fn read_case(dir: &Path, name: &str, bytes: u64, limit: Duration) {
    let writer = segment(dir, bytes);
    let mut rings: Vec<RingWriter> = std::iter::from_fn(|| writer.claim_ring()).collect();
    let path = writer.path().map(Path::to_owned).unwrap_or_default();
    let slots = writer.geometry().ring_slots;
    let (mut records, mut busy) = (0, Duration::ZERO);
    let mut out = Vec::new();
    let Ok(mut reader) = SegmentReader::open(&path) else { return };
    while busy < limit {
        for ring in &mut rings {
            for n in 0..slots - 1 {
                ring.push(&RawRecord::StepMark(RawStepMark { at_ticks: n, step: n }));
            }
        }
        let begin = thread_time();
        loop {
            out.clear();
            let Ok(stats) = reader.drain(8192, &mut out) else { return };
            records += stats.read;
            if !stats.more {
                break;
            }
        }
        busy += thread_time() - begin;
    }
    let ns = busy.as_nanos() as f64 / records as f64;
    println!("{ns:.2} ns  read, {name}, full");
}

fn event_case(dir: &Path, limit: Duration) {
    let writer = segment(dir, 64 << 20);
    let mut ring = ring(&writer);
    let mut n = 0;
    let ns = per_call(limit, || {
        n += 1;
        event(&writer, &mut ring, n);
    });
    // 1 begin and 1 end each of operation and flow, 4 steps of 4 states: 20 events with 2 records.
    println!("{ns:.2} ns  event path, operation with a flow of 4 steps (20 events)");
}

fn event(writer: &SegmentWriter, ring: &mut RingWriter, n: u64) {
    let op = writer.op_begin(&OpBegin {
        comm_slot: None,
        id: OpId { comm: CommId(1), class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(n) },
        kind: OpKind::AllReduce,
        nccl_seq: n,
        comm_rank: CommRank(0),
        count: 1 << 20,
        datatype: Datatype::Bfloat16,
        root: u32::MAX,
        algorithm: Algorithm::Ring,
        protocol: Protocol::Simple,
        n_channels: 1,
        enqueued_ticks: now_ticks(),
    });
    let Some(op) = op else { return };
    let flow = writer.flow_begin(&FlowBegin {
        op: FlowOwner::Op(op),
        channel: ChannelId(0),
        peer: CommRank(1),
        direction: Direction::Send,
        total_chunks: 4,
        at_ticks: now_ticks(),
        proxied_for_pid: 0,
    });
    let Some(flow) = flow else { return };
    for _ in 0..4 {
        let Some(cell) = writer.flow(flow) else { return };
        cell.posted(now_ticks());
        cell.ready(now_ticks());
        cell.transmitted(now_ticks());
        cell.stage(2, 100);
        cell.done(now_ticks());
    }
    let ended_ticks = now_ticks();
    if let Some(done) = writer.flow_end(flow, ended_ticks) {
        ring.push(&RawRecord::FlowDone(done));
    }
    if let Some(done) = writer.op_end(op, OpEnd { ended_ticks, observed: true }) {
        ring.push(&RawRecord::OpDone(done));
    }
}

/// Nanoseconds per call, over calls for `limit`.
fn per_call<T>(limit: Duration, mut call: impl FnMut() -> T) -> f64 {
    let begin = thread_time();
    let mut calls = 0u64;
    loop {
        for _ in 0..BURST {
            std::hint::black_box(call());
        }
        calls += BURST;
        let elapsed = thread_time() - begin;
        if elapsed >= limit {
            return elapsed.as_nanos() as f64 / calls as f64;
        }
    }
}
