//! Real dumps beside the repository: what Python reads in a file, we read in it. Skipped with a message where the data or
//! Python are absent.
use mycroft_formats::{Naming, Piece, assemble, read};
use mycroft_record::dump::{Bundle, Dump, Entry, EntryState};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

fn data() -> Option<PathBuf> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/flight-recorder");
    if data.is_dir() {
        return Some(data);
    }
    eprintln!("skipped: no sample data at {}", data.display());
    None
}

fn files(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push(path.strip_prefix(root).expect("below the root").to_str().expect("UTF-8").to_owned());
            }
        }
    }
    found.sort();
    found
}

fn bundle(root: &Path) -> Bundle {
    let naming = Naming::default();
    let piece = |path: &String| read(path, &std::fs::read(root.join(path)).expect("a readable file"), &naming);
    assemble(files(root).iter().map(piece).collect()).expect("one run per folder")
}

/// What Python's own readers find in each file, one line per entry; printed for all files at once.
const PYTHON: &str = r#"
import json, pickle, struct, sys
def f32(ms): return "-" if ms is None else "%08x" % struct.unpack("I", struct.pack("f", ms * 1e3))[0]
for path in sys.stdin.read().split("\n"):
    if not path: continue
    print("file", path)
    try:
        d = json.load(open(path)) if path.endswith(".json") else pickle.load(open(path, "rb"))
    except Exception as e:
        print("broken"); continue
    print("version", d["version"], "lib", d.get("comm_lib_version", d.get("nccl_version", "")))
    for k, s in sorted(d.get("pg_status", {}).items(), key=lambda kv: int(kv[0])):
        n = [int(s[x]) for x in ("last_enqueued_collective", "last_started_collective", "last_completed_collective")]
        print("status", k, *["-" if x < 0 else x for x in n])
    for k, g in d.get("pg_config", {}).items():
        print("group", g["name"], g["desc"], g["ranks"].strip("[]").replace(" ", ""))
    for e in d.get("entries", []):
        print("entry", e["record_id"], e["pg_id"], "/".join(e["process_group"]), e.get("thread_id", "-"), e.get("thread_name", "-"),
              e["collective_seq_id"], e["p2p_seq_id"], e["op_id"], e["profiling_name"], e["time_created_ns"],
              e["time_discovered_started_ns"] or 0, e["time_discovered_completed_ns"] or 0, f32(e.get("duration_ms")),
              e["state"], int(e["retired"]), e["timeout_ms"], int(e["is_p2p"]), e["input_sizes"], ",".join(e["input_dtypes"]),
              e["output_sizes"], ",".join(e["output_dtypes"]),
              "".join("\n  at %s %s %s" % (f["name"], f["filename"], f["line"]) for f in e.get("frames") or []))
"#;

fn render(dump: &Dump) -> String {
    let mut out = String::new();
    let number = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
    let _ = writeln!(out, "version {}.{} lib {}", dump.version.major, dump.version.minor, dump.comm_lib_version);
    for status in &dump.statuses {
        let (enqueued, started, completed) = (status.last_enqueued, status.last_started, status.last_completed);
        let _ = writeln!(out, "status {} {} {} {}", status.pg_id, number(enqueued), number(started), number(completed));
    }
    for group in dump.groups.iter().filter(|group| !group.ranks.is_empty() || group.name.is_empty()) {
        let ranks: Vec<String> = group.ranks.iter().map(ToString::to_string).collect();
        let _ = writeln!(out, "group {} {} {}", group.name, group.desc, ranks.join(","));
    }
    for entry in &dump.entries {
        render_entry(&mut out, dump, entry);
    }
    out
}

fn render_entry(out: &mut String, dump: &Dump, entry: &Entry) {
    let group = &dump.groups[entry.group as usize];
    let (thread_id, thread_name) = match dump.threads.get(entry.thread as usize) {
        Some(thread) => (thread.id.map_or("-".to_owned(), |id| id.to_string()), thread.name.to_string()),
        None => ("-".to_owned(), "-".to_owned()),
    };
    let duration =
        if entry.duration_us.is_nan() { "-".to_owned() } else { format!("{:08x}", entry.duration_us.to_bits()) };
    let state = match entry.state {
        EntryState::Scheduled => "scheduled",
        EntryState::Started => "started",
        EntryState::Completed => "completed",
        EntryState::Other => "other",
    };
    let shape = &dump.shapes[entry.shape as usize];
    let _ = write!(
        out,
        "entry {} {} {}/{} {thread_id} {thread_name} {} {} {} {} {} {} {} {duration} {state} {} {} {} {:?} {} {:?} {} ",
        entry.record_id,
        entry.pg_id,
        group.name,
        group.desc,
        entry.seq,
        entry.p2p_seq,
        entry.op_id,
        dump.ops[entry.op as usize].text,
        entry.created_at.0,
        entry.started_at.0,
        entry.completed_at.0,
        u8::from(entry.retired),
        entry.timeout_ms,
        u8::from(entry.is_p2p),
        shape.inputs,
        shape.input_dtypes.join(","),
        shape.outputs,
        shape.output_dtypes.join(","),
    );
    for &frame in dump.stacks.get(entry.stack as usize).iter().flat_map(|stack| stack.iter()) {
        let frame = &dump.frames[frame as usize];
        let _ = write!(out, "\n  at {} {} {}", frame.name, frame.file, frame.line);
    }
    out.push('\n');
}

/// Runs the script above; `None` where there is no Python.
fn python(paths: &[String]) -> Option<String> {
    use std::io::Write as _;
    let mut child = Command::new("python3")
        .args(["-c", PYTHON])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take()?.write_all(paths.join("\n").as_bytes()).ok()?;
    let output = child.wait_with_output().ok()?;
    assert!(output.status.success(), "Python could not read the sample data");
    Some(String::from_utf8(output.stdout).expect("UTF-8"))
}

#[test]
fn every_dump_reads_as_python_reads_it() {
    let Some(data) = data() else { return };
    let is_dump = |path: &&String| {
        let name = path.rsplit('/').next().expect("a name");
        let json = path.contains("/json/") || path.contains("nvrx_json/");
        json || (name.contains("trace_rank_") || name.starts_with("_dump_")) && !path.contains("malicious")
    };
    let paths: Vec<String> = files(&data).iter().filter(is_dump).cloned().collect();
    assert!(paths.len() > 100, "only {} dumps", paths.len());
    let full: Vec<String> = paths.iter().map(|path| data.join(path).to_str().expect("UTF-8").to_owned()).collect();
    let Some(expected) = python(&full) else {
        eprintln!("skipped: no python3");
        return;
    };
    let mut entries = 0;
    let blocks = expected.split("file ").skip(1);
    for (block, path) in blocks.zip(&paths) {
        let (_, expected) = block.split_once('\n').expect("a line with the path");
        let found = match read(path, &std::fs::read(data.join(path)).expect("a readable file"), &Naming::default()) {
            Piece::Dump(dump) => {
                assert_eq!((&dump.unknown_fields[..], dump.source.as_ref()), (&[][..], path.as_str()));
                entries += dump.entries.len();
                render(&dump)
            }
            Piece::Unusable(_) | Piece::CutShort(..) => "broken\n".to_owned(),
            other => panic!("{path}: {other:?}"),
        };
        assert_eq!(found, expected, "{path}");
    }
    eprintln!("{} dumps, {entries} entries", paths.len());
}

#[test]
fn json_and_pickle_of_one_dump_are_one_dump() {
    let Some(data) = data() else { return };
    let mut pairs = 0;
    for kind in ["hook", "gloo"] {
        for scenario in std::fs::read_dir(data.join(kind)).expect("a readable folder") {
            let root = scenario.expect("a readable entry").path();
            let bundle = bundle(&root);
            for dump in &bundle.dumps {
                assert!(dump.source.starts_with("pickle"), "{}: {}", root.display(), dump.source);
                assert!(!dump.stacks.is_empty(), "{}: {} has no stacks", root.display(), dump.source);
            }
            let mut ranks: Vec<u32> = bundle.dumps.iter().map(|dump| dump.rank.0).collect();
            ranks.dedup();
            assert_eq!(ranks.len(), bundle.dumps.len(), "{}: two dumps of one rank", root.display());
            pairs +=
                bundle.notes.iter().filter(|note| note.starts_with("json/") && note.contains("the same dump")).count();
        }
    }
    assert!(pairs >= 60, "only {pairs} pairs");
}

#[test]
fn two_runs_in_one_folder_are_a_clash() {
    let Some(data) = data() else { return };
    let naming = Naming::default();
    for (first, second) in [
        ("hook/healthy", "hook/rank_missing"),
        ("hook/rank_missing", "gloo/rank_missing"),
        ("nvrx/gpu_error_1st", "nvrx/lock_gil_2nd"),
        ("variants/version_2.4", "hook/healthy"),
    ] {
        let mut pieces = Vec::new();
        for root in [first, second] {
            for path in files(&data.join(root)) {
                let bytes = std::fs::read(data.join(root).join(&path)).expect("a readable file");
                pieces.push(read(&format!("{root}/{path}"), &bytes, &naming));
            }
        }
        let clash = assemble(pieces).expect_err(&format!("{first} and {second}"));
        assert_eq!(clash.sources.len(), 2, "{clash}");
    }
}

#[test]
fn threads_of_stacks_and_entries_have_the_same_ids() {
    let Some(data) = data() else { return };
    let bundle = bundle(&data.join("hook/rank_missing"));
    for dump in &bundle.dumps {
        let thread = &dump.threads[dump.entries[0].thread as usize];
        let stacks = bundle.stacks.iter().find(|stacks| stacks.rank == Some(dump.rank)).expect("stacks of every rank");
        let main = &stacks.threads[0];
        assert_eq!((main.thread_id, &*main.name), (thread.id, "MainThread"), "rank {}", dump.rank);
        // The native view has no folders, the JSON view has no native frames: joined there are both.
        let user = main.frames.iter().find(|frame| frame.frame.file.ends_with("scenario.py")).expect("a user frame");
        assert!(user.frame.file.starts_with('/'), "{}", user.frame.file);
    }
    let native = |rank: usize| bundle.stacks[rank].threads[0].frames.iter().filter(|frame| frame.native).count();
    assert!(native(0) > 0 && native(1) > 0, "native views of ranks 0 and 1");
}

#[test]
fn a_stuck_worker_process_is_found_below_its_rank() {
    let Some(data) = data() else { return };
    let bundle = bundle(&data.join("hook/dataloader_stall"));
    let of_rank: Vec<_> = bundle.stacks.iter().filter(|stacks| stacks.rank.is_some_and(|rank| rank.0 == 2)).collect();
    assert_eq!(of_rank.len(), 2);
    assert_eq!((of_rank[0].parent_pid, of_rank[1].parent_pid), (None, of_rank[0].pid));
    assert_eq!(&*of_rank[1].threads[0].frames[0].frame.name, "read_shard_from_dead_filesystem");
    let main = &of_rank[0].threads[0];
    assert!(
        main.frames
            .iter()
            .any(|frame| frame.locals.iter().any(|local| &*local.name == "worker_id" && &*local.repr == "0"))
    );
    let arguments = main.frames[0].locals.iter().filter(|local| local.argument).count();
    assert_eq!(arguments, 2, "self and timeout of select: {:?}", main.frames[0].locals);
}

#[test]
fn periodic_files_give_the_stacks_of_every_rank() {
    let Some(data) = data() else { return };
    let bundle = bundle(&data.join("hook/debug_server"));
    assert!(bundle.unusable.is_empty(), "{:?}", bundle.unusable);
    for rank in 0..4 {
        let of_rank = || bundle.stacks.iter().filter(|stacks| stacks.rank.is_some_and(|r| r.0 == rank));
        assert_eq!(of_rank().count(), 5, "two of faulthandler, two of the server's py-spy, one of py-spy by hand");
        let mut times: Vec<_> = of_rank().map(|stacks| stacks.taken_at.0).collect();
        times.sort_unstable();
        times.dedup();
        assert_eq!(times, [0, 1_795_252_989_000_000_000, 1_795_252_994_000_000_000]);
        // All five speak of the same main thread first.
        let first = |stacks: &mycroft_record::dump::ProcessStacks| {
            let python = stacks.threads[0].frames.iter().find(|frame| !frame.native).expect("a Python frame");
            (python.frame.name.clone(), python.frame.line)
        };
        let firsts: std::collections::BTreeSet<_> = of_rank().map(first).collect();
        assert_eq!(firsts.len(), 1, "rank {rank}: {firsts:?}");
    }
}

#[test]
fn variants_tell_what_is_wrong_with_them() {
    let Some(data) = data() else { return };
    let damaged = bundle(&data.join("variants/damaged"));
    let told: Vec<String> = damaged.unusable.iter().map(|u| format!("{}: {}", u.source, u.why)).collect();
    assert_eq!(
        told,
        [
            "comm_lib_trace_rank_1: the file is empty",
            "comm_lib_trace_rank_2: byte 1079: the pickle ends here, in the middle: 1 bytes needed, 0 left",
        ]
    );
    let [head] = &damaged.heads[..] else { panic!("{:?}", damaged.heads) };
    assert_eq!((head.rank.0, head.entries.len(), &*head.groups[0].desc), (2, 0, "default_pg"));
    assert_eq!((head.statuses[0].last_enqueued, head.statuses[0].last_completed), (Some(5), Some(4)));
    assert_eq!(damaged.notes, ["comm_lib_trace_rank_3: 14 bytes after the end of the dump (byte 2159) were not read"]);
    let malicious = bundle(&data.join("variants/malicious"));
    assert!(malicious.unusable[0].why.starts_with("byte 67: pickle opcode GLOBAL (0x63)"), "{:?}", malicious.unusable);
    for (folder, hosts) in [
        ("hostname_in_filename", ["container-node00", "container-node00", "container-node01", "container-node01"]),
        ("dir_per_node", ["node0", "node0", "node1", "node1"]),
    ] {
        let bundle = bundle(&data.join("variants").join(folder));
        assert_eq!(bundle.dumps.iter().map(|dump| &*dump.host).collect::<Vec<_>>(), hosts);
    }
    let gone = bundle(&data.join("hook/exception_exit"));
    assert!(
        gone.unusable
            .iter()
            .all(|u| u.rank.is_some_and(|rank| rank.0 == 2) && u.why.contains("Check that the process"))
    );
    let nvrx = bundle(&data.join("nvrx/lock_gil_2nd"));
    assert!(nvrx.dumps.iter().all(|dump| dump.active_only) && nvrx.dumps.len() == 16);
}
