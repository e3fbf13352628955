//! What readers get: shapes, parameters, tokens, metrics.
use super::*;
use crate::api::{CaseJson, ErrorJson};
use crate::case::BookedCase;

#[test]
fn a_case_is_told_from_its_opening_to_its_end() {
    let world = World::start(quick());
    world.send("train", &[OPEN]);
    let open = world.until("/api/v1/cases?state=open", |v| v["cases"][0]["id"].is_u64());
    let case = &open["cases"][0];
    assert_eq!(case["job"], "train");
    assert_eq!(case["what"], "hang");
    assert_eq!(case["settled"], false);
    assert!(case["diagnosed_at"].is_null() && case["closed_at"].is_null());
    let id = case["id"].as_u64().expect("a number");

    world.send("train", &[SETTLE]);
    let settled = world.until(&format!("/api/v1/cases/{id}"), |v| v["settled"] == true);
    assert_eq!(settled["category"], "network-send");
    assert_eq!(settled["suspects"][0]["rank"], 1);
    assert_eq!(settled["suspects"][1]["link"]["to"], "host0");

    world.send("train", &[CLOSE]);
    let closed = world.until(&format!("/api/v1/cases/{id}"), |v| v["state"] == "closed");
    assert_eq!(closed["closed_because"], "recovered");
    assert!(closed["closed_at"]["text"].as_str().is_some_and(|at| at.starts_with("2025-01-01T00:0")));
    assert_eq!(world.json("/api/v1/cases?state=open")["cases"], serde_json::json!([]));
    assert_eq!(world.json("/api/v1/cases?job=train")["cases"][0]["id"], id);
    assert_eq!(world.json("/api/v1/cases?job=other")["cases"], serde_json::json!([]));
}

#[test]
fn a_case_that_settles_without_an_event_is_told_too() {
    let world = World::start(quick());
    world.send("train", &[OPEN]);
    world.server.wait_for_case(PATIENCE, |case| !case.is_settled()).expect("an open case");
    world.send("train", &[SETTLE_QUIETLY]);
    world.server.wait_for_case(PATIENCE, |case| case.is_settled()).expect("it settles");
}

#[test]
fn a_job_says_how_it_ended_and_that_it_was_started_again() {
    let world = World::start(quick());
    world.send("train", &[END_JOB]);
    let ended = world.until("/api/v1/jobs", |v| v["jobs"][0]["state"] == "ended");
    let job = &ended["jobs"][0];
    assert_eq!(job["ended_how"], "ended-from-outside", "{job}");
    assert_eq!(job["ended_because"], "8 ranks of 2 hosts were gone within 12 ms", "{job}");
    assert!(job["ended_at"]["text"].as_str().is_some_and(|at| at.starts_with("2025-01-01T00:0")), "{job}");
    assert_eq!(world.json("/api/v1/cases")["cases"], serde_json::json!([]), "no case");
    world.send("train", &[BEGIN_ANEW]);
    let anew = world.until("/api/v1/jobs", |v| v["jobs"][0]["state"] != "ended");
    let job = &anew["jobs"][0];
    assert!(job["ended_at"].is_null() && job["ended_because"] == "", "{job}");
    assert_eq!(job["lives"].as_array().map(Vec::len), Some(2), "{job}");
    assert_eq!(
        (&job["lives"][0]["ended_how"], &job["lives"][1]["ended_how"]),
        (&"ended-from-outside".into(), &"".into())
    );
}

#[test]
fn a_withdrawn_case_is_not_listed_unless_asked_for() {
    let world = World::start(quick());
    world.send("train", &[OPEN]);
    world.until("/api/v1/cases", |v| v["cases"][0]["state"] == "open");
    world.send("train", &[WITHDRAW]);
    world.until("/api/v1/cases", |v| v["cases"] == serde_json::json!([]));
    assert_eq!(world.json("/api/v1/cases?state=withdrawn")["cases"][0]["what"], "hang");
    // The engine gives the number again; the server must not.
    world.send("train", &[OPEN]);
    let again = world.until("/api/v1/cases?state=open", |v| v["cases"][0]["id"].is_u64());
    assert_eq!(again["cases"][0]["id"], 2, "a new fault has a number of its own");
}

#[test]
fn lists_are_cut_and_say_so() {
    let world = World::start(quick());
    world.send("train", &[OPEN, OPEN, OPEN]);
    let all = world.until("/api/v1/cases", |v| v["cases"].as_array().is_some_and(|c| c.len() == 3));
    assert_eq!(all["more"], 0);
    let cut = world.json("/api/v1/cases?limit=2");
    assert_eq!((cut["cases"].as_array().map(Vec::len), &cut["more"]), (Some(2), &serde_json::json!(1)));
    assert_eq!(cut["cases"][0]["id"], 3, "newest first");
    let ranks = world.json("/api/v1/ranks?job=train&limit=3");
    assert_eq!((ranks["ranks"].as_array().map(Vec::len), &ranks["more"]), (Some(3), &serde_json::json!(1)));
}

#[test]
fn reports_come_as_json_and_as_text_and_the_only_job_needs_no_name() {
    let world = World::start(quick());
    let nobody = get(world.server.http_addr(), "/api/v1/report", &[]);
    assert_eq!(nobody.status, 404);
    assert!(nobody.body.contains("agent"), "{}", nobody.body);

    world.send("train", &[OPEN]);
    world.until("/api/v1/cases", |v| v["cases"][0]["id"].is_u64());
    let report = world.json("/api/v1/report");
    assert_eq!(report["job"], "train");
    assert_eq!(report["ranks"][3]["host"], "host1");
    assert_eq!(report["cases"][0]["id"], world.json("/api/v1/cases")["cases"][0]["id"]);
    assert_eq!(report["iteration_ms_median"], 412.5);
    let text = get(world.server.http_addr(), "/api/v1/report?job=train&format=text", &[]);
    assert!(text.head.to_lowercase().contains("content-type: text/plain; charset=utf-8"), "{}", text.head);
    assert!(text.body.contains("train"), "{}", text.body);

    world.send("other job", &[NOTHING]);
    world.until("/api/v1/jobs", |v| v["jobs"].as_array().is_some_and(|j| j.len() == 2));
    let ambiguous = get(world.server.http_addr(), "/api/v1/report", &[]);
    assert_eq!(ambiguous.status, 400);
    assert!(ambiguous.body.contains("other job") && ambiguous.body.contains("?job="), "{}", ambiguous.body);
    assert_eq!(world.json("/api/v1/report?job=other%20job")["job"], "other job");
}

#[test]
fn a_plan_is_complete_and_says_that_nothing_is_carried_out() {
    let world = World::start(quick());
    world.send("train", &[OPEN]);
    world.until("/api/v1/cases", |v| v["cases"][0]["id"].is_u64());
    let plan = world.json("/api/v1/plan?micro_batches=8&tensor=2&spares=host7,host8&restart_cost_s=600");
    assert_eq!(
        (&plan["job"], &plan["strategy"]),
        (&"train".into(), &"ignore".into()),
        "a hang is not planned for: {plan}"
    );
    assert_eq!(plan["from"]["hosts"], serde_json::json!(["host0", "host1"]));
    assert_eq!(plan["from"]["micro_batches"], serde_json::json!([4, 4]));
    assert_eq!((&plan["from"], &plan["cases"]), (&plan["to"], &serde_json::json!([])));
    let text = plan["text"].as_str().expect("text");
    assert!(text.contains("nothing is carried out") && text.contains("assumed"), "{text}");
}

#[test]
fn every_refusal_is_json_and_says_what_to_do() {
    let world = World::start(quick());
    world.send("train", &[NOTHING]);
    world.until("/api/v1/jobs", |v| v["jobs"][0]["name"] == "train");
    for (path, status, word) in [
        ("/nope", 404, "GET /"),
        ("/api/v1/cases/99", 404, "/api/v1/cases"),
        ("/api/v1/cases/x", 400, "number"),
        ("/api/v1/cases/-1", 400, "number"),
        ("/api/v1/cases?limit=0", 400, "1 to 10000"),
        ("/api/v1/cases?limit=10001", 400, "1 to 10000"),
        ("/api/v1/cases?limit=many", 400, "limit"),
        ("/api/v1/cases?state=on%20fire", 400, "expected open"),
        ("/api/v1/cases?stat=open", 400, "job, state and limit"),
        ("/api/v1/jobs?job=train", 400, "knows limit"),
        ("/api/v1/report?job=absent", 404, "/api/v1/jobs"),
        ("/api/v1/report?job=train&format=xml", 400, "json or text"),
        ("/api/v1/ranks?job=train&format=text", 400, "job, order and limit"),
        ("/api/v1/plan?job=train", 400, "this path knows job, micro_batches"),
        ("/api/v1/plan?job=train&micro_batches=8&tensor=0", 400, "at least 1"),
        ("/api/v1/plan?job=train&micro_batches=8&gradients_ms=-1", 400, "negative"),
        ("/api/v1/plan?job=train&micro_batches=8&move_cost_s=NaN", 400, "negative"),
        ("/api/v1/plan?job=train&micro_batches=8&done=all", 400, "expected ignore"),
        ("/api/v1/plan?job=absent&micro_batches=8", 404, "/api/v1/jobs"),
        ("/api/v1/plan?job=train&micro_batches=8&tensor=3", 409, "no multiple of 3"),
    ] {
        let answer = get(world.server.http_addr(), path, &[]);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        let error: ErrorJson = serde_json::from_str(&answer.body).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert!(error.error.contains(word), "{path}: {}", error.error);
    }
    let post = raw(
        world.server.http_addr(),
        b"POST /api/v1/cases HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
    )
    .expect("an answer");
    assert_eq!(post.status, 405);
    assert!(post.body.contains("use GET"), "{}", post.body);
}

#[test]
fn with_a_token_only_its_holder_reads() {
    let token = "0123456789abcdef-secret";
    let world = World::start(ServeConfig { token: Some(token.into()), ..quick() });
    let address = world.server.http_addr();
    for path in ["/api/v1/jobs", "/api/v1/cases/1", "/api/v1/health", "/metrics", "/nope"] {
        let none = get(address, path, &[]);
        assert_eq!(none.status, 401, "{path}");
        assert!(none.head.to_lowercase().contains("www-authenticate: bearer"), "{}", none.head);
        assert!(none.body.contains("Authorization: Bearer") && !none.body.contains(token), "{}", none.body);
        let wrong = get(address, path, &["Authorization: Bearer 0123456789abcdef-secreT"]);
        assert_eq!(wrong.status, 401, "{path}");
        assert!(!wrong.body.contains(token), "{}", wrong.body);
    }
    let right = format!("Authorization: Bearer {token}");
    assert_eq!(get(address, "/api/v1/health", &[&right]).status, 200);
    assert_eq!(get(address, "/nope", &[&right]).status, 404);
    assert_eq!(get(address, "/", &[]).status, 200, "the page is open, and asks for the token");
}

#[test]
fn without_a_token_a_foreign_name_in_the_host_header_is_refused() {
    let world = World::start(quick());
    let request = b"GET /api/v1/health HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n";
    let answer = raw(world.server.http_addr(), request).expect("an answer");
    assert_eq!(answer.status, 403);
    assert!(answer.body.contains("127.0.0.1"), "{}", answer.body);
}

#[test]
fn metrics_are_well_formed_and_count() {
    let world = World::start(quick());
    world.send("tr\"ain\\ing\n", &[NOTHING, OPEN]);
    world.until("/api/v1/cases", |v| v["cases"][0]["id"].is_u64());
    world.until("/api/v1/jobs", |v| v["jobs"][0]["open_cases"] == 1);
    let answer = get(world.server.http_addr(), "/metrics", &[]);
    assert!(answer.head.contains("text/plain; version=0.0.4"), "{}", answer.head);
    let samples = parse_metrics(&answer.body);
    let value = |name: &str| samples.iter().find(|(n, _)| n == name).unwrap_or_else(|| panic!("no {name}")).1;
    assert_eq!(value("mycroft_ingest_batches_total"), 2.0);
    assert_eq!(value("mycroft_ingest_records_total"), 2.0);
    assert_eq!(value("mycroft_healthy"), 1.0);
    assert_eq!(value(r#"mycroft_ingest_dropped_records_total{where="queue"}"#), 0.0);
    assert_eq!(value(r#"mycroft_cases_open{job="tr\"ain\\ing\n"}"#), 1.0);
    assert_eq!(value(r#"mycroft_cases_opened_total{job="tr\"ain\\ing\n",what="hang",category="unknown"}"#), 1.0);
    assert!(value("mycroft_http_requests_total{code=\"2xx\"}") >= 2.0);
    assert!(value("mycroft_tick_seconds_count") >= 1.0);
}

/// A strict reader of the text format: every sample belongs to the family announced before it, counters end in
/// `_total`, no family and no sample comes twice.
fn parse_metrics(text: &str) -> Vec<(String, f64)> {
    let mut samples: Vec<(String, f64)> = Vec::new();
    let (mut families, mut family, mut kind) = (Vec::new(), "", "");
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split(' ').next().expect("a name");
            assert!(family.starts_with("mycroft_") && !families.contains(&family), "{line}");
            families.push(family);
        } else if let Some(typed) = line.strip_prefix("# TYPE ") {
            let (name, k) = typed.split_once(' ').expect("a name and a type");
            kind = k;
            assert_eq!(name, family);
            assert!(["gauge", "counter", "summary", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
        } else {
            let (name, value) = line.rsplit_once(' ').expect("a sample");
            let bare = name.split('{').next().expect("a name");
            let parts: &[&str] = match kind {
                "summary" => &["_sum", "_count"],
                "histogram" => &["_bucket", "_sum", "_count"],
                _ => &[""],
            };
            let is_part = bare.strip_prefix(family).is_some_and(|part| parts.contains(&part));
            assert!(is_part, "{line} after {family}");
            assert!(!samples.iter().any(|(n, _)| n == name), "twice: {line}");
            samples.push((name.to_owned(), value.parse().expect("a number")));
        }
    }
    samples
}

#[test]
fn health_counts_what_arrives() {
    let world = World::start(quick());
    let health = world.json("/api/v1/health");
    assert_eq!((&health["status"], &health["agents_connected"]), (&"ok".into(), &0.into()));
    assert_eq!(health["version"], env!("CARGO_PKG_VERSION"));
    world.pass(2 * NANOS_PER_SEC);
    world.send("train", &[NOTHING, OPEN]);
    world.until("/api/v1/health", |v| v["hosts_heard"] == 1 && v["records"] == 2 && v["open_cases"] == 1);
    world.pass(11 * NANOS_PER_SEC);
    let silent = world.until("/api/v1/health", |v| v["hosts_heard"] == 0);
    assert_eq!(silent["jobs"], 1);
    world.until("/api/v1/jobs", |v| v["jobs"][0]["state"] == "silent");
}

#[test]
fn lag_is_the_age_of_the_oldest_batch_of_the_last_tick() {
    let world = World::start(ServeConfig { tick: Duration::from_secs(1), ..quick() });
    world.pass(2 * NANOS_PER_SEC);
    world.send("train", &[NOTHING]);
    let is_old = |ms: u64| (2_000..3_000).contains(&ms); // the clock runs on until the tick
    world.until("/api/v1/health", |v| v["lag_ms"].as_u64().is_some_and(is_old));
    world.until("/api/v1/health", |v| v["lag_ms"] == 0);
}

#[test]
fn the_documented_example_is_what_the_server_writes() {
    let document = include_str!("../../../../docs/formats/api.md");
    let (_, rest) = document.split_once("<!-- example: case -->\n```json\n").expect("the example is marked");
    let (example, _) = rest.split_once("```").expect("the example ends");
    let case = CaseJson::of(&BookedCase::of(7, &"llama-70b".into(), &example_case(CaseId(1), HostTime(NEW_YEAR))));
    let written = serde_json::to_string_pretty(&case).expect("a case has a JSON form");
    assert_eq!(example.trim(), written, "docs/formats/api.md shows another shape; write:\n{written}");
    let read: CaseJson = serde_json::from_str(example).expect("the example is a case");
    assert_eq!(read, case);
}

#[test]
fn the_runbook_has_a_page_for_every_verdict() {
    let runbook = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/runbook");
    let index = std::fs::read_to_string(runbook.join("README.md")).expect("the runbook");
    for what in What::ALL {
        assert!(index.contains(&format!("\n### {what}\n")), "no section on {what}");
    }
    for category in Category::ALL {
        let page = std::fs::read_to_string(runbook.join(format!("{category}.md"))).unwrap_or_default();
        assert!(page.starts_with(&format!("# {category}: ")), "no page on {category}");
        for part in ["**What it means", "**What to look at", "**What to do", "**How it can be wrong"] {
            assert!(page.contains(part), "{category}.md has no {part}**");
        }
        assert!(index.contains(&format!("| `{category}` |")) && index.contains(&format!("({category}.md)")));
    }
}
