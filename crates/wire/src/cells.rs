//! Records as rows of cells: one list of columns per record kind, which frame, segment and catalogue all follow.
//!
//! Each kind has one function that visits its fields in column order; the same function names the columns, takes the
//! cells out of a record and puts them back, so the three cannot disagree. Columns are only ever added at the end.
use crate::about::time_of;
use crate::narrow::{low_u8, low_u16, low_u32};
use mycroft_record::*;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// What a cell holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CellType {
    /// The time a record is about, nanoseconds since the epoch; each kind has exactly one, its first column.
    At,
    /// Another time, nanoseconds since the epoch, 0: none.
    Time,
    /// An unsigned number or code.
    Number,
    /// A number that names something (a hash): differences mean nothing.
    Id,
    /// A signed 32-bit number as its two's complement bits.
    Signed,
    /// 0 or 1.
    Flag,
    /// Index into the string table.
    Text,
}

/// One column of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column {
    /// Name, unique within the kind; the same name means the same thing in every kind.
    pub name: &'static str,
    /// What its cells hold.
    pub cell: CellType,
    /// For a `Time`: the index of the earlier column that it usually follows closely, from which frames and segments
    /// store its distance (column 0, the record's time, where nothing is closer).
    pub reference: usize,
}

macro_rules! kinds {
    ($text:ident; $($(#[$doc:meta])* $name:ident = $code:literal, $visit:ident, $blank:expr;)+) => {
        /// Record kinds with their stable numbers.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum Kind { $($(#[$doc])* $name = $code,)+ }
        impl Kind {
            /// Every kind, in code order.
            pub const ALL: &'static [Kind] = &[$(Kind::$name,)+];
            /// The kind of a record.
            pub fn of(record: &Record) -> Kind { match record { $(Record::$name(_) => Kind::$name,)+ } }
            /// The kind with this number, `None` for one that this version does not know.
            pub fn from_code(code: u8) -> Option<Kind> { match code { $($code => Some(Kind::$name),)+ _ => None } }
            /// The kind's name, as stored in segments.
            pub fn as_str(self) -> &'static str { match self { $(Kind::$name => stringify!($name),)+ } }
            /// The kind with this name.
            pub fn from_text(text: &str) -> Option<Kind> { match text { $(stringify!($name) => Some(Kind::$name),)+ _ => None } }
            /// One whose fields say nothing, and whose text, where it has one, is to be replaced.
            fn blank(self, $text: impl FnOnce() -> Arc<str>) -> Record { match self { $(Kind::$name => Record::$name($blank),)+ } }
        }
        fn visit<V: Visit>(v: &mut V, record: &mut Record) { match record { $(Record::$name(r) => $visit(v, r),)+ } }
    };
}

kinds! {
    text;
    /// `Record::Process`.
    Process = 1, process, ProcessInfo { attached_at: T0, world_size: 0, local_rank: 0, gpu: 0, profiler_abi: 0, nccl_version: 0, kernel_events: false };
    /// `Record::ProcessExit`.
    ProcessExit = 2, process_exit, ProcessExit { noticed_at: T0, clean: false, status: ExitStatus::Unknown };
    /// `Record::CommInit`.
    CommInit = 3, comm_init, CommInit { at: T0, comm: CommId(0), n_ranks: 0, n_nodes: 0, comm_rank: CommRank(0), name: text() };
    /// `Record::CommEnd`.
    CommEnd = 4, comm_end, CommEnd { at: T0, comm: CommId(0) };
    /// `Record::OpState`.
    OpState = 5, op_state, OpState { sampled_at: T0, op: OP0, kernels_started: 0, kernels_stopped: 0, flows_started: 0, flows_done: 0 };
    /// `Record::OpDone`.
    OpDone = 6, op_done, OpDone { op: OP0, ended_first_at: T0, ended_at: T0, flows: 0, observed: false };
    /// `Record::FlowState`.
    FlowState = 7, flow_state, FlowState { sampled_at: T0, flow: FLOW0, counters: COUNTERS0, bytes: 0, times: TIMES0, peer_wait_polls: 0, proxied_for_pid: 0 };
    /// `Record::FlowDone`.
    FlowDone = 8, flow_done, FlowDone { flow: FLOW0, counters: COUNTERS0, bytes: 0, times: TIMES0, ended_at: T0, peer_wait_polls: 0, proxied_for_pid: 0 };
    /// `Record::Sampled`.
    Sampled = 9, sampled, Sampled { at: T0, ops_in_flight: 0, flows_in_flight: 0, alive: false, stopped: false };
    /// `Record::Gap`.
    Gap = 10, gap, Gap { noticed_at: T0, lost: 0, cause: GapCause::Damaged };
    /// `Record::NicState`.
    NicState = 11, nic_state, NicState { at: T0, nic: text(), up: false, link_changes: 0, speed_bytes_per_sec: 0, tx_bytes: 0, rx_bytes: 0, errors: 0 };
    /// `Record::HostVitals`.
    HostVitals = 12, host_vitals, HostVitals { at: T0, cpu_busy_milli: 0, memory_available_bytes: 0, agent_dropped: 0, cpu_wait_milli: 0 };
    /// `Record::StepMark`.
    StepMark = 13, step_mark, StepMark { at: T0, step: 0 };
    /// `Record::ClockOffset`.
    ClockOffset = 14, clock_offset, ClockOffset { at: T0, offset_ns: 0, drift_ppb: 0, bound_ns: 0, since: T0 };
    /// `Record::ProxyHeld`.
    ProxyHeld = 15, proxy_held, ProxyHeld { at: T0, since: T0, threads: 0, state: 0 };
}

/// Column of an operation's `started_at`, after time, the four of `op_id` and nine more.
const STARTED_AT: usize = 14;
/// Column of a flow's `flow_started_at`, after time, the four of `op_id` and nine more.
const FLOW_STARTED_AT: usize = 14;
const T0: HostTime = HostTime::NONE;
const ID0: OpId = OpId { comm: CommId(0), class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(0) };
const OP0: OpMeta = OpMeta {
    id: ID0,
    kind: OpKind::Unknown,
    nccl_seq: 0,
    comm_rank: CommRank(0),
    count: 0,
    datatype: Datatype::Unknown,
    root: 0,
    algorithm: Algorithm::Unknown,
    protocol: Protocol::Unknown,
    n_channels: 0,
    enqueued_at: T0,
    started_at: T0,
    started_last_at: T0,
};
const FLOW0: FlowKey = FlowKey { op: ID0, channel: ChannelId(0), peer: CommRank(0), direction: Direction::Send };
const COUNTERS0: FlowCounters = FlowCounters { total_chunks: 0, posted: 0, ready: 0, transmitted: 0, done: 0 };
const TIMES0: FlowTimes =
    FlowTimes { started_at: T0, first_ready_at: T0, last_progress_at: T0, stage_us: [0; 3], stage_max_us: [0; 3] };

/// Something that goes over the fields of a record in column order.
trait Visit {
    /// One cell: offers its present value, takes the value it shall have.
    fn cell(&mut self, column: Column, value: u64, max: u64) -> u64;
    /// One text cell.
    fn text(&mut self, name: &'static str, value: &mut Arc<str>);

    fn at(&mut self, value: &mut HostTime) {
        value.0 = self.cell(Column { name: "time", cell: CellType::At, reference: 0 }, value.0, u64::MAX);
    }
    fn time(&mut self, name: &'static str, reference: usize, value: &mut HostTime) {
        value.0 = self.cell(Column { name, cell: CellType::Time, reference }, value.0, u64::MAX);
    }
    fn u64(&mut self, name: &'static str, value: &mut u64) {
        *value = self.cell(Column { name, cell: CellType::Number, reference: 0 }, *value, u64::MAX);
    }
    fn u32(&mut self, name: &'static str, value: &mut u32) {
        let (column, max) = (Column { name, cell: CellType::Number, reference: 0 }, u64::from(u32::MAX));
        *value = low_u32(self.cell(column, u64::from(*value), max));
    }
    fn u16(&mut self, name: &'static str, value: &mut u16) {
        let (column, max) = (Column { name, cell: CellType::Number, reference: 0 }, u64::from(u16::MAX));
        *value = low_u16(self.cell(column, u64::from(*value), max));
    }
    fn u8(&mut self, name: &'static str, value: &mut u8) {
        let (column, max) = (Column { name, cell: CellType::Number, reference: 0 }, u64::from(u8::MAX));
        *value = low_u8(self.cell(column, u64::from(*value), max));
    }
    fn i32(&mut self, name: &'static str, value: &mut i32) {
        let bits = u64::from(value.cast_unsigned());
        let (column, max) = (Column { name, cell: CellType::Signed, reference: 0 }, u64::from(u32::MAX));
        *value = low_u32(self.cell(column, bits, max)).cast_signed();
    }
    fn flag(&mut self, name: &'static str, value: &mut bool) {
        *value = self.cell(Column { name, cell: CellType::Flag, reference: 0 }, u64::from(*value), 1) != 0;
    }
    fn comm(&mut self, value: &mut CommId) {
        value.0 = self.cell(Column { name: "comm", cell: CellType::Id, reference: 0 }, value.0, u64::MAX);
    }
}

macro_rules! code {
    ($v:expr, $name:literal, $field:expr, $type:ident, $as:ident) => {{
        let mut code = $field.code();
        $v.$as($name, &mut code);
        $field = $type::from_code(code);
    }};
}

fn process<V: Visit>(v: &mut V, r: &mut ProcessInfo) {
    v.at(&mut r.attached_at);
    v.u32("world_size", &mut r.world_size);
    v.u32("local_rank", &mut r.local_rank);
    v.i32("gpu", &mut r.gpu);
    v.u32("profiler_abi", &mut r.profiler_abi);
    v.u32("nccl_version", &mut r.nccl_version);
    v.flag("kernel_events", &mut r.kernel_events);
}

fn process_exit<V: Visit>(v: &mut V, r: &mut ProcessExit) {
    v.at(&mut r.noticed_at);
    v.flag("clean", &mut r.clean);
    code!(v, "status", r.status, ExitStatus, u32);
}

fn comm_init<V: Visit>(v: &mut V, r: &mut CommInit) {
    v.at(&mut r.at);
    v.comm(&mut r.comm);
    v.u32("n_ranks", &mut r.n_ranks);
    v.u32("n_nodes", &mut r.n_nodes);
    v.u32("comm_rank", &mut r.comm_rank.0);
    v.text("name", &mut r.name);
}

fn comm_end<V: Visit>(v: &mut V, r: &mut CommEnd) {
    v.at(&mut r.at);
    v.comm(&mut r.comm);
}

fn op_id<V: Visit>(v: &mut V, id: &mut OpId) {
    v.comm(&mut id.comm);
    code!(v, "class", id.class, OpClass, u8);
    v.u32("op_peer", &mut id.peer.0);
    v.u64("seq", &mut id.seq.0);
}

fn op_meta<V: Visit>(v: &mut V, op: &mut OpMeta) {
    op_id(v, &mut op.id);
    code!(v, "op_kind", op.kind, OpKind, u8);
    v.u64("nccl_seq", &mut op.nccl_seq);
    v.u32("comm_rank", &mut op.comm_rank.0);
    v.u64("count", &mut op.count);
    code!(v, "datatype", op.datatype, Datatype, u8);
    v.u32("root", &mut op.root);
    code!(v, "algorithm", op.algorithm, Algorithm, u8);
    code!(v, "protocol", op.protocol, Protocol, u8);
    v.u8("n_channels", &mut op.n_channels);
    v.time("started_at", 0, &mut op.started_at);
    v.time("enqueued_at", STARTED_AT, &mut op.enqueued_at);
    v.time("started_last_at", STARTED_AT, &mut op.started_last_at);
}

fn op_state<V: Visit>(v: &mut V, r: &mut OpState) {
    v.at(&mut r.sampled_at);
    op_meta(v, &mut r.op);
    v.u8("kernels_started", &mut r.kernels_started);
    v.u8("kernels_stopped", &mut r.kernels_stopped);
    v.u16("flows_started", &mut r.flows_started);
    v.u16("flows_done", &mut r.flows_done);
}

fn op_done<V: Visit>(v: &mut V, r: &mut OpDone) {
    v.at(&mut r.ended_at);
    op_meta(v, &mut r.op);
    v.time("ended_first_at", 0, &mut r.ended_first_at);
    v.u16("flows", &mut r.flows);
    v.flag("observed", &mut r.observed);
}

fn flow<V: Visit>(v: &mut V, key: &mut FlowKey, counters: &mut FlowCounters, bytes: &mut u64, times: &mut FlowTimes) {
    op_id(v, &mut key.op);
    v.u8("channel", &mut key.channel.0);
    v.u32("peer", &mut key.peer.0);
    code!(v, "direction", key.direction, Direction, u8);
    v.u32("total_chunks", &mut counters.total_chunks);
    v.u32("posted", &mut counters.posted);
    v.u32("ready", &mut counters.ready);
    v.u32("transmitted", &mut counters.transmitted);
    v.u32("done", &mut counters.done);
    v.u64("bytes", bytes);
    v.time("flow_started_at", 0, &mut times.started_at);
    v.time("first_ready_at", FLOW_STARTED_AT, &mut times.first_ready_at);
    v.time("last_progress_at", 0, &mut times.last_progress_at);
    const SUMS: [&str; 3] = ["stage0_us", "stage1_us", "stage2_us"];
    const MAXIMA: [&str; 3] = ["stage0_max_us", "stage1_max_us", "stage2_max_us"];
    for (name, value) in SUMS.into_iter().zip(&mut times.stage_us) {
        v.u32(name, value);
    }
    for (name, value) in MAXIMA.into_iter().zip(&mut times.stage_max_us) {
        v.u32(name, value);
    }
}

fn flow_state<V: Visit>(v: &mut V, r: &mut FlowState) {
    v.at(&mut r.sampled_at);
    flow(v, &mut r.flow, &mut r.counters, &mut r.bytes, &mut r.times);
    v.u32("peer_wait_polls", &mut r.peer_wait_polls);
    v.u32("proxied_for_pid", &mut r.proxied_for_pid);
}

fn flow_done<V: Visit>(v: &mut V, r: &mut FlowDone) {
    v.at(&mut r.ended_at);
    flow(v, &mut r.flow, &mut r.counters, &mut r.bytes, &mut r.times);
    v.u32("peer_wait_polls", &mut r.peer_wait_polls);
    v.u32("proxied_for_pid", &mut r.proxied_for_pid);
}

fn sampled<V: Visit>(v: &mut V, r: &mut Sampled) {
    v.at(&mut r.at);
    v.u32("ops_in_flight", &mut r.ops_in_flight);
    v.u32("flows_in_flight", &mut r.flows_in_flight);
    v.flag("alive", &mut r.alive);
    v.flag("stopped", &mut r.stopped);
}

fn gap<V: Visit>(v: &mut V, r: &mut Gap) {
    v.at(&mut r.noticed_at);
    v.u64("lost", &mut r.lost);
    let mut code = match r.cause {
        GapCause::Damaged => 0,
        GapCause::RingLapped => 1,
        GapCause::ProbeDropped => 2,
        GapCause::SpoolDropped => 3,
        GapCause::ServerDropped => 4,
    };
    v.u8("cause", &mut code);
    r.cause = match code {
        1 => GapCause::RingLapped,
        2 => GapCause::ProbeDropped,
        3 => GapCause::SpoolDropped,
        4 => GapCause::ServerDropped,
        _ => GapCause::Damaged,
    };
}

fn nic_state<V: Visit>(v: &mut V, r: &mut NicState) {
    v.at(&mut r.at);
    v.text("nic", &mut r.nic);
    v.flag("up", &mut r.up);
    v.u64("link_changes", &mut r.link_changes);
    v.u64("speed_bytes_per_sec", &mut r.speed_bytes_per_sec);
    v.u64("tx_bytes", &mut r.tx_bytes);
    v.u64("rx_bytes", &mut r.rx_bytes);
    v.u64("errors", &mut r.errors);
}

fn host_vitals<V: Visit>(v: &mut V, r: &mut HostVitals) {
    v.at(&mut r.at);
    v.u32("cpu_busy_milli", &mut r.cpu_busy_milli);
    v.u64("memory_available_bytes", &mut r.memory_available_bytes);
    v.u64("agent_dropped", &mut r.agent_dropped);
    v.u32("cpu_wait_milli", &mut r.cpu_wait_milli);
}

fn step_mark<V: Visit>(v: &mut V, r: &mut StepMark) {
    v.at(&mut r.at);
    v.u64("step", &mut r.step);
}

fn clock_offset<V: Visit>(v: &mut V, r: &mut ClockOffset) {
    v.at(&mut r.at);
    // Cells are unsigned: one of the two is 0.
    let mut ahead_ns = u64::try_from(r.offset_ns).unwrap_or(0);
    let mut behind_ns = r.offset_ns.unsigned_abs() - ahead_ns;
    v.u64("ahead_ns", &mut ahead_ns);
    v.u64("behind_ns", &mut behind_ns);
    let offset = i128::from(ahead_ns) - i128::from(behind_ns);
    r.offset_ns = i64::try_from(offset).unwrap_or(if offset < 0 { i64::MIN } else { i64::MAX });
    v.i32("drift_ppb", &mut r.drift_ppb);
    v.u64("bound_ns", &mut r.bound_ns);
    v.time("since", 0, &mut r.since);
}

fn proxy_held<V: Visit>(v: &mut V, r: &mut ProxyHeld) {
    v.at(&mut r.at);
    v.time("since", 0, &mut r.since);
    v.u32("threads", &mut r.threads);
    v.u32("state", &mut r.state);
}

/// Strings of a frame or segment, each once. Index 0 is the empty string.
#[derive(Debug)]
pub struct Interner {
    index: BTreeMap<Arc<str>, u64>,
    strings: Vec<Arc<str>>,
}

impl Default for Interner {
    fn default() -> Interner {
        let mut interner = Interner { index: BTreeMap::new(), strings: Vec::new() };
        interner.intern(&Arc::from(""));
        interner
    }
}

impl Interner {
    /// The index of a string, new or known.
    pub fn intern(&mut self, text: &Arc<str>) -> u64 {
        if let Some(&index) = self.index.get(text) {
            return index;
        }
        let index = self.strings.len() as u64;
        self.index.insert(Arc::clone(text), index);
        self.strings.push(Arc::clone(text));
        index
    }

    /// All strings in index order.
    pub fn strings(&self) -> &[Arc<str>] {
        &self.strings
    }
}

struct Names(Vec<Column>);
impl Visit for Names {
    fn cell(&mut self, column: Column, value: u64, _max: u64) -> u64 {
        self.0.push(column);
        value
    }
    fn text(&mut self, name: &'static str, _value: &mut Arc<str>) {
        self.0.push(Column { name, cell: CellType::Text, reference: 0 });
    }
}

struct Put<'a>(&'a mut Interner, &'a mut Vec<u64>);
impl Visit for Put<'_> {
    fn cell(&mut self, _column: Column, value: u64, _max: u64) -> u64 {
        self.1.push(value);
        value
    }
    fn text(&mut self, _name: &'static str, value: &mut Arc<str>) {
        let index = self.0.intern(value);
        self.1.push(index);
    }
}

struct Take<'a, I> {
    strings: &'a [Arc<str>],
    cells: I,
    bad: Option<&'static str>,
}
impl<I: Iterator<Item = u64>> Visit for Take<'_, I> {
    fn cell(&mut self, column: Column, _value: u64, max: u64) -> u64 {
        let value = self.cells.next().unwrap_or(0);
        if value > max {
            self.bad = self.bad.or(Some(column.name));
            return 0;
        }
        value
    }
    fn text(&mut self, name: &'static str, value: &mut Arc<str>) {
        let index = self.cells.next().unwrap_or(0);
        match usize::try_from(index).ok().and_then(|i| self.strings.get(i)) {
            Some(text) => *value = Arc::clone(text),
            None => self.bad = self.bad.or(Some(name)),
        }
    }
}

struct Micros;
impl Visit for Micros {
    fn cell(&mut self, column: Column, value: u64, _max: u64) -> u64 {
        match column.cell {
            CellType::At | CellType::Time => to_micros(value),
            _ => value,
        }
    }
    fn text(&mut self, _name: &'static str, _value: &mut Arc<str>) {}
}

/// A time in nanoseconds rounded down to whole microseconds; a known time stays known.
fn to_micros(nanos: u64) -> u64 {
    if nanos == 0 { 0 } else { (nanos / 1000).max(1) * 1000 }
}

/// Rounds every time of a batch down to whole microseconds, which is as good as the calibration of host clocks and
/// saves about a quarter of the volume.
pub fn round_to_micros(batch: &mut Batch) {
    batch.collected_at.0 = to_micros(batch.collected_at.0);
    for record in &mut batch.records {
        visit(&mut Micros, record);
    }
}

/// Whether [`round_to_micros`] would change nothing.
pub fn is_round(batch: &Batch) -> bool {
    let is_round = |at: &HostTime| at.0.is_multiple_of(1000);
    is_round(&batch.collected_at) && batch.records.iter().all(|record| times_of(record).iter().all(is_round))
}

/// All times of a record, filled up with none: every batch on its way into the store is asked whether it is round, and to
/// visit the fields of a record takes a copy of it.
fn times_of(record: &Record) -> [HostTime; 5] {
    let at = [time_of(record), T0, T0, T0, T0];
    let op = |op: &OpMeta, ended_first_at| {
        [time_of(record), op.enqueued_at, op.started_at, op.started_last_at, ended_first_at]
    };
    let flow =
        |times: &FlowTimes| [time_of(record), times.started_at, times.first_ready_at, times.last_progress_at, T0];
    match record {
        Record::OpState(r) => op(&r.op, T0),
        Record::OpDone(r) => op(&r.op, r.ended_first_at),
        Record::FlowState(r) => flow(&r.times),
        Record::FlowDone(r) => flow(&r.times),
        Record::ClockOffset(r) => [r.at, r.since, T0, T0, T0],
        Record::ProxyHeld(r) => [r.at, r.since, T0, T0, T0],
        Record::Process(_) | Record::ProcessExit(_) | Record::CommInit(_) | Record::CommEnd(_) => at,
        Record::Sampled(_) | Record::Gap(_) | Record::NicState(_) | Record::HostVitals(_) | Record::StepMark(_) => at,
    }
}

/// Rows of one batch longer than this are impossible: the widest kind has 27 columns.
pub const MAX_COLUMNS: usize = 32;

/// The columns of a kind, in order.
pub fn columns(kind: Kind) -> &'static [Column] {
    static COLUMNS: OnceLock<Vec<Vec<Column>>> = OnceLock::new();
    let all = COLUMNS.get_or_init(|| {
        let name_columns = |&kind: &Kind| {
            let mut names = Names(Vec::new());
            visit(&mut names, &mut kind.blank(|| Arc::from("")));
            let sound = |(index, c): (usize, &Column)| {
                (index == 0) == (c.cell == CellType::At)
                    && (c.reference == 0 || c.reference < index && names.0[c.reference].cell == CellType::Time)
            };
            assert!(names.0.len() <= MAX_COLUMNS, "{kind:?} has too many columns");
            assert!(names.0.iter().enumerate().all(sound), "the columns of {kind:?} refer to each other wrongly");
            names.0
        };
        Kind::ALL.iter().map(name_columns).collect()
    });
    // Kinds are numbered from 1 without holes, in the order of `ALL`.
    &all[kind as usize - 1]
}

/// Appends the cells of a record to `cells`, as many as its kind has columns.
pub fn put(record: &Record, strings: &mut Interner, cells: &mut Vec<u64>) {
    // Cheap: records are plain data and at most one reference-counted string.
    visit(&mut Put(strings, cells), &mut record.clone());
}

/// Makes a record from its cells; missing cells are 0. The error names the column whose value is out of range.
///
/// # Errors
/// Names the column whose value is out of range.
pub fn take(kind: Kind, strings: &[Arc<str>], cells: impl IntoIterator<Item = u64>) -> Result<Record, &'static str> {
    let mut record = kind.blank(|| first_of(strings));
    fill(&mut record, strings, cells)?;
    Ok(record)
}

/// As `take`, at the end of `records`, where it is made; after an error something lies there that is no record.
pub(crate) fn push(
    kind: Kind,
    strings: &[Arc<str>],
    cells: impl IntoIterator<Item = u64>,
    records: &mut Vec<Record>,
) -> Result<(), &'static str> {
    records.push(kind.blank(|| first_of(strings)));
    match records.last_mut() {
        Some(record) => fill(record, strings, cells),
        None => Ok(()),
    }
}

/// A text that is replaced: to count one that is there is cheaper than to make one.
fn first_of(strings: &[Arc<str>]) -> Arc<str> {
    strings.first().map_or_else(|| Arc::from(""), Arc::clone)
}

fn fill(record: &mut Record, strings: &[Arc<str>], cells: impl IntoIterator<Item = u64>) -> Result<(), &'static str> {
    let mut take = Take { strings, cells: cells.into_iter(), bad: None };
    visit(&mut take, record);
    take.bad.map_or(Ok(()), Err)
}
