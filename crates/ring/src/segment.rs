//! Opening a segment file on the agent's side, and its header.
use crate::clock::{Calibration, ClockKind};
use crate::error::{OpenError, ReadError};
use crate::layout::{
    BYTE_ORDER_MARK, Geometry, HEADER_BYTES, HEADER_WORDS, MAGIC, NAME_BYTES, SECTIONS, STATE_CLEAN, VERSION,
    WORD_BYTES, header,
};
use crate::names::SUFFIX;
use crate::narrow::low;
use crate::process::{Identity, Liveness, effective_user};
use crate::raw::{RawRecord, Text};
use crate::reader::{CommSnapshot, DrainStats, FlowSnapshot, OpSnapshot, Reader};
use crate::source::{FileSource, Source};
use crate::table::Snapshot;
use crate::writer::DropKind;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What the writer said once, at attach.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SegmentHeader {
    /// Bytes of the segment.
    pub total_bytes: u64,
    /// Bytes the job asked for; more than the total when there was less room.
    pub requested_bytes: u64,
    /// Random number drawn at attach.
    pub nonce: u32,
    /// The process.
    pub process: Identity,
    /// Global rank, `u32::MAX` if not told.
    pub rank: u32,
    /// Ranks in the job, 0 if not told.
    pub world_size: u32,
    /// Rank on its host, `u32::MAX` if not told.
    pub local_rank: u32,
    /// GPU index, -1 if not known.
    pub gpu: i32,
    /// Job name.
    pub job: String,
    /// Host name.
    pub host: String,
    /// The writer's calibration; a reader on the same host does better with its own of `calibration.kind`.
    pub calibration: Calibration,
    /// When the probe attached.
    pub attached_ticks: u64,
    /// Sizes of the tables and rings.
    pub geometry: Geometry,
}

/// What the writer may say anew at any time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentState {
    /// All communicators were finalized and the process said goodbye.
    pub clean_exit: bool,
    /// Profiler ABI that NCCL chose, 0 before the first communicator.
    pub profiler_abi: u32,
    /// NCCL version number, 0 if not known.
    pub nccl_version: u32,
    /// Kernel events are traced.
    pub kernel_events: bool,
    /// Ticks of the last operation begin, 0 before the first.
    pub heartbeat_ticks: u64,
    /// What was dropped for want of room, indexed by `DropKind`.
    pub dropped: [u64; DropKind::ALL.len()],
}

impl SegmentState {
    /// Everything dropped.
    pub fn dropped_total(&self) -> u64 {
        self.dropped.iter().fold(0, |sum, &n| sum.saturating_add(n))
    }
}

/// A segment open for reading.
pub struct SegmentReader {
    path: PathBuf,
    header: SegmentHeader,
    reader: Reader<FileSource>,
}

impl SegmentReader {
    /// Opens and checks a segment. Believes nothing in it: what does not hold together is refused. Its owner must be this
    /// user or, for the superuser, the owner of its directory.
    ///
    /// # Errors
    /// Not a segment of this version that is safe to read; see `OpenError`.
    pub fn open(path: &Path) -> Result<SegmentReader, OpenError> {
        let failed = |source| OpenError::File { path: path.to_owned(), source };
        let file = OpenOptions::new()
            .read(true)
            // Not blocking, so that a pipe of that name cannot hang the agent.
            .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC | libc::O_NONBLOCK)
            .open(path)
            .map_err(failed)?;
        SegmentReader::over(file, path, owner_of(path)?)
    }

    /// Checks a segment that somebody opened (without blocking and not through a link), which `path` names in messages and
    /// which must belong to `owner`.
    ///
    /// # Errors
    /// As [`SegmentReader::open`].
    pub fn over(file: File, path: &Path, owner: u32) -> Result<SegmentReader, OpenError> {
        let failed = |source| OpenError::File { path: path.to_owned(), source };
        let metadata = file.metadata().map_err(failed)?;
        check_file(path, &metadata, owner)?;
        let mut words = vec![0; HEADER_WORDS];
        let source = FileSource::new(file);
        source.read(0, &mut words).map_err(|e| match e {
            ReadError::Truncated { .. } => {
                damaged(path, "file size", metadata.len(), format!("{HEADER_BYTES} or more"))
            }
            ReadError::Io { source, .. } => failed(source),
        })?;
        let header = parse_header(path, &words, metadata.len())?;
        let reader = Reader::new(source, header.geometry);
        Ok(SegmentReader { path: path.to_owned(), header, reader })
    }

    /// Bytes read from the file so far: what this segment has cost its reader.
    pub fn bytes_read(&self) -> u64 {
        self.reader.source().bytes_read()
    }

    /// Where the segment was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What the writer said at attach.
    pub fn header(&self) -> &SegmentHeader {
        &self.header
    }

    /// What the writer says now.
    ///
    /// # Errors
    /// The segment can no longer be read.
    pub fn state(&self) -> Result<SegmentState, ReadError> {
        let mut w = vec![0; HEADER_WORDS];
        self.reader.source().read(0, &mut w)?;
        Ok(SegmentState {
            clean_exit: w[header::STATE] == STATE_CLEAN,
            profiler_abi: low(w[header::PROFILER_ABI]),
            nccl_version: low(w[header::NCCL_VERSION]),
            kernel_events: w[header::KERNEL_EVENTS] == 1,
            heartbeat_ticks: w[header::HEARTBEAT],
            dropped: DropKind::ALL.map(|kind| w[header::DROPPED + kind as usize]),
        })
    }

    /// Communicators, also those that ended as long as their cells were not needed again.
    ///
    /// # Errors
    /// The segment can no longer be read.
    pub fn comms(&self) -> Result<Snapshot<CommSnapshot>, ReadError> {
        self.reader.comms()
    }

    /// Operations in flight.
    ///
    /// # Errors
    /// The segment can no longer be read.
    pub fn ops(&self) -> Result<Snapshot<OpSnapshot>, ReadError> {
        self.reader.ops()
    }

    /// Flows in flight.
    ///
    /// # Errors
    /// The segment can no longer be read.
    pub fn flows(&self) -> Result<Snapshot<FlowSnapshot>, ReadError> {
        self.reader.flows()
    }

    /// Appends at most `max` completions to `out`.
    ///
    /// # Errors
    /// The segment can no longer be read; what was read before is in `out`.
    pub fn drain(&mut self, max: usize, out: &mut Vec<RawRecord>) -> Result<DrainStats, ReadError> {
        self.reader.drain(max, out)
    }

    /// Threads that wrote the rings at the last [`SegmentReader::drain`]: the kernel's numbers as the process sees them.
    pub fn writers(&self) -> impl Iterator<Item = u32> {
        self.reader.writers()
    }

    /// Position in each ring, to go on from after a restart of the agent.
    pub fn positions(&self) -> &[u64] {
        self.reader.positions()
    }

    /// Goes on from positions kept by an earlier reader of the same segment (same nonce).
    pub fn set_positions(&mut self, positions: &[u64]) {
        self.reader.set_positions(positions);
    }

    /// The file was removed: the process ended orderly, or somebody cleaned up. What is open can still be read.
    pub fn is_removed(&self) -> bool {
        self.reader.source().file().metadata().is_ok_and(|m| m.nlink() == 0)
    }

    /// Whether the process still runs. Where its pid means nothing here (another pid namespace), the lock that it holds
    /// on the file tells.
    pub fn liveness(&self) -> Liveness {
        liveness(&self.header.process, self.reader.source().file())
    }
}

fn liveness(process: &Identity, file: &File) -> Liveness {
    match process.liveness() {
        Liveness::Unknown => match file.try_lock_shared() {
            Ok(()) => {
                // Only asked: whoever asks next must find it unlocked. Closing the file would also unlock it.
                let _ = file.unlock();
                Liveness::Dead
            }
            Err(std::fs::TryLockError::WouldBlock) => Liveness::Alive,
            Err(std::fs::TryLockError::Error(_)) => Liveness::Unknown,
        },
        known => known,
    }
}

fn damaged(path: &Path, field: &'static str, found: u64, expected: String) -> OpenError {
    OpenError::Damaged { path: path.to_owned(), field, found, expected }
}

/// Who must own a segment: this user, or for the superuser the owner of its directory.
pub(crate) fn owner_of(path: &Path) -> Result<u32, OpenError> {
    let user = effective_user();
    if user == 0 { owner_above(path) } else { Ok(user) }
}

/// The owner of the directory that a path lies in.
fn owner_above(path: &Path) -> Result<u32, OpenError> {
    let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let metadata = std::fs::symlink_metadata(dir);
    Ok(metadata.map_err(|source| OpenError::File { path: dir.to_owned(), source })?.uid())
}

/// A plain file of the expected owner that others may not write to.
fn check_file(path: &Path, metadata: &std::fs::Metadata, expected: u32) -> Result<(), OpenError> {
    let refused = |problem: String| OpenError::Unsafe { path: path.to_owned(), problem };
    if !metadata.is_file() {
        return Err(refused("it is not a plain file".to_owned()));
    }
    if metadata.uid() != expected {
        return Err(refused(format!("it belongs to user {}, expected user {expected}", metadata.uid())));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(refused(format!("others may write to it (mode {:04o})", metadata.mode() & 0o7777)));
    }
    Ok(())
}

fn parse_header(path: &Path, w: &[u64], file_bytes: u64) -> Result<SegmentHeader, OpenError> {
    let owned = || path.to_owned();
    match w[header::MAGIC] {
        MAGIC => {}
        found if found == MAGIC.swap_bytes() => return Err(OpenError::ByteOrder { path: owned() }),
        found => return Err(OpenError::NotASegment { path: owned(), found }),
    }
    if w[header::VERSION] != VERSION {
        return Err(OpenError::Version { path: owned(), found: w[header::VERSION], expected: VERSION });
    }
    if w[header::BYTE_ORDER] != BYTE_ORDER_MARK {
        return Err(OpenError::ByteOrder { path: owned() });
    }
    let geometry = parse_geometry(path, w, file_bytes)?;
    let kind = ClockKind::from_code(w[header::CLOCK_KIND])
        .ok_or_else(|| damaged(path, "clock kind", w[header::CLOCK_KIND], "1 or 2".to_owned()))?;
    let rate = w[header::TICKS_PER_SEC];
    let calibration =
        Calibration::from_parts(kind, w[header::TICK0], w[header::MONOTONIC0], w[header::REALTIME0], rate)
            .ok_or_else(|| damaged(path, "ticks per second", rate, "10^6 to 10^12".to_owned()))?;
    let mut boot_id = [0; 16];
    boot_id[..8].copy_from_slice(&w[header::BOOT_ID].to_be_bytes());
    boot_id[8..].copy_from_slice(&w[header::BOOT_ID + 1].to_be_bytes());
    let text = |field: usize| Text::<NAME_BYTES>::from_words(w[field], &w[field + 1..]).as_str().to_owned();
    Ok(SegmentHeader {
        total_bytes: w[header::TOTAL_BYTES],
        requested_bytes: w[header::REQUESTED_BYTES],
        nonce: low(w[header::NONCE]),
        process: Identity {
            pid: low(w[header::PID]),
            start_time: w[header::START_TIME],
            boot_id,
            pid_namespace: w[header::PID_NAMESPACE],
        },
        rank: low(w[header::RANK]),
        world_size: low(w[header::WORLD_SIZE]),
        local_rank: low(w[header::LOCAL_RANK]),
        gpu: low(w[header::GPU]).cast_signed(),
        job: text(header::JOB),
        host: text(header::HOST),
        calibration,
        attached_ticks: w[header::ATTACHED_TICKS],
        geometry,
    })
}

/// The counts in the header, if everything that follows from them agrees with the header and the file.
fn parse_geometry(path: &Path, w: &[u64], file_bytes: u64) -> Result<Geometry, OpenError> {
    let expect = |field: &'static str, found: u64, expected: u64| {
        if found == expected { Ok(()) } else { Err(damaged(path, field, found, expected.to_string())) }
    };
    expect("header size", w[header::HEADER_BYTES], HEADER_BYTES as u64)?;
    let geometry = Geometry {
        header_words: HEADER_WORDS as u64,
        comms: w[header::COMM_COUNT],
        ops: w[header::OP_COUNT],
        flows: w[header::FLOW_COUNT],
        rings: w[header::RING_COUNT],
        ring_slots: w[header::RING_SLOTS],
    };
    if !geometry.is_sane() {
        return Err(damaged(path, "table sizes", geometry.ring_slots, "sizes within the limits".to_owned()));
    }
    expect("total size", w[header::TOTAL_BYTES], geometry.total_bytes())?;
    expect("file size", file_bytes, geometry.total_bytes())?;
    for (i, offset) in geometry.offsets().into_iter().enumerate().take(SECTIONS) {
        expect("section offset", w[header::SECTIONS + i], offset * WORD_BYTES as u64)?;
    }
    Ok(geometry)
}

/// Paths of all published segments in a directory, sorted; none if there is no such directory.
///
/// # Errors
/// The directory cannot be read.
pub fn list(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(e),
    };
    let mut paths = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(SUFFIX)) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}
