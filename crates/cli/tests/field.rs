//! Public cases of jobs that stopped, each with its right answer: who must be named, who must not, and what it is.
//!
//! Inputs of `../shared/data/field` are played where they are at hand. Where a case has none, and for machines without that
//! folder, inputs of the same shape are made here with words and numbers of their own.
mod common;
#[path = "field/made.rs"]
mod made;

use common::say;
use made::{Made, case, told};
use serde_json::Value;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// What is right.
struct Right {
    /// Ranks that are named, exactly.
    named: &'static [u64],
    /// One of these.
    what: &'static [&'static str],
    /// One of these; empty: null is right too.
    category: &'static [&'static str],
    /// Words that the answer holds.
    words: &'static [&'static str],
}

const fn right(
    named: &'static [u64],
    what: &'static [&'static str],
    category: &'static [&'static str],
    words: &'static [&'static str],
) -> Right {
    Right { named, what, category, words }
}

const DIVERGES: &[&str] = &["code-divergence"];
const ARGUMENT: &[&str] = &["argument-mismatch"];

/// Cases of the folder: what of them is given, and what is right.
const PUBLIC: &[(&str, &[&str], Right)] = &[
    ("01-sglang-33289-size", &["job.log"], right(&[7], &["desync"], ARGUMENT, &["65054", "161600", "job.log"])),
    ("02-nccl-1911-ras", &["ras.txt"], right(&[], &["hang"], &["unknown"], &["641", "30 of 32"])),
    (
        "03-nccl-1730-ras-ok",
        &["ras.txt", "job.log"],
        right(&[], &["hang"], &["unknown"], &["2398459", "every rank has launched"]),
    ),
    (
        "05-pytorch-118369-behind",
        &["job.log"],
        right(&[], &["hang"], &["unknown"], &["do not tell the group", "did not run"]),
    ),
    ("06-lightning-19106-logdict", &["job.log"], right(&[], &["desync"], DIVERGES, &["broadcast", "21"])),
    ("07-speechbrain-clock", &["job.log"], right(&[0, 1], &["desync"], DIVERGES, &["485", "broadcast", "all_reduce"])),
    ("09-opendde-23-uneven", &["job.log"], right(&[1, 2], &["desync"], ARGUMENT, &["_all_gather_base", "ranks 1,2"])),
    (
        "11-pytorch-141069-uneven",
        &["job.log"],
        right(&[0], &["hang"], &["not-started"], &["all_reduce", "19", "ranks 1-3"]),
    ),
    ("19-ownerbridge-2of8", &["."], right(&[0, 4], &["desync"], DIVERGES, &["broadcast", "78", "pipeline.py:2961"])),
    ("21-verl-update-policy", &["job.log"], right(&[0, 1], &["desync"], DIVERGES, &["2635"])),
    ("22-unige-gpu008-first", &["job.log"], right(&[], &["hang"], &["unknown"], &["never completed anything"])),
    (
        "23-spark-inside-the-call",
        &["job.log", "diag.log"],
        right(&[1], &["hang"], &["not-started", "host-thread"], &["inside that call"]),
    ),
    (
        "25-bumi3-ctrl-c",
        &["node14.log", "node15.log"],
        right(&[], &["crash"], &["process-exit"], &["node14", "got signal: 2"]),
    ),
    (
        "30-nccl-1698-ib12",
        &["job.log"],
        right(&[], &["crash"], &["network-send"], &["mycl-g2", "mlx5_10", "192.168.6.5"]),
    ),
    ("32-arctic-219-all-ranks", &["job.log"], right(&[], &["hang"], &["unknown"], &["120049"])),
    (
        "46-pytorch-77030-reduce-vs-allgather",
        &["job.log"],
        right(&[0], &["desync"], DIVERGES, &["3742816", "reduce on rank 0"]),
    ),
];

/// Made inputs: what is right of each. The comment names the shape.
const MADE: &[(&str, Right)] = &[
    // A rank with another size, by lines of the watchdog.
    ("log_size", right(&[3], &["desync"], ARGUMENT, &["4096", "rank 3"])),
    ("log_wrapped", right(&[3], &["desync"], ARGUMENT, &["4096"])),
    // A silent rank among four.
    ("log_silent", right(&[2], &["hang"], &["not-started"], &["prints nothing"])),
    // One rank of eight reports, the others' lines are not there.
    ("log_one_of_many", right(&[], &["hang"], &["unknown"], &["no line of"])),
    // Told by others' signal, and elsewhere by its traceback.
    ("log_elsewhere", right(&[5], &["desync"], DIVERGES, &["barrier.py:12"])),
    // An exception of one rank before everybody's timeout.
    ("log_exception", right(&[2], &["crash"], &["process-exit"], &["KeyError: 'labels'"])),
    // The same exception on everybody.
    ("log_everybody", right(&[], &["crash"], &["process-exit"], &["none of them stands out"])),
    // Memory of the first stage runs out; the second waits.
    ("log_memory", right(&[0, 1], &["crash"], &["process-exit"], &["out of memory"])),
    // A handled exception of a rank that went on and timed out like all others.
    ("log_handled", right(&[], &["hang"], &[], &["none is through"])),
    // Somebody interrupts a job that hangs already: that is no cause.
    ("log_interrupted", right(&[], &["hang"], &["unknown"], &[])),
    // A device falls off its bus, in the kernel's log.
    ("log_xid", right(&[], &["crash"], &["gpu"], &["gpu7", "79"])),
    // Two hosts complain of one port.
    ("log_port", right(&[], &["crash"], &["network-send"], &["10.0.9.9", "several hosts"])),
    // A lone rank of a tensor-parallel group whose numbers in the group tell its peers.
    ("log_subgroup", right(&[6], &["hang"], &["not-started"], &["tp"])),
    // A heartbeat monitor, and a rank that worked for minutes.
    ("log_heartbeat", right(&[], &["unknown", "hang"], &[], &["TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"])),
    // The monitored barrier names who did not come.
    ("log_barrier", right(&[3], &["hang"], &["not-started"], &["monitoredBarrier"])),
    // RAS: one rank behind.
    ("ras_behind", right(&[5], &["hang"], &["not-started"], &["all_reduce"])),
    // RAS as JSON: two ranks behind in one kind of operation.
    ("ras_json", right(&[2, 6], &["hang"], &["not-started"], &["all_reduce", "510"])),
    // RAS hears nothing of one rank.
    ("ras_unheard", right(&[3], &["crash"], &["process-exit"], &["hears nothing of rank 3"])),
    // A communicator that is never made.
    ("log_init", right(&[], &["hang"], &["unknown"], &["initialisation"])),
    // Numbers that contradict themselves.
    ("log_nonsense", right(&[], &["unknown"], &[], &["left out"])),
    // 04: a loader stuck on one rank, the others in all_reduce, stacks only.
    ("stacks_loader", right(&[0], &["hang"], &["data-loading"], &[])),
    // 15: all in one gather, stacks only.
    ("stacks_all_in", right(&[], &["unknown", "hang"], &[], &[])),
    // 17: one rank has not issued the next.
    ("dumps_missing_one", right(&[0], &["hang"], &["not-started"], &["288686"])),
    // 23: an entry that the status does not count.
    ("dumps_in_call", right(&[0], &["hang"], &["host-thread"], &["has not returned"])),
    // 27: one rank in a gather, three in the gradient's all_reduce.
    ("dumps_main_only", right(&[0], &["desync"], DIVERGES, &["all_gather"])),
    // 28: gathers that differ on many ranks.
    ("dumps_experts", right(&[], &["desync"], &["code-divergence", "argument-mismatch"], &["depends on data"])),
    // 35: one collective fewer, everything shifted since.
    ("dumps_drift", right(&[1], &["desync"], DIVERGES, &[])),
    // 36: two groups open on everybody.
    ("dumps_two_groups", right(&[], &["hang"], &[], &["NCCL_LAUNCH_ORDER_IMPLICIT"])),
    // 38: two dumps for one rank and none for another.
    ("dumps_wrong_label", right(&[1], &["hang"], &["not-started"], &["holds the dump of rank 1"])),
    // 42: the first stage tears down, the second waits.
    ("dumps_teardown", right(&[0, 1], &["crash"], &["process-exit"], &["destroy_process_group"])),
    // 44: one rank has one micro-batch fewer.
    ("dumps_micro_batches", right(&[0], &["desync"], DIVERGES, &[])),
];

fn field() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/field")
}

/// What is wrong with an answer, in words; empty when it is right.
fn judge(right: &Right, code: Option<i32>, answer: &Value, text: &str) -> Vec<String> {
    let verdict = &answer["verdict"];
    let suspects = verdict["suspects"].as_array().unwrap();
    let mut named: Vec<u64> = suspects.iter().filter_map(|suspect| suspect["rank"].as_u64()).collect();
    named.sort_unstable();
    let mut wrong = Vec::new();
    if named != right.named {
        wrong.push(format!("names {named:?}, right is {:?}", right.named));
    }
    if !right.what.contains(&verdict["what"].as_str().unwrap()) {
        wrong.push(format!("what {}, right is {:?}", verdict["what"], right.what));
    }
    let category = verdict["category"].as_str().unwrap_or_default();
    if !right.category.is_empty() && !right.category.contains(&category) {
        wrong.push(format!("category {category:?}, right is {:?}", right.category));
    }
    for words in right.words.iter().filter(|words| !text.contains(**words)) {
        wrong.push(format!("does not say {words:?}"));
    }
    if code != Some(1) {
        wrong.push(format!("exit code {code:?}"));
    }
    wrong
}

/// Plays one input; a line of the table, and what is wrong.
fn play(name: &str, paths: &[String], right: &Right, table: &mut String) -> Vec<String> {
    let args = |json: &'static str| {
        let mut args = vec!["autopsy", "--quiet"];
        args.extend((!json.is_empty()).then_some(json));
        args.extend(paths.iter().map(String::as_str));
        args
    };
    let said = say(&args("--json"));
    if said.stdout.is_empty() {
        return vec![format!("{name}: {}", said.stderr)];
    }
    let answer = said.json();
    let verdict = &answer["verdict"];
    let text = said.stdout.replace("\\\"", "\"");
    let wrong = judge(right, said.code, &answer, &text);
    let named: Vec<String> = verdict["suspects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|suspect| suspect["rank"].as_u64().map_or_else(|| "(no rank)".to_owned(), |rank| rank.to_string()))
        .collect();
    let _ = writeln!(
        table,
        "{:5} {name:40} {:8} {:20} {}",
        if wrong.is_empty() { "right" } else { "WRONG" },
        verdict["what"].as_str().unwrap(),
        verdict["category"].as_str().unwrap_or("-"),
        named.join(",")
    );
    wrong.into_iter().map(|wrong| format!("{name}: {wrong}")).collect()
}

#[test]
fn every_public_case_is_judged_right() {
    if !field().exists() {
        eprintln!("skipped: {} is not here", field().display());
        return;
    }
    let (mut table, mut wrong) = (String::new(), Vec::new());
    for (name, files, right) in PUBLIC {
        let paths: Vec<String> =
            files.iter().map(|file| field().join(name).join(file).to_string_lossy().into_owned()).collect();
        wrong.extend(play(name, &paths, right, &mut table));
    }
    eprintln!("{table}");
    assert!(wrong.is_empty(), "{}\n{table}", wrong.join("\n"));
}

#[test]
fn every_made_case_is_judged_right() {
    let (mut table, mut wrong) = (String::new(), Vec::new());
    for (name, right) in MADE {
        let dir = tempfile::tempdir().unwrap();
        let Made(files) = case(name);
        for (path, content) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        wrong.extend(play(name, &[dir.path().to_string_lossy().into_owned()], right, &mut table));
    }
    eprintln!("{table}");
    assert!(wrong.is_empty(), "{}\n{table}", wrong.join("\n"));
}

/// What each kind of evidence adds and takes away: dumps alone, dumps with lines beside them, lines in a dump's place.
#[test]
fn dumps_and_lines_together_are_never_worse_than_either() {
    let Made(files) = case("dumps_missing_one");
    let line = ("job.log".to_owned(), told(0, 288_685));
    let without: Vec<_> = files.iter().filter(|(path, _)| !path.contains("rank_0")).cloned().collect();
    let both: Vec<_> = files.iter().cloned().chain([line.clone()]).collect();
    let replaced: Vec<_> = without.iter().cloned().chain([line]).collect();
    let absent = right(&[0], &["hang"], &["not-started"], &["288686"]);
    let gone = right(&[0], &["crash"], &["process-exit"], &["left no dump"]);
    let (mut table, mut wrong) = (String::new(), Vec::new());
    for (name, files, right) in [
        ("dumps", &files, &absent),
        ("dumps and lines", &both, &absent),
        ("lines instead of a dump", &replaced, &absent),
        ("neither", &without, &gone),
    ] {
        let dir = tempfile::tempdir().unwrap();
        for (path, content) in files {
            fs::write(dir.path().join(path), content).unwrap();
        }
        wrong.extend(play(name, &[dir.path().to_string_lossy().into_owned()], right, &mut table));
    }
    assert!(wrong.is_empty(), "{}\n{table}", wrong.join("\n"));
}

/// Terminal sequences of a log never reach the terminal.
#[test]
fn a_log_steers_no_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let text = "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a\u{1b}]0;x\u{7}.py\", line 3, in f\n\
                [rank1]: ValueError: \u{1b}[31mred\u{202e}\u{7}\n";
    fs::write(dir.path().join("job.log"), text).unwrap();
    let said = say(&["autopsy", &dir.path().to_string_lossy()]);
    assert!(
        said.stdout.contains("ValueError: red") && !said.stdout.contains(['\u{1b}', '\u{7}', '\u{202e}']),
        "{said:?}"
    );
}
