//! The live page in a real browser, asking a real server whose brain is scripted.
//!
//! Screenshots go to the folder that `MYCROFT_SHOTS` names, for people to look at.
#[path = "../../tests/page/browser.rs"]
#[expect(dead_code, reason = "the page of an autopsy is printed, and driven by the mouse")]
pub(super) mod browser;

use super::{CLOSE, MEASURE, MEASURE_MANY, NOTHING, OPEN, SETTLE, World, quick};
use crate::config::ServeConfig;
use browser::Browser;
use serde_json::json;
use std::path::PathBuf;

/// The page of a server in a window of this width; `None` where there is no browser.
pub(super) fn opened(world: &World, width: u32) -> Option<Browser> {
    let url = format!("http://{}/", world.server.http_addr());
    Some(Browser::open_url(&browser::find()?, &url, width, 900))
}

pub(super) fn text(browser: &mut Browser, selector: &str) -> String {
    let text = browser.eval(&format!("document.querySelector({}).textContent", json!(selector)));
    text.as_str().expect(selector).to_owned()
}

pub(super) fn shot(browser: &mut Browser, name: &str) {
    if let Some(folder) = std::env::var_os("MYCROFT_SHOTS") {
        browser.screenshot(&PathBuf::from(folder).join(format!("{name}.png")));
    }
}

pub(super) fn is_quiet(browser: &Browser) {
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
}

#[test]
fn the_band_says_what_is_wrong_and_keys_lead_to_what_to_do() {
    let world = World::start(quick());
    let Some(mut browser) = opened(&world, 1280) else { return };
    assert_eq!(text(&mut browser, "#band h1"), "No job is live.");
    world.send("train", &[NOTHING]);
    browser.until("document.querySelector('#band').className == 'band ok' && document.querySelector('#job-train')");
    assert_eq!(text(&mut browser, "#band h1"), "Nothing is wrong: 1 job live.");
    world.send("train", &[OPEN, SETTLE]);
    browser.until("document.querySelector('#band.bad h1')?.textContent.includes('network-send')");
    let said = text(&mut browser, "#band h1");
    assert!(said.starts_with("train hangs: rank 1 on host1 (network-send, 90\u{a0}%); for "), "{said}");
    assert!(said.contains("1 rank waits"), "{said}");
    shot(&mut browser, "live-fleet");
    browser.eval("document.querySelector('#worst').focus()");
    browser.key("Enter", 0);
    browser.until("document.querySelector('main h1')");
    // Somebody looks after it, under a name that is no markup, and is told so by the page.
    browser.eval(
        "document.querySelector('#note-who').value = '<b>ada</b>'; document.querySelector('#acknowledge').click()",
    );
    browser.until("document.querySelector('.handled')?.textContent == '<b>ada</b> looks after it.'");
    browser.eval("document.querySelector('#note-text').focus()");
    browser.call("Input.insertText", json!({ "text": "it is the switch" }));
    browser.key("Enter", 0);
    browser.until("document.querySelector('.notes ul')?.textContent.includes('it is the switch') && document.querySelector('#note-text').value == ''");
    browser.eval("document.querySelector('#silence-0').click()");
    browser.until("document.querySelector('.handled')?.textContent.includes('no alerts until')");
    let page = text(&mut browser, "main");
    for part in ["case 1: hang, open", "check the link of host1", "flow.not-delivered", "AllReduce DP_0 #17", "host2"] {
        assert!(page.contains(part), "`{part}` is not on the page:\n{page}");
    }
    shot(&mut browser, "live-case");
    browser.eval("location.hash = '#job=train'");
    browser.until("document.querySelectorAll('.cell').length == 4");
    let cell = text(&mut browser, ".cell.suspect");
    assert_eq!(cell, "1w", "the suspect, who waits");
    shot(&mut browser, "live-job");
    world.send("train", &[CLOSE]);
    browser.until("document.querySelector('#band').className == 'band ok'");
    is_quiet(&browser);
}

#[test]
fn a_phone_shows_all_of_it_and_names_never_become_markup() {
    let world = World::start(quick());
    let job = "<img src=x onerror=alert(1)>\"'&";
    world.send(job, &[OPEN, SETTLE]);
    let Some(mut browser) = opened(&world, 390) else { return };
    browser.until("document.querySelector('#band.bad')");
    assert!(text(&mut browser, "#band h1").starts_with(job));
    let name = "%3Cimg%20src=x%20onerror=alert(1)%3E%22%27%26";
    let compare = format!("#compare=job={name}&from=1&with_to=1");
    for view in ["", "#case=1", &format!("#job={name}"), &format!("#operations={name}"), &compare] {
        browser.eval(&format!("location.hash = {}", json!(view)));
        let turns = browser.eval("mycroft.turns").as_u64().expect("a number");
        browser.until(&format!("mycroft.turns > {}", turns + 1));
        let wide = browser.eval("document.documentElement.scrollWidth");
        assert!(wide.as_u64() <= Some(390), "{view}: {wide} pixels wide");
        assert!(browser.eval("document.querySelector('main img, main script')").is_null(), "{view}");
    }
    shot(&mut browser, "live-narrow");
    is_quiet(&browser);
}

#[test]
fn the_fleet_is_filtered_and_ordered_and_the_server_has_a_view_of_its_own() {
    let world = World::start(quick());
    for job in ["alpha", "beta", "gamma"] {
        world.send(job, if job == "beta" { &[OPEN, SETTLE] } else { &[NOTHING] });
    }
    let Some(mut browser) = opened(&world, 390) else { return };
    let names = "[...document.querySelectorAll('[id^=job-]')].map((one) => one.textContent).join()";
    browser.until(&format!("{names} == 'beta,alpha,gamma'"));
    browser.eval("document.querySelector('#sort-name').focus()");
    browser.key("Enter", 0);
    browser.until(&format!("{names} == 'alpha,beta,gamma' && document.activeElement.id == 'sort-name'"));
    browser.eval("document.querySelector('#filter').focus()");
    browser.call("Input.insertText", json!({ "text": "MM" }));
    browser.until(&format!("{names} == 'gamma' && document.activeElement.id == 'filter'"));
    browser.call("Input.insertText", json!({ "text": "a" }));
    browser.until(&format!("{names} == 'gamma' && document.querySelector('#filter').value == 'MMa'"));
    shot(&mut browser, "live-filtered");
    browser.eval("document.querySelector('#to-server').focus()");
    browser.key("Enter", 0);
    browser.until("document.querySelector('main h2')?.textContent == 'This server'");
    let page = text(&mut browser, "main");
    for part in ["Nothing is wrong with the server itself.", "records lost: queue", "Clocks of hosts"] {
        assert!(page.contains(part), "`{part}` is not on the page:\n{page}");
    }
    let wide = browser.eval("document.documentElement.scrollWidth");
    assert!(wide.as_u64() <= Some(390), "{wide} pixels wide");
    shot(&mut browser, "live-server");
    is_quiet(&browser);
}

#[test]
fn a_token_is_asked_for_once_and_scripts_cannot_read_it() {
    let world = World::start(ServeConfig { token: Some("0123456789abcdef-secret".to_owned()), ..quick() });
    let Some(mut browser) = opened(&world, 1280) else { return };
    browser.until("document.querySelector('#token')");
    browser.eval("document.querySelector('#token').value = 'wrong'; document.querySelector('form button').click()");
    browser.until("document.querySelector('.note')?.textContent.includes('not this server')");
    let right = "document.querySelector('#token').value = '0123456789abcdef-secret'";
    browser.eval(&format!("{right}; document.querySelector('form button').click()"));
    browser.until("document.querySelector('#band h1').textContent == 'No job is live.'");
    assert_eq!(browser.eval("document.cookie"), "");
    // The browser reports the answers 401; nothing else went wrong.
    browser.complaints.retain(|complaint| !complaint.contains("401"));
    is_quiet(&browser);
}

/// A page that shows the series of a job which has been measured.
pub(super) fn job_view(width: u32) -> Option<(World, Browser)> {
    let world = World::start(quick());
    world.send("train", &[MEASURE, OPEN, SETTLE]);
    let mut browser = opened(&world, width)?;
    browser.until("document.querySelector('#job-train') && document.querySelector('.spark')");
    browser.eval("document.querySelector('#job-train').click()");
    browser.until("document.querySelector('svg.strip') && document.querySelectorAll('.spent .parts').length == 4");
    Some((world, browser))
}

#[test]
fn a_job_shows_its_iterations_and_where_their_time_goes() {
    let Some((_world, mut browser)) = job_view(1280) else { return };
    let page = text(&mut browser, "main");
    for part in [
        "An iteration takes 150\u{a0}ms, 50\u{a0}% longer than the 100\u{a0}ms of before, since ",
        "takes 50\u{a0}ms longer than its peers, most of it computation.",
        "case 1",
    ] {
        assert!(page.contains(part), "`{part}` is not on the page:\n{page}");
    }
    assert_eq!(text(&mut browser, ".spent .who"), "1 host0", "the worst first");
    assert_eq!(text(&mut browser, ".heat .cell.slow2"), "1++", "a mark beside colour");
    assert_eq!(text(&mut browser, ".paths .cell.slow2"), "40\u{a0}ms++", "the path from host0 to host1, in the matrix");
    assert!(page.contains("From host0 to host1 data is on its way 30\u{a0}ms longer"), "{page}");
    let changes = browser.eval("document.querySelectorAll('.strip .change').length");
    assert_eq!((changes, text(&mut browser, ".strip .change text")), (json!(1), "+50\u{a0}%".to_owned()));
    shot(&mut browser, "job-wide");
    // The window begins where the job became slow; with keys it takes in what was before, and only what is in it counts.
    browser.eval("document.querySelector('#window-begin').focus()");
    browser.key("Home", 0);
    browser.until("document.querySelector('main').textContent.includes('takes 25\u{a0}ms longer')");
    assert_eq!(
        (text(&mut browser, "#present"), text(&mut browser, ".heat .cell.slow1")),
        ("What is now".to_owned(), "1+".to_owned())
    );
    browser.until("document.activeElement?.id == 'window-begin'");
    browser.key("Escape", 0);
    browser.until("document.querySelector('#whole') && document.querySelector('main').textContent.includes('takes 50\u{a0}ms longer')");
    browser.eval("document.querySelector('#whole').click()");
    browser.until("!document.querySelector('#whole') && document.querySelector('main').textContent.includes('takes 25\u{a0}ms longer')");
    // With the mouse.
    let at = |share: f64| {
        format!(
            "(() => {{ const box = document.querySelector('svg.strip').getBoundingClientRect(); return [box.left + box.width * {share}, box.top + 60]; }})()"
        )
    };
    let (from, to) = (browser.eval(&at(0.6)), browser.eval(&at(0.9)));
    let place = |point: &serde_json::Value| (point[0].as_f64().expect("x"), point[1].as_f64().expect("y"));
    let ((x1, y1), (x2, y2)) = (place(&from), place(&to));
    browser.mouse("mousePressed", x1, y1);
    browser.mouse("mouseMoved", x2, y2);
    browser.mouse("mouseReleased", x2, y2);
    browser.until("document.querySelector('#whole') && document.querySelector('main').textContent.includes('takes 50\u{a0}ms longer')");
    // The numbers stay open while the page goes on.
    browser.eval("document.querySelector('#numbers').click()");
    let turns = browser.eval("mycroft.turns").as_u64().expect("a number");
    browser.until(&format!("mycroft.turns > {} && document.querySelector('details').open", turns + 1));
    assert_eq!(browser.eval("document.querySelectorAll('#numbers ~ .rows tbody tr').length"), json!(4));
    shot(&mut browser, "job-window");
    is_quiet(&browser);
}

#[test]
fn the_view_of_a_job_fits_a_phone_the_dark_and_paper() {
    let Some((_world, mut browser)) = job_view(390) else { return };
    let wide = browser.eval("document.documentElement.scrollWidth");
    assert!(wide.as_u64() <= Some(390), "{wide} pixels wide");
    shot(&mut browser, "job-narrow");
    let dark = json!({ "features": [{ "name": "prefers-color-scheme", "value": "dark" }] });
    browser.call("Emulation.setEmulatedMedia", dark);
    assert_eq!(
        browser.eval("getComputedStyle(document.querySelector('.card')).backgroundColor"),
        json!("rgb(26, 29, 33)")
    );
    shot(&mut browser, "job-dark");
    // On paper there is nothing to press.
    browser.call("Emulation.setEmulatedMedia", json!({ "media": "print" }));
    let shown = "[...document.querySelectorAll('.strip, .spent, .heat, .spans, .strip .end')].map((one) => one.getClientRects().length > 0)";
    assert_eq!(
        browser.eval(&format!("{shown}.join()")),
        json!("false,true,false,false,false,true,true,true"),
        "buttons and ends"
    );
    shot(&mut browser, "job-paper");
    is_quiet(&browser);
}

/// What is shown does not grow with the job: bars of 64 ranks, cells of 48 hosts, and a sentence for the others.
#[test]
fn a_job_of_ten_thousand_ranks_is_shown_fluently() {
    let world = World::start(quick());
    world.send("train", &[MEASURE_MANY]);
    let Some(mut browser) = opened(&world, 1280) else { return };
    browser.eval("location.hash = '#job=train'");
    browser.until("document.querySelectorAll('.spent .parts').length == 64");
    let shown = text(&mut browser, "main");
    for part in
        ["Rank 1 on host0 takes", "10,176 more ranks", "1,232 more hosts, whose ranks take at most 0\u{a0}% longer"]
    {
        assert!(shown.contains(part), "`{part}` is not on the page:\n{shown}");
    }
    let nodes = browser.eval("document.querySelectorAll('*').length").as_u64().expect("a number");
    assert!(nodes < 2_500, "{nodes} elements");
    let turns = browser.eval("mycroft.turns").as_u64().expect("a number");
    browser.until(&format!("mycroft.turns > {}", turns + 3));
    let took_ms = browser.eval("mycroft.shownMs").as_f64().expect("a number");
    println!("{nodes} elements, the page is shown anew in {took_ms:.1} ms");
    // A quarter of what lies between two questions, on a machine that does other work.
    assert!(took_ms < 250.0, "{took_ms} ms");
    is_quiet(&browser);
}
