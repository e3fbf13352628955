//! Making the file of a segment: where, how large, and that nobody else can have put it there.
use crate::clock::{Calibration, now_ticks};
use crate::collect;
use crate::error::{CreateError, Errno};
use crate::fixed::FixedPath;
use crate::layout::{
    BYTE_ORDER_MARK, Geometry, HEADER_BYTES, MAGIC, MIN_SEGMENT_BYTES, NAME_BYTES, STATE_ATTACHED, VERSION, WORD_BYTES,
    default_segment_bytes, header,
};
use crate::limits;
use crate::names::{FileName, SUFFIX, TEMPORARY_SUFFIX};
use crate::narrow::low;
use crate::process::{Identity, effective_user};
use crate::raw::Text;
use crate::region::{Region, allocate, space_of};
use crate::sync::Ordering;
use crate::sys::{make_directory, open_at, rename_at, unlink_at};
use crate::writer::SegmentConfig;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// The file of a segment, owned by the process that made it.
pub(crate) struct SegmentFile {
    path: FixedPath,
    pid: u32,
    nonce: u32,
    removed: AtomicBool,
    /// Holds the lock that tells readers in other pid namespaces that this process lives.
    _locked: File,
}

impl SegmentFile {
    pub(crate) fn path(&self) -> &Path {
        self.path.as_path()
    }

    pub(crate) fn nonce(&self) -> u32 {
        self.nonce
    }

    pub(crate) fn remove(&self) {
        if std::process::id() == self.pid && !self.removed.swap(true, Relaxed) {
            // SAFETY: a C string. Nothing can be done in the job about a file that will not go; the agent collects it.
            unsafe { libc::unlink(self.path.as_c_str().as_ptr()) };
        }
    }
}

/// Makes, sizes, fills and publishes a segment.
///
/// Takes no heap: a lack of memory anywhere in here is an error that leaves the job untraced, not an abort.
pub(crate) fn create(
    config: &SegmentConfig<'_>,
    calibration: &Calibration,
) -> Result<(Region, SegmentFile, Identity), CreateError> {
    make(config, calibration).map_err(|error| match error {
        CreateError::Directory(Errno(libc::EMFILE))
        | CreateError::Identity { source: Errno(libc::EMFILE), .. }
        | CreateError::File { source: Errno(libc::EMFILE), .. } => {
            CreateError::Descriptors { limit: limits::descriptors() }
        }
        other => other,
    })
}

fn make(config: &SegmentConfig<'_>, calibration: &Calibration) -> Result<(Region, SegmentFile, Identity), CreateError> {
    let identity = Identity::current()?;
    let mut path = FixedPath::new(config.dir.as_os_str().as_encoded_bytes())
        .ok_or(CreateError::Directory(Errno(libc::ENAMETOOLONG)))?;
    let directory = open_directory(&path)?;
    limits::check_descriptors(&directory)?;
    let space = || space_of(&directory).map_err(CreateError::Directory);
    collect::at_attach(&directory, space()?);
    let requested = if config.size_bytes == 0 { default_segment_bytes(None) } else { config.size_bytes };
    let bytes = limits::segment_bytes(requested, space()?)?;
    let nonce = draw_nonce(&identity);
    let name = |suffix| FileName::printed(format_args!("{}-{}-{nonce:08x}{suffix}", identity.pid, identity.start_time));
    let published = name(SUFFIX);
    if !(path.push(b"/") && path.push(published.as_bytes())) {
        return Err(CreateError::Directory(Errno(libc::ENAMETOOLONG)));
    }
    let temporary = Temporary { directory: &directory, name: name(TEMPORARY_SUFFIX) };
    let (file, geometry) = allocate_file(&temporary, bytes)?;
    let failed = |operation| move |source| CreateError::File { operation, source };
    file.try_lock().map_err(|e| Errno::of(&e.into())).map_err(failed("lock"))?;
    let region = Region::map(&file, geometry).map_err(failed("map"))?;
    write_header(&region, config, requested, nonce, &identity, calibration);
    rename_at(&directory, temporary.name.as_c_str(), published.as_c_str()).map_err(failed("publish"))?;
    std::mem::forget(temporary);
    let file = SegmentFile { path, pid: identity.pid, nonce, removed: AtomicBool::new(false), _locked: file };
    Ok((region, file, identity))
}

/// A file that goes again unless it is published.
struct Temporary<'a> {
    directory: &'a File,
    name: FileName,
}

impl Drop for Temporary<'_> {
    fn drop(&mut self) {
        // Also runs where the file was never made.
        let _ = unlink_at(self.directory, self.name.as_c_str());
    }
}

/// Opens the directory of segments, making it when missing (but not what it lies in: a host without /dev/shm is not ours to
/// mend), and makes sure that only its owner, us, can put files there.
pub(crate) fn open_directory(path: &FixedPath) -> Result<File, CreateError> {
    let failed = CreateError::Directory;
    make_directory(path.as_c_str()).map_err(failed)?;
    let flags = libc::O_RDONLY | libc::O_DIRECTORY;
    let directory = open_at(libc::AT_FDCWD, path.as_c_str(), flags, 0).map_err(failed)?;
    let metadata = directory.metadata().map_err(|e| failed(Errno::of(&e)))?;
    let (owner, user) = (metadata.uid(), effective_user());
    if owner != user {
        return Err(CreateError::Foreign { owner, user });
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(CreateError::Writable { mode: metadata.mode() & 0o7777 });
    }
    Ok(directory)
}

/// Makes the file as large as asked, or as large as there is room for.
fn allocate_file(temporary: &Temporary<'_>, bytes: u64) -> Result<(File, Geometry), CreateError> {
    let failed = |operation| move |source| CreateError::File { operation, source };
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
    let directory = temporary.directory;
    let file = open_at(directory.as_raw_fd(), temporary.name.as_c_str(), flags, 0o600).map_err(failed("create"))?;
    let geometry = largest_that_fits(bytes, |bytes| allocate(&file, bytes)).map_err(failed("allocate"))?;
    Ok((file, geometry))
}

/// Worth trying with less: the file system is full, or a signal of the job came in between (a profiler's timer comes
/// again and again, and less is done sooner).
fn is_worth_less(error: Errno) -> bool {
    matches!(error, Errno(libc::ENOSPC | libc::EDQUOT | libc::EFBIG | libc::EINTR))
}

/// The largest geometry up to `bytes` that can be allocated, halving while the file system is full.
fn largest_that_fits(bytes: u64, allocate: impl Fn(u64) -> Result<(), Errno>) -> Result<Geometry, Errno> {
    let mut bytes = bytes.max(MIN_SEGMENT_BYTES);
    loop {
        let geometry = Geometry::for_bytes(bytes);
        match allocate(geometry.total_bytes()) {
            Ok(()) => return Ok(geometry),
            // posix_fallocate on tmpfs gives back what it took when it fails.
            Err(e) if is_worth_less(e) && bytes > MIN_SEGMENT_BYTES => bytes = (bytes / 2).max(MIN_SEGMENT_BYTES),
            Err(e) => return Err(e),
        }
    }
}

/// A random number, never 0. (The standard library's own source of them keeps it in thread-local storage, which takes heap
/// and ends the process where there is none.)
pub(crate) fn draw_nonce(identity: &Identity) -> u32 {
    let mut bytes = [0; 4];
    // SAFETY: the buffer is writable for its length.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), libc::GRND_NONBLOCK) };
    let drawn = if got == 4 { u64::from(u32::from_ne_bytes(bytes)) } else { now_ticks() ^ identity.start_time };
    low(drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32).max(1)
}

fn write_header(
    region: &Region,
    config: &SegmentConfig<'_>,
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
    put(header::GPU, i64::from(config.gpu).cast_unsigned());
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
    for (field, text) in [(header::JOB, config.job), (header::HOST, config.host)] {
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
        let full = || Errno(libc::ENOSPC);
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
        assert_eq!(room(MIN_SEGMENT_BYTES / 2), Err(full()));
        assert_eq!(asked.borrow().len(), 9, "64 MiB halved to 256 KiB");
        let refused = largest_that_fits(1 << 20, |_| Err(Errno(libc::EPERM)));
        assert_eq!(refused, Err(Errno(libc::EPERM)));
    }
}
