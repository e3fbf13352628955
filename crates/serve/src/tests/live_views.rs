//! Every view of the live page in a real browser: on each screen, by keys, and while the job goes on.
use super::live_page::browser::Browser;
use super::live_page::{is_quiet, opened, shot, text};
use super::{MEASURE, OPEN, SETTLE, World, quick};
use serde_json::json;

/// Contrast of every text on the page with what is behind it, by the formula of WCAG 2.
const CONTRASTS: &str = include_str!("../../tests/page/contrast.js");

/// A page of a server with one job, which was slow in its last minute and hangs; and the address of a comparison of that minute with
/// the one before.
fn hung(width: u32) -> Option<(World, Browser, String)> {
    let world = World::start(quick());
    world.send("train", &[MEASURE, OPEN, SETTLE]);
    world.until("/api/v1/jobs", |told| told["jobs"][0]["iteration_us"].is_number());
    let points = world.json("/api/v1/jobs/train/iterations?points=10000")["points"].clone();
    let at = |nth: usize| points[nth]["at_ms"].as_f64().expect("a time");
    let windows = format!("job=train&from={}&to={}&with_from={}&with_to={}", at(420), at(719), at(0), at(300));
    let mut browser = opened(&world, width)?;
    browser.until("document.querySelector('#band.bad') && document.querySelector('#job-train')");
    Some((world, browser, format!("#compare={windows}")))
}

/// The views by name: their address, and what is there once they are shown.
fn views(compare: &str) -> [(&'static str, String, &'static str); 6] {
    [
        ("fleet", "#".into(), "document.querySelector('#job-train')"),
        ("job", "#job=train".into(), "document.querySelectorAll('.spent .parts').length == 4"),
        ("operations", "#operations=train".into(), "document.querySelector('.operations canvas')?.width > 0"),
        ("case", "#case=1".into(), "document.querySelector('.summary h1')"),
        ("compare", compare.into(), "document.querySelectorAll('.compared tbody tr').length == 4"),
        ("server", "#server".into(), "document.querySelector('.facts')"),
    ]
}

fn theme(browser: &mut Browser, theme: &str) {
    let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] });
    browser.call("Emulation.setEmulatedMedia", features);
}

/// Waits until the page was shown anew.
fn turned(browser: &mut Browser) {
    let turns = browser.eval("mycroft.turns").as_u64().expect("a number");
    browser.until(&format!("mycroft.turns > {}", turns + 1));
}

#[test]
fn every_view_can_be_read_in_light_and_dark() {
    let Some((_world, mut browser, compare)) = hung(1280) else { return };
    for (name, address, is_shown) in views(&compare) {
        browser.eval(&format!("location.hash = {}", json!(address)));
        browser.until(is_shown);
        for theme_name in ["light", "dark"] {
            theme(&mut browser, theme_name);
            turned(&mut browser);
            assert_eq!(browser.eval(CONTRASTS), json!([]), "{name}, {theme_name}: texts with too little contrast");
            shot(&mut browser, &format!("view-{name}-{theme_name}"));
        }
    }
    is_quiet(&browser);
}

#[test]
fn every_view_fits_a_phone() {
    let Some((_world, mut browser, compare)) = hung(390) else { return };
    for (name, address, is_shown) in views(&compare) {
        browser.eval(&format!("location.hash = {}", json!(address)));
        browser.until(is_shown);
        let wide = browser.eval("document.documentElement.scrollWidth");
        assert!(wide.as_u64() <= Some(390), "{name}: {wide} pixels wide");
        shot(&mut browser, &format!("view-{name}-narrow"));
    }
    is_quiet(&browser);
}

/// Presses Tab until an element has the focus, then Enter.
fn keys_to(browser: &mut Browser, id: &str, is_shown: &str) {
    for _ in 0..80 {
        browser.key("Tab", 0);
        if browser.eval("document.activeElement?.id") == json!(id) {
            browser.key("Enter", 0);
            browser.until(is_shown);
            return;
        }
    }
    panic!("#{id} is not reached by keys");
}

#[test]
fn every_view_is_reached_by_keys() {
    let Some((_world, mut browser, _)) = hung(1280) else { return };
    keys_to(&mut browser, "worst", "document.querySelector('.summary h1')");
    keys_to(&mut browser, "all", "document.querySelector('#job-train')");
    keys_to(&mut browser, "job-train", "document.querySelectorAll('.spent .parts').length == 4");
    keys_to(&mut browser, "compare-before", "document.querySelectorAll('.compared tbody tr').length == 4");
    keys_to(&mut browser, "the-job", "document.querySelectorAll('.spent .parts').length == 4");
    keys_to(&mut browser, "operations", "document.querySelector('.operations canvas')?.width > 0");
    keys_to(&mut browser, "to-server", "document.querySelector('.facts')");
    is_quiet(&browser);
}

#[test]
fn what_differs_between_two_windows_is_said() {
    let Some((_world, mut browser, _)) = hung(1280) else { return };
    browser.eval("location.hash = '#job=train'");
    browser.until("document.querySelector('#compare-before')");
    // A window that is kept can be compared with another one.
    assert!(browser.eval("document.querySelector('#compare-kept')").is_null());
    browser.eval("document.querySelector('#keep').click()");
    browser.eval("document.querySelector('#whole').click()");
    browser.until("document.querySelector('#compare-kept')");
    browser.eval("document.querySelector('#present').click()");
    browser.until("document.querySelector('#compare-before')");
    browser.eval("document.querySelector('#compare-before').click()");
    browser.until("document.querySelector('.compared')");
    let page = text(&mut browser, "main");
    for part in [
        "An iteration takes 150\u{a0}ms, 50\u{a0}% longer than before.",
        "Rank 1 on host0 takes 50\u{a0}ms more itself, most of it computation.",
        "train, ",
    ] {
        assert!(page.contains(part), "`{part}` is not on the page:\n{page}");
    }
    assert_eq!(text(&mut browser, ".compared tbody tr td.more"), "+50\u{a0}ms");
    is_quiet(&browser);
}

#[test]
fn operations_follow_the_job_until_somebody_uses_the_grid() {
    let Some((_world, mut browser, _)) = hung(1280) else { return };
    browser.eval("location.hash = '#operations=train'");
    browser.until("document.querySelector('.operations .status')?.textContent.includes('TP_0 #89')");
    let page = text(&mut browser, "main");
    for part in [
        "Rank 1 on host0 has not issued #89 of TP_0, which others have.",
        "2 more communicators, in which nobody is further behind.",
        "AllGather TP_0 #89",
    ] {
        assert!(page.contains(part), "`{part}` is not on the page:\n{page}");
    }
    let status = text(&mut browser, ".operations .status");
    assert!(status.contains("rank 1: not issued: its peers wait for it"), "where it starts: {status}");
    let follows = "document.querySelector('#follow').getAttribute('aria-pressed')";
    assert_eq!(browser.eval(follows), "true");
    turned(&mut browser);
    browser.eval("document.querySelector('#grid').focus()");
    browser.key("ArrowUp", 0);
    browser.until(&format!("{follows} == 'false'"));
    let status = text(&mut browser, ".operations .status");
    assert!(status.contains("rank 0: AllGather, started, not done"), "{status}");
    turned(&mut browser);
    assert_eq!(text(&mut browser, ".operations .status"), status, "nothing moves under who uses it");
    browser.eval("document.activeElement.blur(); document.querySelector('#follow').click()");
    browser.until(&format!("{follows} == 'true'"));
    turned(&mut browser);
    assert_eq!(text(&mut browser, ".operations .status"), status, "the cursor stays at its rank and operation");
    is_quiet(&browser);
}
