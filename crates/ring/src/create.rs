//! Making the file of a segment: where, how large, and that nobody else can have put it there.
use crate::clock::{Calibration, now_ticks};
use crate::error::CreateError;
use crate::layout::{
    BYTE_ORDER_MARK, Geometry, HEADER_BYTES, MAGIC, MIN_SEGMENT_BYTES, NAME_BYTES, STATE_ATTACHED, VERSION, WORD_BYTES,
    default_segment_bytes, header,
};
use crate::process::Identity;
use crate::raw::Text;
use crate::region::{Region, allocate, available_bytes};
use crate::sync::Ordering;
use crate::writer::SegmentConfig;
use std::fs::{DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// End of a segment's file name; what stands before is PID-STARTTIME-NONCE.
pub const SUFFIX: &str = ".mycroft";
/// End of the name while a segment is being made.
pub const TEMPORARY_SUFFIX: &str = ".mycroft-new";
/// Share of the space that is left which one segment may take: a container's /dev/shm of 64 MB is also where NCCL puts
/// its own buffers, and 8 ranks at a sixteenth each leave it 60 %.
const SPACE_SHARE: u64 = 16;
/// Least space, in smallest segments: below that even one would crowd out others.
const SPACE_LEAST: u64 = 4;

/// The file of a segment, owned by the process that made it.
pub(crate) struct SegmentFile {
    path: PathBuf,
    pid: u32,
    nonce: u32,
    removed: AtomicBool,
    /// Holds the lock that tells readers in other pid namespaces that this process lives.
    _locked: File,
}

impl SegmentFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn nonce(&self) -> u32 {
        self.nonce
    }

    pub(crate) fn remove(&self) {
        if std::process::id() == self.pid && !self.removed.swap(true, Relaxed) {
            // Nothing can be done in the job about a file that will not go; the agent collects it.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Makes, sizes, fills and publishes a segment.
pub(crate) fn create(
    config: &SegmentConfig,
    calibration: &Calibration,
) -> Result<(Region, SegmentFile, Identity), CreateError> {
    let identity = Identity::current().map_err(|(path, source)| CreateError::Identity { path, source })?;
    let directory = open_directory(&config.dir)?;
    let requested = if config.size_bytes == 0 { default_segment_bytes(None) } else { config.size_bytes };
    let nonce = draw_nonce(&identity);
    let stem = format!("{}-{}-{nonce:08x}", identity.pid, identity.start_time);
    let temporary = Temporary(config.dir.join(format!("{stem}{TEMPORARY_SUFFIX}")));
    let (file, geometry) = allocate_file(&config.dir, &directory, &temporary.0, requested)?;
    let failed = |operation, source| CreateError::File { operation, path: temporary.0.clone(), source };
    file.try_lock().map_err(|e| failed("lock", e.into()))?;
    let region = Region::map(&file, &temporary.0, geometry)?;
    write_header(&region, config, requested, nonce, &identity, calibration);
    let path = config.dir.join(format!("{stem}{SUFFIX}"));
    std::fs::rename(&temporary.0, &path).map_err(|e| failed("publish", e))?;
    std::mem::forget(temporary);
    let file = SegmentFile { path, pid: identity.pid, nonce, removed: AtomicBool::new(false), _locked: file };
    Ok((region, file, identity))
}

/// A file that goes again unless it is published.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // Also runs where the file was never made.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Opens the directory of segments, making it when missing, and makes sure that only its owner, us, can put files there.
fn open_directory(path: &Path) -> Result<File, CreateError> {
    let failed = |source| CreateError::Directory { path: path.to_owned(), source };
    let refused = |problem: String| CreateError::Unsafe { path: path.to_owned(), problem };
    DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(failed)?;
    let directory = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)
        .map_err(failed)?;
    let metadata = directory.metadata().map_err(failed)?;
    let user = effective_user();
    if metadata.uid() != user {
        return Err(refused(format!("it belongs to user {}, this process runs as user {user}", metadata.uid())));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(refused(format!("others may write to it (mode {:04o})", metadata.mode() & 0o7777)));
    }
    Ok(directory)
}

/// The user whose rights this process has.
pub(crate) fn effective_user() -> u32 {
    // SAFETY: takes nothing, touches nothing, cannot fail.
    unsafe { libc::geteuid() }
}

/// Makes the file as large as asked, or as large as there is room for.
fn allocate_file(dir: &Path, directory: &File, path: &Path, requested: u64) -> Result<(File, Geometry), CreateError> {
    let available = available_bytes(directory)
        .map_err(|source| CreateError::Directory { path: dir.to_owned(), source })?
        .min(crate::memory::room_bytes());
    let needed = SPACE_LEAST * MIN_SEGMENT_BYTES;
    let no_space = || CreateError::NoSpace { path: dir.to_owned(), available, needed };
    if available < needed {
        return Err(no_space());
    }
    let failed = |operation, source| CreateError::File { operation, path: path.to_owned(), source };
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_CLOEXEC)
        .open(path)
        .map_err(|e| failed("create", e))?;
    match largest_that_fits(requested.min(available / SPACE_SHARE), |bytes| allocate(&file, bytes)) {
        Ok(geometry) => Ok((file, geometry)),
        Err(e) if is_full(&e) => Err(no_space()),
        Err(e) => Err(failed("allocate", e)),
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// The largest geometry up to `bytes` that can be allocated, halving while the file system is full.
fn largest_that_fits(bytes: u64, allocate: impl Fn(u64) -> io::Result<()>) -> io::Result<Geometry> {
    let mut bytes = bytes.max(MIN_SEGMENT_BYTES);
    loop {
        let geometry = Geometry::for_bytes(bytes);
        match allocate(geometry.total_bytes()) {
            Ok(()) => return Ok(geometry),
            // posix_fallocate on tmpfs gives back what it took when it fails.
            Err(e) if is_full(&e) && bytes > MIN_SEGMENT_BYTES => bytes = (bytes / 2).max(MIN_SEGMENT_BYTES),
            Err(e) => return Err(e),
        }
    }
}

fn draw_nonce(identity: &Identity) -> u32 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(identity.start_time);
    hasher.write_u64(now_ticks());
    (hasher.finish() as u32).max(1)
}

fn write_header(
    region: &Region,
    config: &SegmentConfig,
    requested: u64,
    nonce: u32,
    identity: &Identity,
    calibration: &Calibration,
) {
    let words = region.words();
    let put = |field: usize, value: u64| words[field].store(value, Relaxed);
    let geometry = &region.geometry;
    put(header::VERSION, VERSION);
    put(header::BYTE_ORDER, BYTE_ORDER_MARK);
    put(header::HEADER_BYTES, HEADER_BYTES as u64);
    put(header::TOTAL_BYTES, geometry.total_bytes());
    put(header::REQUESTED_BYTES, requested);
    put(header::NONCE, u64::from(nonce));
    put(header::PID, u64::from(identity.pid));
    put(header::START_TIME, identity.start_time);
    let (boot_high, boot_low) = identity.boot_id.split_at(8);
    for (i, half) in [boot_high, boot_low].into_iter().enumerate() {
        put(header::BOOT_ID + i, half.iter().fold(0, |word, &b| word << 8 | u64::from(b)));
    }
    put(header::PID_NAMESPACE, identity.pid_namespace);
    put(header::RANK, u64::from(config.rank));
    put(header::WORLD_SIZE, u64::from(config.world_size));
    put(header::LOCAL_RANK, u64::from(config.local_rank));
    put(header::GPU, i64::from(config.gpu) as u64);
    put(header::CLOCK_KIND, calibration.kind as u64);
    put(header::TICK0, calibration.tick0);
    put(header::MONOTONIC0, calibration.monotonic0_ns);
    put(header::REALTIME0, calibration.realtime0_ns);
    put(header::TICKS_PER_SEC, calibration.ticks_per_sec);
    put(header::ATTACHED_TICKS, now_ticks());
    put(header::COMM_COUNT, geometry.comms);
    put(header::OP_COUNT, geometry.ops);
    put(header::FLOW_COUNT, geometry.flows);
    put(header::RING_COUNT, geometry.rings);
    put(header::RING_SLOTS, geometry.ring_slots);
    for (i, offset) in geometry.offsets().into_iter().enumerate() {
        put(header::SECTIONS + i, offset * WORD_BYTES as u64);
    }
    for (field, text) in [(header::JOB, &config.job), (header::HOST, &config.host)] {
        let text = Text::<NAME_BYTES>::new(text);
        put(field, text.len() as u64);
        for i in 0..NAME_BYTES / WORD_BYTES {
            put(field + 1 + i, text.word(i));
        }
    }
    put(header::STATE, STATE_ATTACHED);
    words[header::MAGIC].store(MAGIC, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn a_full_file_system_halves_the_segment_until_it_fits_or_gives_up() {
        let full = || io::Error::from_raw_os_error(libc::ENOSPC);
        let asked = RefCell::new(Vec::new());
        let room = |room: u64| {
            asked.borrow_mut().clear();
            largest_that_fits(64 << 20, |bytes| {
                asked.borrow_mut().push(bytes);
                if bytes <= room { Ok(()) } else { Err(full()) }
            })
        };
        assert_eq!(room(1 << 30).expect("room"), Geometry::for_bytes(64 << 20));
        assert_eq!(room(5 << 20).expect("room"), Geometry::for_bytes(4 << 20));
        assert_eq!(room(MIN_SEGMENT_BYTES).expect("room"), Geometry::for_bytes(MIN_SEGMENT_BYTES));
        assert!(is_full(&room(MIN_SEGMENT_BYTES / 2).expect_err("no room")));
        assert_eq!(asked.borrow().len(), 9, "64 MiB halved to 256 KiB");
        let refused = largest_that_fits(1 << 20, |_| Err(io::Error::from_raw_os_error(libc::EPERM)));
        assert_eq!(refused.expect_err("refused").raw_os_error(), Some(libc::EPERM));
    }
}
