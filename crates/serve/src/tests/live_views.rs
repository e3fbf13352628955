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

/// An answer that comes late does not take somebody back to the view that it is of.
#[test]
fn a_late_answer_does_not_bring_back_a_view_that_was_left() {
    let Some((_world, mut browser, _)) = hung(1280) else { return };
    browser.eval("location.hash = '#job=train'");
    browser.until("document.querySelector('#whole')");
    browser.eval(
        "window.held = []; window.asks = window.fetch; \
         window.fetch = (path, how) => !path.includes('/ranks/series') ? asks(path, how) \
           : new Promise((done) => held.push(() => done(asks(path, how))))",
    );
    browser.eval("document.querySelector('#whole').click()");
    browser.until("window.held.length > 0");
    browser.eval("location.hash = '#server'");
    browser.until("document.querySelector('.facts')");
    browser.eval(
        "new MutationObserver(() => { window.isBack ||= document.querySelector('.spent') !== null; }) \
           .observe(document.getElementById('main'), { childList: true, subtree: true }); \
         window.turned = mycroft.turns; window.fetch = asks; held.forEach((go) => go())",
    );
    browser.until("mycroft.turns > window.turned + 2");
    assert_ne!(browser.eval("window.isBack"), json!(true));
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

/// A case with all that it may have: many reasons, a circle of waiting, and what was done about it.
#[test]
fn a_case_folds_its_reasons_draws_its_waits_and_says_what_was_done() {
    let Some((_world, mut browser, _)) = hung(1280) else { return };
    browser.eval(
        "(async () => {
            const { caseCards } = await import('/page/case.js');
            const one = await (await fetch('/api/v1/cases/1')).json();
            one.because = [...Array(8).fill(one.because[0]), { rule: 'watch.stall', text: 'nothing moved', evidence: [] }];
            one.blast_radius = [{ waiting: [0, 2], waits_for: [1], text: 'AllReduce DP_0 #17' }, { waiting: [3], waits_for: [0], text: 'AllReduce TP_1 #9' }];
            const at = one.since, done = [{ strategy: 'split', state: 'kept', who: '<i>ada</i>', because: 'host1 is slow', cases: [1], at }];
            const cards = document.createElement('div');
            cards.id = 'made';
            cards.append(...caseCards(one, done, Number(BigInt(at.ns) / 1000000000n) + 60, () => {}).flat());
            document.body.append(cards);
        })()",
    );
    let made = text(&mut browser, "#made");
    for part in [
        "5 more reasons of flow",
        "nothing moved watch.stall",
        "split, kept, ",
        "by <i>ada</i>: host1 is slow",
        "4 of 4 ranks: 4 wait for others or are waited for.",
    ] {
        assert!(made.contains(part), "`{part}` is not in {made}");
    }
    let nodes = "document.querySelectorAll('#made .node').length + ' ' + document.querySelectorAll('#made .node.suspect').length";
    assert_eq!(browser.eval(nodes), "4 1", "0 waits and is waited for, 2 and 3 wait, 1 is the suspect");
    is_quiet(&browser);
}

#[test]
fn the_report_of_a_case_is_copied_or_shown_to_be_copied() {
    let Some((_world, mut browser, _)) = hung(1280) else { return };
    browser.eval("location.hash = '#case=1'");
    browser.until("document.querySelector('#ticket')");
    browser.eval("document.querySelector('#ticket').click()");
    let copied = "document.querySelector('#ticket').textContent == 'Copied'";
    browser.until(&format!("{copied} || document.querySelector('pre.ticket')?.textContent.includes('CASE 1 open')"));
    is_quiet(&browser);
}

/// Two captures of four ranks, as the server tells them.
fn captures() -> serde_json::Value {
    let frame = |name: &str, line: u32| json!({ "name": name, "file": "/srv/train.py", "line": line });
    let capture = |id: u64| {
        let stacks = json!([
            { "ranks": [0, 2, 3], "odd": false, "doing": "in a collective", "frames": [frame("all_reduce", 9), frame("main", 3)] },
            { "ranks": [1], "odd": true, "doing": "loading data", "frames": [frame("next", 40 + id as u32), frame("main", 3)] },
        ]);
        json!({ "id": id, "job": "train", "state": "done", "stacks": true, "taken_at": { "ns": super::NEW_YEAR, "text": "" }, "autopsy": { "stacks": stacks, "verdict": { "what": "hang", "suspects": [{ "rank": 1 }] } } })
    };
    let told = json!([capture(3), capture(4)]);
    for group in told[0]["autopsy"]["stacks"].as_array().expect("groups") {
        let read: Result<crate::autopsy::json::StackGroupJson, _> = serde_json::from_value(group.clone());
        assert!(read.is_ok(), "the shape is the server's: {read:?}");
    }
    told
}

#[test]
fn stacks_of_captures_stand_beside_each_other_in_the_order_of_time() {
    let Some((_world, mut browser, _)) = hung(1280) else { return };
    browser.eval(&format!(
        "(async () => {{
            const {{ capturesCard, capturesOf }} = await import('/page/captures.js');
            const all = {}, listed = [...all].reverse().map((one) => ({{ ...one, autopsy: null }}));
            const ask = async (path) => (path.includes('limit') ? {{ dumps: listed }} : all.find((one) => path.endsWith(`/${{one.id}}`)));
            document.body.append(Object.assign(document.createElement('div'), {{ id: 'made' }}));
            document.querySelector('#made').append(capturesCard(await capturesOf(ask, 'train'), {}));
        }})()",
        captures(),
        super::NEW_YEAR / 1_000_000_000 + 30
    ));
    let heads = "[...document.querySelectorAll('#made .capture > h3')].map((head) => head.textContent).join()";
    assert_eq!(browser.eval(heads), "capture 3, 30\u{a0}s ago,capture 4, 30\u{a0}s ago");
    let made = text(&mut browser, "#made");
    assert!(made.contains("loading data") && made.contains("train.py:43") && made.contains("train.py:44"), "{made}");
    let beside = "(() => { const [a, b] = [...document.querySelectorAll('#made .capture')].map((one) => one.getBoundingClientRect()); return a.top == b.top && a.right <= b.left; })()";
    assert_eq!(browser.eval(beside), true);
    is_quiet(&browser);
}
