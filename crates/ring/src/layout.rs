//! The byte map of a segment: constants, offsets and the geometry that sizes its tables.
//!
//! `docs/formats/ring.md` is the same map in prose; a test compares the two. Everything in a segment is an 8-byte word
//! in native byte order, so that one type (`AtomicU64`) reaches all of it; offsets here are in words unless they say
//! bytes.

/// Bytes of one word.
pub const WORD_BYTES: usize = 8;
/// "MYCRING1" read as a little-endian word: the first word of a published segment, written last.
pub const MAGIC: u64 = u64::from_le_bytes(*b"MYCRING1");
/// Version of this layout. A reader refuses every other one.
pub const VERSION: u64 = 1;
/// Reads back differently on a machine of the other byte order.
pub const BYTE_ORDER_MARK: u64 = 0x0102_0304_0506_0708;

/// Bytes of the header: one page, so that the tables behind it start on a page.
pub const HEADER_BYTES: usize = 4096;
/// Words of the header.
pub const HEADER_WORDS: usize = HEADER_BYTES / WORD_BYTES;
/// Bytes of one ring slot: two cache lines, the sequence word and 15 payload words.
pub const SLOT_BYTES: usize = 128;
/// Words of one ring slot.
pub const SLOT_WORDS: usize = SLOT_BYTES / WORD_BYTES;
/// Payload words of one ring slot; the sequence takes the first of the 16.
pub const PAYLOAD_WORDS: usize = SLOT_WORDS - 1;
/// Words of one ring header: two cache lines, so that neighbouring rings never share one (adjacent-line prefetch).
pub const RING_HEADER_WORDS: usize = 16;
/// Words of one cell of the communicator, operation and flow tables: three cache lines.
pub const CELL_WORDS: usize = 24;
/// Bytes kept of a job or host name in the header.
pub const NAME_BYTES: usize = 128;
/// Bytes kept of a communicator name in its table cell.
pub const COMM_NAME_BYTES: usize = 128;
/// Bytes kept of a communicator name in a ring record: 11 payload words.
pub const RECORD_NAME_BYTES: usize = 88;

/// Header fields, as word offsets. "Fixed" words are written before the magic and never change.
pub mod header {
    /// `MAGIC`; written last, so a segment without it is not there yet.
    pub const MAGIC: usize = 0;
    /// `VERSION`.
    pub const VERSION: usize = 1;
    /// `BYTE_ORDER_MARK`.
    pub const BYTE_ORDER: usize = 2;
    /// `HEADER_BYTES`.
    pub const HEADER_BYTES: usize = 3;
    /// Bytes of the whole file.
    pub const TOTAL_BYTES: usize = 4;
    /// Bytes the job asked for; more than the total when the file system had less.
    pub const REQUESTED_BYTES: usize = 5;
    /// Random number drawn at attach.
    pub const NONCE: usize = 6;
    /// Process id, in the process's own pid namespace.
    pub const PID: usize = 7;
    /// Start time of the process: field 22 of /proc/PID/stat, clock ticks since boot.
    pub const START_TIME: usize = 8;
    /// First of two words: boot id, 16 bytes of /proc/sys/kernel/random/boot_id.
    pub const BOOT_ID: usize = 9;
    /// Inode number of the pid namespace, 0 if not known.
    pub const PID_NAMESPACE: usize = 11;
    /// Global rank, `u32::MAX` if not told.
    pub const RANK: usize = 12;
    /// Ranks in the job, 0 if not told.
    pub const WORLD_SIZE: usize = 13;
    /// Rank on its host, `u32::MAX` if not told.
    pub const LOCAL_RANK: usize = 14;
    /// GPU index as i64, -1 if not known.
    pub const GPU: usize = 15;
    /// `clock::ClockKind` of all ticks in the segment.
    pub const CLOCK_KIND: usize = 16;
    /// Calibration: ticks at the calibration point.
    pub const TICK0: usize = 17;
    /// Calibration: CLOCK_MONOTONIC nanoseconds at the same point.
    pub const MONOTONIC0: usize = 18;
    /// Calibration: CLOCK_REALTIME nanoseconds at the same point.
    pub const REALTIME0: usize = 19;
    /// Calibration: ticks per second.
    pub const TICKS_PER_SEC: usize = 20;
    /// Ticks when the probe attached.
    pub const ATTACHED_TICKS: usize = 21;
    /// Cells of the communicator table.
    pub const COMM_COUNT: usize = 24;
    /// Cells of the operation table.
    pub const OP_COUNT: usize = 25;
    /// Cells of the flow table.
    pub const FLOW_COUNT: usize = 26;
    /// Rings.
    pub const RING_COUNT: usize = 27;
    /// Slots of each ring.
    pub const RING_SLOTS: usize = 28;
    /// First of eight words: byte offsets of the sections, in the order of `Geometry`'s offsets.
    pub const SECTIONS: usize = 32;
    /// Job name: a length word, then `NAME_BYTES` of text.
    pub const JOB: usize = 64;
    /// Host name: a length word, then `NAME_BYTES` of text.
    pub const HOST: usize = 96;
    /// Mutable: `STATE_ATTACHED` or `STATE_CLEAN`.
    pub const STATE: usize = 128;
    /// Mutable: profiler ABI that NCCL chose, 0 before.
    pub const PROFILER_ABI: usize = 129;
    /// Mutable: NCCL version number, 0 if not known.
    pub const NCCL_VERSION: usize = 130;
    /// Mutable: 1 when kernel events are traced.
    pub const KERNEL_EVENTS: usize = 131;
    /// Mutable: ticks of the last operation begin seen by any thread.
    pub const HEARTBEAT: usize = 136;
    /// Mutable: cells of the operation table that were ever claimed lie below this index; it only grows.
    pub const OP_REACH: usize = 137;
    /// Mutable: the same of the flow table.
    pub const FLOW_REACH: usize = 138;
    /// Mutable: first of `DROP_KINDS` counters, one for each `DropKind`.
    pub const DROPPED: usize = 144;
}

/// Drop counters kept in the header.
pub const DROP_KINDS: usize = 8;
/// State word: the process is attached (or died without saying so).
pub const STATE_ATTACHED: u64 = 1;
/// State word: all communicators were finalized and the process said goodbye.
pub const STATE_CLEAN: u64 = 2;

/// Ring header fields, as word offsets.
pub mod ring {
    /// Records ever written to this ring: the sequence number of the next one. Only the owner stores it.
    pub const HEAD: usize = 0;
    /// 0: nobody's; else the kernel's id of the thread that writes this ring.
    pub const OWNER: usize = 8;
    /// How often the ring was claimed.
    pub const CLAIMS: usize = 9;
}

/// Communicator cell fields, as word offsets.
pub mod comm {
    /// Communicator hash.
    pub const ID: usize = 0;
    /// Low half: ranks; high half: hosts, 0 if not told.
    pub const RANKS_NODES: usize = 1;
    /// This process's rank in it.
    pub const COMM_RANK: usize = 2;
    /// Ticks of the init.
    pub const BEGIN_TICKS: usize = 3;
    /// Ticks of the finalize, 0 while in use.
    pub const END_TICKS: usize = 4;
    /// Name: a length word, then `COMM_NAME_BYTES` of text.
    pub const NAME: usize = 5;
}

/// Operation cell fields, as word offsets. Words 0 to 11 are laid out as the payload of an operation record.
pub mod op {
    /// Record tag, class, kind, datatype (one byte each from the low end), peer (high half).
    pub const TAG: usize = 0;
    /// Communicator hash.
    pub const COMM: usize = 1;
    /// Order number.
    pub const SEQ: usize = 2;
    /// NCCL's own sequence number.
    pub const NCCL_SEQ: usize = 3;
    /// Low half: rank in the communicator; high half: root.
    pub const RANK_ROOT: usize = 4;
    /// Elements.
    pub const COUNT: usize = 5;
    /// Algorithm, protocol, channels, observed (one byte each from the low end), flows (16 bits).
    pub const SHAPE: usize = 6;
    /// Ticks when the host enqueued it.
    pub const ENQUEUED: usize = 7;
    /// Ticks when the first kernel started, 0 not yet.
    pub const STARTED: usize = 8;
    /// Ticks when the latest kernel started, 0 not yet.
    pub const STARTED_LAST: usize = 9;
    /// Ticks when the first channel or flow finished, 0 not yet.
    pub const ENDED_FIRST: usize = 10;
    /// Ticks when the latest channel or flow finished, 0 not yet.
    pub const ENDED_LAST: usize = 11;
    /// Kernels started. Table only.
    pub const KERNELS_STARTED: usize = 12;
    /// Kernels stopped. Table only.
    pub const KERNELS_STOPPED: usize = 13;
    /// Flows started. Table only.
    pub const FLOWS_STARTED: usize = 14;
    /// Flows done. Table only.
    pub const FLOWS_DONE: usize = 15;
    /// Reference to the communicator's cell, 0 if none. Table only.
    pub const COMM_SLOT: usize = 16;
}

/// Flow cell fields, as word offsets. Words 8 to 15 are one cache line: what a step touches.
pub mod flow {
    /// Record tag, class, direction, channel (one byte each from the low end), the operation's peer (high half).
    pub const TAG: usize = 0;
    /// Communicator hash.
    pub const COMM: usize = 1;
    /// Order number of the operation.
    pub const SEQ: usize = 2;
    /// Low half: peer; high half: total chunks.
    pub const PEER_TOTAL: usize = 3;
    /// Process id this flow works for when not our own (PXN), else 0.
    pub const PROXIED_PID: usize = 4;
    /// Ticks when the proxy operation was appended.
    pub const STARTED: usize = 5;
    /// Reference to the operation's cell, 0 if none.
    pub const OP_SLOT: usize = 6;
    /// Steps posted.
    pub const POSTED: usize = 8;
    /// Steps ready.
    pub const READY: usize = 9;
    /// Steps transmitted.
    pub const TRANSMITTED: usize = 10;
    /// Steps done.
    pub const DONE: usize = 11;
    /// Bytes moved.
    pub const BYTES: usize = 12;
    /// Ticks when the first step became ready, 0 not yet.
    pub const FIRST_READY: usize = 13;
    /// Ticks when a counter last moved, 0 not yet.
    pub const LAST_PROGRESS: usize = 14;
    /// Polls that found the peer without credit.
    pub const PEER_WAIT_POLLS: usize = 15;
    /// First of three words: ticks spent in each stage, summed over finished stages.
    pub const STAGE_TICKS: usize = 16;
    /// First of three words: longest ticks one step spent in each stage.
    pub const STAGE_MAX_TICKS: usize = 19;
}

/// Directory word of a table cell: generation and state in one word, so that one load tells whether a reference is
/// current and one compare-and-swap claims or ends a cell.
pub mod dir {
    /// Nobody's.
    pub const FREE: u64 = 0;
    /// Being filled in or taken out: neither readable nor claimable.
    pub const BUSY: u64 = 1;
    /// Valid.
    pub const ACTIVE: u64 = 2;
    /// Over, kept readable until the cell is needed (communicators only).
    pub const ENDED: u64 = 3;
    /// Bits below the generation.
    pub const STATE_BITS: u32 = 8;
    /// Bits of a generation: a reference would have to be 2^24 reuses of one cell old to be mistaken for a current one.
    pub const GENERATION_BITS: u32 = 24;
    /// Mask of a generation.
    pub const GENERATION_MASK: u64 = (1 << GENERATION_BITS) - 1;

    /// The word for a generation and state.
    #[inline]
    pub const fn word(generation: u64, state: u64) -> u64 {
        ((generation & GENERATION_MASK) << STATE_BITS) | state
    }
    /// State of a word.
    #[inline]
    pub const fn state(word: u64) -> u64 {
        word & ((1 << STATE_BITS) - 1)
    }
    /// Generation of a word.
    #[inline]
    pub const fn generation(word: u64) -> u64 {
        (word >> STATE_BITS) & GENERATION_MASK
    }
}

/// Trace memory of one host, all segments together: 512 MB as in Mycroft section 6.1.
pub const HOST_BYTES: u64 = 512 << 20;
/// Processes per host when nobody told: 8 GPUs is the common machine.
pub const DEFAULT_LOCAL_RANKS: u64 = 8;
/// Smallest segment: header 4 KiB + 32 communicators, 128 operations, 256 flows (about 83 KiB) + 8 rings of about 160
/// slots.
pub const MIN_SEGMENT_BYTES: u64 = 256 << 10;
/// Largest segment: twice the whole host's budget; bounds what a hostile header can make a reader do.
pub const MAX_SEGMENT_BYTES: u64 = 1 << 30;
/// Most communicator cells: Megatron at scale makes tens per process, expert and context groups some hundreds.
pub const MAX_COMMS: u64 = 1024;
/// Most operation cells: 16 index bits of a reference allow 65,536; hosts run some hundred operations ahead.
pub const MAX_OPS: u64 = 4096;
/// Most flow cells: 16 index bits of a reference allow 65,536; 4096 operations x 4 flows on average.
pub const MAX_FLOWS: u64 = 16_384;
/// Cells of the operation table that are claimed in turn until they do not suffice: few, because a cell that was not
/// used for long costs its memory's way to the processor; but not fewer, because a flow that begins late finds its
/// operation only until the cell is used again.
pub const OP_REACH_FIRST: u64 = 256;
/// The same of the flow table.
pub const FLOW_REACH_FIRST: u64 = 64;
/// Most rings: one for each writing thread; NCCL runs one progress thread per communicator and some more.
pub const MAX_RINGS: u64 = 64;
/// Fewest rings.
pub const MIN_RINGS: u64 = 8;
/// Fewest slots of a ring that can hold anything: one may be in the writer's hands at any time.
pub const MIN_RING_SLOTS: u64 = 2;

/// Default bytes of one segment: the host's budget shared between its ranks.
pub fn default_segment_bytes(local_ranks: Option<u32>) -> u64 {
    let ranks = local_ranks.map_or(DEFAULT_LOCAL_RANKS, u64::from).max(1);
    (HOST_BYTES / ranks).max(MIN_SEGMENT_BYTES)
}

/// How many cells, rings and slots a segment has; all offsets follow from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Words before the first table: `HEADER_WORDS` in every file (models of parts of a segment use less).
    pub header_words: u64,
    /// Cells of the communicator table, a power of two.
    pub comms: u64,
    /// Cells of the operation table, a power of two.
    pub ops: u64,
    /// Cells of the flow table, a power of two.
    pub flows: u64,
    /// Rings.
    pub rings: u64,
    /// Slots of each ring.
    pub ring_slots: u64,
}

/// Sections of a segment, in file order.
pub const SECTIONS: usize = 8;

impl Geometry {
    /// The geometry that fills `bytes` (clamped to the smallest and largest segment). Tables take about a third of a
    /// small segment and 7 % of the default one, rings the rest.
    pub fn for_bytes(bytes: u64) -> Geometry {
        let bytes = bytes.clamp(MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES);
        let floor_pow2 = |n: u64| 1u64 << (63 - n.max(1).leading_zeros());
        let mut geometry = Geometry {
            header_words: HEADER_WORDS as u64,
            comms: floor_pow2(bytes / 8192).clamp(32, MAX_COMMS),
            ops: floor_pow2(bytes / 2048).clamp(64, MAX_OPS),
            flows: floor_pow2(bytes / 1024).clamp(128, MAX_FLOWS),
            rings: (bytes >> 20).clamp(MIN_RINGS, MAX_RINGS),
            ring_slots: 0,
        };
        let fixed = geometry.total_words();
        let left = (bytes / WORD_BYTES as u64).saturating_sub(fixed);
        geometry.ring_slots = (left / (geometry.rings * SLOT_WORDS as u64)).max(MIN_RING_SLOTS);
        geometry
    }

    fn sizes(&self) -> [u64; SECTIONS] {
        let cell = CELL_WORDS as u64;
        // Directories are padded to whole cache lines (8 words) so that cells start on one.
        let padded = |n: u64| n.next_multiple_of(16);
        [
            padded(self.comms),
            self.comms * cell,
            padded(self.ops),
            self.ops * cell,
            padded(self.flows),
            self.flows * cell,
            self.rings * RING_HEADER_WORDS as u64,
            self.rings * self.ring_slots * SLOT_WORDS as u64,
        ]
    }

    /// Word offset of each section: communicator directory and cells, operation directory and cells, flow directory
    /// and cells, ring headers, ring slots.
    pub fn offsets(&self) -> [u64; SECTIONS] {
        let mut at = self.header_words;
        self.sizes().map(|size| {
            let offset = at;
            at += size;
            offset
        })
    }

    /// Words of the whole segment.
    pub fn total_words(&self) -> u64 {
        self.header_words + self.sizes().iter().sum::<u64>()
    }

    /// Bytes of the whole segment.
    pub fn total_bytes(&self) -> u64 {
        self.total_words() * WORD_BYTES as u64
    }

    /// Whether a reader may trust these numbers: within the limits above, tables powers of two, total below the largest
    /// segment. No arithmetic on them can overflow after this.
    pub fn is_sane(&self) -> bool {
        let table = |n: u64, max: u64| n.is_power_of_two() && n <= max;
        table(self.comms, MAX_COMMS)
            && table(self.ops, MAX_OPS)
            && table(self.flows, MAX_FLOWS)
            && (1..=MAX_RINGS).contains(&self.rings)
            && (MIN_RING_SLOTS..=MAX_SEGMENT_BYTES / SLOT_BYTES as u64).contains(&self.ring_slots)
            && self.total_bytes() <= MAX_SEGMENT_BYTES
    }
}

const _: () = {
    assert!(SLOT_BYTES == 128 && SLOT_WORDS == 16 && PAYLOAD_WORDS == 15);
    assert!(header::DROPPED + DROP_KINDS <= HEADER_WORDS);
    assert!(header::SECTIONS + SECTIONS <= header::JOB);
    assert!(header::JOB + 1 + NAME_BYTES / WORD_BYTES <= header::HOST);
    assert!(header::HOST + 1 + NAME_BYTES / WORD_BYTES <= header::STATE);
    assert!(comm::NAME + 1 + COMM_NAME_BYTES / WORD_BYTES <= CELL_WORDS);
    assert!(op::COMM_SLOT < CELL_WORDS);
    assert!(flow::STAGE_MAX_TICKS + 3 <= CELL_WORDS);
    assert!(flow::POSTED.is_multiple_of(8) && flow::PEER_WAIT_POLLS == flow::POSTED + 7);
    assert!(ring::CLAIMS < RING_HEADER_WORDS);
    assert!(RECORD_NAME_BYTES == (PAYLOAD_WORDS - 4) * WORD_BYTES);
    assert!(MAX_FLOWS <= 1 << 16 && MAX_OPS <= 1 << 16 && MAX_COMMS <= 1 << 16);
};
