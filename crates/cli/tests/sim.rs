//! `mycroft sim` as a person or a script meets it: runs that can be kept and replayed, scores, the corpus, refusals.
mod common;

use common::{Going, end, mycroft, refusal, say, until};
use mycroft_wire::cells::{CellType, Kind, columns};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A small job: 8 ranks on 4 hosts.
const SHAPE: [&str; 10] = ["--hosts", "4", "--ranks-per-host", "2", "--tp", "2", "--pp", "2", "--dp", "2"];

fn scenario(name: &str) -> String {
    format!("{}/../../scenarios/{name}.toml", env!("CARGO_MANIFEST_DIR"))
}

/// Every file under a folder with its content, by its path in it.
fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut found, mut folders) = (BTreeMap::new(), vec![dir.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(dir).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    found
}

/// The report in what a run printed: all before the truth.
fn report(stdout: &str) -> &str {
    let end = stdout.find("\ntruth: ").unwrap();
    stdout[..end].trim_start_matches('\n')
}

/// Clocks that differ, and a store that is away for seconds: what arrives is neither in order nor in time.
const LATE: &str = "name = \"late\"\nduration_s = 22.0\nseed = 5\n
[fault]\nkind = \"store-outage\"\nhost = 0\nafter_s = 6.0\nlasts_s = 4.0\n
[[faults]]\nkind = \"gpu-power\"\nhost = 2\nrank = 9\nafter_s = 8.0\n
[cluster]\nclock_offset_us = 5000.0\nclock_drift_ppm = 20.0\n";

#[test]
fn a_run_that_is_kept_is_the_run_that_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let late = dir.path().join("late.toml");
    fs::write(&late, LATE).unwrap();
    for (name, file) in [("hang", scenario("gpu-hang-16")), ("late", late.display().to_string())] {
        let path = |number: u32| dir.path().join(format!("{name}-{number}"));
        let mut said = Vec::new();
        for number in [1, 2] {
            said.push(say(&["sim", "run", &file, "--out", &path(number).display().to_string()]));
        }
        assert_eq!(report(&said[0].stdout), report(&said[1].stdout));
        assert_eq!(tree(&path(1)), tree(&path(2)), "{name}: the same seed, the same bytes");
        for _ in 0..2 {
            let replayed = say(&["replay", &path(1).display().to_string()]);
            assert_eq!(replayed.stdout, report(&said[0].stdout), "{name}");
            assert_eq!((replayed.code, replayed.stderr.as_str()), (Some(1), ""));
        }
        // What was kept is a scenario, and gives the same again.
        let third = say(&["sim", "run", &path(1).join("scenario.toml").display().to_string(), "--json"]).json();
        let truth: Value = serde_json::from_slice(&fs::read(path(1).join("truth.json")).unwrap()).unwrap();
        assert_eq!((&third["scenario"], &third["seed"]), (&truth["scenario"], &truth["seed"]));
        let faults = truth["faults"].as_array().unwrap();
        assert_eq!(faults.len(), third["truths"].as_array().unwrap().len());
        for (fault, brief) in faults.iter().zip(third["truths"].as_array().unwrap()) {
            assert_eq!(
                (&fault["fault"], &fault["hosts"], &fault["ranks"], &fault["from"]["ms"]),
                (&brief["fault"], &brief["hosts"], &brief["ranks"], &brief["at_ms"])
            );
            let nobody = fault["level"] == "nobody";
            assert_eq!(fault["right"]["what"].as_array().unwrap().is_empty(), nobody, "{fault}");
            assert!(fault["tempting"].as_str().is_some_and(|text| !text.is_empty()), "{fault}");
        }
        assert_eq!(truth["healthy"], false);
    }
}

#[test]
fn a_run_tells_what_the_testbed_tells_and_more() {
    let run = |fault: &[&str]| {
        let args = [&["sim", "run", "--json", "--seed", "7", "--duration", "20"][..], &SHAPE, fault].concat();
        let said = say(&args);
        assert_eq!((said.stdout.lines().count(), said.stderr.as_str()), (1, ""), "{said:?}");
        (said.code, said.json())
    };
    let (code, said) = run(&["--fault", "gpu-hang@host2:rank5", "--after", "6"]);
    assert_eq!((code, &said["correct"]), (Some(0), &json!(true)), "{said:#}");
    assert_eq!((&said["scenario"], &said["seed"]), (&json!("command-line"), &json!(7)));
    assert_eq!((&said["transport"], &said["detected"]), (&json!("simulated"), &json!(true)));
    assert_eq!(
        said["truth"],
        json!({"fault": "gpu-hang@host2:rank5", "hosts": ["host2"], "ranks": [5], "at_ms": said["truth"]["at_ms"]})
    );
    assert_eq!((&said["ranks"], &said["hosts"]), (&json!(8), &json!(4)));
    let (detected, diagnosed) =
        (said["detected_after_ms"].as_i64().unwrap(), said["diagnosed_after_ms"].as_i64().unwrap());
    assert!(0 < detected && detected <= diagnosed && diagnosed < 3000, "{said:#}");
    let verdict = &said["verdict"];
    assert_eq!((&verdict["what"], &verdict["category"]), (&json!("hang"), &json!("gpu")));
    assert_eq!((&verdict["suspects"][0]["rank"], &verdict["suspects"][0]["host"]), (&json!(5), &json!("host2")));
    assert!(verdict["because"][0].is_string() && said["iterations"].as_u64().unwrap() > 5, "{said:#}");
    for number in ["iteration_ms_median", "speed", "records", "batches", "iterations_after_fault", "slowest_tick_ms"] {
        assert!(said[number].is_number(), "{number}: {said:#}");
    }
    let (code, said) = run(&["--fault", "none"]);
    assert_eq!((code, &said["detected"], &said["verdict"]), (Some(0), &json!(false), &Value::Null), "{said:#}");
    assert_eq!((&said["truth"]["fault"], &said["detected_after_ms"]), (&Value::Null, &Value::Null));
    // Nobody can notice a hang on the last tenth of a second; nobody has to. A crash at half time has to be.
    let (code, said) = run(&["--fault", "gpu-hang@host2:rank5", "--after", "19.9"]);
    assert_eq!((code, &said["detected"], &said["correct"]), (Some(0), &json!(false), &json!(true)), "{said:#}");
    let both = ["--fault", "gpu-power@host0:rank1,after=6", "--fault", "rank-crash@host3:rank6,after=14"];
    let (code, said) = run(&both);
    assert_eq!(code, Some(if said["correct"] == true { 0 } else { 1 }));
    assert_eq!(said["truths"].as_array().map(Vec::len), Some(2), "{said:#}");
}

/// The text that a verdict against a truth of another kind gives: exit 1, and why.
#[test]
fn a_wrong_verdict_is_exit_1_and_says_why() {
    // No agent looks at anything while it happens, so no diagnosis can name it.
    let outages: Vec<String> = (0..4).map(|host| format!("agent-outage@host{host},after=6,lasts=60")).collect();
    let unseen = outages.iter().flat_map(|outage| ["--fault", outage.as_str()]);
    let hang = ["--fault", "gpu-hang@host2:rank5,after=8", "--duration", "20"];
    let args: Vec<&str> = ["sim", "run"].into_iter().chain(SHAPE).chain(unseen).chain(hang).collect();
    let said = say(&args);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stdout.contains("verdict: MISSED - gpu-hang@host2:rank5 was not named"), "{said:?}");
    // A fault that the job does not feel is no miss.
    let faint = ["--fault", "proxy-delay@host0,severity=0.0001", "--duration", "18"];
    assert_eq!(say(&[&["sim", "run"][..], &SHAPE, &faint].concat()).code, Some(0));
}

#[test]
fn ranks_alone_make_a_job() {
    let run = |more: &[&str]| say(&[&["sim", "run", "--duration", "3", "--json"][..], more].concat()).json();
    assert_eq!((&run(&["--ranks", "16"])["ranks"], &run(&["--ranks", "16"])["hosts"]), (&json!(16), &json!(2)));
    let four = run(&["--ranks", "64", "--ranks-per-host", "4", "--pp", "4"]);
    assert_eq!((&four["ranks"], &four["hosts"]), (&json!(64), &json!(16)));
}

/// Numbers that are the same whatever the machine: all but how long it took.
fn told(mut score: Value) -> Value {
    score.as_object_mut().unwrap().remove("slowest_tick_ms");
    score
}

#[test]
fn a_score_is_the_same_however_many_work_on_it() {
    let dir = tempfile::tempdir().unwrap();
    let (page, keep) = (dir.path().join("accuracy.md"), dir.path().join("keep"));
    let score = |jobs: &str| {
        let args = ["sim", "score", "--seeds", "5..8", "--family", "mycroft", "--json", "--jobs", jobs];
        let files = ["--write", &page.display().to_string(), "--keep", &keep.display().to_string()];
        let said = say(&[&args[..], &files].concat());
        (said.code, said.json(), fs::read_to_string(&page).unwrap())
    };
    let (code, one, text) = score("1");
    let (_, two, again) = score("2");
    assert_eq!((told(one.clone()), &text), (told(two), &again));
    assert_eq!((&one["seeds"], &one["range"], &one["family"]), (&json!(3), &json!("5..8"), &json!("mycroft")));
    for share in ["precision", "recall", "exact", "category_accuracy"] {
        assert!((0.0..=1.0).contains(&one[share].as_f64().unwrap()), "{share}: {one:#}");
    }
    for times in ["detection_ms", "diagnosis_ms"] {
        let (median, p99) = (&one[times]["median"], &one[times]["p99"]);
        assert!(median.as_u64() <= p99.as_u64() && one[times].as_object().unwrap().len() == 2, "{one:#}");
    }
    assert_eq!(one["families"].as_object().unwrap().keys().collect::<Vec<_>>(), ["mycroft"]);
    let failing = one["failing"].as_array().unwrap();
    assert_eq!(code, Some(if failing.is_empty() { 0 } else { 1 }));
    assert_eq!(failing.len(), fs::read_dir(&keep).map_or(0, Iterator::count), "failing seeds are kept");
    for failing in failing {
        let again = failing["again"].as_str().unwrap();
        assert_eq!(again, format!("mycroft sim run --swarm {} --family mycroft", failing["seed"]));
        assert!(text.contains(again) && keep.join(failing["scenario"].as_str().unwrap()).join("report.txt").is_file());
    }
    assert!(text.contains("`mycroft sim score --seeds 5..8 --family mycroft`"), "{text}");
    assert!(text.lines().all(|line| line.is_ascii()) && text.contains("| all"), "{text}");
    let words = say(&["sim", "score", "--seeds", "6", "--family", "mycroft"]).stdout;
    assert!(words.contains("| precision |") && words.contains("failing seeds: "), "{words}");
}

#[test]
fn the_corpus_is_the_same_bytes_and_explains_itself() {
    let dir = tempfile::tempdir().unwrap();
    let make = |name: &str, jobs: &str| {
        let out = dir.path().join(name);
        let args = ["sim", "corpus", "--seeds", "6..8", "--family", "mycroft", "--jobs", jobs, "--out"];
        let said = say(&[&args[..], &[&out.display().to_string()]].concat());
        assert_eq!((said.code, said.stdout.as_str()), (Some(0), ""), "{said:?}");
        out
    };
    let (one, two) = (make("one", "1"), make("two", "2"));
    assert_eq!(tree(&one), tree(&two));
    let text = |name: &str| fs::read_to_string(one.join(name)).unwrap();
    let (readme, index): (String, Value) = (text("README.md"), serde_json::from_str(&text("index.json")).unwrap());
    assert!(text("LICENSE").starts_with("# Community Data License Agreement - Permissive - Version 2.0"));
    assert!(!readme.contains("{command}") && readme.contains("`mycroft sim corpus --seeds 6..8 --family mycroft`"));
    let scenarios = index["scenarios"].as_array().unwrap();
    assert_eq!(scenarios.iter().map(|one| one["seed"].as_u64().unwrap()).collect::<Vec<_>>(), [6, 7]);
    for scenario in scenarios {
        let folder = one.join(scenario["folder"].as_str().unwrap());
        assert_eq!((&scenario["family"], &scenario["healthy"]), (&json!("mycroft"), &json!(false)));
        for file in scenario["files"].as_array().unwrap() {
            let found = fs::metadata(folder.join(file["name"].as_str().unwrap())).unwrap().len();
            assert_eq!(file["bytes"], found);
        }
        let truth: Value = serde_json::from_slice(&fs::read(folder.join("truth.json")).unwrap()).unwrap();
        assert_eq!((&truth["scenario"], &truth["healthy"]), (&scenario["name"], &json!(false)));
        assert!(folder.join("scenario.toml").is_file());
    }
    // Nothing in the records tells the fault, and the diagnosis can be asked about them.
    let first = one.join(scenarios[0]["folder"].as_str().unwrap()).display().to_string();
    let replayed = say(&["replay", &first, "--json"]);
    assert_eq!(replayed.json()["reports"][0]["job"], "train", "{replayed:?}");
}

/// Every column of the files is in the README that lies beside them.
#[test]
fn the_readme_of_the_corpus_names_every_column() {
    let readme = include_str!("../src/sim/corpus/README.md");
    for &kind in Kind::ALL {
        assert!(readme.contains(&format!("`{}`", kind.as_str())), "{}", kind.as_str());
        for column in columns(kind).iter().filter(|column| column.cell != CellType::At) {
            let name = match column.name.strip_suffix("_at").filter(|_| column.cell == CellType::Time) {
                Some(stem) => format!("{stem}_us"),
                None => column.name.to_owned(),
            };
            assert!(readme.contains(&format!("`{name}`")), "{name} of {}", kind.as_str());
        }
    }
}

#[test]
fn an_interrupted_command_leaves_nothing_behind() {
    for command in [
        &["sim", "run", "--ranks", "1024", "--duration", "3600", "--out"][..],
        &["sim", "corpus", "--seeds", "0..1000", "--out"],
    ] {
        let dir = tempfile::tempdir().unwrap();
        let out = dir.path().join("out");
        let going = Going::start(mycroft(&[command, &[&out.display().to_string()]].concat()));
        let unfinished = || fs::read_dir(dir.path()).unwrap().flatten().next();
        until("the folder is begun", || unfinished().map(|entry| entry.path().join("records")));
        going.signal("INT");
        let (status, stdout, stderr) = going.wait();
        assert_eq!((status.code(), stdout.as_str()), (Some(130), ""), "{stderr}");
        assert!(stderr.contains("interrupted"), "{stderr}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{command:?}");
    }
}

fn expect(args: &[&str], words: &[&str]) {
    let line = refusal(args);
    for word in words {
        assert!(line.contains(word), "{args:?} does not say {word:?}: {line}");
    }
}

#[test]
fn what_cannot_be_is_refused_in_one_line() {
    let dir = tempfile::tempdir().unwrap();
    let full = dir.path().join("full");
    fs::create_dir(&full).unwrap();
    let broken = full.join("broken.toml");
    fs::write(&broken, "hosts = 4\n\n[cluster]\nfabrik = \"rail\"\n").unwrap();
    let (full, broken) = (full.display().to_string(), broken.display().to_string());
    let nowhere = dir.path().join("no/such/page.md").display().to_string();
    expect(&["sim", "walk"], &["walk"]);
    expect(&["sim", "run", &broken], &["broken.toml:4", "fabrik", "fabric"]);
    expect(&["sim", "run", "no-such.toml"], &["no-such.toml", "cannot read"]);
    expect(&["sim", "run", &broken, "--swarm", "3"], &["--swarm", "SCENARIO"]);
    expect(&["sim", "run", "--family", "pulse"], &["--swarm"]);
    expect(&["sim", "run", "--ranks", "12"], &["--ranks 12", "multiple of the 8 ranks of a host", "--ranks-per-host"]);
    expect(&["sim", "run", "--ranks", "0"], &["--ranks 0", "multiple"]);
    expect(&["sim", "run", "--ranks", "64", "--pp", "3"], &["--ranks 64", "tp x pp x cp = 24"]);
    expect(&["sim", "run", "--ranks", "16", "--hosts", "2"], &["--ranks", "--hosts"]);
    expect(&["sim", "run", "--hosts", "3"], &["tp x pp x dp"]);
    expect(&["sim", "run", "--fault", "gpu-hung@host1"], &["--fault gpu-hung", "expected one of", "gpu-hang"]);
    expect(&["sim", "run", "--fault", "gpu-hang@host9"], &["host = 9", "0 to 3"]);
    expect(&["sim", "run", "--schedule", "chaos"], &["--schedule", "chaos", "interleaved"]);
    expect(&["sim", "run", "--dp-mode", "zero"], &["--dp-mode", "fsdp"]);
    expect(&["sim", "run", "--duration", "NaN"], &["duration_s", "expected"]);
    expect(&["sim", "run", "--out", &full], &["--out", &full, "not empty", "not there yet"]);
    expect(&["sim", "corpus", "--out", &full], &["--out", &full, "not empty"]);
    expect(&["sim", "corpus"], &["--out"]);
    for text in ["7..7", "b..a", "9..2"] {
        expect(&["sim", "score", "--seeds", text], &["--seeds", "A..B"]);
        expect(&["sim", "corpus", "--out", "x", "--seeds", text], &["--seeds", "A..B"]);
    }
    expect(&["sim", "score", "--seeds", "0..2000000"], &["--seeds", "at most 1000000"]);
    expect(&["sim", "score", "--family", "hawk"], &["--family", "hawk", "flight-recorder"]);
    expect(&["sim", "score", "--jobs", "0"], &["--jobs", "1..=256"]);
    let mut late = mycroft(&["sim", "score", "--seeds", "6", "--family", "mycroft", "--write", &nowhere]);
    late.env("TMPDIR", dir.path());
    let said = end(late);
    assert_eq!((said.code, said.stdout.as_str()), (Some(2), ""), "{said:?}");
    assert!(said.stderr.contains(&nowhere), "{said:?}");
}
