//! Series of a job over HTTP.
use super::*;
use serde_json::json;

fn measured() -> World {
    let world = World::start(quick());
    world.send("train", &[MEASURE, OPEN, SETTLE]);
    world.until("/api/v1/jobs", |told| told["jobs"][0]["name"] == "train");
    world.until("/api/v1/jobs/train/iterations", |told| told["iterations"] == 720 && told["bands"] != json!([]));
    world
}

#[test]
fn iterations_come_with_their_level_its_changes_and_cases() {
    let world = measured();
    let told = world.json("/api/v1/jobs/train/iterations?points=100");
    let points = told["points"].as_array().expect("points");
    assert_eq!(points.len(), 90, "720 iterations, eight a point");
    assert_eq!((&points[0]["median_ms"], &points[89]["median_ms"]), (&json!(100.0), &json!(150.0)));
    let changes = told["changes"].as_array().expect("changes");
    assert_eq!(changes.len(), 1, "{changes:?}");
    assert!((changes[0]["after_ms"].as_f64().expect("a number") - 150.0).abs() < 1.0, "{changes:?}");
    assert!((told["level_ms"].as_f64().expect("a level") - 150.0).abs() < 1.0, "{told}");
    let band = &told["bands"][0];
    assert_eq!((&band["case"], &band["what"], &band["to_ms"]), (&json!(1), &json!("hang"), &json!(null)));
    assert_eq!(band["suspects"][0]["rank"], 1);
    world.send("train", &[CLOSE]);
    world.until("/api/v1/jobs/train/iterations", |told| told["bands"][0]["to_ms"].is_number());
}

#[test]
fn ranks_say_where_their_time_went_and_who_took_more_than_the_others() {
    let world = measured();
    let told = world.json("/api/v1/jobs/train/iterations?points=10000");
    let points = told["points"].as_array().expect("points");
    let half = points[360]["at_ms"].as_f64().expect("a time");
    let told = world.json(&format!("/api/v1/jobs/train/ranks/series?from={}&limit=2", half + 10_000.0));
    let worst = &told["ranks"][0];
    assert_eq!((&worst["rank"], &worst["host"], &told["more"]), (&json!(1), &json!("host0"), &json!(2)));
    let ms = |value: &serde_json::Value| value.as_f64().expect("a number");
    assert!((ms(&worst["excess_ms"]) - 50.0).abs() < 0.1, "{worst}");
    assert!((ms(&worst["more_ms"]["computation"]) - 50.0).abs() < 0.1, "{worst}");
    let sum: f64 = worst["parts_ms"].as_object().expect("parts").values().map(ms).sum();
    assert!((sum - ms(&told["iteration_ms"])).abs() < 0.1, "{told}");
    assert!((ms(&worst["took_ms"]["wire"]) - 15.0).abs() < 0.1, "hidden or not: {worst}");
    assert_eq!(told["hosts"][1]["ranks"], json!([2, 3]));
    assert!(ms(&told["hosts"][1]["excess_ms"][0]).abs() < 0.1, "{told}");
    let before = world.json(&format!("/api/v1/jobs/train/ranks/series?to={}&limit=2", half - 15_000.0));
    assert!(ms(&before["ranks"][0]["excess_ms"]) < 0.1, "of another window: {before}");
}

#[test]
fn windows_that_are_none_and_jobs_that_are_none_are_refused() {
    let world = measured();
    for (path, status) in [
        ("train/iterations?from=5&to=4", 400),
        ("train/iterations?from=-1", 400),
        ("train/iterations?to=NaN", 400),
        ("train/iterations?points=0", 400),
        ("train/iterations?step=4", 400),
        ("other/iterations", 404),
        ("other/ranks/series", 404),
    ] {
        let answer = get(world.server.http_addr(), &format!("/api/v1/jobs/{path}"), &[]);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
    }
    let nothing = world.json("/api/v1/jobs/train/ranks/series?from=1&to=2");
    assert_eq!((&nothing["ranks"], &nothing["from_ms"]), (&json!([]), &json!(null)));
}

/// What a server that is gone has written is told by the next one, of a job that sends nothing any more.
#[test]
fn series_outlive_the_server_and_the_job() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = || ServeConfig { store_dir: Some(dir.path().join("store")), ..quick() };
    let world = World::start(config());
    world.send("train", &[MEASURE]);
    world.until("/api/v1/jobs", |told| told["jobs"][0]["iteration_us"].is_number());
    let disk = world.until("/api/v1/health", |told| told["disk"].is_object())["disk"].clone();
    assert!(disk["free_bytes"].as_u64() <= disk["bytes"].as_u64() && disk["retain_s"] == 7 * 86_400, "{disk}");
    drop(world);
    let world = World::begun(config(), 1000, NEW_YEAR + 3 * 3_600 * NANOS_PER_SEC);
    assert_eq!(world.json("/api/v1/jobs")["jobs"], json!([]));
    let told = world.json("/api/v1/jobs/train/iterations?points=10");
    let count: u64 =
        told["points"].as_array().expect("points").iter().map(|one| one["iterations"].as_u64().unwrap_or(0)).sum();
    assert!(count >= 360, "all but the minute that was not over: {told}");
    let told = world.json("/api/v1/jobs/train/ranks/series");
    assert_eq!((&told["ranks"][0]["rank"], &told["hosts"][1]["ranks"]), (&json!(1), &json!([2, 3])), "{told}");
    assert_eq!(world.json("/api/v1/jobs/train/paths")["paths"][0]["from"], "host0");
    assert_eq!(get(world.server.http_addr(), "/api/v1/jobs/other/paths", &[]).status, 404);
}

#[test]
fn windows_are_compared_by_rank_and_part() {
    let world = measured();
    let points = world.json("/api/v1/jobs/train/iterations?points=10000")["points"].clone();
    let half = points[360]["at_ms"].as_f64().expect("a time");
    let path = format!("/api/v1/compare?job=train&from={}&with_to={}&limit=2", half + 10_000.0, half - 15_000.0);
    let told = world.json(&path);
    let (iteration, worst) = (&told["iteration"], &told["ranks"][0]);
    assert!((iteration["more_ms"].as_f64().expect("a number") - 50.0).abs() < 0.1, "{told}");
    assert_eq!((&worst["rank"], &worst["host"], &told["more"]), (&json!(1), &json!("host0"), &json!(2)));
    assert!((worst["parts"]["computation"]["more_ms"].as_f64().expect("a number") - 50.0).abs() < 0.1, "{worst}");
    assert_eq!((&worst["own"]["is_clear"], &told["slower"], &told["faster"]), (&json!(true), &json!(1), &json!(0)));
    for (path, status) in
        [("?job=train", 400), ("?job=train&with=other", 404), ("?from=1", 400), ("?job=train&from=5&to=4", 400)]
    {
        let answer = get(world.server.http_addr(), &format!("/api/v1/compare{path}"), &[]);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
    }
}

/// What a hang costs is lost while it lasts, and after it.
#[test]
fn a_job_that_stands_still_loses_the_time_of_all_its_ranks() {
    let world = World::start(quick());
    world.send("train", &[MEASURE]);
    let lost = |told: &serde_json::Value| told["jobs"][0]["lost_rank_s"].as_u64();
    let before = world.until("/api/v1/jobs", |told| told["jobs"][0]["iteration_us"].is_number());
    world.pass(60 * NANOS_PER_SEC);
    world.send("train", &[OPEN]);
    world.until("/api/v1/cases", |told| told["cases"][0]["state"] == "open");
    world.pass(800 * NANOS_PER_SEC);
    // Four ranks.
    let stood = lost(&before).expect("a number") + 4 * 800;
    world.until("/api/v1/jobs", |told| lost(told) >= Some(stood));
    world.send("train", &[CLOSE]);
    world.until("/api/v1/cases", |told| told["cases"][0]["state"] == "closed");
    assert!(lost(&world.json("/api/v1/jobs")) >= Some(stood));
}
