//! Two real processes: this test binary starts itself again as a writer and reads its segment from outside.
use mycroft_record::{
    Algorithm, ChannelId, CommId, CommRank, Datatype, Direction, OpClass, OpId, OpKind, OpSeq, Protocol,
};
use mycroft_ring::{
    CommBegin, FlowBegin, FlowOwner, Liveness, OpBegin, OpEnd, RawRecord, RawStepMark, SegmentConfig, SegmentReader,
    SegmentWriter, lane, layout,
};
use mycroft_ring::{collect::collect_dead, reader::DrainStats};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, atomic::AtomicU64, atomic::Ordering};
use std::time::{Duration, Instant};

const ROLE: &str = "MYCROFT_RING_TEST_ROLE";
const DIR: &str = "MYCROFT_RING_TEST_DIR";
const ARGUMENTS: [&str; 4] = ["--exact", "writer_process", "--nocapture", "--test-threads=1"];
/// Longest a test waits for the other process to do something it certainly does.
const PATIENCE: Duration = Duration::from_secs(60);

/// A writer process; killed and waited for when dropped.
struct Writer {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Writer {
    fn start(role: &str, dir: &Path) -> Writer {
        Writer::spawn(Command::new(std::env::current_exe().expect("this binary")).args(ARGUMENTS), role, dir)
    }

    /// In a mount namespace of its own, with a tmpfs of this size as the directory.
    fn start_in_tmpfs(role: &str, dir: &Path, size: &str) -> Writer {
        let script = format!(
            "mount -t tmpfs -o size={size},mode=700 none \"$MYCROFT_RING_TEST_DIR\" || echo @no mount; exec \"$0\" \"$@\""
        );
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", &script]);
        command.arg(std::env::current_exe().expect("this binary")).args(ARGUMENTS);
        Writer::spawn(&mut command, role, dir)
    }

    fn spawn(command: &mut Command, role: &str, dir: &Path) -> Writer {
        let mut child = command
            .env(ROLE, role)
            .env(DIR, dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("start the writer");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Writer { child, out }
    }

    /// The rest of the next line that begins with "@".
    fn line(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.out.read_line(&mut line).expect("read from the writer") > 0, "the writer ended");
            if let Some((_, text)) = line.trim_end().split_once('@') {
                return text.to_owned();
            }
        }
    }

    fn path(&mut self) -> PathBuf {
        PathBuf::from(self.line())
    }

    fn tell(&mut self) {
        self.child.stdin.as_mut().expect("piped").write_all(b"\n").expect("tell the writer");
    }

    fn kill(&mut self) {
        self.child.kill().expect("kill -9");
        self.child.wait().expect("wait");
    }

    fn finish(&mut self) -> bool {
        self.child.wait().expect("wait").success()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn config(dir: &Path) -> SegmentConfig<'_> {
    SegmentConfig {
        dir,
        size_bytes: layout::MIN_SEGMENT_BYTES,
        job: "job-7",
        host: "host-3",
        rank: 11,
        world_size: 32,
        local_rank: 3,
        gpu: 3,
    }
}

fn op_id(n: u64) -> OpId {
    OpId {
        comm: CommId(n.wrapping_mul(0x9e37_79b9)),
        class: OpClass::Collective,
        peer: CommRank(n as u32),
        seq: OpSeq(n),
    }
}

/// An operation whose every field follows from its number.
fn op_begin(n: u64) -> OpBegin {
    OpBegin {
        comm_slot: None,
        id: op_id(n),
        kind: OpKind::AllReduce,
        nccl_seq: !n,
        comm_rank: CommRank(n as u32),
        count: n.rotate_left(32),
        datatype: Datatype::Float32,
        root: !n as u32,
        algorithm: Algorithm::Ring,
        protocol: Protocol::Simple,
        n_channels: n as u8,
        enqueued_ticks: n + 1,
    }
}

/// The number of a record of the `steps` writer, having checked that all of it belongs together.
fn check(record: &RawRecord) -> u64 {
    match record {
        RawRecord::OpDone(done) => {
            let n = done.op.id.seq.0;
            let begin = op_begin(n);
            assert_eq!(done.op.id, begin.id);
            assert_eq!((done.op.nccl_seq, done.op.count, done.op.root), (begin.nccl_seq, begin.count, begin.root));
            assert_eq!((done.op.comm_rank, done.op.enqueued_ticks), (begin.comm_rank, begin.enqueued_ticks));
            assert_eq!(done.ended_ticks, n ^ 0x5555);
            n
        }
        other => panic!("never written: {other:?}"),
    }
}

fn flow_begin(op: FlowOwner, n: u64) -> FlowBegin {
    FlowBegin {
        op,
        channel: ChannelId(n as u8),
        peer: CommRank(n as u32),
        direction: Direction::Send,
        total_chunks: n as u32,
        at_ticks: n + 1,
        proxied_for_pid: 0,
    }
}

/// Begins and ends one operation with a flow, and pushes its completion.
fn one_operation(writer: &SegmentWriter, ring: &mut mycroft_ring::RingWriter, n: u64) {
    let op = writer.op_begin(&op_begin(n)).expect("a free cell");
    let flow = writer.flow_begin(&flow_begin(FlowOwner::Op(op), n)).expect("a free cell");
    let cell = writer.flow(flow).expect("live");
    cell.posted(n + 2);
    cell.ready(n + 3);
    cell.transmitted(n + 4);
    cell.done(n + 5);
    writer.flow_end(flow, n + 6).expect("live");
    let done = writer.op_end(op, OpEnd { ended_ticks: n ^ 0x5555, observed: true }).expect("live");
    ring.push(&RawRecord::OpDone(done));
}

fn say(text: impl std::fmt::Display) {
    println!("@{text}");
    std::io::stdout().flush().expect("tell the test");
}

fn hear() {
    let mut byte = [0];
    std::io::stdin().read_exact(&mut byte).expect("hear from the test");
}

/// The other process of all tests here; does nothing when it is run as a test.
#[test]
fn writer_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let dir = PathBuf::from(std::env::var_os(DIR).expect("a directory"));
    if role == "small" {
        return say_what_fits(&dir);
    }
    let writer = SegmentWriter::create(&config(&dir)).expect("create a segment");
    say(writer.path().expect("a file").display());
    match role.as_str() {
        "steps" => write_for_ever(&writer),
        "counted" => write_counted(&writer),
        "torn" => write_torn(&writer),
        "threads" => write_from_threads(&writer),
        "quiet" => write_quietly(&writer),
        "orderly" => {
            hear();
            writer.mark_clean_exit();
        }
        "fork" => fork_and_drop(writer),
        other => panic!("no role {other}"),
    }
}

/// Asks for 64 MiB, twice, and says what it got.
fn say_what_fits(dir: &Path) {
    let config = SegmentConfig { size_bytes: 0, ..config(dir) };
    let segments: Vec<_> = (0..2).map(|_| SegmentWriter::create(&config)).collect();
    for segment in &segments {
        match segment {
            Err(e) => say(e),
            Ok(writer) => {
                let reader = SegmentReader::open(writer.path().expect("a file")).expect("open");
                let header = reader.header();
                let mut ring = writer.claim_ring().expect("a ring");
                for n in 0..header.geometry.ring_slots * 2 {
                    one_operation(writer, &mut ring, n);
                }
                say(format!("{} of {}", header.total_bytes, header.requested_bytes));
            }
        }
    }
}

fn write_for_ever(writer: &SegmentWriter) {
    let mut ring = writer.claim_ring().expect("a ring");
    for n in 0.. {
        one_operation(writer, &mut ring, n);
    }
}

/// Writes as many operations as asked for, each time a line comes in, and says so.
fn write_counted(writer: &SegmentWriter) {
    let mut ring = writer.claim_ring().expect("a ring");
    let mut n = 0;
    for burst in [3, writer.geometry().ring_slots * 3, 1] {
        hear();
        for _ in 0..burst {
            one_operation(writer, &mut ring, n);
            n += 1;
        }
        say(n);
    }
    hear();
}

/// A writer as it must not be: it writes the slots in place, without the head going before them.
fn write_torn(writer: &SegmentWriter) {
    let mut ring = writer.claim_ring().expect("a ring");
    let slots = writer.geometry().ring_slots;
    for n in 0..slots {
        one_operation(writer, &mut ring, n);
    }
    let slot = writer.geometry().offsets()[7] as usize;
    let words = &writer.words()[slot..slot + slots as usize * layout::SLOT_WORDS];
    for n in slots.. {
        let op = writer.op_begin(&op_begin(n)).expect("a free cell");
        let done = writer.op_end(op, OpEnd { ended_ticks: n ^ 0x5555, observed: true }).expect("live");
        let slot = &words[(n % slots) as usize * layout::SLOT_WORDS..][..layout::SLOT_WORDS];
        slot[0].store(lane::mark_busy(n), Ordering::Relaxed);
        for (word, value) in slot[1..].iter().zip(RawRecord::OpDone(done).encode()) {
            word.store(value, Ordering::Relaxed);
        }
        slot[0].store(lane::mark_whole(n), Ordering::Release);
    }
}

/// Many short threads share few rings.
fn write_from_threads(writer: &SegmentWriter) {
    hear();
    let (threads, each) = (40, 500);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            scope.spawn(move || {
                let mut ring = loop {
                    match writer.claim_ring() {
                        Some(ring) => break ring,
                        None => std::thread::yield_now(),
                    }
                };
                for i in 0..each {
                    let step = thread * each + i;
                    ring.push(&RawRecord::StepMark(RawStepMark { at_ticks: step * 7, step }));
                }
            });
        }
    });
    say(threads * each);
    hear();
}

/// Runs the event path in a thread that the kernel kills at any system call but read, write and exit. (It also forbids
/// RDTSC there, so the clock is left out: it is one instruction.)
fn write_quietly(writer: &SegmentWriter) {
    let mut ring = writer.claim_ring().expect("a ring");
    let quiet = Arc::new(AtomicU64::new(0));
    let tid = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (quiet_there, tid_there) = (Arc::clone(&quiet), Arc::clone(&tid));
        scope.spawn(move || {
            // SAFETY: takes nothing and cannot fail.
            tid_there.store(u64::from(unsafe { libc::gettid() }.unsigned_abs()), Ordering::Release);
            // SAFETY: binds this thread to read, write and exit; it makes no other call from here on.
            let rc = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_STRICT) };
            for n in 0..1000 {
                one_operation(writer, &mut ring, n);
            }
            quiet_there.store(if rc == 0 { 1 } else { 2 }, Ordering::Release);
            // SAFETY: ends this thread without running anything else.
            unsafe { libc::syscall(libc::SYS_exit, 0) };
        });
        let gone = |tid: u64| tid != 0 && !Path::new(&format!("/proc/self/task/{tid}")).exists();
        while !gone(tid.load(Ordering::Acquire)) {
            std::thread::yield_now();
        }
        say(match quiet.load(Ordering::Acquire) {
            0 => "killed for a system call",
            1 => "no system call",
            _ => "seccomp refused",
        });
        hear();
        // The thread left without telling the scope, which would wait for it for ever.
        std::process::exit(0);
    });
}

fn fork_and_drop(writer: SegmentWriter) {
    let ring = writer.claim_ring().expect("a ring");
    // SAFETY: the child only drops two values (getpid, no lock, no allocation) and leaves by _exit.
    match unsafe { libc::fork() } {
        0 => {
            writer.mark_clean_exit();
            drop(ring);
            drop(writer);
            // SAFETY: ends the child without running destructors of the parent's threads.
            unsafe { libc::_exit(0) };
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for the child just made.
            unsafe { libc::waitpid(child, &raw mut status, 0) };
            say(status);
            hear();
            drop(ring);
        }
    }
}

/// Drains until nothing more comes; checks that the numbers are those of one ring with gaps exactly where loss was told.
struct Follower {
    reader: SegmentReader,
    next: u64,
    total: DrainStats,
}

impl Follower {
    fn new(path: &Path) -> Follower {
        let reader = SegmentReader::open(path).expect("open");
        Follower { reader, next: 0, total: DrainStats::default() }
    }

    fn drain(&mut self) -> u64 {
        let mut out = Vec::new();
        let stats = self.reader.drain(10_000, &mut out).expect("drain");
        let mut skipped = 0;
        for record in &out {
            let n = check(record);
            assert!(n >= self.next, "record {n} after {}", self.next);
            skipped += n - self.next;
            self.next = n + 1;
        }
        // The end of the ring may have been lost after the last record that was read.
        assert!(skipped <= stats.lost, "skipped {skipped}, reported {}", stats.lost);
        self.next += stats.lost - skipped;
        self.total.read += stats.read;
        self.total.lost += stats.lost;
        self.total.damaged += stats.damaged;
        stats.read
    }
}

#[test]
fn a_writer_killed_at_any_point_leaves_a_readable_segment() {
    let dir = tempfile::tempdir().expect("directory");
    for round in 0..20 {
        let mut writer = Writer::start("steps", dir.path());
        let path = writer.path();
        let mut follower = Follower::new(&path);
        assert_eq!(follower.reader.liveness(), Liveness::Alive);
        let until = 1 + round * 997;
        while follower.next < until {
            follower.drain();
            for op in follower.reader.ops().expect("look").items {
                assert_eq!(op.op.count, op_begin(op.op.id.seq.0).count, "an operation of two halves");
                assert_eq!(op.op.id, op_id(op.op.id.seq.0));
            }
            for flow in follower.reader.flows().expect("look").items {
                let n = flow.flow.op.seq.0;
                assert_eq!((flow.flow.op, flow.flow.peer.0), (op_id(n), n as u32), "a flow of two halves");
            }
        }
        writer.kill();
        while follower.drain() > 0 {}
        assert_eq!(follower.total.damaged, 0);
        assert_eq!(follower.total.read + follower.total.lost, follower.next);
        assert!(follower.reader.ops().expect("look").items.len() <= 1);
        assert_eq!(follower.reader.liveness(), Liveness::Dead);
        assert!(!follower.reader.state().expect("state").clean_exit);
        let collect = |all| collect_dead(&File::open(dir.path()).expect("directory"), |_| all).expect("collect");
        assert!(collect(false).is_empty() && path.exists(), "a segment that was not drained stays");
        assert_eq!(collect(true), [path.file_name().expect("a name")]);
    }
}

#[test]
fn a_late_or_lapped_reader_is_told_every_loss() {
    let dir = tempfile::tempdir().expect("directory");
    let mut writer = Writer::start("counted", dir.path());
    let path = writer.path();
    let mut early = Follower::new(&path);
    let slots = early.reader.header().geometry.ring_slots;
    let mut burst = |expect_read: u64, expect_lost: u64, follower: &mut Follower| {
        writer.tell();
        let written: u64 = writer.line().parse().expect("a number");
        let before = follower.total;
        while follower.drain() > 0 {}
        assert_eq!(follower.total.read - before.read, expect_read);
        assert_eq!(follower.total.lost - before.lost, expect_lost);
        assert_eq!(follower.next, written);
        written
    };
    burst(3, 0, &mut early);
    let written = burst(slots - 1, slots * 2 + 1, &mut early);
    let mut late = Follower::new(&path);
    late.drain();
    assert_eq!((late.total.read, late.total.lost, late.next), (slots - 1, written - (slots - 1), written));
    burst(1, 0, &mut early);
    let kept = early.reader.positions().to_vec();
    let mut resumed = Follower::new(&path);
    resumed.reader.set_positions(&kept);
    assert_eq!(resumed.drain(), 0);
    assert_eq!(resumed.total, DrainStats::default());
}

#[test]
fn the_torn_read_check_fires_on_a_broken_writer() {
    let dir = tempfile::tempdir().expect("directory");
    let mut writer = Writer::start("torn", dir.path());
    let path = writer.path();
    let begin = Instant::now();
    let mut damaged = 0;
    while damaged == 0 {
        let mut reader = SegmentReader::open(&path).expect("open");
        let slots = reader.header().geometry.ring_slots;
        let mut out = Vec::new();
        damaged = reader.drain(100_000, &mut out).expect("drain").damaged;
        for record in &out {
            // Everything that the broken part writes has a later number; only its marks give it away.
            assert!(check(record) < slots, "a record that was never published");
        }
        assert!(begin.elapsed() < PATIENCE, "a torn slot was never noticed");
    }
    writer.kill();
}

#[test]
fn threads_take_over_rings_without_a_break() {
    let dir = tempfile::tempdir().expect("directory");
    let mut writer = Writer::start("threads", dir.path());
    let path = writer.path();
    let mut reader = SegmentReader::open(&path).expect("open");
    writer.tell();
    let mut seen = std::collections::BTreeSet::new();
    let (mut read, mut lost) = (0, 0);
    let mut out = Vec::new();
    let begin = Instant::now();
    while read + lost < 40 * 500 {
        out.clear();
        let stats = reader.drain(1000, &mut out).expect("drain");
        assert_eq!(stats.damaged, 0);
        (read, lost) = (read + stats.read, lost + stats.lost);
        for record in &out {
            let RawRecord::StepMark(mark) = record else { panic!("never written: {record:?}") };
            assert_eq!(mark.at_ticks, mark.step * 7);
            assert!(seen.insert(mark.step), "step {} twice", mark.step);
        }
        assert!(begin.elapsed() < PATIENCE, "{read} read and {lost} lost");
    }
    assert_eq!(writer.line(), "20000");
    assert_eq!(read + lost, 20_000);
    assert_eq!(seen.len() as u64, read);
}

#[test]
fn the_event_path_makes_no_system_call() {
    let dir = tempfile::tempdir().expect("directory");
    let mut writer = Writer::start("quiet", dir.path());
    let path = writer.path();
    assert_eq!(writer.line(), "no system call");
    let mut follower = Follower::new(&path);
    follower.drain();
    assert_eq!(follower.next, 1000);
}

#[test]
fn an_orderly_end_is_told_apart_and_removes_the_file() {
    let dir = tempfile::tempdir().expect("directory");
    let mut writer = Writer::start("orderly", dir.path());
    let path = writer.path();
    let reader = SegmentReader::open(&path).expect("open");
    assert!(!reader.state().expect("state").clean_exit);
    assert!(!reader.is_removed());
    writer.tell();
    assert!(writer.finish());
    assert!(reader.is_removed() && !path.exists());
    assert!(reader.state().expect("a removed segment can be read").clean_exit);
    assert_eq!(reader.liveness(), Liveness::Dead);
}

#[test]
fn a_small_file_system_shrinks_the_segment_and_a_tiny_one_is_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let mut writer = Writer::start_in_tmpfs("small", dir.path(), "64m");
    let first = writer.line();
    // Mount namespaces are not for everybody; `create.rs` has the same test without a file system.
    if first == "no mount" {
        return;
    }
    let bytes = |line: &str| -> u64 { line.split(' ').next().expect("a number").parse().expect("a number") };
    assert!(first.ends_with(" of 67108864"), "{first}");
    assert!((3_900_000..=4 << 20).contains(&bytes(&first)), "a sixteenth of 64 MB: {first}");
    assert!(bytes(&writer.line()) < bytes(&first), "a sixteenth of what is left");
    assert!(writer.finish());
    let mut writer = Writer::start_in_tmpfs("small", dir.path(), "1m");
    assert!(writer.line().starts_with("262144 of") || writer.line().contains("no room"));
    let mut writer = Writer::start_in_tmpfs("small", dir.path(), "512k");
    let refused = writer.line();
    assert!(refused.contains("no room for a segment") && refused.contains("524288 bytes left"), "{refused}");
}

#[test]
fn a_forked_child_leaves_the_segment_alone() {
    let dir = tempfile::tempdir().expect("directory");
    let mut writer = Writer::start("fork", dir.path());
    let path = writer.path();
    let reader = SegmentReader::open(&path).expect("open");
    assert_eq!(writer.line(), "0", "the child ended well");
    assert!(path.exists() && !reader.is_removed());
    assert!(!reader.state().expect("state").clean_exit, "the child may not speak for its parent");
    writer.tell();
    assert!(writer.finish());
    assert!(!path.exists());
}

#[test]
fn header_and_communicators_arrive_as_written() {
    let dir = tempfile::tempdir().expect("directory");
    let writer = SegmentWriter::create(&config(dir.path())).expect("create");
    writer.set_profiler(6, 22_907, true);
    writer.count_drop(mycroft_ring::DropKind::Flow);
    let name = "x".repeat(200);
    let begin = CommBegin { at_ticks: 5, comm: 0xfeed, n_ranks: 32, n_nodes: 4, comm_rank: 9, name: &name };
    let slot = writer.comm_begin(&begin).expect("a cell");
    let reader = SegmentReader::open(writer.path().expect("a file")).expect("open");
    let header = reader.header();
    assert_eq!((header.job.as_str(), header.host.as_str()), ("job-7", "host-3"));
    assert_eq!((header.rank, header.world_size, header.local_rank, header.gpu), (11, 32, 3, 3));
    assert_eq!(header.process, mycroft_ring::Identity::current().expect("own identity"));
    assert_eq!(header.nonce, writer.nonce());
    assert_eq!(header.calibration.ticks_per_sec, writer.calibration().ticks_per_sec);
    let state = reader.state().expect("state");
    assert_eq!((state.profiler_abi, state.nccl_version, state.kernel_events), (6, 22_907, true));
    assert_eq!((state.dropped_total(), state.dropped[mycroft_ring::DropKind::Flow as usize]), (1, 1));
    let comms = reader.comms().expect("look").items;
    assert_eq!((comms[0].comm, comms[0].n_ranks, comms[0].end_ticks), (CommId(0xfeed), 32, 0));
    assert_eq!(comms[0].name.as_str(), &name[..layout::COMM_NAME_BYTES]);
    assert!(writer.comm_end(slot, 9) && !writer.comm_end(slot, 10));
    assert_eq!(reader.comms().expect("look").items[0].end_ticks, 9);
}
