//! Segments written by an adversary: any bytes, any length, and a file that shrinks while it is being read. Nothing may
//! panic, read outside, or take unbounded work; what is refused is refused with a reason.
use mycroft_record::{
    Algorithm, ChannelId, CommId, CommRank, Datatype, Direction, HostTime, OpClass, OpId, OpKind, OpSeq, Protocol,
};
use mycroft_ring::convert;
use mycroft_ring::layout::{self, Geometry, MIN_SEGMENT_BYTES, VERSION, WORD_BYTES, header};
use mycroft_ring::{
    Calibration, CommBegin, FlowBegin, FlowOwner, OpBegin, OpenError, RawRecord, RawStepMark, ReadError, SegmentConfig,
    SegmentReader, SegmentWriter, segment,
};
use proptest::prelude::*;
use std::fs::File;
use std::fs::OpenOptions;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

fn config(dir: &Path) -> SegmentConfig<'_> {
    SegmentConfig {
        dir,
        size_bytes: MIN_SEGMENT_BYTES,
        job: "job",
        host: "host",
        rank: 0,
        world_size: 1,
        local_rank: 0,
        gpu: -1,
    }
}

/// A segment with something in every section.
fn fill(writer: &SegmentWriter) {
    let begin = CommBegin { at_ticks: 1, comm: 2, n_ranks: 3, n_nodes: 1, comm_rank: 0, name: "TP" };
    let comm_slot = writer.comm_begin(&begin);
    let mut ring = writer.claim_ring().expect("a ring");
    for step in 0..300 {
        ring.push(&RawRecord::StepMark(RawStepMark { at_ticks: step + 1, step }));
    }
    for n in 0..40 {
        let op = writer.op_begin(&OpBegin {
            comm_slot,
            id: OpId { comm: CommId(2), class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(n) },
            kind: OpKind::AllGather,
            nccl_seq: n,
            comm_rank: CommRank(0),
            count: 1 << 20,
            datatype: Datatype::Int8,
            root: u32::MAX,
            algorithm: Algorithm::Tree,
            protocol: Protocol::Ll,
            n_channels: 4,
            enqueued_ticks: n + 1,
        });
        writer.flow_begin(&FlowBegin {
            op: FlowOwner::Op(op.expect("a cell")),
            channel: ChannelId(0),
            peer: CommRank(1),
            direction: Direction::Send,
            total_chunks: 8,
            at_ticks: 2,
            proxied_for_pid: 0,
        });
    }
}

/// The bytes of a filled segment.
fn sample() -> &'static [u8] {
    static SAMPLE: OnceLock<Vec<u8>> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let dir = tempfile::tempdir().expect("directory");
        let writer = SegmentWriter::create(&config(dir.path())).expect("create");
        fill(&writer);
        std::fs::read(writer.path().expect("a file")).expect("read")
    })
}

fn put(dir: &Path, bytes: &[u8]) -> PathBuf {
    use std::io::Write;
    let path = dir.join("1-1-00000001.mycroft");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path).expect("create");
    file.write_all(bytes).expect("write");
    path
}

/// Reads everything there is to read, and converts it.
fn exercise(path: &Path) -> Result<(), OpenError> {
    let mut reader = SegmentReader::open(path)?;
    let geometry = reader.header().geometry;
    let clock = Calibration::measure_kind(mycroft_ring::ClockKind::Monotonic);
    let limit = (geometry.rings * geometry.ring_slots) as usize;
    let mut out = Vec::new();
    for _ in 0..3 {
        let stats = reader.drain(limit, &mut out).expect("the file has its size");
        assert!(
            stats.read + stats.damaged <= (limit + geometry.rings as usize) as u64,
            "more than there is: {stats:?}"
        );
    }
    for record in &out {
        convert::record(record, &clock);
        convert::record(record, &reader.header().calibration);
    }
    let comms = reader.comms().expect("the file has its size").items;
    let ops = reader.ops().expect("the file has its size").items;
    let flows = reader.flows().expect("the file has its size").items;
    assert!(comms.len() as u64 <= geometry.comms && ops.len() as u64 <= geometry.ops);
    for comm in &comms {
        convert::comm_init_of(comm, &clock);
        convert::comm_end_of(comm, &clock);
    }
    for op in &ops {
        let state = convert::op_state(op, &clock, HostTime(1));
        assert!(state.flows_done <= state.flows_started && state.kernels_stopped <= state.kernels_started);
    }
    for flow in &flows {
        let c = convert::flow_state(flow, &clock, HostTime(1)).counters;
        assert!(c.done <= c.transmitted && c.transmitted <= c.ready && c.ready <= c.posted);
        assert!(c.posted <= c.total_chunks);
    }
    convert::process_info(reader.header(), &reader.state().expect("the file has its size"), &clock);
    reader.liveness();
    Ok(())
}

fn header_text(bytes: &mut [u8], field: usize, value: u64) {
    bytes[field * WORD_BYTES..][..WORD_BYTES].copy_from_slice(&value.to_ne_bytes());
}

/// Words an adversary would try.
fn word() -> impl Strategy<Value = u64> {
    prop_oneof![
        any::<u64>(),
        Just(0),
        Just(u64::MAX),
        Just(1 << 56),
        Just((1 << 56) - 1),
        Just(i64::MAX as u64),
        (0u32..64).prop_map(|bit| 1 << bit),
        0u64..1000,
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_words_anywhere_are_survived(
        changes in prop::collection::vec((any::<prop::sample::Index>(), word()), 1..200),
        header_changes in prop::collection::vec((0..layout::HEADER_WORDS, word()), 0..3),
    ) {
        let dir = tempfile::tempdir().expect("directory");
        let mut bytes = sample().to_vec();
        // Behind the header anything; the header only sometimes, or hardly anything would get past `open`.
        let words = bytes.len() / WORD_BYTES - layout::HEADER_WORDS;
        for (index, value) in changes {
            header_text(&mut bytes, layout::HEADER_WORDS + index.index(words), value);
        }
        for (index, value) in header_changes {
            header_text(&mut bytes, index, value);
        }
        let _ = exercise(&put(dir.path(), &bytes));
    }

    #[test]
    fn hostile_heads_and_directories_are_survived(heads in prop::collection::vec(word(), 64), state in 0u64..256) {
        let dir = tempfile::tempdir().expect("directory");
        let mut bytes = sample().to_vec();
        let geometry = Geometry::for_bytes(MIN_SEGMENT_BYTES);
        let offsets = geometry.offsets();
        for (ring, &head) in heads.iter().enumerate().take(geometry.rings as usize) {
            header_text(&mut bytes, offsets[6] as usize + ring * layout::RING_HEADER_WORDS, head);
        }
        for (section, count) in [(0, geometry.comms), (2, geometry.ops), (4, geometry.flows)] {
            for cell in 0..count as usize {
                header_text(&mut bytes, offsets[section] as usize + cell, heads[cell % heads.len()] << 8 | state);
            }
        }
        exercise(&put(dir.path(), &bytes)).expect("the header is whole");
    }

    #[test]
    fn any_length_is_refused_or_whole(length in 0usize..300_000) {
        let dir = tempfile::tempdir().expect("directory");
        let mut bytes = sample().to_vec();
        let whole = bytes.len();
        bytes.resize(length, 0);
        prop_assert_eq!(exercise(&put(dir.path(), &bytes)).is_ok(), length == whole);
    }
}

#[test]
fn truncation_under_an_open_reader_is_an_error_and_no_signal() {
    let dir = tempfile::tempdir().expect("directory");
    for keep in [0, 100, 4096, 8192, 100_000] {
        let path = put(dir.path(), sample());
        let mut reader = SegmentReader::open(&path).expect("open");
        OpenOptions::new().write(true).open(&path).expect("open").set_len(keep).expect("truncate");
        let drained = reader.drain(1000, &mut Vec::new());
        assert!(matches!(drained, Err(ReadError::Truncated { .. })), "{drained:?}");
        let flows = reader.flows();
        assert!(matches!(flows, Err(ReadError::Truncated { .. })) || keep == 100_000, "{flows:?}");
        assert_eq!(reader.state().is_ok(), keep >= 4096);
    }
}

#[test]
fn another_version_names_both() {
    let dir = tempfile::tempdir().expect("directory");
    let mut bytes = sample().to_vec();
    header_text(&mut bytes, header::VERSION, VERSION + 41);
    let error = SegmentReader::open(&put(dir.path(), &bytes)).err().expect("refused").to_string();
    assert!(error.contains("layout version 42") && error.contains("knows version 1"), "{error}");
}

#[test]
fn other_byte_orders_and_other_files_are_told() {
    let dir = tempfile::tempdir().expect("directory");
    let mut bytes = sample().to_vec();
    header_text(&mut bytes, header::MAGIC, layout::MAGIC.swap_bytes());
    assert!(matches!(SegmentReader::open(&put(dir.path(), &bytes)), Err(OpenError::ByteOrder { .. })));
    assert!(matches!(SegmentReader::open(&put(dir.path(), &[7; 9000])), Err(OpenError::NotASegment { .. })));
    assert!(matches!(SegmentReader::open(&put(dir.path(), &[])), Err(OpenError::Damaged { .. })));
    assert!(matches!(SegmentReader::open(&dir.path().join("none")), Err(OpenError::File { .. })));
}

#[test]
fn links_pipes_directories_and_open_doors_are_refused() {
    let dir = tempfile::tempdir().expect("directory");
    let path = put(dir.path(), sample());
    let link = dir.path().join("2-1-00000001.mycroft");
    std::os::unix::fs::symlink(&path, &link).expect("link");
    assert!(matches!(SegmentReader::open(&link), Err(OpenError::File { .. })), "a link");
    assert!(matches!(SegmentReader::open(dir.path()), Err(OpenError::Unsafe { .. })), "a directory");
    let pipe = dir.path().join("3-1-00000001.mycroft");
    let name = std::ffi::CString::new(pipe.to_str().expect("ascii")).expect("no zero");
    // SAFETY: a valid path, NUL-terminated.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    assert!(matches!(SegmentReader::open(&pipe), Err(OpenError::Unsafe { .. })), "a pipe");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).expect("open the door");
    assert!(matches!(SegmentReader::open(&path), Err(OpenError::Unsafe { .. })), "writable by others");
}

#[test]
fn a_directory_that_others_may_write_to_is_refused_and_ours_is_made_private() {
    let dir = tempfile::tempdir().expect("directory");
    let nested = dir.path().join("a/b");
    let error = SegmentWriter::create(&config(&nested)).err().expect("refused").to_string();
    assert!(error.contains("No such file or directory"), "{error}");
    assert!(!dir.path().join("a").exists(), "a missing /dev/shm is not the tracer's to make");
    let own = dir.path().join("a");
    let writer = SegmentWriter::create(&config(&own)).expect("create");
    let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode() & 0o7777;
    assert_eq!((mode(&own), mode(writer.path().expect("a file"))), (0o700, 0o600));
    std::fs::set_permissions(&own, PermissionsExt::from_mode(0o777)).expect("open the door");
    let error = SegmentWriter::create(&config(&own)).err().expect("refused").to_string();
    assert!(error.contains("others may write to it") && error.contains("MYCROFT_DIR"), "{error}");
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(dir.path(), &link).expect("link");
    assert!(SegmentWriter::create(&config(&link)).is_err(), "a link to a directory");
    std::fs::write(dir.path().join("file"), "").expect("file");
    assert!(SegmentWriter::create(&config(&dir.path().join("file"))).is_err(), "a file");
}

/// A segment file of a process that is gone, with so many bytes on the disk, changed so many seconds ago.
fn leave_dead(dir: &Path, number: u32, bytes: u64) -> PathBuf {
    // Process 1 started at another time than 1: whoever made this is gone.
    let path = dir.join(format!("1-1-{number:08x}.mycroft"));
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).expect("file");
    // SAFETY: a descriptor that is open.
    let rc = unsafe { libc::fallocate(std::os::fd::AsRawFd::as_raw_fd(&file), 0, 0, bytes as libc::off_t) };
    assert_eq!(rc, 0, "room for {bytes} bytes");
    path
}

fn dead_left(dir: &Path) -> usize {
    segment::list(dir).expect("list").iter().filter(|path| path.to_string_lossy().contains("/1-1-")).count()
}

/// Without an agent dead segments would fill the shared memory that the next job needs.
#[test]
fn who_attaches_removes_dead_segments_beyond_their_share_unless_an_agent_does() {
    let dir = tempfile::tempdir().expect("directory");
    let own = dir.path().join("segments");
    drop(SegmentWriter::create(&config(&own)).expect("create"));
    for number in 0..200 {
        leave_dead(&own, number, 4096);
    }
    let lock = File::options().write(true).create_new(true).open(own.join(mycroft_ring::AGENT_LOCK)).expect("file");
    // SAFETY: an all-zero flock is valid.
    let mut whole: libc::flock = unsafe { std::mem::zeroed() };
    whole.l_type = libc::F_WRLCK as libc::c_short;
    // SAFETY: a struct to read, and a descriptor that is open.
    let rc = unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&lock), libc::F_OFD_SETLK, &raw const whole) };
    assert_eq!(rc, 0, "the lock an agent holds");
    drop(SegmentWriter::create(&config(&own)).expect("create"));
    assert_eq!(dead_left(&own), 200, "they are the agent's");
    drop(lock);
    drop(SegmentWriter::create(&config(&own)).expect("create"));
    assert_eq!(dead_left(&own), 72, "128 at a time");
    drop(SegmentWriter::create(&config(&own)).expect("create"));
    assert_eq!(dead_left(&own), 72, "few small ones are left to an agent that comes late");
}

#[test]
fn ten_thousand_strange_names_cost_an_attach_little() {
    let dir = tempfile::tempdir().expect("directory");
    let own = dir.path().join("segments");
    drop(SegmentWriter::create(&config(&own)).expect("create"));
    for number in 0..10_000 {
        // Half are strangers', half of a process that lives: ours, as far as their names tell.
        let name = if number % 2 == 0 { format!("{number}-x.mycroft") } else { format!("notes{number}") };
        std::fs::write(own.join(name), "").expect("file");
    }
    let before = processor_ns();
    drop(SegmentWriter::create(&config(&own)).expect("create"));
    let spent = processor_ns() - before;
    assert!(spent < 1_000_000_000, "{spent} ns of processor time, where some 10 ms are usual");
    assert_eq!(std::fs::read_dir(&own).expect("list").count(), 10_000, "strangers' files stay");
}

/// Processor time of this thread.
fn processor_ns() -> i64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a struct to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

/// A head that jumps makes every slot of a ring news; looking at slots without a record must not cost more than records do.
#[test]
fn slots_without_a_record_count_against_the_limit_of_a_drain() {
    let dir = tempfile::tempdir().expect("directory");
    let writer = SegmentWriter::create(&config(dir.path())).expect("create");
    let path = writer.path().expect("a file");
    let mut reader = SegmentReader::open(path).expect("open");
    let geometry = *writer.geometry();
    let file = File::options().write(true).open(path).expect("ours");
    for ring in 0..geometry.rings {
        let at = (geometry.offsets()[6] + ring * layout::RING_HEADER_WORDS as u64) * 8;
        std::os::unix::fs::FileExt::write_all_at(&file, &geometry.ring_slots.to_ne_bytes(), at).expect("poke");
    }
    let mut out = Vec::new();
    let before = reader.bytes_read();
    let stats = reader.drain(100, &mut out).expect("readable");
    assert_eq!((stats.read, stats.damaged, stats.more), (0, 100, true));
    let most = 100 * layout::SLOT_BYTES as u64 + 8192;
    assert!(reader.bytes_read() - before <= most, "{} bytes", reader.bytes_read() - before);
}

#[test]
fn leftovers_of_a_killed_start_are_collected_and_strangers_are_left_alone() {
    let dir = tempfile::tempdir().expect("directory");
    let put = |name: &str| std::fs::write(dir.path().join(name), "x").expect("file");
    // Process 1 started at another time than 1: whoever made these is gone.
    put("1-1-00000001.mycroft-new");
    put("1-1-00000002.mycroft");
    put("notes.mycroft");
    put("1-1-00000003.other");
    let live = SegmentWriter::create(&config(dir.path())).expect("create");
    let handle = File::open(dir.path()).expect("the directory");
    let collect = || mycroft_ring::collect::collect_dead(&handle, |_| true).expect("collect");
    assert_eq!(collect(), ["1-1-00000002.mycroft"], "the other may be in the making");
    let half_made = File::options().write(true).open(dir.path().join("1-1-00000001.mycroft-new")).expect("ours");
    half_made.set_modified(std::time::UNIX_EPOCH).expect("ours");
    put("1-1-00000002.mycroft");
    assert_eq!(collect(), ["1-1-00000001.mycroft-new", "1-1-00000002.mycroft"]);
    assert!(live.path().expect("a file").exists());
    assert_eq!(segment::list(dir.path()).expect("list").len(), 2);
    assert!(segment::list(&dir.path().join("none")).expect("no directory, no segments").is_empty());
}
