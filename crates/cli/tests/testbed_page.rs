//! The live page over a real job of the testbed, in a real browser: the band turns red when a fault has a case, and each view shows the
//! job. Skips without a browser.
//!
//! Pictures go to the folder that `MYCROFT_SHOTS` names (docs/pictures), for people to look at; `cargo xtask bench page` reads what is printed.
#[path = "../../serve/tests/page/browser.rs"]
#[expect(dead_code, reason = "the page of an autopsy is printed, and driven by the mouse")]
mod browser;
mod common;

use browser::Browser;
use common::{Going, line_with, mycroft, until};
use serde_json::{Value, json};
use std::path::PathBuf;

/// A device that computes at half its speed, of the second rank of the third host.
const FAULT: &str = "gpu-power@host2:rank9,severity=2";

fn ask(url: &str, path: &str) -> Option<Value> {
    let text = ureq::get(format!("{url}{path}")).call().ok()?.into_body().read_to_string().ok()?;
    serde_json::from_str(&text).ok()
}

fn shot(browser: &mut Browser, name: &str) {
    if let Some(folder) = std::env::var_os("MYCROFT_SHOTS") {
        browser.screenshot(&PathBuf::from(folder).join(format!("{name}.png")));
    }
}

fn text(browser: &mut Browser, selector: &str) -> String {
    browser.eval(&format!("document.querySelector({}).textContent", json!(selector))).as_str().unwrap().to_owned()
}

/// How long after a case was opened the band said so, milliseconds: all clocks are this machine's.
fn red_after_ms(browser: &mut Browser, url: &str) -> f64 {
    let red_at = browser.eval("redAt").as_f64().unwrap();
    let opened_at = ask(url, "/api/v1/cases").unwrap()["cases"]
        .as_array()
        .unwrap()
        .iter()
        .map(|case| case["opened_at"]["ns"].as_u64().unwrap())
        .min();
    red_at - opened_at.unwrap() as f64 / 1e6
}

/// The address of a comparison of what was since the level changed, or of the job's second half, with what was before.
fn compared(url: &str, job: &str) -> String {
    let told = ask(url, &format!("/api/v1/jobs/{job}/iterations")).unwrap();
    let points = told["points"].as_array().unwrap();
    let at = |nth: usize| points[nth]["at_ms"].as_f64().unwrap();
    let half = told["changes"][0]["at_ms"].as_f64().unwrap_or_else(|| at(points.len() / 2));
    let (first, last) = (at(0), at(points.len() - 1));
    format!("#compare=job={job}&from={half}&to={last}&with_from={first}&with_to={half}")
}

/// Every view, in both themes and on a phone.
fn views(browser: &mut Browser, url: &str, job: &str) {
    let address = |kind: &str| format!("#{kind}={job}");
    let views = [
        ("fleet", "#".to_owned(), "document.querySelector('.spark')"),
        (
            "job",
            address("job"),
            "document.querySelectorAll('.spent .parts').length == 16 && document.querySelector('.paths')",
        ),
        ("operations", address("operations"), "document.querySelector('.operations canvas')?.width > 0"),
        ("case", "#case=1".to_owned(), "document.querySelector('.summary h1')"),
        ("server", "#server".to_owned(), "document.querySelector('.facts')"),
        ("compare", String::new(), "document.querySelectorAll('.compared tbody tr').length == 16"),
    ];
    for (width, theme, name) in [(1280, "light", "light"), (1280, "dark", "dark"), (390, "light", "narrow")] {
        let metrics = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
        browser.call("Emulation.setDeviceMetricsOverride", metrics);
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] });
        browser.call("Emulation.setEmulatedMedia", features);
        for (view, address, is_shown) in &views {
            println!("{view}, {name}");
            let address = if *view == "compare" { compared(url, job) } else { address.clone() };
            browser.eval(&format!("location.hash = {}", json!(address)));
            browser.until(is_shown);
            look(browser, width, view, name);
        }
    }
}

fn look(browser: &mut Browser, width: u64, view: &str, name: &str) {
    let turns = browser.eval("mycroft.turns").as_u64().unwrap();
    browser.until(&format!("mycroft.turns > {}", turns + 1));
    let wide = browser.eval("document.documentElement.scrollWidth").as_u64().unwrap();
    assert!(wide <= width, "{view}: {wide} pixels wide, of {width}");
    shot(browser, &format!("live-{view}-{name}"));
}

/// What each rank took, and its waiting, are the iteration.
fn parts_are_the_iteration(told: &Value) {
    let iteration_ms = told["iteration_ms"].as_f64().unwrap();
    let ranks = told["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 16, "{told}");
    for rank in ranks {
        let sum: f64 = rank["parts_ms"].as_object().unwrap().values().map(|ms| ms.as_f64().unwrap()).sum();
        assert!((sum / iteration_ms - 1.0).abs() < 0.01, "{rank} of {iteration_ms} ms");
    }
}

#[test]
fn a_real_job_turns_the_band_red_and_fills_every_view() {
    let Some(program) = browser::find() else { return };
    let mut demo = Going::start(mycroft(&["demo", "--page", "--fault", FAULT]));
    let api = line_with(&mut demo.stdout, "http://");
    let url = api.split_whitespace().find(|word| word.starts_with("http://")).unwrap().trim_end_matches('/').to_owned();
    let job = until("the job is there", || Some(ask(&url, "/api/v1/jobs")?["jobs"][0]["name"].as_str()?.to_owned()));
    let mut browser = Browser::open_url(&program, &format!("{url}/"), 1280, 900);
    browser.eval(
        "globalThis.redAt = 0;
         new MutationObserver(() => { if (!redAt && document.querySelector('#band.bad')) redAt = Date.now(); })
           .observe(document.querySelector('#band'), { attributes: true, childList: true });
         if (document.querySelector('#band.bad')) redAt = Date.now();",
    );
    until("the band is red", || {
        assert!(demo.is_running(), "the demo ended");
        (browser.eval("redAt").as_f64()? > 0.0).then_some(())
    });
    println!("band_red_after_ms {:.0}", red_after_ms(&mut browser, &url));
    until("rank 9 is named", || text(&mut browser, "#band h1").contains("rank 9 on host2").then_some(()));
    views(&mut browser, &url, &job);
    parts_are_the_iteration(&ask(&url, &format!("/api/v1/jobs/{job}/ranks/series")).unwrap());
    let said = text(&mut browser, "#band h1");
    assert!(said.contains("is slow: rank 9 on host2 (gpu, "), "{said}");
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
    drop(browser);
    demo.signal("INT");
    demo.wait();
}
