//! Forms of dumps that the sample data do not hold, names of files, and what belongs together in a folder.
#[allow(dead_code, reason = "shared with round_trip.rs")]
mod writer;

use mycroft_formats::{BadPattern, Naming, Piece, RANK_MAX, assemble, read};
use mycroft_record::dump::{Activity, Bundle, Dump, DumpVersion, EntryState, StackTool};
use mycroft_record::{OpKind, Rank};
use writer::{Data, pickle};

fn dump(path: &str, bytes: &[u8]) -> Dump {
    match read(path, bytes, &Naming::default()) {
        Piece::Dump(dump) => *dump,
        other => panic!("{path}: {other:?}"),
    }
}

fn bundle(files: &[(&str, &[u8])]) -> Bundle {
    assemble(files.iter().map(|(path, bytes)| read(path, bytes, &Naming::default())).collect()).expect("one run")
}

#[test]
fn the_list_form_of_2023_is_a_dump() {
    let entry = Data::Dict(vec![
        ("pg_id", Data::Int(7)),
        ("seq_id", Data::Int(3)),
        ("profiling_name", Data::text("nccl:recv 1<-?")),
        ("time_created_ns", Data::Int(1_700_000_000_000_000_000)),
        ("input_sizes", Data::List(vec![Data::Int(4), Data::Int(2)])),
        ("frames", Data::List(vec![Data::text("step at train.py:3")])),
    ]);
    let dump = dump("nccl_trace_rank_1", &pickle(&Data::List(vec![entry]), 2));
    let entry = dump.entries[0];
    assert_eq!((entry.seq, entry.pg_id, entry.is_p2p, entry.state), (3, 7, true, EntryState::Scheduled));
    assert_eq!(&*dump.groups[entry.group as usize].name, "7");
    assert_eq!(dump.shapes[entry.shape as usize].inputs, [Box::from([4, 2])]);
    assert_eq!(&*dump.frames[0].name, "step at train.py:3");
    let op = &dump.ops[entry.op as usize];
    assert_eq!((op.kind, op.src, op.dst), (OpKind::Recv, None, Some(1)));
}

#[test]
fn json_forms_of_the_same_thing_are_the_same() {
    let text = br#"{"version": "2.9", "nccl_version": "2.21.5", "nccl_comm_state": {},
        "pg_config": {"a": {"name": "a", "desc": "d", "ranks": "0,1"}, "b": {"name": "b", "desc": "", "ranks": 0},
                      "c": {"name": "c", "desc": "", "ranks": "[4, 9]"}, "e": {"name": "e", "desc": "", "ranks": [4, 9]}},
        "pg_status": {"2": {"last_enqueued_collective": "12", "last_started_collective": "-1",
                            "last_completed_collective": "11"}},
        "health_check_results": {"gpu": {"status": "Failed", "output": "Xid 79"}, "nic": "ok"},
        "somebody": "else", "entries": [
          {"record_id": 0.0, "profiling_name": "nccl:barrier", "process_group": ["a", "d"], "pg_id": 2,
           "time_created_ns": 1795251975275282842.0, "thread_id": 12, "state": null, "time_discovered_completed_ns": 9},
          {"record_id": "1", "profiling_name": 5, "duration_ms": null, "p2p_seq_id": -1}]}"#;
    let dump = dump("some/_dump_7.json", text);
    assert_eq!(
        (dump.rank, dump.version, &*dump.comm_lib_version),
        (Rank(7), DumpVersion { major: 2, minor: 9 }, "2.21.5")
    );
    let ranks = |name: &str| {
        let group = dump.groups.iter().find(|group| &*group.name == name).expect("the group");
        (group.ranks.iter().map(|rank| rank.0).collect::<Vec<_>>(), group.local_ranks)
    };
    assert_eq!(ranks("a"), (vec![0, 1], true));
    assert_eq!(ranks("b"), (vec![0], true));
    assert_eq!((ranks("c"), ranks("e")), ((vec![4, 9], false), (vec![4, 9], false)));
    let status = dump.statuses[0];
    assert_eq!(
        (status.group, status.last_enqueued, status.last_started, status.last_completed),
        (Some(0), Some(12), None, Some(11))
    );
    let health: Vec<(&str, &str)> = dump.health.iter().map(|(name, text)| (&**name, &**text)).collect();
    assert_eq!(health, [("gpu", "Failed: Xid 79"), ("nic", "ok")]);
    assert_eq!(dump.unknown_fields.iter().map(|field| &**field).collect::<Vec<_>>(), ["somebody"]);
    assert_eq!(dump.entries[0].state, EntryState::Completed, "a time of completion without a state");
    assert_eq!((dump.entries[0].created_at.0, dump.entries[1].record_id), (1_795_251_975_275_282_944, 1));
    assert_eq!(dump.threads[dump.entries[0].thread as usize].id, Some(12));
    assert_eq!(dump.notes.len(), 1, "{:?}", dump.notes);
    assert!(dump.notes[0].starts_with("1 values of an unexpected type"), "{:?}", dump.notes);
    // Without entries the key is absent; versions are numbers.
    let empty = br#"{"version": "2.10", "pg_config": {}, "pg_status": {}, "comm_lib_version": ""}"#;
    let empty = self::dump("trace_0.json", empty);
    assert!(empty.entries.is_empty() && empty.version > DumpVersion { major: 2, minor: 7 });
}

#[test]
fn names_tell_ranks_and_hosts() {
    let naming = Naming::default();
    for (path, rank, host) in [
        ("comm_lib_trace_rank_17", Some(17), ""),
        ("/tmp/nccl_trace_rank_0", Some(0), ""),
        ("hccl_trace_rank_3", Some(3), ""),
        ("nccl_trace_rank_container-node02_5", Some(5), "container-node02"),
        ("x/nccl_trace_rank_gpu7.cluster.example_12", Some(12), "gpu7.cluster.example"),
        ("node1/comm_lib_trace_rank_3", Some(3), "node1"),
        ("dumps/ip-10-0-0-7/trace_4.json", Some(4), "ip-10-0-0-7"),
        ("rank3/comm_lib_trace_rank_3", Some(3), ""),
        ("torch_2.9.1_gloo/comm_lib_trace_rank_1", Some(1), ""),
        ("step100/comm_lib_trace_rank_1", Some(1), ""),
        ("_dump_3.json", Some(3), ""),
        ("pyspy/rank_3.native.txt", Some(3), ""),
        ("pyspy/rank_3.subprocesses.txt", Some(3), ""),
        ("debug/stacks_20261121_092309.txt", None, ""),
        ("run.json", None, ""),
        ("trace_99999999999999999999", None, ""),
        ("\u{e9}7", Some(7), ""),
        ("", None, ""),
    ] {
        assert_eq!((naming.rank(path), &*naming.host(path)), (rank.map(Rank), host), "{path}");
    }
    assert_eq!(naming.rank(&format!("trace_{}", RANK_MAX + 1)), None);
    let pattern = Naming::with_pattern(r"(?<host>[a-z]+)-r(?<rank>\d+)-pid\d+").expect("a pattern");
    assert_eq!((pattern.rank("gpu-r12-pid4711"), &*pattern.host("gpu-r12-pid4711")), (Some(Rank(12)), "gpu"));
    assert_eq!(pattern.rank("comm_lib_trace_rank_3"), None);
    let first = Naming::with_pattern(r"r(\d+)").expect("a pattern");
    assert_eq!(first.rank("dir/r12-77"), Some(Rank(12)));
    assert!(matches!(Naming::with_pattern("r(\\d+"), Err(BadPattern::NoRegex { .. })));
    let no_group = Naming::with_pattern("rank_").expect_err("no group");
    assert_eq!(
        no_group.to_string(),
        "rank pattern `rank_`: no group holds the rank; write it as `(\\d+)` or `(?<rank>\\d+)`"
    );
}

/// A dump of one all_reduce.
fn one(lib: &str, id: i64, time: i64, frames: bool) -> Vec<u8> {
    by_thread(lib, id, time, frames, None)
}

/// The same, by a thread.
fn by_thread(lib: &str, id: i64, time: i64, frames: bool, thread: Option<&str>) -> Vec<u8> {
    let frame = Data::Dict(vec![("name", Data::text("f")), ("filename", Data::text("a.py")), ("line", Data::Int(1))]);
    let entry = Data::Dict(vec![
        ("record_id", Data::Int(id)),
        ("profiling_name", Data::Text(format!("{lib}:all_reduce"))),
        ("time_created_ns", Data::Int(time)),
        ("frames", Data::List(if frames { vec![frame] } else { vec![] })),
        ("thread_id", thread.map_or(Data::None, Data::text)),
    ]);
    pickle(&Data::Dict(vec![("version", Data::text("2.10")), ("entries", Data::List(vec![entry]))]), 2)
}

#[test]
fn what_belongs_together_is_put_together() {
    // The same recorder: the one with stacks, whichever comes first. A broken third file is a note.
    let found = bundle(&[
        ("a/trace_1", &one("gloo", 4, 9, false)),
        ("b/trace_1", &one("gloo", 4, 9, true)),
        ("c/trace_1", b""),
    ]);
    assert_eq!(found.dumps.iter().map(|dump| &*dump.source).collect::<Vec<_>>(), ["b/trace_1"]);
    assert_eq!(
        found.notes,
        ["a/trace_1: the same dump as b/trace_1, which tells more", "c/trace_1: of no use: the file is empty"]
    );
    assert!(found.unusable.is_empty());
    // Two recorders of one process.
    let found = bundle(&[("a/trace_1", &one("nccl2", 0, 9, false)), ("b/trace_1", &one("gloo", 0, 7, true))]);
    assert_eq!(found.dumps.len(), 2);
    let naming = Naming::default();
    let assembled = |files: [&[u8]; 2]| {
        let [a, b] = files;
        assemble(vec![read("a/trace_1", a, &naming), read("b/trace_1", b, &naming)]).map(|bundle| bundle.dumps.len())
    };
    let gloo = |time, thread| by_thread("gloo", time, time, true, Some(thread));
    let nccl = |time, thread| by_thread("nccl2", time, time, true, Some(thread));
    assert_eq!(assembled([&gloo(5, "77"), &nccl(9, "77")]), Ok(2), "one thread issued both");
    assert_eq!(assembled([&gloo(5, "77"), &nccl(5, "78")]), Ok(2), "two threads at one time");
    assert!(assembled([&gloo(5, "77"), &nccl(9, "78")]).is_err(), "other threads at another time: another run");
    assert!(assembled([&gloo(5, "77"), &gloo(9, "77")]).is_err(), "thread ids alone show nothing");
    let twice = bundle(&[("a/trace_1", &gloo(5, "77")), ("b/trace_1", &gloo(5, "77"))]);
    assert_eq!(twice.notes, ["b/trace_1: the same dump as a/trace_1"]);
    // Two runs.
    let (old, new) = (one("gloo", 0, 9, false), one("gloo", 0, 7_000, true));
    let clash =
        assemble(vec![read("run2/trace_1", &new, &naming), read("run1/trace_1", &old, &naming)]).expect_err("a clash");
    assert_eq!((clash.rank, clash.sources), (Rank(1), vec!["run1/trace_1".to_owned(), "run2/trace_1".to_owned()]));
    let clash =
        assemble(vec![read("run2/trace_1", &new, &naming), read("run1/trace_1", &old, &naming)]).expect_err("a clash");
    assert_eq!(
        clash.to_string(),
        "reading dumps of rank 1: run1/trace_1 and run2/trace_1 are of different runs; give a folder that holds one run"
    );
    // In the order of ranks, not of names.
    let found = bundle(&[("trace_10", &one("gloo", 0, 1, true)), ("trace_9", &one("gloo", 0, 1, true))]);
    assert_eq!(found.dumps.iter().map(|dump| dump.rank.0).collect::<Vec<_>>(), [9, 10]);
}

#[test]
fn a_process_without_the_right_name_is_not_lost() {
    let piece = read("dump", &one("gloo", 0, 1, true), &Naming::default());
    let Piece::Unusable(unusable) = piece else { panic!("{piece:?}") };
    assert_eq!((unusable.rank, &*unusable.why), (None, "a dump, but its name tells no rank; give a rank pattern"));
    let piece = read(
        "anything.txt",
        b"Process 7: python a.py\nThread 7 (active+gil): \"MainThread\"\n    f (a.py:3)\n",
        &Naming::default(),
    );
    let Piece::Stacks(stacks) = piece else { panic!("{piece:?}") };
    assert_eq!((stacks[0].rank, stacks[0].pid, &*stacks[0].command), (None, Some(7), "python a.py"));
    let thread = &stacks[0].threads[0];
    assert_eq!((thread.activity, thread.owns_gil, thread.os_thread_id), (Activity::Active, Some(true), Some(7)));
}

#[test]
fn other_files_of_the_folder_are_ignored_and_those_that_promise_are_missed() {
    let naming = Naming::default();
    for (path, bytes) in [
        ("run.json", &b"{\"world\": 4}"[..]),
        ("run.json", b"{broken"),
        ("train_3.log", b"step 3\n"),
        ("rank_3.log", b"step 3\n"),
        ("README.md", b"# read me"),
        ("model_7.pkl", b"\x80\x02ctorch\nTensor\n."),
        ("empty", b""),
        ("core.4711", b"\x7fELF\x00\x00"),
        ("wait_counters_20261121_092309.txt", b"=== Rank 0: http://a:1/x? ===\n{}\n"),
        ("fr_trace_20261121_092309.txt", b"=== FR Trace ===\n--- Groups ---\n"),
    ] {
        let piece = read(path, bytes, &naming);
        assert!(matches!(piece, Piece::Ignored(..)), "{path}: {piece:?}");
    }
    for (path, bytes, why) in [
        ("trace_rank_3", &b""[..], "the file is empty"),
        ("trace_rank_3", b" \n", "nothing but white space"),
        ("trace_rank_3", b"\x1f\x8b\x08", "compressed with gzip: unpack it first"),
        ("trace_rank_3", b"\x00\x01", "neither a dump nor a text"),
        ("trace_3.json", b"{\"a\": 1} x", "byte 9: something follows the end of the JSON"),
        ("trace_3.json", b"{\"a\": \"b", "byte 8: the JSON ends here, in a string that began at byte 7"),
        ("trace_3.json", b"{\"a\": nul", "byte 6: a value expected"),
        ("trace_3.json", b"{\"a\" 1}", "byte 5: `:` expected"),
        ("trace_3.json", b"{1: 1}", "byte 1: a key in quotes expected"),
        ("trace_3.json", b"[1}", "byte 2: `,` or `]` expected"),
        ("trace_3.json", b"[\"\\x\"]", "byte 3: an escape that JSON does not have"),
        ("trace_3.json", b"[\"\\u12\"]", "byte 4: four hexadecimal digits expected"),
        ("trace_3.json", b"[1-2]", "byte 1: what looks like a number is none"),
        (
            "rank_3.txt",
            b"rc=1\nError: No such process\n",
            "a text, but neither a dump nor stacks; it says: \"Error: No such process\"",
        ),
    ] {
        let piece = read(path, bytes, &naming);
        let Piece::Unusable(unusable) = piece else { panic!("{path}: {piece:?}") };
        assert_eq!((unusable.rank, &*unusable.why), (Some(Rank(3)), why), "{path}");
    }
}

#[test]
fn views_of_one_process_become_one() {
    let text = b"Process 7: python a.py\n\nThread 7 (idle): \"MainThread\"\n    wait (libc.so.6)\n    f (a.py:3)\nThread 0x7f01 (active)\n    g (x.cpp:9)\n";
    let json = br#"[{"pid": 7, "thread_id": 99, "thread_name": "MainThread", "os_thread_id": 7, "active": true, "owns_gil": false,
        "frames": [{"name": "f", "filename": "/w/a.py", "module": null, "short_filename": "a.py", "line": 3,
                    "locals": [{"name": "x", "addr": 1, "arg": true, "repr": "5"}]}]}]"#;
    let found = bundle(&[("rank_2.json", json), ("rank_2.native.txt", text)]);
    let [process] = &found.stacks[..] else { panic!("{:?}", found.stacks) };
    assert_eq!((process.rank, process.tool, &*process.command), (Some(Rank(2)), StackTool::PySpy, "python a.py"));
    let main = &process.threads[0];
    assert_eq!((main.thread_id, main.os_thread_id, main.frames.len()), (Some(99), Some(7), 2));
    assert_eq!((&*main.frames[0].module, main.frames[0].native), ("libc.so.6", true));
    assert_eq!((&*main.frames[1].frame.file, &*main.frames[1].locals[0].repr), ("/w/a.py", "5"));
    let other = &process.threads[1];
    assert_eq!((other.thread_id, other.frames[0].native, other.frames[0].frame.line), (Some(0x7f01), true, 9));
}

#[test]
fn a_process_says_who_started_it() {
    let json = br#"[{"pid": 7, "thread_id": 99, "thread_name": "MainThread", "active": true, "owns_gil": false,
        "frames": [{"name": "f", "filename": "/w/a.py", "module": null, "line": 3, "locals": null}],
        "process_info": {"pid": 7, "command_line": "python a.py", "parent":
            {"pid": 5, "command_line": "torchrun a.py", "parent": {"pid": 1, "command_line": "sh", "parent": null}}}}]"#;
    let found = bundle(&[("host0/pyspy_pid7_rank_2.json", json)]);
    let [process] = &found.stacks[..] else { panic!("{:?}", found.stacks) };
    assert_eq!((process.rank, process.pid, process.parent_pid), (Some(Rank(2)), Some(7), Some(5)));
    assert_eq!(&*process.command, "python a.py");
}

#[test]
fn a_section_without_stacks_says_why() {
    let text = b"=== Rank 0: http://a:1/handler/dump_traceback? ===\nThread 0x00007f01 (most recent call first):\n  File \"a.py\", line 2 in f\n\n=== Rank 1: http://b:1/handler/dump_traceback? ===\nFailed to fetch\nError: ConnectionRefusedError(111)\n";
    let found = bundle(&[("stacks_20261121_092309.txt", text)]);
    assert_eq!(found.stacks.len(), 1);
    assert_eq!((found.stacks[0].rank, found.stacks[0].tool), (Some(Rank(0)), StackTool::Faulthandler));
    let unusable = &found.unusable[0];
    assert_eq!(unusable.rank, Some(Rank(1)));
    assert_eq!(unusable.why, "byte 174: no stacks of rank 1: it says: \"Error: ConnectionRefusedError(111)\"");
}
