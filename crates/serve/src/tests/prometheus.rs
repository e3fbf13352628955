//! The alert rules and the dashboard of `deploy/`: every metric that they name is one of ours, Prometheus takes the rules, scrapes a
//! server, fires, and answers what the dashboard asks.
use super::*;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

fn deploy(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(deploy(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Every expression of the dashboard.
fn expressions(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|value| expressions(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| expressions(value, found)),
        _ => {}
    }
}

fn dashboard() -> Vec<String> {
    let mut found = Vec::new();
    expressions(&serde_json::from_str(&read("grafana/mycroft.json")).expect("JSON"), &mut found);
    found
}

/// Words of a text that are names of metrics.
fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = words.filter(|word| word.starts_with("mycroft_") && !word.ends_with('_'));
    ours.map(|word| word.strip_suffix("_bucket").unwrap_or(word).to_owned()).collect()
}

#[test]
fn rules_and_dashboard_name_only_metrics_that_there_are() {
    let world = World::start(quick());
    world.send("train", &[MEASURE, OPEN]);
    world.until("/api/v1/jobs", |jobs| jobs["jobs"][0]["healthy_iteration_us"].is_u64());
    let told = get(world.server.http_addr(), "/metrics", &[]).body;
    let wanted = names(&(read("prometheus/mycroft.rules.yml") + &dashboard().join("\n")));
    assert!(wanted.len() > 12, "{wanted:?}");
    for name in wanted {
        assert!(told.contains(&format!("# TYPE {name} ")), "{name} is no metric of ours");
    }
    for line in [
        r#"mycroft_iteration_seconds_bucket{job="train",le="+Inf"} "#,
        r#"mycroft_iteration_healthy_seconds{job="train"} 0.1"#,
        r#"mycroft_iteration_level_seconds{job="train"} 0.15"#,
        r#"mycroft_rank_seconds_total{job="train",component="waiting"} "#,
    ] {
        assert!(told.contains(line), "no {line}:\n{told}");
    }
    // Minutes that are over: half a tenth of a second more for each of four ranks.
    let lost = told.lines().find_map(|line| line.strip_prefix(r#"mycroft_lost_rank_seconds_total{job="train"} "#));
    assert!(lost.is_some_and(|seconds| seconds.parse::<f64>().is_ok_and(|seconds| seconds > 1.0)), "{lost:?}");
}

/// A program of Prometheus: on the path, or where `cargo xtask test` unpacks it.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/prometheus/usr/bin");
    let found =
        std::env::split_paths(&path).chain([unpacked]).map(|folder| folder.join(name)).find(|file| file.exists());
    if found.is_none() {
        eprintln!("skipped: no {name} here (`cargo xtask test` unpacks Debian's package `prometheus`)");
    }
    found
}

struct Stopped(Child);

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn promtool_takes_the_rules_and_they_fire_when_they_should() {
    let Some(promtool) = program("promtool") else { return };
    for args in [
        ["check", "rules", "mycroft.rules.yml"],
        ["test", "rules", "mycroft.test.yml"],
        ["check", "config", "scrape.yml"],
    ] {
        let output = Command::new(&promtool).args(args).current_dir(deploy("prometheus")).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {said}");
    }
}

#[test]
fn prometheus_scrapes_a_server_fires_and_answers_what_the_dashboard_asks() {
    let Some(prometheus) = program("prometheus") else { return };
    let world = World::start(quick());
    world.send("train", &[MEASURE, OPEN, SETTLE]);
    world.until("/api/v1/jobs", |jobs| jobs["jobs"][0]["open_cases"] == 1);
    let folder = tempfile::tempdir().expect("a directory");
    // Of a port that nobody has: Prometheus does not tell which one it took.
    let port = std::net::TcpListener::bind("127.0.0.1:0").and_then(|taken| taken.local_addr()).expect("a port").port();
    let config = read("prometheus/scrape.yml")
        .replace("127.0.0.1:7701", &world.server.http_addr().to_string())
        .replace("scrape_interval: 5s", "scrape_interval: 1s")
        .replace("mycroft.rules.yml", &deploy("prometheus/mycroft.rules.yml").display().to_string());
    let file = folder.path().join("prometheus.yml");
    std::fs::write(&file, format!("global: {{evaluation_interval: 1s}}\n{config}")).expect("written");
    let mut command = Command::new(prometheus);
    command
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let _running = Stopped(command.spawn().expect("it starts"));
    let ask = |path: &str| -> Option<Value> {
        let answer =
            ureq::get(format!("http://127.0.0.1:{port}{path}")).call().ok()?.body_mut().read_to_string().ok()?;
        serde_json::from_str(&answer).ok()
    };
    let deadline = Instant::now() + PATIENCE;
    let fires = |told: &Value| {
        let alerts = told["data"]["alerts"].as_array().cloned().unwrap_or_default();
        alerts.iter().any(|alert| {
            let labels = &alert["labels"];
            (&labels["alertname"], &labels["job"], &alert["state"])
                == (&"MycroftCaseOpen".into(), &"train".into(), &"firing".into())
        })
    };
    while !ask("/api/v1/alerts").is_some_and(|told| fires(&told)) {
        assert!(Instant::now() < deadline, "it never fired: {:?}", ask("/api/v1/targets"));
        std::thread::yield_now();
    }
    for expression in dashboard() {
        let expression = expression.replace("$job", ".+").replace("$__rate_interval", "1m");
        let escaped: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let told = ask(&format!("/api/v1/query?query={escaped}")).unwrap_or_default();
        assert_eq!(told["status"], "success", "{expression}: {told}");
    }
}
