//! Dumps of a large job as PyTorch's recorder writes them: pickle protocol 2, strings and frames shared through the memo.
//!
//! Every step of a rank is an all_reduce in its tensor parallel group of 8, an `_all_gather_base` in its data parallel
//! group of stride 8, an all_reduce in the world and a `_reduce_scatter_base` in data parallel. One rank never issues the
//! last world all_reduce; the others are in it.
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::Path;

/// Tensor parallel size.
const TP: u32 = 8;
/// Operations of a step.
const STEP: u32 = 4;
/// Python puts so many values into one SETITEMS or APPENDS.
const BATCH: usize = 1000;
/// A moment in 2026, nanoseconds since the Unix epoch.
const BEGUN_NS: i64 = 1_795_251_975_000_000_000;
/// From one operation to the next.
const PACE_NS: i64 = 5_000_000;
/// Ranks are so much apart at most.
const JITTER_NS: u64 = 400_000;
/// Frames that all operations share, innermost first: function, file, line.
const FRAMES: &[(&str, &str, i64)] = &[
    ("all_reduce", "/opt/training/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 4174),
    ("wrapper", "/opt/training/venv/lib/python3.11/site-packages/torch/distributed/c10d_logger.py", 83),
    ("sync_gradients", "/opt/training/job/train.py", 88),
    ("train_step", "/opt/training/job/train.py", 83),
    ("train", "/opt/training/job/train.py", 142),
    ("<module>", "/opt/training/job/train.py", 300),
];

/// How large the job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Size {
    /// Ranks, a multiple of 8.
    pub(super) ranks: u32,
    /// Entries of each rank's recorder, a multiple of 4.
    pub(super) entries: u32,
}

impl Size {
    /// The rank that never issues the last world all_reduce.
    pub(super) fn missing(self) -> u32 {
        self.ranks / 2 + 1
    }

    /// The sequence number of that all_reduce.
    pub(super) fn last_world_seq(self) -> u64 {
        u64::from(self.entries / STEP)
    }
}

/// Writes the dumps of all ranks into a new folder; how many bytes they have.
pub(super) fn write(dir: &Path, size: Size) -> Result<u64> {
    std::fs::create_dir_all(dir).with_context(|| format!("cannot make {}", dir.display()))?;
    let mut bytes = 0;
    for rank in 0..size.ranks {
        let path = dir.join(format!("comm_lib_trace_rank_{rank}"));
        let dump = dump(size, rank);
        std::fs::write(&path, &dump).with_context(|| format!("cannot write {}", path.display()))?;
        bytes += dump.len() as u64;
    }
    Ok(bytes)
}

/// A process group: its name (a number), description and members.
struct Group {
    name: String,
    desc: String,
    ranks: Vec<u32>,
}

/// The three groups of a rank: world, tensor parallel, data parallel.
fn groups(size: Size, rank: u32) -> [Group; 3] {
    let tensor = rank / TP;
    let data = rank % TP;
    [
        Group { name: "0".to_owned(), desc: "default_pg".to_owned(), ranks: (0..size.ranks).collect() },
        Group {
            name: (1 + tensor).to_string(),
            desc: format!("TENSOR_MODEL_PARALLEL_GROUP_{tensor}"),
            ranks: (tensor * TP..tensor * TP + TP).collect(),
        },
        Group {
            name: (1 + size.ranks / TP + data).to_string(),
            desc: format!("DATA_PARALLEL_GROUP_{data}"),
            ranks: (data..size.ranks).step_by(TP as usize).collect(),
        },
    ]
}

/// One operation of a step.
struct Op {
    name: &'static str,
    group: usize,
    input: Vec<i64>,
    output: Vec<i64>,
    dtype: &'static str,
}

fn step(size: Size) -> [Op; STEP as usize] {
    let whole = i64::from(65_536 * (size.ranks / TP));
    let op = |name, group, input: &[i64], output: &[i64], dtype| Op {
        name,
        group,
        input: input.to_vec(),
        output: output.to_vec(),
        dtype,
    };
    [
        op("all_reduce", 1, &[4096, 1024], &[4096, 1024], "BFloat16"),
        op("_all_gather_base", 2, &[65_536], &[whole], "BFloat16"),
        op("all_reduce", 0, &[1], &[1], "Float"),
        op("_reduce_scatter_base", 2, &[whole], &[65_536], "BFloat16"),
    ]
}

/// Where an entry stands.
struct Entry {
    record: u32,
    seq: i64,
    created_ns: i64,
    is_hanging: bool,
    duration_ms: f64,
}

/// One rank's dump.
fn dump(size: Size, rank: u32) -> Vec<u8> {
    let groups = groups(size, rank);
    let ops = step(size);
    let mut random = 0x9e37_79b9_7f4a_7c15 ^ (u64::from(rank) << 20 | 1);
    let mut seqs = [0_i64; 3];
    let mut entries = Vec::new();
    for record in 0..size.entries {
        let (op, is_last) = ((record % STEP) as usize, record >= size.entries - STEP);
        let is_hanging = is_last && op == 2;
        // The job hangs in the last world all_reduce, which one rank never issues.
        if is_last && op == 3 || is_hanging && rank == size.missing() {
            break;
        }
        seqs[ops[op].group] += 1;
        let jitter = i64::try_from(next(&mut random) % JITTER_NS).unwrap_or(0);
        entries.push(Entry {
            record,
            seq: seqs[ops[op].group],
            created_ns: BEGUN_NS + i64::from(record) * PACE_NS + jitter,
            is_hanging,
            duration_ms: 1.0 + (next(&mut random) >> 11) as f64 / (1_u64 << 53) as f64,
        });
    }
    let hangs = rank != size.missing();
    let mut pickle = Pickle::new();
    pickle.dict(5, |pickle, at| match at {
        0 => pickle.pair("version", |p| p.shared("2.10")),
        1 => pickle.pair("pg_config", |p| config(p, &groups)),
        2 => pickle.pair("comm_lib_version", |p| p.shared("2.27.5")),
        3 => pickle.pair("pg_status", |p| status(p, seqs, hangs)),
        _ => pickle.pair("entries", |p| {
            p.list(entries.len(), |p, at| {
                let entry = &entries[at];
                let op = (entry.record % STEP) as usize;
                write_entry(p, entry, op, &ops[op], &groups[ops[op].group]);
            });
        }),
    });
    pickle.out.push(b'.');
    pickle.out
}

/// xorshift64.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

fn config(pickle: &mut Pickle, groups: &[Group; 3]) {
    pickle.dict(groups.len(), |pickle, at| {
        let group = &groups[at];
        pickle.fresh(&group.name);
        pickle.dict(3, |pickle, at| match at {
            0 => pickle.pair("name", |p| p.fresh(&group.name)),
            1 => pickle.pair("desc", |p| p.shared(&group.desc)),
            _ => pickle.pair("ranks", |p| p.fresh(&format!("{:?}", group.ranks))),
        });
    });
}

fn status(pickle: &mut Pickle, seqs: [i64; 3], hangs: bool) {
    pickle.dict(seqs.len(), |pickle, at| {
        pickle.fresh(&at.to_string());
        let done = seqs[at] - i64::from(at == 0 && hangs);
        pickle.dict(3, |pickle, field| match field {
            0 => pickle.pair("last_enqueued_collective", |p| p.int(seqs[at])),
            1 => pickle.pair("last_started_collective", |p| p.int(seqs[at])),
            _ => pickle.pair("last_completed_collective", |p| p.int(done)),
        });
    });
}

/// Fields of an entry in the recorder's order.
fn write_entry(pickle: &mut Pickle, entry: &Entry, kind: usize, op: &Op, group: &Group) {
    let fields = if entry.is_hanging { 21 } else { 22 };
    pickle.dict(fields, |p, at| match at {
        0 => p.pair("frames", |p| frames(p, kind)),
        1 => p.pair("record_id", |p| p.int(i64::from(entry.record))),
        2 => p.pair("pg_id", |p| p.int(op.group as i64)),
        3 => p.pair("process_group", |p| {
            p.fresh(&group.name);
            p.shared(&group.desc);
            p.tuple2();
        }),
        4 => p.pair("thread_name", |p| p.shared("python")),
        5 => p.pair("thread_id", |p| p.shared("139792710892416")),
        6 => p.pair("collective_seq_id", |p| p.int(entry.seq)),
        7 => p.pair("p2p_seq_id", |p| p.int(0)),
        8 => p.pair("op_id", |p| p.int(entry.seq - 1)),
        9 => p.pair("profiling_name", |p| p.fresh(&format!("nccl:{}", op.name))),
        10 => p.pair("input_sizes", |p| sizes(p, &op.input)),
        11 => p.pair("input_dtypes", |p| p.list(1, |p, _| p.shared(op.dtype))),
        12 => p.pair("output_sizes", |p| sizes(p, &op.output)),
        13 => p.pair("output_dtypes", |p| p.list(1, |p, _| p.shared(op.dtype))),
        14 => p.pair("state", |p| p.shared(if entry.is_hanging { "started" } else { "completed" })),
        15 => p.pair("time_created_ns", |p| p.int(entry.created_ns)),
        16 => p.pair("time_discovered_started_ns", |p| p.int(entry.created_ns + 90_000)),
        17 => p.pair("time_discovered_completed_ns", |p| {
            if entry.is_hanging { p.none() } else { p.int(entry.created_ns + 1_500_000) }
        }),
        18 => p.pair("retired", |p| p.bool(!entry.is_hanging)),
        19 => p.pair("timeout_ms", |p| p.int(600_000)),
        20 => p.pair("is_p2p", |p| p.bool(false)),
        _ => p.pair("duration_ms", |p| p.float(entry.duration_ms)),
    });
}

fn sizes(pickle: &mut Pickle, sizes: &[i64]) {
    pickle.list(1, |p, _| p.list(sizes.len(), |p, at| p.int(sizes[at])));
}

/// The call stack of the `kind`-th operation of a step: each frame is one dictionary, used again by later entries.
fn frames(pickle: &mut Pickle, kind: usize) {
    let part = format!("step_part_{kind}");
    pickle.list(FRAMES.len() + 1, |p, at| {
        let (name, file, line) = FRAMES.get(at).copied().unwrap_or((&part, "/w/train.py", 100 + kind as i64));
        // The innermost line differs from operation to operation.
        let line = if at == 0 { line + kind as i64 } else { line };
        if p.again(&format!("frame {kind} {at}")) {
            return;
        }
        p.dict(3, |p, field| match field {
            0 => p.pair("name", |p| p.shared(name)),
            1 => p.pair("filename", |p| p.shared(file)),
            _ => p.pair("line", |p| p.int(line)),
        });
        p.remember_last(&format!("frame {kind} {at}"));
    });
}

/// Writes protocol 2 as Python's pickler does: everything that can be shared gets a place in the memo.
struct Pickle {
    out: Vec<u8>,
    memo: u32,
    known: BTreeMap<String, u32>,
    /// The memo place of the dictionary that was closed last.
    last: u32,
}

impl Pickle {
    fn new() -> Pickle {
        Pickle { out: vec![0x80, 2], memo: 0, known: BTreeMap::new(), last: 0 }
    }

    /// Gives what was written last a place in the memo.
    fn put(&mut self) -> u32 {
        let at = self.memo;
        self.memo += 1;
        match u8::try_from(at) {
            Ok(short) => self.out.extend([b'q', short]),
            Err(_) => {
                self.out.push(b'r');
                self.out.extend(at.to_le_bytes());
            }
        }
        at
    }

    /// Refers to what was remembered under `key`, if it was.
    fn again(&mut self, key: &str) -> bool {
        let Some(&at) = self.known.get(key) else { return false };
        match u8::try_from(at) {
            Ok(short) => self.out.extend([b'h', short]),
            Err(_) => {
                self.out.push(b'j');
                self.out.extend(at.to_le_bytes());
            }
        }
        true
    }

    fn remember_last(&mut self, key: &str) {
        self.known.insert(key.to_owned(), self.last);
    }

    /// A string object of its own.
    fn fresh(&mut self, text: &str) {
        self.out.push(b'X');
        // Names of a few hundred bytes, lists of a few thousand ranks.
        self.out.extend((text.len() as u32).to_le_bytes());
        self.out.extend(text.as_bytes());
        self.last = self.put();
    }

    /// A string object that is used in many places.
    fn shared(&mut self, text: &str) {
        let key = format!("text {text}");
        if !self.again(&key) {
            self.fresh(text);
            self.remember_last(&key);
        }
    }

    fn int(&mut self, value: i64) {
        match (u8::try_from(value), u16::try_from(value), i32::try_from(value)) {
            (Ok(value), ..) => self.out.extend([b'K', value]),
            (_, Ok(value), _) => {
                self.out.push(b'M');
                self.out.extend(value.to_le_bytes());
            }
            (_, _, Ok(value)) => {
                self.out.push(b'J');
                self.out.extend(value.to_le_bytes());
            }
            _ => {
                self.out.extend([0x8a, 8]);
                self.out.extend(value.to_le_bytes());
            }
        }
    }

    fn float(&mut self, value: f64) {
        self.out.push(b'G');
        self.out.extend(value.to_be_bytes());
    }

    fn none(&mut self) {
        self.out.push(b'N');
    }

    fn bool(&mut self, value: bool) {
        self.out.push(if value { 0x88 } else { 0x89 });
    }

    fn tuple2(&mut self) {
        self.out.push(0x86);
        self.put();
    }

    /// A key and its value.
    fn pair(&mut self, key: &str, value: impl FnOnce(&mut Pickle)) {
        self.shared(key);
        value(self);
    }

    fn dict(&mut self, pairs: usize, mut pair: impl FnMut(&mut Pickle, usize)) {
        self.out.push(b'}');
        let place = self.put();
        self.items(pairs, b'u', &mut pair);
        self.last = place;
    }

    fn list(&mut self, values: usize, mut value: impl FnMut(&mut Pickle, usize)) {
        self.out.push(b']');
        self.put();
        if values == 1 {
            value(self, 0);
            self.out.push(b'a');
            return;
        }
        self.items(values, b'e', &mut value);
    }

    fn items(&mut self, items: usize, close: u8, item: &mut impl FnMut(&mut Pickle, usize)) {
        for begin in (0..items).step_by(BATCH) {
            self.out.push(b'(');
            for at in begin..items.min(begin + BATCH) {
                item(self, at);
            }
            self.out.push(close);
        }
    }
}
