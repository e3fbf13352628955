//! `mycroft autopsy` as a person or a script meets it, over dumps that real jobs with real faults left behind
//! (`testbed/flight_recorder`; the truth lies beside them).
mod common;

use common::{mycroft, refusal, say};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Scenarios whose text is held by a golden file (`MYCROFT_UPDATE_GOLDEN=1` refreshes them).
const GOLDEN: &[&str] = &[
    "alltoall_skewed_ok-hook-1",
    "branch_type-gloo-1",
    "dtype_hang-hook-1",
    "gil_held-hook-1",
    "group_order-gloo-1",
    "healthy-gloo-1",
    "loader_stuck-hook-1",
    "stuck_stage-hook-1",
];

/// One rank asleep, five wait for it.
const STUCK: &str = "rank_stuck-gloo-1";

fn dumps() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dumps")
}

fn dir(scenario: &str) -> String {
    dumps().join(scenario).to_string_lossy().into_owned()
}

/// A copy of a scenario's dumps that may be changed, without the truth.
fn copy(scenario: &str) -> tempfile::TempDir {
    let to = tempfile::tempdir().unwrap();
    for kind in ["pickle", "pyspy"] {
        fs::create_dir(to.path().join(kind)).unwrap();
        for file in fs::read_dir(dumps().join(scenario).join(kind)).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), to.path().join(kind).join(file.file_name())).unwrap();
        }
    }
    to
}

fn dump_of(dir: &Path, rank: u32) -> PathBuf {
    dir.join(format!("pickle/comm_lib_trace_rank_{rank}"))
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Code and JSON of `mycroft autopsy --json DIR`.
fn answer(dir: &str) -> (Option<i32>, Value) {
    let said = say(&["autopsy", "--json", dir]);
    assert!(!said.stdout.is_empty(), "{dir}: {said:?}");
    (said.code, said.json())
}

fn ranks(list: &Value) -> Vec<u64> {
    let mut ranks: Vec<u64> = list.as_array().unwrap().iter().map(|rank| rank.as_u64().unwrap()).collect();
    ranks.sort_unstable();
    ranks
}

fn suspects(answer: &Value) -> Vec<u64> {
    let suspects = answer["verdict"]["suspects"].as_array().unwrap();
    ranks(&suspects.iter().map(|suspect| suspect["rank"].clone()).collect())
}

/// What is wrong with an answer, in words; empty when it is right.
fn judge(truth: &Value, code: Option<i32>, answer: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let (verdict, named) = (&answer["verdict"], suspects(answer));
    let culprits = ranks(&truth["culprits"]);
    let is_right = if truth["culprits_any"] == true {
        named.iter().all(|rank| culprits.contains(rank))
    } else {
        named == culprits || truth["or_culprits"].is_array() && named == ranks(&truth["or_culprits"])
    };
    if !is_right {
        wrong.push(format!("names {named:?}, culprits {culprits:?}"));
    }
    for key in ["what", "category", "cause", "collective"] {
        let right: Vec<&Value> = match &truth[key] {
            Value::Array(any) => any.iter().collect(),
            Value::String(text) if text.is_empty() => Vec::new(),
            only => vec![only],
        };
        if !right.is_empty() && !right.contains(&&verdict[key]) {
            wrong.push(format!("{key} {}, expected {right:?}", verdict[key]));
        }
    }
    if !truth["seq"].is_null() && verdict["seq"] != truth["seq"] {
        wrong.push(format!("seq {}, expected {}", verdict["seq"], truth["seq"]));
    }
    if ranks(&answer["missing_dumps"]) != ranks(&truth["missing_dumps"]) {
        wrong.push(format!("missing dumps {}, expected {}", answer["missing_dumps"], truth["missing_dumps"]));
    }
    let is_well = verdict["what"] == "healthy" || verdict["what"] == "slow" && named.is_empty();
    if code != Some(i32::from(!is_well)) {
        wrong.push(format!("exit code {code:?} for {}", verdict["what"]));
    }
    wrong
}

/// Exactly the culprits, the right words and numbers, for every scenario; healthy and slow jobs are said to be that.
#[test]
fn every_scenario_is_judged_right() {
    let mut wrong = Vec::new();
    let mut scenarios: Vec<_> = fs::read_dir(dumps()).unwrap().map(|entry| entry.unwrap().path()).collect();
    scenarios.sort();
    assert!(scenarios.len() >= 30, "{}", scenarios.len());
    for scenario in scenarios {
        let truth: Value = serde_json::from_slice(&fs::read(scenario.join("truth.json")).unwrap()).unwrap();
        let (code, answer) = answer(&text(&scenario));
        for what in judge(&truth, code, &answer) {
            wrong.push(format!("{}: {what}", scenario.file_name().unwrap().to_string_lossy()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn texts_are_as_they_were() {
    let is_update = std::env::var_os("MYCROFT_UPDATE_GOLDEN").is_some();
    for scenario in GOLDEN {
        let said = say(&["autopsy", "--quiet", &dir(scenario)]);
        assert_eq!(said.stderr, "", "{scenario}");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/autopsy/{scenario}.txt"));
        if is_update {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &said.stdout).unwrap();
        }
        let golden = fs::read_to_string(&path).unwrap();
        assert_eq!(said.stdout, golden, "{scenario}: MYCROFT_UPDATE_GOLDEN=1 takes this over");
    }
}

#[test]
fn the_same_folder_gives_the_same_answer() {
    let first = say(&["autopsy", "--json", &dir("stuck_stage-hook-1")]);
    for _ in 0..3 {
        assert_eq!(say(&["autopsy", "--json", &dir("stuck_stage-hook-1")]).stdout, first.stdout);
    }
}

/// The object that scripts are promised.
#[test]
fn json_has_the_promised_fields() {
    let (code, answer) = answer(&dir(STUCK));
    assert_eq!(code, Some(1));
    let verdict = &answer["verdict"];
    let words = ["hang", "desync", "deadlock", "crash", "slow", "healthy", "unknown"];
    assert!(words.contains(&verdict["what"].as_str().unwrap()));
    assert!(verdict["category"].is_string() && verdict["group"].is_string() && verdict["collective"].is_string());
    assert!(verdict["seq"].is_u64() && answer["ranks"].is_u64());
    for list in [&verdict["because"], &verdict["do_next"], &answer["caveats"], &answer["notes"]] {
        assert!(list.as_array().unwrap().iter().all(Value::is_string), "{list}");
    }
    assert!(!verdict["because"].as_array().unwrap().is_empty() && !verdict["do_next"].as_array().unwrap().is_empty());
    let suspect = &verdict["suspects"][0];
    let sure = suspect["confidence"].as_f64().unwrap();
    assert!(suspect["rank"].is_u64() && suspect["role"].is_string() && sure > 0.0 && sure <= 1.0, "{suspect}");
    assert!(suspect["at"]["file"].as_str().unwrap().ends_with("train.py"), "{suspect}");
    assert_eq!(ranks(&answer["missing_dumps"]), [] as [u64; 0]);
    let records = verdict["evidence"][0]["records"].as_array().unwrap();
    assert!(records.iter().any(|record| record["seq"] == verdict["seq"] && record["at"]["ns"].is_u64()), "{records:?}");
}

#[test]
fn nothing_to_read_is_refused_with_what_to_do() {
    let empty = tempfile::tempdir().unwrap();
    let said = refusal(&["autopsy", &text(empty.path())]);
    assert!(said.contains("no usable dump in 0 files") && said.contains("TORCH_FR_BUFFER_SIZE"), "{said}");
    let said = refusal(&["autopsy", "/nonexistent/dumps"]);
    assert!(said.contains("/nonexistent/dumps") && said.contains("give the folder"), "{said}");
    let said = refusal(&["autopsy", "--rank-pattern", "rank_(", &text(empty.path())]);
    assert!(said.contains("rank_("), "{said}");
    let said = refusal(&["autopsy", "--rank-pattern", "rank", &text(empty.path())]);
    assert!(said.contains("rank"), "{said}");
    // Stacks alone are enough where they tell who waits.
    let stacks = copy(STUCK);
    fs::remove_dir_all(stacks.path().join("pickle")).unwrap();
    assert_eq!(suspects(&answer(&text(stacks.path())).1), [5]);
}

/// What a pickle can do to who loads it: call any function.
#[test]
fn a_malicious_pickle_runs_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let canary = dir.path().join("canary");
    let command = format!("touch {}", canary.display());
    let mut pickle = b"\x80\x02cposix\nsystem\nX".to_vec();
    pickle.extend((command.len() as u32).to_le_bytes());
    pickle.extend(command.as_bytes());
    pickle.extend(b"\x85R.");
    fs::write(dir.path().join("comm_lib_trace_rank_0"), pickle).unwrap();
    let said = refusal(&["autopsy", &text(dir.path())]);
    assert!(said.contains("comm_lib_trace_rank_0") && said.contains("would run code"), "{said}");
    assert!(!canary.exists());
}

/// Which of two is right is not guessed.
#[test]
fn two_files_for_one_rank_are_refused() {
    let dir = copy(STUCK);
    fs::create_dir(dir.path().join("older")).unwrap();
    fs::copy(dump_of(&dumps().join("healthy-gloo-1"), 2), dir.path().join("older/comm_lib_trace_rank_2")).unwrap();
    let said = refusal(&["autopsy", &text(dir.path())]);
    for word in ["rank 2", "older/comm_lib_trace_rank_2", "pickle/comm_lib_trace_rank_2", "--rank-pattern"] {
        assert!(said.contains(word), "{word}: {said}");
    }
}

/// What cannot be read is told, and the rest still tells who.
#[test]
fn damaged_files_are_named_and_the_rest_is_used() {
    let dir = copy(STUCK);
    let truth: Value = serde_json::from_slice(&fs::read(dumps().join(STUCK).join("truth.json")).unwrap()).unwrap();
    let culprit = ranks(&truth["culprits"])[0];
    let damaged: Vec<u32> = (0..6).filter(|rank| u64::from(*rank) != culprit).take(2).collect();
    let whole = fs::read(dump_of(dir.path(), damaged[0])).unwrap();
    fs::write(dump_of(dir.path(), damaged[0]), &whole[..whole.len() / 2]).unwrap();
    fs::write(dump_of(dir.path(), damaged[1]), b"").unwrap();
    let said = say(&["autopsy", "--json", &text(dir.path())]);
    let answer = said.json();
    assert_eq!(said.code, Some(1));
    assert_eq!(ranks(&answer["missing_dumps"]), damaged.iter().copied().map(u64::from).collect::<Vec<_>>());
    assert!(suspects(&answer).contains(&culprit), "{answer}");
    for rank in damaged {
        let named = format!("rank {rank}: pickle/comm_lib_trace_rank_{rank}: ");
        assert!(said.stderr.contains(&named), "{named} in {}", said.stderr);
    }
    assert_eq!(say(&["autopsy", "--quiet", &text(dir.path())]).stderr, "");
}

/// Pipes that trigger dumps lie beside them, and a link may lead anywhere.
#[test]
fn pipes_and_links_are_not_followed() {
    let dir = copy(STUCK);
    let pipe = dir.path().join("pickle/dump_7.pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::os::unix::fs::symlink("/dev/zero", dir.path().join("comm_lib_trace_rank_9")).unwrap();
    std::os::unix::fs::symlink(dir.path(), dir.path().join("loop")).unwrap();
    std::os::unix::fs::symlink("/", dir.path().join("everything")).unwrap();
    let (code, answer) = answer(&text(dir.path()));
    assert_eq!((code, &answer["ranks"]), (Some(1), &Value::from(6)), "{answer}");
    let notes = answer["notes"].to_string();
    for name in
        ["pickle/dump_7.pipe: no regular file", "comm_lib_trace_rank_9: a link to a device", "everything: a link"]
    {
        assert!(notes.contains(name), "{name}: {notes}");
    }
    assert!(!notes.contains("loop"), "{notes}");
}

#[test]
fn a_pattern_tells_the_rank() {
    let dir = copy(STUCK);
    for rank in 0..6 {
        let to = dir.path().join(format!("pickle/w{rank}.of.6.dump"));
        fs::rename(dump_of(dir.path(), rank), to).unwrap();
    }
    fs::remove_dir_all(dir.path().join("pyspy")).unwrap();
    let dir = text(dir.path());
    // The last number of each name is 6.
    refusal(&["autopsy", &dir]);
    let said = say(&["autopsy", "--json", "--rank-pattern", r"w(\d+)\.of", &dir]);
    assert_eq!(suspects(&said.json()), suspects(&answer(&self::dir(STUCK)).1), "{said:?}");
}

/// Folders of several nodes are one job.
#[test]
fn several_folders_are_one_job() {
    let (one, other) = (copy(STUCK), tempfile::tempdir().unwrap());
    fs::create_dir(other.path().join("pickle")).unwrap();
    for rank in 3..6 {
        fs::rename(dump_of(one.path(), rank), dump_of(other.path(), rank)).unwrap();
    }
    let said = say(&["autopsy", "--json", &text(one.path()), &text(other.path())]);
    let answer = said.json();
    assert_eq!((said.code, &answer["ranks"]), (Some(1), &Value::from(6)));
    assert_eq!(suspects(&answer), suspects(&self::answer(&dir(STUCK)).1));
}

#[test]
fn a_page_is_written() {
    let to = tempfile::tempdir().unwrap();
    let file = to.path().join("report.html");
    let said = say(&["autopsy", "--html", &text(&file), &dir(STUCK)]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stdout.starts_with("HANG"), "{said:?}");
    let page = fs::read_to_string(&file).unwrap();
    assert!(page.starts_with("<!") && page.contains(STUCK), "{}", &page[..page.len().min(300)]);
    let said = say(&["autopsy", "--html", "/nonexistent/report.html", &dir(STUCK)]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("/nonexistent/report.html"), "{said:?}");
}

/// Names of functions are foreign text: they must not reach a terminal as commands.
#[test]
fn foreign_names_steer_no_terminal() {
    let dir = copy(STUCK);
    for file in fs::read_dir(dir.path().join("pyspy")).unwrap() {
        let path = file.unwrap().path();
        let stacks = fs::read_to_string(&path).unwrap();
        fs::write(&path, stacks.replace("\"wait_in\"", "\"wait\\u001b[2J\\u001b]0;gone\\u0007_in\"")).unwrap();
    }
    let said = say(&["autopsy", &text(dir.path())]);
    assert!(said.stdout.contains("\\u{1b}[2J"), "{said:?}");
    assert!(!said.stdout.contains('\u{1b}') && !said.stdout.contains('\u{7}'));
}

#[test]
fn help_says_what_the_exit_codes_mean() {
    let said = say(&["autopsy", "--help"]);
    assert_eq!(said.code, Some(0));
    for word in ["--json", "--html", "--rank-pattern", "--quiet", "DIR", "Exit codes: 0", "Examples"] {
        assert!(said.stdout.contains(word), "{word}");
    }
}

/// A reader that stops early is nothing to complain about.
#[test]
fn a_closed_pipe_is_no_error() {
    use std::process::Stdio;
    let mut child =
        mycroft(&["autopsy", "--json", &dir(STUCK)]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let out = child.wait_with_output().unwrap();
    assert_eq!((out.status.code(), String::from_utf8_lossy(&out.stderr).as_ref()), (Some(1), ""));
}

/// A command as another user, where the tests may do that; `None` where they may not.
fn as_nobody(args: &[&str]) -> Option<common::Said> {
    use std::os::unix::process::CommandExt;
    let mut command = mycroft(args);
    if fs::metadata("/proc/self").is_ok_and(|me| std::os::unix::fs::MetadataExt::uid(&me) == 0) {
        command.uid(65_534).gid(65_534);
        let is_run = Command::new(env!("CARGO_BIN_EXE_mycroft")).arg("--version").uid(65_534).gid(65_534).output();
        if !is_run.is_ok_and(|out| out.status.success()) {
            println!("skipped: another user cannot run the command");
            return None;
        }
    }
    Some(common::end(command))
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
}

/// What the reader may not open tells nothing about a rank.
#[test]
fn a_file_that_may_not_be_opened_is_no_evidence() {
    let healthy = copy("healthy-gloo-1");
    set_mode(healthy.path(), 0o755);
    set_mode(&dump_of(healthy.path(), 2), 0o000);
    let dir = text(healthy.path());
    let Some(said) = as_nobody(&["autopsy", &dir]) else { return };
    assert_eq!(said.code, Some(1), "{said:?}");
    let words = "HEALTHY AS FAR AS 5 OF 6 RANKS TELL: nothing is wrong there; 1 file could not be read";
    assert!(said.stdout.starts_with(words), "{said:?}");
    assert!(said.stderr.contains("rank 2: pickle/comm_lib_trace_rank_2: cannot be opened"), "{said:?}");
    let answer = as_nobody(&["autopsy", "--json", &dir]).unwrap().json();
    assert_eq!(answer["verdict"]["what"], "healthy-as-far");
    assert_eq!((&answer["told"], &answer["ranks"]), (&Value::from(5), &Value::from(6)));
    assert_eq!((&answer["unread"][0]["rank"], &answer["unread"][1]), (&Value::from(2), &Value::Null));

    // The rank that everybody waits for: unknown, not gone.
    let stuck = copy(STUCK);
    set_mode(stuck.path(), 0o755);
    fs::remove_dir_all(stuck.path().join("pyspy")).unwrap();
    let (_, whole) = self::answer(&text(stuck.path()));
    let culprit = suspects(&whole)[0] as u32;
    set_mode(&dump_of(stuck.path(), culprit), 0o000);
    let unread = as_nobody(&["autopsy", "--json", &text(stuck.path())]).unwrap();
    assert_eq!((unread.code, suspects(&unread.json())), (Some(1), Vec::new()), "{unread:?}");
    assert_eq!(unread.json()["verdict"]["what"], "hang");
    // A folder that may not be listed may hold anything.
    let healthy = copy("healthy-gloo-1");
    set_mode(healthy.path(), 0o755);
    fs::create_dir(healthy.path().join("more")).unwrap();
    set_mode(&healthy.path().join("more"), 0o000);
    let said = as_nobody(&["autopsy", "--quiet", &text(healthy.path())]).unwrap();
    assert!(said.stdout.starts_with("HEALTHY AS FAR AS 6 OF 6"), "{said:?}");
    assert_eq!(said.code, Some(1));
}

/// A folder of links to one's own dumps, and a link to a folder that is named.
#[test]
fn links_that_are_named_or_lead_to_ones_own_files_are_followed() {
    let links = tempfile::tempdir().unwrap();
    for rank in 0..6 {
        let name = links.path().join(format!("comm_lib_trace_rank_{rank}"));
        std::os::unix::fs::symlink(dump_of(&dumps().join(STUCK), rank), name).unwrap();
    }
    std::os::unix::fs::symlink("/etc/passwd", links.path().join("pyspy_rank_1.txt")).unwrap();
    let expected = suspects(&answer(&dir(STUCK)).1);
    let (code, linked) = answer(&text(links.path()));
    assert_eq!((code, &linked["ranks"], suspects(&linked)), (Some(1), &Value::from(6), expected.clone()), "{linked}");
    assert!(!linked.to_string().contains("root:"), "nothing of a linked file is quoted: {linked}");

    let latest = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(dumps().join(STUCK), latest.path().join("latest")).unwrap();
    let named = say(&["autopsy", "--json", &text(&latest.path().join("latest"))]);
    assert_eq!(suspects(&named.json()), expected);
    let inside = refusal(&["autopsy", &text(latest.path())]);
    assert!(inside.contains("latest: a link to a folder outside, not followed; name that folder itself"), "{inside}");
}

#[test]
fn pipes_and_devices_are_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let pipe = dir.path().join("dump_rank_0");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for (path, what) in
        [(text(&pipe), "a pipe"), ("/dev/zero".to_owned(), "a device"), ("/dev/tty".to_owned(), "a device")]
    {
        let said = refusal(&["autopsy", &path]);
        assert!(said.contains(what) && said.contains("only folders and regular files are read"), "{said}");
    }
}

/// Names of files and hosts are foreign text as well, on both streams.
#[test]
fn foreign_file_names_steer_no_terminal() {
    let dir = copy(STUCK);
    let evil = "\u{1b}]0;gone\u{7}\u{202e}\nforged: line";
    fs::write(dir.path().join(format!("{evil} dump_rank_9")), "nothing").unwrap();
    fs::write(dir.path().join(format!("{evil}.log")), "nothing").unwrap();
    fs::create_dir(dir.path().join("old")).unwrap();
    let is_clean = |said: &str| !said.contains(['\u{1b}', '\u{7}', '\u{202e}']) && !said.contains("\nforged");
    let said = say(&["autopsy", &text(dir.path())]);
    assert!(said.stderr.contains("\\u{1b}]0;gone") && is_clean(&said.stderr), "{said:?}");
    assert!(is_clean(&said.stdout), "{said:?}");
    let clash = dir.path().join(format!("old/{evil}_rank_2"));
    fs::copy(dump_of(&dumps().join("healthy-gloo-1"), 2), &clash).unwrap();
    let said = refusal(&["autopsy", &text(dir.path())]);
    assert!(said.contains("\\u{1b}") && is_clean(&said), "{said:?}");
}

/// Memory that ran out is told with its file and its rank, and is evidence of nothing.
#[test]
fn a_log_beside_dumps_is_a_remark() {
    let dir = copy(STUCK);
    let before = answer(&text(dir.path()));
    fs::write(dir.path().join("stderr_rank_3.log"), "step 5\ntorch.OutOfMemoryError: CUDA out of memory.\n").unwrap();
    fs::write(dir.path().join("rank_4.txt"), "kernel: oom_kill_process: Killed process 7\n").unwrap();
    let after = answer(&text(dir.path()));
    assert_eq!((before.0, &before.1["verdict"], &before.1["ranks"]), (after.0, &after.1["verdict"], &after.1["ranks"]));
    let caveats = after.1["caveats"].to_string();
    for words in ["stderr_rank_3.log, by its name of rank 3", "CUDA out of memory", "rank_4.txt, by its name of rank 4"]
    {
        assert!(caveats.contains(words), "{words}: {caveats}");
    }
}

/// When it began is in the JSON as in the text.
#[test]
fn json_tells_since() {
    let (_, stuck) = answer(&dir("loader_stuck-hook-1"));
    assert_eq!(stuck["verdict"]["since"]["text"].as_str().unwrap().get(..23), Some("2026-11-21T13:44:09.580"));
    assert_eq!(answer(&dir("healthy-gloo-1")).1["verdict"]["since"], Value::Null);
}
