//! Actions: from a report of the brain to a file, what is seen of it, and when it is taken back. The jobs are simulated.
use super::*;
use crate::act::Acts;
use crate::api::{ActRequest, ActionJson, AutoRequest, PlanRequest};
use crate::book::CaseBook;
use crate::replay::{Player, TAIL};
use axum::http::StatusCode;
use mycroft_sim::{Life as SimLife, Scenario, Simulation};
use mycroft_store::{Store, StoreConfig};
use std::path::{Path, PathBuf};

/// Micro-batches of each of four replicas in an even division.
pub(super) const EACH: u32 = 8;

/// Four replicas, each one device on a host of its own.
pub(super) fn job(fault: Option<&str>, micro_batches: &[u32], seconds: f64) -> Scenario {
    Scenario {
        hosts: 4,
        ranks_per_host: 1,
        tp: 1,
        pp: 1,
        dp: 4,
        micro_batches: EACH,
        dp_bytes: 4096,
        duration_s: seconds,
        fault: fault.map(|fault| fault.parse().expect("a fault")),
        life: SimLife { micro_batches: micro_batches.to_vec(), ..SimLife::default() },
        ..Scenario::default()
    }
}

/// What the brain says of a job at its end.
pub(super) fn report_of(scenario: &Scenario) -> Report {
    scenario.check().expect("a valid scenario");
    let mut simulation = Simulation::new(scenario);
    let mut player = Player::new(crate::TICK);
    while let Some(stretch) = simulation.next_stretch() {
        for delivery in stretch {
            player.deliver(HostTime(delivery.arrives_at), &delivery.batch);
        }
    }
    player.finish(TAIL).pop_first().expect("one job").1.report
}

pub(super) struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    pub(super) fn new() -> Place {
        Place { folder: tempfile::tempdir().expect("a directory") }
    }

    /// A server's actions, as after a start.
    pub(super) fn acts(&self) -> Acts {
        let store = Store::open(&self.folder.path().join("store"), StoreConfig::default()).expect("a store");
        let book = Arc::new(CaseBook::reopen(Vec::new(), 0));
        let clock: crate::clock::Clock = Arc::new(|| HostTime(NEW_YEAR));
        Acts::open(Some(self.folder.path().join("act")), Some(Arc::new(store)), &book, &clock).expect("opened")
    }

    /// The same, once the effect of what is in force is known: a job that is simulated anew begins at its first iteration.
    pub(super) fn settled(&self, job: &dyn Fn(f64) -> Scenario) -> Acts {
        let acts = self.acts();
        acts.look(&report_of(&job(10.0)));
        acts.look(&report_of(&job(50.0)));
        acts
    }

    pub(super) fn plan_file(&self, job: &str) -> PathBuf {
        self.folder.path().join("act").join(job).join("plan.json")
    }
}

pub(super) fn divided(path: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(path).expect("the file is there");
    let value: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    value["micro_batches"].as_array().expect("a list").iter().filter_map(serde_json::Value::as_u64).collect()
}

pub(super) fn plan_request() -> PlanRequest {
    PlanRequest { micro_batches: 4 * EACH, gradients_ms: Some(20.0), split_cost_s: Some(1.0), ..PlanRequest::default() }
}

pub(super) fn request(take_back: bool) -> ActRequest {
    ActRequest { plan: Some(plan_request()), take_back, again: false, who: "ada on desk".to_owned() }
}

pub(super) fn auto(allow: &[&str], per_day: u32, confidence: f64) -> AutoRequest {
    let allow = allow.iter().map(|&word| word.to_owned()).collect();
    AutoRequest { plan: Some(plan_request()), allow, per_day, confidence, who: "ada on desk".to_owned() }
}

pub(super) const SLOW: &str = "gpu-power@host1,severity=1.8,after=20";
pub(super) const ALWAYS_SLOW: &str = "gpu-power@host1,severity=1.8,after=0";

#[test]
fn a_plan_is_carried_out_looked_at_and_taken_back_when_its_reason_is_gone() {
    let place = Place::new();
    let ill = report_of(&job(Some(SLOW), &[], 60.0));
    let acts = place.acts();
    let action = acts.act(&ill, &request(false)).expect("carried out");
    assert_eq!((action.state.as_str(), action.hosts.as_slice()), ("applied", &["host1".to_owned()][..]), "{action:?}");
    let file = place.plan_file(&action.job);
    assert_eq!(divided(&file), action.micro_batches.iter().map(|&m| u64::from(m)).collect::<Vec<u64>>());
    let (status, twice) = acts.act(&ill, &request(false)).expect_err("it is in force");
    assert!(
        status == StatusCode::CONFLICT && (twice.contains("take it back first") || twice.contains("changes nothing")),
        "{twice}"
    );
    drop(acts);

    // The server starts again: the log is read, and the effect is looked at from there.
    let acts = place.acts();
    let newest = |acts: &Acts| -> ActionJson { acts.list(None, 10).actions[0].clone() };
    let with = |fault: Option<&str>, seconds: f64| report_of(&job(fault, &action.micro_batches, seconds));
    acts.look(&with(Some(ALWAYS_SLOW), 10.0));
    acts.look(&with(Some(ALWAYS_SLOW), 14.0));
    assert_eq!(newest(&acts).state, "applied", "some iterations show nothing yet");
    acts.look(&with(Some(ALWAYS_SLOW), 40.0));
    let kept = newest(&acts);
    assert_eq!((kept.state.as_str(), kept.effect.as_str()), ("kept", "better"), "{kept:?}");
    let after_ms = kept.after_ms.expect("measured");
    assert!((after_ms - kept.promised_ms).abs() < 0.1 * kept.promised_ms, "{kept:?}");
    acts.look(&with(Some(ALWAYS_SLOW), 70.0));
    assert_eq!(newest(&acts).state, "kept", "its device is as slow as it was");

    // The device is healthy again: iterations are as long as before, and its work is not.
    acts.look(&with(None, 60.0));
    assert_eq!(newest(&acts).state, "kept", "for a moment");
    acts.look(&with(None, 90.0));
    let back = newest(&acts);
    assert_eq!(back.state, "taken-back", "{back:?}");
    assert!(back.ended_because.contains("host1") && back.ended_because.contains("as fast as its peers"), "{back:?}");
    assert_eq!(divided(&file), vec![u64::from(EACH); 4]);
    drop(acts);
    assert_eq!(place.acts().list(Some(&back.job), 10).actions, vec![back], "all of it is in the log");
}

#[test]
fn what_made_a_job_slower_is_taken_back_and_not_tried_again() {
    let place = Place::new();
    let ill = report_of(&job(Some(SLOW), &[], 60.0));
    let acts = place.acts();
    let action = acts.act(&ill, &request(false)).expect("carried out");
    let mut worse = ill.clone();
    worse.iterations += 30;
    worse.ranks.iter_mut().for_each(|rank| rank.iteration_ms = rank.iteration_ms.map(|ms| 1.3 * ms));
    acts.look(&worse);
    let back = acts.list(None, 1).actions[0].clone();
    assert_eq!((back.state.as_str(), back.effect.as_str()), ("taken-back", "worse"), "{back:?}");
    assert_eq!(divided(&place.plan_file(&action.job)), vec![u64::from(EACH); 4]);
    let (_, text) = acts.act(&ill, &request(false)).expect_err("not again");
    assert!(text.contains("made this job slower"), "{text}");
    acts.allow(&action.job, auto(&["split"], 9, 0.0)).expect("allowed");
    acts.look(&ill);
    let list = acts.list(None, 10);
    assert_eq!(list.actions.len(), 1, "nor by itself: {list:?}");
    assert!(list.policies[0].waits_for.contains("made this job slower"), "{list:?}");
    acts.act(&ill, &ActRequest { again: true, ..request(false) }).expect("asked for again");
}

#[test]
fn nothing_is_done_without_asking_beyond_what_a_policy_allows() {
    let place = Place::new();
    let ill = report_of(&job(Some(SLOW), &[], 60.0));
    let acts = place.acts();
    let name = ill.job.to_string();
    acts.look(&ill);
    assert_eq!(acts.list(None, 10).actions, Vec::new(), "nobody allowed anything");
    for (policy, why) in [
        (auto(&["restart"], 4, 0.0), "only restart is allowed"),
        (auto(&["split"], 0, 0.0), "all that is allowed"),
        (auto(&["split"], 4, 1.0), "100 % are asked for"),
    ] {
        acts.allow(&name, policy).expect("a policy");
        acts.look(&ill);
        let list = acts.list(None, 10);
        assert!(list.actions.is_empty() && list.policies[0].waits_for.contains(why), "{list:?}");
    }
    acts.allow(&name, auto(&["split"], 4, 0.5)).expect("a policy");
    drop(acts);
    let acts = place.acts();
    acts.look(&ill);
    let list = acts.list(None, 10);
    assert_eq!((list.actions[0].by.as_str(), list.actions[0].who.as_str()), ("policy", "ada on desk"), "{list:?}");
    acts.act(&ill, &request(true)).expect("taken back");
    acts.allow(&name, AutoRequest { plan: None, ..auto(&[], 4, 0.5) }).expect("off");
    acts.look(&ill);
    assert_eq!(acts.list(None, 10).actions.len(), 1);
    for bad in
        [auto(&["move"], 4, 0.5), auto(&["split"], 4, 2.0), AutoRequest { plan: None, ..auto(&["split"], 4, 0.5) }]
    {
        assert_eq!(acts.allow(&name, bad).expect_err("refused").0, StatusCode::BAD_REQUEST);
    }
}

/// A list of hosts is written once: its end is counted from the look that wrote it, and later looks see the same hosts.
#[test]
fn hosts_are_listed_once_however_often_a_policy_looks() {
    let place = Place::new();
    let ill = report_of(&job(Some(SLOW), &[], 60.0));
    let acts = place.acts();
    let plan = PlanRequest { done: Some("move".to_owned()), restart_cost_s: Some(1.0), ..plan_request() };
    let policy = AutoRequest { plan: Some(plan.clone()), ..auto(&["restart"], 9, 0.0) };
    acts.allow(&ill.job, policy).expect("a policy");
    acts.look(&ill);
    let file = place.folder.path().join("act").join("exclusions.json");
    let first = std::fs::read_to_string(&file).expect("a list");
    assert!(first.contains("host1"), "{first}");
    let mut later = ill.clone();
    for _ in 0..3 {
        later.as_of = HostTime(later.as_of.0 + 2_000_000_000);
        acts.look(&later);
    }
    let list = acts.list(None, 10);
    assert_eq!((list.actions.len(), list.actions[0].state.as_str()), (1, "written"), "{list:?}");
    assert!(list.policies[0].waits_for.contains("action 1 lists these hosts already"), "{list:?}");
    assert_eq!(std::fs::read_to_string(&file).expect("a list"), first);
    let ask = ActRequest { plan: Some(plan), again: true, ..request(false) };
    acts.act(&later, &ask).expect("asked for again");
}

#[test]
fn what_cannot_be_written_down_is_not_done() {
    let place = Place::new();
    let ill = report_of(&job(Some(SLOW), &[], 60.0));
    let acts = place.acts();
    let database = rusqlite_file(&place);
    std::fs::remove_file(&database).expect("it is there");
    std::fs::create_dir(&database).expect("in its place");
    drop(acts);
    let acts = place.acts();
    let (status, text) = acts.act(&ill, &request(false)).expect_err("refused");
    assert!(status == StatusCode::SERVICE_UNAVAILABLE && text.contains("audit log"), "{text}");
    assert!(!place.plan_file(&ill.job).exists());
}

/// The database of a store.
fn rusqlite_file(place: &Place) -> PathBuf {
    let files = std::fs::read_dir(place.folder.path().join("store")).expect("a store");
    let mut files = files.filter_map(|entry| Some(entry.ok()?.path()));
    files.find(|path| path.extension().is_some_and(|end| end == "db" || end == "sqlite")).expect("a database")
}

#[test]
fn only_the_token_that_acts_acts() {
    let place = Place::new();
    let token = "act-0123456789abcdef";
    let config = ServeConfig {
        store_dir: Some(place.folder.path().join("store")),
        act_dir: Some(place.folder.path().join("act")),
        act_token: Some(token.to_owned()),
        token: Some("read-0123456789abcdef".to_owned()),
        ..quick()
    };
    let world = World::start(config);
    let post = |path: &str, token: &str, body: &str| {
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        raw(world.server.http_addr(), head.as_bytes()).expect("an answer")
    };
    world.send("train", &[OPEN]);
    world.server.wait_for_case(PATIENCE, |_| true).expect("the job is there");
    let ask = r#"{"plan": {"micro_batches": 8, "tensor": 2}, "who": "ada"}"#;
    for wrong in ["read-0123456789abcdef", "", "act-0123456789abcdeg"] {
        let answer = post("/api/v1/jobs/train/actions", wrong, ask);
        assert!(answer.status == 401 && answer.body.contains("token that acts"), "{}", answer.body);
    }
    let nothing = post("/api/v1/jobs/train/actions", token, ask);
    assert!(nothing.status == 409 && nothing.body.contains("changes nothing now"), "{}", nothing.body);
    for (body, status, word) in [
        (r#"{"plan": {"micro_batches": 8}}"#, 400, "who"),
        (r#"{"plan": {"micro_batches": 8, "speed": 1}, "who": "a"}"#, 400, "speed"),
        (r#"{"who": "a"}"#, 400, "micro-batches"),
        (r#"{"take_back": true, "who": "a"}"#, 409, "nothing is in force"),
        ("{", 400, ""),
    ] {
        let answer = post("/api/v1/jobs/train/actions", token, body);
        assert!(answer.status == status && answer.body.contains(word), "{body}: {} {}", answer.status, answer.body);
    }
    assert_eq!(post("/api/v1/jobs/other/actions", token, ask).status, 404);
    assert_eq!(post("/api/v1/jobs/train/actions", token, &"x".repeat(70 << 10)).status, 400);
    let policy = r#"{"plan": {"micro_batches": 8, "tensor": 2}, "allow": ["split"], "per_day": 2, "confidence": 0.9, "who": "ada"}"#;
    assert_eq!(post("/api/v1/jobs/train/auto", token, policy).status, 200);
    let bearer = ["Authorization: Bearer read-0123456789abcdef"];
    let log = get(world.server.http_addr(), "/api/v1/actions?job=train", &bearer);
    assert!(log.status == 200 && log.body.contains(r#""per_day":2"#), "{}", log.body);
    assert!(get(world.server.http_addr(), "/api/v1/actions", &[]).status == 401);
    let quiet = World::start(quick());
    let refused = raw(
        quiet.server.http_addr(),
        b"POST /api/v1/jobs/x/actions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n",
    );
    let refused = refused.expect("an answer");
    assert!(refused.status == 403 && refused.body.contains("--act-dir"), "{}", refused.body);
}

/// What a test said is what the case says, also after a restart, until its engine changes its mind.
#[test]
fn a_test_of_suspects_is_a_fact_until_the_case_is_revised() {
    let place = Place::new();
    let token = "act-0123456789abcdef";
    let config = || ServeConfig {
        store_dir: Some(place.folder.path().join("store")),
        act_dir: Some(place.folder.path().join("act")),
        act_token: Some(token.to_owned()),
        ..quick()
    };
    let post = |world: &World, number: u64, body: &str| {
        let head = format!(
            "POST /api/v1/cases/{number}/validation HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        );
        raw(world.server.http_addr(), head.as_bytes()).expect("an answer")
    };
    let world = World::start(config());
    world.send("train", &[OPEN, SETTLE]);
    world.until("/api/v1/cases", |list| list["cases"][0]["settled"] == true);
    let said = r#"{"outcome": "other", "category": "gpu", "text": "rank 3 on host1: device, 1.21 times its peers", "who": "ada on desk",
        "suspects": [{"kind": "rank", "rank": 3, "host": "host1", "link": null, "confidence": 0.8}]}"#;
    assert_eq!(post(&world, 9, said).status, 404);
    for (good, bad) in [("\"other\"", "\"perhaps\""), ("\"gpu\"", "\"gnu\""), ("\"who\"", "\"whom\"")] {
        assert_eq!(post(&world, 1, &said.replacen(good, bad, 1)).status, 400, "{bad}");
    }
    let answer = post(&world, 1, said);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let says = |case: &serde_json::Value| {
        let reason = case["because"].as_array().and_then(|all| all.last()).cloned().unwrap_or_default();
        (case["suspects"][0]["rank"].as_u64(), case["category"].clone(), reason["rule"] == "validation")
    };
    let fact = (Some(3), serde_json::json!("gpu"), true);
    assert_eq!(says(&world.json("/api/v1/cases/1")), fact);
    world.until("/api/v1/cases/1", |case| case["validation"]["who"] == "ada on desk");
    world.send("train", &[REVISE]);
    let revised = world.until("/api/v1/cases/1", |case| case["revisions"] == 2);
    assert_ne!(says(&revised), fact, "the engine knows more now: {revised}");
    assert_eq!(revised["validation"]["outcome"], "other", "that it was tested stays");
    world.send("train", &[CLOSE]);
    world.until("/api/v1/cases/1", |case| case["state"] == "closed");
    assert_eq!(post(&world, 1, said).status, 404, "it is not open any more");
    drop(world);
    let again = World::start(config());
    let kept = again.json("/api/v1/cases/1");
    assert_eq!(kept["validation"], revised["validation"], "also on disk");
}
