//! The command line as a person or a script meets it: help, refusals in one line, exit codes, and the readers of a server.
mod common;

use common::{Going, Said, end, line_with, mycroft, refusal, say, serve, until};
use mycroft_store::recording::RecordingWriter;
use mycroft_store::{Store, StoreConfig};
use mycroft_wire::codec;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// Every command and the flags that its help must name.
const COMMANDS: &[(&[&str], &[&str])] = &[
    (
        &[],
        &["demo", "testbed", "sim", "agent", "serve", "cases", "watch", "replay", "doctor", "--version", "Exit codes"],
    ),
    (&["demo"], &["--fault", "--after", "--wait", "--transport", "--seed", "gpu-hang", "rank-stuck", "--keep"]),
    (&["testbed"], &["run", "table", "overhead", "clean"]),
    (
        &["testbed", "run"],
        &[
            "SCENARIO",
            "--hosts",
            "--ranks-per-host",
            "--tp",
            "--pp",
            "--dp",
            "--algo",
            "--moe",
            "--fault",
            "--after",
            "--duration",
            "--seed",
            "--transport",
            "--json",
            "--record",
        ],
    ),
    (
        &["testbed", "table"],
        &["SCENARIOS", "--seeds", "--first-seed", "--transport", "--write", "--runs", "--keep-failures"],
    ),
    (&["testbed", "overhead"], &["--rounds", "--seconds", "--empty-plugin", "--write"]),
    (&["testbed", "clean"], &["namespaces"]),
    (&["sim"], &["run", "score", "corpus"]),
    (
        &["sim", "run"],
        &[
            "SCENARIO",
            "--swarm",
            "--family",
            "--ranks",
            "--hosts",
            "--ranks-per-host",
            "--tp",
            "--pp",
            "--dp",
            "--cp",
            "--ep",
            "--moe",
            "--algo",
            "--dp-mode",
            "--schedule",
            "--virtual-stages",
            "--fault",
            "--after",
            "--duration",
            "--seed",
            "--out",
            "--json",
            "Examples:",
        ],
    ),
    (
        &["sim", "score"],
        &["--seeds", "--family", "--jobs", "--keep", "--json", "--write", "flight-recorder", "Examples:"],
    ),
    (&["sim", "corpus"], &["--out", "--seeds", "--family", "--jobs", "Example:"]),
    (
        &["agent"],
        &[
            "--server",
            "--dir",
            "--host",
            "--token",
            "--tls-ca",
            "--tls-name",
            "--sample-ms",
            "--spool",
            "--spool-bytes",
            "--nic-root",
            "--nic",
            "--nice",
            "--no-dump",
            "MYCROFT_SERVER",
        ],
    ),
    (
        &["serve"],
        &[
            "--http",
            "--wire",
            "--store",
            "--token",
            "--tls-cert",
            "--tls-key",
            "--tick-ms",
            "--no-dump-on-case",
            "--webhook",
            "MYCROFT_TOKEN",
        ],
    ),
    (&["cases"], &["ID", "--url", "--token", "--job", "--all", "--json"]),
    (&["watch"], &["--url", "--token", "--job", "--once"]),
    (&["replay"], &["STORE", "--job", "--json", "--records", "--export", "--tick-ms", "mycroft replay "]),
    (&["autopsy"], &["DIR", "--json", "--html", "--rank-pattern", "--quiet", "Exit codes"]),
    (&["dump"], &["--job", "--server", "--out", "--html", "--json", "--no-stacks", "--no-flight-recorder"]),
    (&["doctor"], &["--pid", "--dir", "--url", "--token", "--token-file", "--server", "--json"]),
];

#[test]
fn help_names_every_flag() {
    for (command, words) in COMMANDS {
        let said = say(&[*command, &["--help"]].concat());
        assert_eq!((said.code, said.stderr.as_str()), (Some(0), ""), "{command:?}");
        for word in *words {
            assert!(said.stdout.contains(word), "{command:?} --help does not say {word}:\n{}", said.stdout);
        }
    }
    let version = say(&["--version"]);
    assert_eq!((version.code, version.stdout), (Some(0), format!("mycroft {}\n", env!("CARGO_PKG_VERSION"))));
}

/// A token in the environment must not show where people look over a shoulder.
#[test]
fn help_never_shows_the_token() {
    for command in ["agent", "serve", "cases", "mitigate", "watch", "dump", "doctor"] {
        let mut run = mycroft(&[command, "--help"]);
        run.env("MYCROFT_TOKEN", "secret-of-the-environment");
        assert!(!end(run).stdout.contains("secret-of-the-environment"), "{command}");
    }
}

#[test]
fn no_command_shows_the_help() {
    let said = say(&[]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("Usage: mycroft"), "{said:?}");
}

/// Arguments that are refused and what the one line must say.
fn expect(args: &[&str], words: &[&str]) {
    let line = refusal(args);
    for word in words {
        assert!(line.contains(word), "{args:?} does not say {word:?}: {line}");
    }
}

#[test]
fn words_that_are_not_known() {
    expect(&["tesbed"], &["tesbed", "testbed"]);
    expect(
        &["testbed", "run", "--transport", "carrier-pigeon"],
        &["--transport", "carrier-pigeon", "netns", "loopback"],
    );
    expect(&["testbed", "run", "--hosts", "four"], &["--hosts", "four"]);
    expect(&["testbed", "run", "--duration"], &["--duration"]);
    expect(&["testbed", "run", "--colour"], &["--colour"]);
    expect(&["replay"], &["STORE"]);
    expect(&["serve", "--http", "localhost"], &["--http", "localhost"]);
    expect(&["serve", "--tls-cert", "x"], &["--tls-key"]);
    expect(&["replay", "x", "--records", "--export", "y"], &["--records", "--export"]);
}

#[test]
fn faults_that_cannot_be() {
    let run = |fault: &str, words: &[&str]| {
        expect(&["testbed", "run", "--fault", fault], words);
        expect(&["demo", "--fault", fault], words);
    };
    run("nic-dwn@host1", &["--fault", "nic-dwn", "expected one of", "nic-down"]);
    run("gpu-hang@node1", &["--fault", "node1", "KIND@hostN"]);
    run("gpu-hang@host1:rank1", &["fault.rank = 1", "host 1", "4 to 7"]);
    run("gpu-hang@host9", &["fault.host = 9", "0 to 3"]);
    run("nic-down@host1:rank4", &["rank"]);
    run("gpu-power@host1:rank4,severity=1000", &["fault.severity = 1000", "1.01 to 100"]);
    run("background-traffic@host1+host1", &["peer_host = 1", "another host"]);
    run("", &["--fault", "expected"]);
    expect(&["testbed", "run", "--fault", "gpu-hang@host1", "--after=-3"], &["after"]);
}

#[test]
fn shapes_that_do_not_fit() {
    expect(&["testbed", "run", "--hosts", "3"], &["tp x pp x dp", "4 x 2 x 2 = 16", "12"]);
    expect(&["testbed", "run", "--tp", "0"], &["tp = 0", "expected 1"]);
    expect(&["testbed", "run", "--hosts", "100000"], &["hosts = 100000", "expected 1 to"]);
    expect(&["testbed", "run", "--duration", "NaN"], &["duration"]);
    expect(&["testbed", "run", "--duration=-1"], &["duration_s = -1"]);
    expect(&["testbed", "overhead", "--rounds", "1"], &["--rounds 1", "at least 2"]);
}

/// Numbers that would end in an overflow, a division by nothing, or a loop without an end.
#[test]
fn numbers_out_of_range() {
    let huge = u64::MAX.to_string();
    let hang = recorded("gpu-hang.frames").display().to_string();
    for value in ["0", &huge] {
        expect(&["replay", &hang, "--tick-ms", value], &["--tick-ms", value, "60000"]);
        expect(&["testbed", "table", "--seeds", value], &["--seeds", value]);
        expect(&["agent", "--sample-ms", value], &["--sample-ms", value]);
    }
    for value in ["-1", "20"] {
        expect(&["agent", &format!("--nice={value}")], &["--nice", value, "0..=19"]);
    }
    expect(&["testbed", "table", "--first-seed", &huge], &["--first-seed", &huge]);
    for value in ["0", "-1", "NaN", "inf", "1e300"] {
        expect(&["testbed", "overhead", &format!("--seconds={value}")], &["--seconds", "expected 1 to"]);
        if value != "0" {
            expect(&["demo", &format!("--wait={value}")], &["duration_s", "expected 0 to"]);
            expect(&["demo", &format!("--after={value}")], &["fault.after_s", "expected seconds"]);
        }
    }
}

#[test]
fn a_table_goes_on_where_its_run_log_ends() {
    let dir = tempfile::tempdir().unwrap();
    let scenario = format!("{}/../../scenarios/healthy-dp8.toml", env!("CARGO_MANIFEST_DIR"));
    let run = |seed: u32, correct: bool| {
        json!({"scenario": "healthy-dp8", "transport": "loopback", "seed": seed, "correct": correct, "why": "as told",
            "detected_after_ms": 7, "diagnosed_after_ms": 9, "iterations_after_fault": null, "truth": {"fault": null},
            "iteration_ms_median": 50.0, "faulty_iteration_ms_median": 54 + seed})
    };
    let log = write(dir.path(), "runs.jsonl", &format!("{}\n{}\n", run(1, true), run(2, false)));
    let said =
        end(mycroft(&["testbed", "table", &scenario, "--transport", "loopback", "--seeds", "2", "--runs", &log]));
    assert_eq!(said.code, Some(1), "{said:?}");
    let row = "| healthy-dp8 | loopback | 1 of 2 | 0.01 / 0.01 | 0.00 / 0.00 | - | 10 to 12 |";
    assert!(said.stdout.contains(row), "{said:?}");
    assert!(said.stdout.contains("healthy-dp8 loopback seed 2: as told"), "{said:?}");
    let torn = write(dir.path(), "torn.jsonl", &format!("{}\n{{\"scenario\"", run(1, true)));
    expect(&["testbed", "table", &scenario, "--runs", &torn], &["torn.jsonl", "line 2 is no run"]);
}

fn write(dir: &Path, name: &str, text: &str) -> String {
    let path = dir.join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[test]
fn scenario_files_that_cannot_be_used() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing.toml").display().to_string();
    let broken = write(dir.path(), "broken.toml", "hosts = 4\ntp = [\n");
    let unknown = write(dir.path(), "unknown.toml", "hosts = 4\nrank_per_host = 4\n");
    let wrong = write(dir.path(), "wrong.toml", "hosts = \"four\"\n");
    let misfit = write(dir.path(), "misfit.toml", "hosts = 4\nranks_per_host = 4\ntp = 8\n");
    let binary = dir.path().join("binary.toml");
    fs::write(&binary, [0xff, 0xfe, 0x00]).unwrap();
    let binary = binary.display().to_string();
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    for (file, words) in [
        (&missing, &["cannot read", "No such file"][..]),
        (&broken, &["broken.toml:"]),
        (&unknown, &["unknown.toml:2", "rank_per_host", "ranks_per_host"]),
        (&wrong, &["wrong.toml:1", "string"]),
        (&misfit, &["tp x pp x dp", "16"]),
        (&binary, &["UTF-8"]),
    ] {
        let words = [&[file.as_str()], words].concat();
        expect(&["testbed", "run", file], &words);
        expect(&["testbed", "table", file, "--seeds", "1"], &words);
    }
    // Where the records would go is a file: said before the job starts.
    let taken = ["testbed", "run", "--transport", "loopback", "--json", "--record", &broken];
    expect(&taken, &["the store's directory", &broken]);
    // Or has those of another run: both would be taken for one job's.
    let full = dir.path().display().to_string();
    expect(&["testbed", "run", "--transport", "loopback", "--json", "--record", &full], &[&full, "new directory"]);
    expect(&["testbed", "table", &empty.display().to_string()], &["no scenario"]);
}

#[test]
fn servers_that_may_not_or_cannot_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "file", "not a store");
    let here = "127.0.0.1:0";
    expect(&["serve", "--http", "0.0.0.0:0", "--wire", here], &["HTTP", "0.0.0.0:0", "token"]);
    expect(&["serve", "--http", here, "--wire", "0.0.0.0:0"], &["0.0.0.0:0", "token"]);
    expect(&["serve", "--http", "0.0.0.0:0", "--wire", here, "--token", "short"], &["token", "characters"]);
    expect(&["serve", "--http", here, "--wire", "nowhere"], &["--wire", "nowhere"]);
    expect(&["serve", "--http", here, "--wire", here, "--store", &file], &[&file]);
    expect(&["serve", "--http", here, "--wire", here, "--tick-ms", "0"], &["tick"]);
    expect(&["serve", "--http", here, "--wire", here, "--webhook", "ftp://x"], &["webhook", "http"]);
    let absent = dir.path().join("absent.pem").display().to_string();
    let tls = ["--tls-cert", absent.as_str(), "--tls-key", absent.as_str()];
    expect(&[&["serve", "--http", here, "--wire", here][..], &tls].concat(), &["absent.pem"]);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    expect(&["serve", "--http", &taken, "--wire", here], &[&taken, "in use"]);
}

#[test]
fn agents_that_cannot_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = write(dir.path(), "file", "not a directory");
    let spool = dir.path().join("spool").display().to_string();
    expect(&["agent", "--server", "nowhere", "--spool", &spool], &["--server", "nowhere"]);
    expect(&["agent", "--dir", &file, "--spool", &spool], &[&file]);
    let absent = dir.path().join("absent.pem").display().to_string();
    let segments = dir.path().join("segments").display().to_string();
    expect(&["agent", "--tls-ca", &absent, "--dir", &segments, "--spool", &spool], &["absent.pem"]);
}

#[test]
fn stores_that_cannot_be_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing").display().to_string();
    let file = write(dir.path(), "file", "neither store nor export");
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    expect(&["replay", &missing], &[&missing, "mycroft serve --store"]);
    expect(&["replay", &file], &[&file, "not a frame"]);
    expect(&["replay", &empty.display().to_string()], &["empty", "no store"]);
    assert_eq!(fs::read_dir(&empty).unwrap().count(), 0, "looking made something");
}

fn recorded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../serve/tests/recorded").join(name)
}

#[test]
fn replay_of_an_export() {
    let dir = tempfile::tempdir().unwrap();
    let hang = recorded("gpu-hang.frames").display().to_string();
    let said = say(&["replay", &hang]);
    assert_eq!((said.code, said.stderr.as_str()), (Some(1), ""));
    assert_eq!(said.stdout, fs::read_to_string(recorded("gpu-hang.txt")).unwrap());
    assert_eq!(say(&["replay", &recorded("healthy-ring.frames").display().to_string()]).code, Some(0));
    let again = dir.path().join("again.frames");
    let said = say(&["replay", &hang, "--export", &again.display().to_string()]);
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), ""));
    assert_eq!(say(&["replay", &again.display().to_string()]).stdout, say(&["replay", &hang]).stdout);
    let records = say(&["replay", &hang, "--records"]);
    assert_eq!(records.code, Some(0));
    assert!(records.stdout.lines().count() > 1000);
    for line in records.stdout.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["kind"].is_string() && line["job"] == "command-line" && line["collected_at"].is_u64(), "{line}");
    }
    expect(&["replay", &hang, "--job", "another"], &["no records of job another"]);
    let bytes = fs::read(&hang).unwrap();
    let cut = dir.path().join("cut.frames");
    fs::write(&cut, &bytes[..bytes.len() - 1]).unwrap();
    expect(&["replay", &cut.display().to_string()], &["cut.frames", "cut short"]);
    let damaged = dir.path().join("damaged.frames");
    fs::write(&damaged, bytes.iter().map(|byte| byte ^ u8::from(*byte == 0x55)).collect::<Vec<u8>>()).unwrap();
    expect(&["replay", &damaged.display().to_string()], &["damaged.frames", "checksum"]);
}

/// A store, a recording and an exported file of one run are one run.
#[test]
fn replay_of_a_store_and_of_a_recording() {
    let mut rest = &fs::read(recorded("gpu-hang.frames")).unwrap()[..];
    let mut batches = Vec::new();
    while !rest.is_empty() {
        let (frame, behind) = rest.split_at(codec::header(rest).unwrap().frame_bytes);
        batches.extend(codec::decode(frame).unwrap().batches);
        rest = behind;
    }
    mycroft_record::batch::sort_as_collected(&mut batches);
    let dir = tempfile::tempdir().unwrap();
    let (stored, recording) = (dir.path().join("store"), dir.path().join("recording"));
    let store = Store::open(&stored, StoreConfig::default()).unwrap();
    let mut writer = RecordingWriter::create(&recording).unwrap();
    for (number, batch) in batches.iter().enumerate() {
        store.append(batch.collected_at, batch).unwrap();
        writer.append(batch.collected_at, batch.clone()).unwrap();
        if number % 700 == 0 {
            store.compact().unwrap();
        }
    }
    drop(store);
    writer.finish().unwrap();
    let golden = fs::read_to_string(recorded("gpu-hang.txt")).unwrap();
    let frames = recorded("gpu-hang.frames").display().to_string();
    for from in [&stored.display().to_string(), &recording.display().to_string(), &frames] {
        for _ in 0..2 {
            let said = say(&["replay", from]);
            assert_eq!(
                (said.code, said.stdout.as_str(), said.stderr.as_str()),
                (Some(1), golden.as_str(), ""),
                "{from}"
            );
        }
        let said = say(&["replay", from, "--json"]);
        assert_eq!((said.code, said.stdout.lines().count()), (Some(1), 1));
        let report = &said.json()["reports"][0];
        let case = &report["cases"][0];
        assert_eq!((&case["what"], &case["category"]), (&json!("hang"), &json!("gpu")), "{report}");
        assert_eq!((&case["suspects"][0]["rank"], report["ranks"].as_array().map(Vec::len)), (&json!(5), Some(8)));
    }
    expect(&["replay", &frames, "--json", "--records"], &["--json", "--records"]);
}

#[test]
fn readers_without_a_server_say_where_they_looked() {
    // A port that was free a moment ago and that nobody listens on.
    let url = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    for command in [&["cases"][..], &["cases", "1"], &["watch", "--once"]] {
        expect(&[command, &["--url", &url]].concat(), &[&url, "mycroft serve", "--url"]);
    }
    expect(&["cases", "--url", "not a url"], &["not a url"]);
}

#[test]
fn readers_of_a_server_that_knows_no_job() {
    let (server, url) = serve(&[]);
    let cases = say(&["cases", "--url", &url]);
    assert_eq!((cases.code, cases.stdout.as_str()), (Some(0), "no open case\n"), "{cases:?}");
    let cases = say(&["cases", "--all", "--json", "--url", &url]);
    assert_eq!((cases.code, cases.json()["cases"].as_array().map(Vec::len)), (Some(0), Some(0)));
    let watch = say(&["watch", "--once", "--url", &url]);
    assert_eq!((watch.code, watch.stdout.as_str()), (Some(0), "no job has reported yet\n"));
    expect(&["cases", "7", "--url", &url], &[&url, "404", "7"]);
    expect(&["cases", "../health", "--url", &url], &["..%2Fhealth"]);
    let nobody = say(&["cases", "--job", "a job & its=name?", "--url", &url]);
    assert_eq!((nobody.code, nobody.stdout.as_str()), (Some(0), "no open case\n"), "{nobody:?}");
    let doctor = say(&["doctor", "--json", "--url", &url]).json();
    let server_check = doctor["checks"].as_array().unwrap().iter().find(|check| check["check"] == "server").unwrap();
    assert_eq!(server_check["grade"], "ok", "{doctor}");
    server.signal("TERM");
    let (status, stdout, stderr) = server.wait();
    assert_eq!((status.code(), stdout.as_str()), (Some(0), ""));
    assert!(stderr.contains("stopped"), "{stderr}");
}

#[test]
fn a_server_with_a_token_answers_those_who_have_it() {
    const TOKEN: &str = "a-token-of-sufficient-length";
    let (_server, url) = serve(&["--token", TOKEN]);
    expect(&["cases", "--url", &url], &[&url, "401"]);
    expect(&["cases", "--url", &url, "--token", "another-token-of-that-length"], &["401"]);
    assert_eq!(say(&["cases", "--url", &url, "--token", TOKEN]).code, Some(0));
    let mut by_environment = mycroft(&["watch", "--once"]);
    by_environment.env("MYCROFT_URL", &url).env("MYCROFT_TOKEN", TOKEN);
    assert_eq!(end(by_environment).code, Some(0));
}

/// The niceness values that the threads of a process have (field 19 of `stat`), without repeats.
fn niceness_of_threads(pid: u32) -> Vec<i64> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let mut found: Vec<i64> = threads
        .map(|thread| {
            let stat = fs::read_to_string(thread.unwrap().path().join("stat")).unwrap();
            let (_, after_name) = stat.rsplit_once(')').unwrap();
            after_name.split_whitespace().nth(16).unwrap().parse().unwrap()
        })
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

#[test]
fn an_agent_starts_before_its_server_and_stops_when_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let socket = format!("unix:{}", path("wire.sock"));
    let args = ["agent", "--server", &socket, "--dir", &path("segments"), "--spool", &path("spool"), "--host", "alone"];
    let mut agent = Going::start(mycroft(&args));
    assert!(line_with(&mut agent.stderr, "watching").contains(&socket));
    let gives_way = niceness_of_threads(std::process::id()).iter().map(|own| (own + 10).min(19)).collect::<Vec<_>>();
    assert_eq!(niceness_of_threads(agent.pid()), gives_way, "every thread gives way to the job");
    let mut server = Going::start(mycroft(&["serve", "--http", "127.0.0.1:0", "--wire", &socket]));
    let line = line_with(&mut server.stderr, "mycroft serve: http://");
    let url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().trim_end_matches(['/', ',']);
    until("the agent connects", || {
        let health = say(&["doctor", "--json", "--url", url]);
        assert_eq!(health.code, Some(0), "{health:?}");
        let metrics = ureq::get(format!("{url}/metrics")).call().ok()?.into_body().read_to_string().ok()?;
        let connected = |line: &str| line.starts_with("mycroft_agents_connected ") && line.ends_with(" 1");
        metrics.lines().any(connected).then_some(())
    });
    agent.signal("TERM");
    let (status, _, stderr) = agent.wait();
    assert_eq!(status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("stopped"), "{stderr}");
}

fn doctor(args: &[&str]) -> Said {
    say(&[&["doctor", "--url", "http://127.0.0.1:9"], args].concat())
}

#[test]
fn the_doctor_finds_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let absent = dir.path().join("absent").display().to_string();
    let file = write(dir.path(), "file", "");
    let fine = doctor(&["--dir", &absent]);
    assert_eq!((fine.code, fine.stderr.as_str()), (Some(0), ""), "{fine:?}");
    assert!(fine.stdout.contains("does not exist yet") && fine.stdout.contains("mycroft serve"), "{fine:?}");
    let not_a_directory = doctor(&["--dir", &file]);
    assert_eq!(not_a_directory.code, Some(1));
    assert!(not_a_directory.stdout.contains("FAIL") && not_a_directory.stdout.contains(&file));
    // Process ids end below 2^22.
    let nobody = doctor(&["--dir", &absent, "--pid", "99999999"]);
    assert_eq!(nobody.code, Some(1));
    assert!(nobody.stdout.contains("no process 99999999"));
    let hostile = dir.path().join("segments");
    fs::create_dir(&hostile).unwrap();
    let mut permissions = fs::metadata(&hostile).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o777);
    fs::set_permissions(&hostile, permissions.clone()).unwrap();
    let open_to_all = doctor(&["--dir", &hostile.display().to_string()]);
    assert_eq!(open_to_all.code, Some(1));
    assert!(open_to_all.stdout.contains("chmod 700"), "{open_to_all:?}");
    std::os::unix::fs::PermissionsExt::set_mode(&mut permissions, 0o700);
    fs::set_permissions(&hostile, permissions).unwrap();
    fs::write(hostile.join("1.mycroft"), "garbage").unwrap();
    let garbage = doctor(&["--dir", &hostile.display().to_string()]);
    assert_eq!(garbage.code, Some(1));
    assert!(garbage.stdout.contains("1.mycroft"), "{garbage:?}");
}

#[test]
fn the_doctor_speaks_json() {
    let dir = tempfile::tempdir().unwrap();
    for (path, code) in [(dir.path().join("absent"), 0), (PathBuf::from(write(dir.path(), "file", "")), 1)] {
        let said = doctor(&["--json", "--dir", &path.display().to_string()]);
        assert_eq!(said.code, Some(code));
        let json = said.json();
        let checks = json["checks"].as_array().unwrap();
        assert!(checks.len() >= 6, "{json}");
        for check in checks {
            assert!(["ok", "warn", "fail"].contains(&check["grade"].as_str().unwrap()), "{check}");
            assert!(["check", "found", "fix"].iter().all(|field| check[field].is_string()), "{check}");
            assert!(check["grade"] == "ok" || check["grade"] == "warn" || check["fix"] != "", "{check}");
        }
        let failed = checks.iter().any(|check| check["grade"] == "fail");
        assert_eq!(failed, code == 1, "{json}");
    }
}

#[test]
fn the_doctor_misses_a_tracer_that_is_not_there() {
    let mut run = mycroft(&["doctor", "--json", "--url", "http://127.0.0.1:9"]);
    run.env("NCCL_PROFILER_PLUGIN", "/nowhere/libmycroft_nccl.so");
    let said = end(run);
    assert_eq!(said.code, Some(1));
    assert!(said.stdout.contains("/nowhere/libmycroft_nccl.so: no such file"), "{said:?}");
}
