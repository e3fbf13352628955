//! Every reader over the corpus and over deterministic mutations of it: it returns, in time and in memory.
#[allow(unreachable_pub, dead_code, reason = "the fuzz targets and other tests use it, from other crates")]
mod promise;

#[allow(dead_code, reason = "shared with round_trip.rs")]
mod writer;

use std::path::Path;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: promise::Counting = promise::Counting;

/// Mutations of each corpus file.
const ROUNDS: u64 = 400;

/// Longest time for one file of a few kilobytes: thousands of times what it takes, so that only a hang is longer.
const READ_MAX: Duration = Duration::from_secs(5);

/// SplitMix64: mutations are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Bytes that mean something to one of the readers.
const WORDS: &[&[u8]] = &[
    b"h\x00",
    b"q\x00",
    b"(",
    b"u",
    b"e",
    b"}",
    b"]",
    b"2",
    b"0",
    b"1",
    b"t",
    b"a",
    b"s",
    b"\x94",
    b"\x88",
    b".",
    b"N",
    b"R",
    b"c",
    b"\x93",
    b"X\xff\xff\xff\x7f",
    b"\x8d\xff\xff\xff\xff\xff\xff\xff\xff",
    b"j\xff\xff\xff\xff",
    b"r\x00\x01\x00\x00",
    b"\x8a\x08\xff\xff\xff\xff\xff\xff\xff\xff",
    b"G\x7f\xf8\x00\x00\x00\x00\x00\x00",
    b"{",
    b"[",
    b"\"",
    b"\\u",
    b"\\",
    b",",
    b":",
    b"null",
    b"-1",
    b"1e999",
    b"NaN",
    b"99999999999999999999",
    b"\xff\xfe",
    b"\n",
    b"    ",
    b"Thread ",
    b"Process 1:",
    b"=== Rank 1: ===\n",
    b" (",
    b")",
    b"(most recent call first):",
    b"[rank7]:",
    b"SeqNum=18446744073709551615,",
    b"NCCL WARN ",
    b"Traceback (most recent call last):\n",
    b"\x1b[31m",
    b"\r 41%|##  | 410/1000 [1:1<1:1, 1.5s/it]",
    b"iteration 7 | elapsed time per iteration (ms): 9.5 |\n",
    b"\"ts\": 1e300, \"dur\": -1,",
    b"{\"name\":\"gloo:x\",\"cat\":\"cpu_op\",\"ts\":1,\"dur\":1},",
];

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        match random.below(7) {
            0 => bytes.truncate(at),
            1 if at < bytes.len() => bytes[at] = random.next() as u8,
            2 if at < bytes.len() => bytes[at] ^= 1 << random.below(8),
            3 => {
                let word = WORDS[random.below(WORDS.len())];
                bytes.splice(at..at, word.iter().copied());
            }
            4 => {
                let word = WORDS[random.below(WORDS.len())].repeat(1 + random.below(200));
                bytes.splice(at..at, word);
            }
            5 => {
                let end = (at + random.below(64)).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => {
                let end = (at + random.below(256)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                let to = random.below(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
        }
    }
}

fn checked(path: &str, bytes: &[u8]) {
    let start = Instant::now();
    promise::check(path, bytes);
    if path.ends_with(".log") {
        promise::in_pieces(path, bytes);
    }
    assert!(start.elapsed() < READ_MAX, "{path}: {} bytes took {:?}", bytes.len(), start.elapsed());
}

#[test]
fn no_bytes_break_a_reader() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    let mut files = 0;
    for &(reader, path) in promise::READERS {
        let mut seeds: Vec<_> = std::fs::read_dir(corpus.join(reader))
            .unwrap_or_else(|error| panic!("{reader}: no corpus: {error}"))
            .map(|entry| entry.expect("a readable entry").path())
            .collect();
        seeds.sort();
        assert!(!seeds.is_empty(), "{reader}: an empty corpus");
        for (number, seed) in seeds.iter().enumerate() {
            let bytes = std::fs::read(seed).expect("a readable file");
            checked(path, &bytes);
            let mut random = Random(number as u64);
            for _ in 0..ROUNDS {
                let mut mutated = bytes.clone();
                mutate(&mut mutated, &mut random);
                checked(path, &mutated);
            }
            files += 1;
        }
    }
    eprintln!("{files} files, {} mutations", files as u64 * ROUNDS);
}

#[test]
fn dense_files_are_refused_before_they_cost_memory() {
    // One byte of input that asks for 8 or more bytes of values, in every way there is; so much of it that the constant
    // part of the promise hides nothing.
    let megabyte = 12 << 20;
    for dense in [
        &b"N"[..],
        b"]",
        b"}",
        b"]q\x00",
        b"K\x01",
        b"\x8a\x00",
        b"2",
        b")",
        b"}\x94",
        b"]\x94",
        b"h\x00h\x00\x86",
        b"K\x01\x85",
    ] {
        let mut bytes = b"\x80\x04K\x00\x94K\x00".to_vec();
        bytes.extend(dense.repeat(megabyte / dense.len()));
        bytes.push(b'.');
        checked("comm_lib_trace_rank_3", &bytes);
    }
    // A memo number far ahead, a string longer than the file, lists in lists without end.
    checked("comm_lib_trace_rank_3", b"\x80\x02]r\xff\xff\xff\xff.");
    checked("comm_lib_trace_rank_3", b"\x80\x02X\xff\xff\xff\xffabc.");
    checked("comm_lib_trace_rank_3", &[b"\x80\x02".to_vec(), b"(".repeat(megabyte)].concat());
    checked("comm_lib_trace_rank_3", &[b"\x80\x02N".to_vec(), b"\x85".repeat(megabyte), b".".to_vec()].concat());
    checked("trace_3.json", &b"[".repeat(megabyte));
    checked("trace_3.json", &[&b"["[..], &b"0,".repeat(megabyte / 2), b"0]"].concat());
    checked("trace_3.json", &[&b"["[..], &b"{},".repeat(megabyte / 3), b"0]"].concat());
    checked("rank_3.json", &[&br#"[{"pid":1,"frames":["#[..], &b"{},".repeat(megabyte / 3), b"{}]}]"].concat());
    // Empty lists and dicts everywhere that something is made of them.
    let repeated = |head: &[u8], part: &[u8], tail: &[u8]| [head, &part.repeat(megabyte / part.len()), tail].concat();
    checked("trace_3.json", &repeated(b"[", b"[],", b"0]"));
    checked("trace_3.json", &repeated(b"[", b"[[],{}],", b"0]"));
    checked("trace_3.json", &repeated(br#"{"entries":["#, br#"{"record_id":1},"#, b"{}]}"));
    checked("trace_3.json", &repeated(br#"{"pg_config":{"#, br#""0":{},"#, br#""1":{}}}"#));
    checked("trace_3.json", &repeated(br#"{"pg_status":{"#, br#""0":{},"#, br#""1":{}}}"#));
    checked("trace_3.json", &repeated(br#"{"health_check_results":{"#, br#""0":{},"#, br#""1":{}}}"#));
    let entry = br#"{"entries":[{"record_id":1,"frames":["#;
    checked("trace_3.json", &repeated(entry, b"{},", b"{}]}]}"));
    let entry = br#"{"entries":[{"record_id":1,"input_sizes":["#;
    checked("trace_3.json", &repeated(entry, b"[],", b"[]]}]}"));
    let numbered = |head: &str, part: &dyn Fn(usize) -> String, tail: &str| {
        let parts: Vec<String> = (0..megabyte / part(megabyte).len()).map(part).collect();
        format!("{head}{}{tail}", parts.join(",")).into_bytes()
    };
    checked("rank_3.json", &numbered("[", &|n| format!(r#"{{"pid":{n},"frames":[]}}"#), "]"));
    checked("rank_3.json", &numbered("[", &|n| format!(r#"{{"pid":1,"thread_name":"{n}","frames":[{{}}]}}"#), "]"));
    checked("trace_3.json", &numbered(r#"{"pg_config":{"#, &|n| format!(r#""{n}":{{}}"#), "}}"));
    checked("trace_3.json", &numbered(r#"{"entries":["#, &|n| format!(r#"{{"record_id":1,"pg_id":{n}}}"#), "]}"));
    checked(
        "trace_3.json",
        &numbered(r#"{"entries":["#, &|n| format!(r#"{{"record_id":1,"input_sizes":[[{n}]]}}"#), "]}"),
    );
    checked("trace_3.json", &numbered(r#"{"entries":["#, &|n| format!(r#"{{"profiling_name":"{n}"}}"#), "]}"));
    checked("trace_3.json", &numbered(r#"{"entries":["#, &|n| format!(r#"{{"record_id":1,"thread_id":{n}}}"#), "]}"));
    checked("rank_3.txt", &[&b"Process 1: x\nThread 1 (idle)\n"[..], &b"    a (b)\n".repeat(megabyte / 10)].concat());
    checked("rank_3.txt", &b"Process 1:\n".repeat(megabyte / 11));
    checked("rank_3.txt", &[&b"Process 1:\n"[..], &b"Thread 1 (idle)\n".repeat(megabyte / 16)].concat());
    checked("periodic_3.txt", &b"=== Rank 1: ===\n".repeat(megabyte / 16));
}

#[test]
fn logs_in_which_every_line_tells_something_are_cut() {
    for line in [
        "NCCL WARN socketProgress\n",
        "[rank7]: [Rank 7] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)\n",
        "Traceback (most recent call last):\n",
        "  File \"a\", line 1, in b\n",
        "Rank 1 failed to pass monitoredBarrier\n",
        "OOutOfMemoryError",
        "1 ranks have launched up to operation 7\nRank 1 \n",
    ] {
        checked("job.log", line.repeat((1 << 20) / line.len()).as_bytes());
    }
    checked(
        "job.log",
        [&b"Traceback (most recent call last):\n"[..], &b"  File \"a\", line 1, in b\n".repeat(1 << 18)]
            .concat()
            .as_slice(),
    );
    checked(
        "job.log",
        [&b"Ranks "[..], &b"1,".repeat(1 << 19), b" failed to pass monitoredBarrier\n"].concat().as_slice(),
    );
}

#[test]
fn a_memo_bomb_stays_shared() {
    // Each list holds the one before it twice: 2^60 items if it were a tree.
    let mut bytes = b"\x80\x02]q\x00".to_vec();
    for level in 1..=60_u8 {
        bytes.extend([b'0', b'(', b'h', level - 1, b'h', level - 1, b't', b'q', level]);
    }
    bytes.push(b'.');
    checked("comm_lib_trace_rank_3", &bytes);
}

/// Entry number `id` as torch 2.15 records it.
fn entry(id: i64) -> writer::Data {
    use writer::Data;
    let frame = |line| {
        let (name, file) = (Data::text("step"), Data::text("/opt/training/train.py"));
        Data::Dict(vec![("name", name), ("filename", file), ("line", Data::Int(line))])
    };
    let sizes = || Data::List(vec![Data::List(vec![Data::Int(4096), Data::Int(1024 + id % 4)])]);
    let time = 1_795_251_975_275_282_842 + id * 5_000_000;
    Data::Dict(vec![
        ("frames", Data::List((0..8).map(|depth| frame(depth + id % 4)).collect())),
        ("record_id", Data::Int(id)),
        ("pg_id", Data::Int(0)),
        ("process_group", Data::Tuple(vec![Data::text("0"), Data::text("default_pg")])),
        ("thread_name", Data::text("python")),
        ("thread_id", Data::text("139792710892416")),
        ("collective_seq_id", Data::Int(id + 1)),
        ("p2p_seq_id", Data::Int(0)),
        ("op_id", Data::Int(id)),
        ("profiling_name", Data::text("nccl2:all_reduce")),
        ("time_created_ns", Data::Int(time)),
        ("duration_ms", Data::Real(1.5)),
        ("input_sizes", sizes()),
        ("input_dtypes", Data::List(vec![Data::text("BFloat16")])),
        ("output_sizes", sizes()),
        ("output_dtypes", Data::List(vec![Data::text("BFloat16")])),
        ("state", Data::text("completed")),
        ("time_discovered_started_ns", Data::Int(time + 90_000)),
        ("time_discovered_completed_ns", Data::Int(time + 1_500_000)),
        ("retired", Data::Bool(true)),
        ("timeout_ms", Data::Int(600_000)),
        ("is_p2p", Data::Bool(false)),
    ])
}

#[test]
fn a_dump_takes_less_memory_than_twice_its_file() {
    for count in [2000, 20_000] {
        let data = writer::Data::Dict(vec![("entries", writer::Data::List((0..count).map(entry).collect()))]);
        for (path, bytes) in [
            ("comm_lib_trace_rank_3", writer::pickle(&data, 2)),
            ("comm_lib_trace_rank_3", writer::pickle(&data, 4)),
            ("trace_3.json", writer::json(&data).into_bytes()),
        ] {
            let naming = mycroft_formats::Naming::default();
            let (piece, peak) = promise::peak_bytes(|| mycroft_formats::read(path, &bytes, &naming));
            let mycroft_formats::Piece::Dump(dump) = piece else { panic!("{piece:?}") };
            assert_eq!((dump.entries.len(), dump.stacks.len()), (count as usize, 4));
            // Without any constant: what the reader needs for a real dump.
            eprintln!("{path}: {count} entries, {} bytes, {peak} live", bytes.len());
            assert!(peak < 2 * bytes.len(), "{path}: {peak} bytes live for {} of input", bytes.len());
        }
    }
}
