//! The live page in a real browser, asking a real server whose brain is scripted.
//!
//! Screenshots go to the folder that `MYCROFT_SHOTS` names, for people to look at.
#[path = "../../tests/page/browser.rs"]
#[expect(dead_code, reason = "the page of an autopsy is printed, and driven by the mouse")]
mod browser;

use super::{CLOSE, NOTHING, OPEN, SETTLE, World, quick};
use crate::config::ServeConfig;
use browser::Browser;
use serde_json::json;
use std::path::PathBuf;

/// The page of a server in a window of this width; `None` where there is no browser.
fn opened(world: &World, width: u32) -> Option<Browser> {
    let url = format!("http://{}/", world.server.http_addr());
    Some(Browser::open_url(&browser::find()?, &url, width, 900))
}

fn text(browser: &mut Browser, selector: &str) -> String {
    let text = browser.eval(&format!("document.querySelector({}).textContent", json!(selector)));
    text.as_str().expect(selector).to_owned()
}

fn shot(browser: &mut Browser, name: &str) {
    if let Some(folder) = std::env::var_os("MYCROFT_SHOTS") {
        browser.screenshot(&PathBuf::from(folder).join(format!("{name}.png")));
    }
}

fn is_quiet(browser: &Browser) {
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
    assert!(said.starts_with("train hangs: rank 1 on host1 (network-send, 90\u{a0}%); since "), "{said}");
    assert!(said.contains("1 rank waits"), "{said}");
    shot(&mut browser, "live-fleet");
    browser.eval("document.querySelector('#worst').focus()");
    browser.key("Enter", 0);
    browser.until("document.querySelector('main h1')");
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
    for view in ["", "#case=1", &format!("#job={}", job.replace('<', "%3C").replace('>', "%3E").replace(' ', "%20"))] {
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
