//! The process's one runtime: made at the first communicator, never freed, silent after a fork or a panic.
use crate::calls::CallTable;
use crate::comms::CommTable;
use crate::config::{Config, DEFAULT_SEGMENT_BYTES};
use crate::events::CommInfo;
use crate::flows::FlowTable;
use crate::kernels::WallClock;
use crate::ops::OpTable;
use crate::threads::ThreadRings;
use mycroft_record::OpKind;
use mycroft_ring::limits::may_map;
use mycroft_ring::pages::leak;
use mycroft_ring::{CreateError, Errno, RawRecord, SegmentConfig, SegmentWriter};
use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

/// The runtime while it traces; null before the first communicator, after a panic, and in a forked child.
static LIVE: AtomicPtr<Runtime> = AtomicPtr::new(std::ptr::null_mut());
/// The runtime once made, or why not.
static MADE: OnceLock<Result<&'static Runtime, AttachError>> = OnceLock::new();
/// Tracing ended for good.
static DISABLED: AtomicBool = AtomicBool::new(false);

/// Why a process is not traced.
#[derive(Debug)]
pub enum AttachError {
    /// `MYCROFT_OFF` is set.
    Off,
    /// The segment could not be made.
    Segment(CreateError),
    /// There is no memory, or no thread-local key, for what the tracer keeps beside the segment.
    Memory(Errno),
    /// A panic or a fork ended tracing in this process.
    Disabled,
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::Off => f.write_str("tracing is off (MYCROFT_OFF is set); unset it to trace this job"),
            AttachError::Segment(error) => {
                write!(f, "this process is not traced: {error} (segment directory {})", crate::config::segment_dir())
            }
            AttachError::Memory(error) => {
                write!(
                    f,
                    "this process is not traced: no memory for its tables: {error}; raise its limits (ulimit -v, -d)"
                )
            }
            AttachError::Disabled => {
                f.write_str("tracing has ended in this process (after a fork or an internal error)")
            }
        }
    }
}

impl std::error::Error for AttachError {}

/// What an `init` knows when it attaches.
#[derive(Clone, Copy, Debug)]
pub struct Attach<'a> {
    /// Profiler interface that NCCL chose.
    pub abi: u32,
    /// NCCL's version, 0 if not known.
    pub nccl_version: u32,
    /// Whether kernel-channel events are asked for.
    pub kernel_events: bool,
    /// Kinds of collectives that this NCCL may give no event, only one of their call.
    pub hidden: &'a [OpKind],
    /// Bytes of the segment where the environment says nothing; 0 for this rank's share of the host's.
    pub segment_bytes: u64,
    /// The communicator; the first one's rank stands in where no launcher told the global rank.
    pub comm: CommInfo<'a>,
}

/// Everything the callbacks need. All of it is mapped at attach.
pub struct Runtime {
    writer: SegmentWriter,
    rings: ThreadRings,
    pid: i32,
    kernel_events: AtomicBool,
    /// A kernel event has been seen: from then on an operation without one has not started.
    pub(crate) kernel_seen: AtomicBool,
    /// Without kernel events: when the latest operation ended that was seen to, ticks.
    pub(crate) device_free: AtomicU64,
    pub(crate) clock: WallClock,
    pub(crate) calls: CallTable,
    pub(crate) comms: CommTable,
    pub(crate) ops: OpTable,
    pub(crate) flows: FlowTable,
}

impl Runtime {
    /// The runtime, if this process is traced. One load.
    #[inline]
    pub fn get() -> Option<&'static Runtime> {
        // SAFETY: the pointer is null or comes from a Box that is never freed.
        unsafe { LIVE.load(Ordering::Acquire).as_ref() }
    }

    /// Attaches at the first call (makes the segment and all tables) and tells the segment what NCCL chose at every
    /// call. Called from `init`, never on the event path.
    ///
    /// # Errors
    /// Tracing is off, disabled, or the segment could not be made; the same answer for the rest of the process's life.
    pub fn attach(attach: &Attach<'_>) -> Result<&'static Runtime, &'static AttachError> {
        static OVER: AttachError = AttachError::Disabled;
        let runtime = *MADE.get_or_init(|| Runtime::make(attach)).as_ref()?;
        if DISABLED.load(Ordering::Acquire) {
            return Err(&OVER);
        }
        runtime.writer.set_profiler(attach.abi, attach.nccl_version, attach.kernel_events);
        runtime.kernel_events.store(attach.kernel_events, Ordering::Relaxed);
        Ok(runtime)
    }

    fn make(attach: &Attach<'_>) -> Result<&'static Runtime, AttachError> {
        let config = Config::from_env();
        if config.off {
            return Err(AttachError::Off);
        }
        let (told, told_bytes) = (config.rank.is_some(), config.segment_bytes != DEFAULT_SEGMENT_BYTES);
        let rank = config.rank.or(attach.comm.rank).unwrap_or(u32::MAX);
        let world_size = if told { config.world_size } else { config.world_size.max(attach.comm.n_ranks) };
        let writer = SegmentWriter::create(&SegmentConfig {
            dir: config.dir.as_path(),
            size_bytes: if told_bytes { config.segment_bytes } else { attach.segment_bytes },
            job: config.job.as_str(),
            host: config.host.as_str(),
            rank,
            world_size,
            local_rank: config.local_rank,
            gpu: config.gpu,
        })
        .map_err(AttachError::Segment)?;
        // Whatever fails from here on drops the segment, which removes its file.
        let runtime = Runtime::over(writer, attach.kernel_events, world_size).map_err(AttachError::Memory)?;
        attach.hidden.iter().for_each(|kind| runtime.calls.hide(*kind));
        // SAFETY: a plain handler without arguments, in a library that is never unloaded (`-z nodelete`).
        match unsafe { libc::pthread_atfork(None, None, Some(silence_child)) } {
            0 => {}
            errno => return Err(AttachError::Memory(Errno(errno))),
        }
        let runtime = leak(runtime).ok_or(AttachError::Memory(Errno(libc::ENOMEM)))?;
        // SAFETY: as above.
        if unsafe { libc::atexit(at_exit) } != 0 {
            // Nobody would remove the file at the end.
            runtime.writer.remove_file();
            return Err(AttachError::Memory(Errno(libc::ENOMEM)));
        }
        LIVE.store(std::ptr::from_ref(runtime).cast_mut(), Ordering::Release);
        Ok(runtime)
    }

    /// The tables beside a segment.
    fn over(writer: SegmentWriter, kernel_events: bool, world_size: u32) -> Result<Runtime, Errno> {
        let geometry = *writer.geometry();
        let nonce = writer.nonce();
        let count = |cells: u64| u32::try_from(cells).map_err(|_| Errno(libc::ENOMEM));
        if !may_map(tables_bytes(geometry.ops, geometry.flows)) {
            return Err(Errno(libc::ENOMEM));
        }
        Ok(Runtime {
            rings: ThreadRings::new(count(geometry.rings)? as usize)?,
            // SAFETY: getpid has no preconditions.
            pid: unsafe { libc::getpid() },
            kernel_events: AtomicBool::new(kernel_events),
            kernel_seen: AtomicBool::new(false),
            device_free: AtomicU64::new(0),
            clock: WallClock::new(writer.calibration()),
            calls: CallTable::new(nonce)?,
            comms: CommTable::new(count(geometry.comms)?, nonce, world_size)?,
            ops: OpTable::new(count(geometry.ops)?, nonce)?,
            flows: FlowTable::new(count(geometry.flows)?, nonce)?,
            writer,
        })
    }

    /// Pushes a record into the calling thread's ring; dropped and counted where there is none.
    #[inline]
    pub(crate) fn push(&self, record: &RawRecord) {
        self.rings.push(&self.writer, record);
    }

    /// The segment.
    #[inline]
    pub fn writer(&self) -> &SegmentWriter {
        &self.writer
    }

    /// This process.
    #[inline]
    pub(crate) fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether kernel-channel events are asked for.
    #[inline]
    pub(crate) fn kernel_events(&self) -> bool {
        self.kernel_events.load(Ordering::Relaxed)
    }
}

/// Bytes of the tables for so many operations and flows; those for communicators are small beside them.
fn tables_bytes(ops: u64, flows: u64) -> usize {
    let bytes = |cells: u64, each: usize| usize::try_from(cells).map_or(usize::MAX, |cells| cells.saturating_mul(each));
    bytes(ops, size_of::<crate::ops::Op>()).saturating_add(bytes(flows, size_of::<crate::flows::Flow>()))
}

/// Ends tracing in this process for good; what is in the segment stays.
pub(crate) fn disable() {
    DISABLED.store(true, Ordering::Release);
    LIVE.store(std::ptr::null_mut(), Ordering::Release);
}

/// A forked child has the parent's memory but not its threads; its rings and tables are the parent's to write.
extern "C" fn silence_child() {
    disable();
}

/// An orderly end: say so if every communicator was finalized, and take the file away. The mapping stays, because other
/// threads may be inside a callback.
extern "C" fn at_exit() {
    crate::guard::ffi_guard((), || {
        if let Some(Ok(runtime)) = MADE.get() {
            if runtime.comms.none_alive() {
                runtime.writer.mark_clean_exit();
            }
            runtime.writer.remove_file();
        }
    });
}
