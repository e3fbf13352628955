//! The verdict: in the document as it stands, and the same with and without a script.
use super::{pairs, sample};
use crate::Opened;
use mycroft_diagnose::Reason;
use mycroft_diagnose::stacks::{Conduct, Outcome, Role};
use mycroft_record::{HostTime, Place, Rank, Suspect, What};
use mycroft_serve::autopsy::page::render;
use serde_json::json;

/// The document without its script and data.
fn document(page: &str) -> &str {
    page.split_once("<script").expect("a script").0
}

#[test]
fn the_verdict_is_read_without_a_script() {
    let answer = sample::small();
    let page = render(&answer, "dumps/desync");
    for part in [
        "<span class=\"pill bad\" id=\"what\">Desync</span>",
        "Rank 2 differs from its peers at all_reduce #9 in default_pg.",
        "node-b",
        "93\u{2009}%",
        "saving a checkpoint",
        "at default_pg #9 rank 2 issued broadcast",
        "Look at checkpoint.py:64",
    ] {
        assert!(document(&page).contains(part), "`{part}` needs a script");
    }
    let Some(mut opened) = Opened::new(&answer, "dumps/desync") else { return };
    let with = opened.text(".summary");
    opened.browser.call("Emulation.setScriptExecutionDisabled", json!({ "value": true }));
    opened.browser.call("Page.reload", json!({}));
    while opened.eval("typeof globalThis.mycroft + document.readyState") != "undefinedcomplete" {
        std::thread::yield_now();
    }
    assert_eq!(opened.text(".summary"), with, "the verdict without a script is another");
    assert!(opened.text("#rest").contains("JavaScript"), "it does not say what is missing");
    assert_eq!(opened.eval("document.querySelectorAll('canvas, svg:not(.bar)').length"), 0);
    opened.shot("without-script");
    assert!(opened.browser.complaints.is_empty(), "{:#?}", opened.browser.complaints);
}

#[test]
fn hostile_text_is_text_without_a_script_too() {
    let attack =
        "</main><script>globalThis.hacked=1</script><img src=x onerror=globalThis.hacked=1>\"'{{data}}\u{202e}";
    let mut answer = sample::small();
    let rank = Rank(2);
    let conduct = answer.conduct.get_mut(&rank).expect("it is blamed");
    conduct.doing = attack.into();
    conduct.at = Some(mycroft_record::dump::Frame { name: attack.into(), file: attack.into(), line: 1 });
    answer.suspects[0].place = Place::Rank { rank, host: attack.into() };
    answer.suspects.push(Suspect { place: Place::Host { host: attack.into() }, confidence: f64::NAN });
    answer.suspects.push(Suspect { place: Place::Link { from: attack.into(), to: attack.into() }, confidence: 7.0 });
    answer.group = attack.into();
    answer.collective = attack.into();
    answer.because = vec![Reason { rule: attack.into(), text: attack.into(), evidence: Vec::new() }];
    answer.do_next = vec![attack.into()];
    answer.caveats[0].text = attack.into();
    answer.caveats[0].switch = attack.into();
    answer.missing_dumps = vec![(Rank(7), attack.into())];
    answer.unread =
        vec![mycroft_record::dump::Unusable { rank: Some(Rank(1)), source: attack.into(), why: attack.into() }];
    let page = render(&answer, attack);
    assert_eq!(page.matches("<script").count(), 2, "{}", document(&page));
    assert_eq!(page.matches("</main>").count(), 1);
    assert!(!document(&page).contains("<img") && !document(&page).contains('\u{202e}'));
    assert!(document(&page).matches("&lt;img src=x onerror=").count() > 10);
}

#[test]
fn the_title_is_the_verdict_and_then_the_folder() {
    let title = |answer| {
        let page = render(&answer, "dumps");
        page.split_once("<title>").expect("a title").1.split_once("</title>").expect("an end").0.to_owned()
    };
    assert_eq!(title(pairs::stuck()), "Hang: ranks 12, 14 - dumps - Mycroft autopsy");
    assert_eq!(title(sample::empty(Outcome::Healthy)), "Healthy - dumps - Mycroft autopsy");
    let mut answer = sample::empty(Outcome::Fault(What::Crash));
    answer.suspects = vec![Suspect { place: Place::Host { host: "n7".into() }, confidence: 0.7 }];
    answer.hosts.insert("n7".into(), Conduct { role: Role::Gone, doing: "lost its power".into(), at: None });
    let page = render(&answer, "dumps");
    for part in ["<title>Crash: host n7 - dumps", ">Host n7 is gone.<", "lost its power"] {
        assert!(page.contains(part), "{part}: {}", document(&page));
    }
}

#[test]
fn facts_say_when_and_where_it_runs_and_not_the_headline_again() {
    let page = render(&pairs::stuck(), "dumps");
    let facts =
        document(&page).split_once("<dl class=\"facts\">").expect("facts").1.split_once("</dl>").expect("end").0;
    assert_eq!(
        facts.replace("</dt><dd>", ": ").replace("<div><dt>", "").replace("</dd></div>", "\n"),
        "Since: 2025-09-23 06:55:05.880 UTC\nHost: node-3\nKind: gpu \u{b7} GPU kernel hang\nLooked at: 16 of 16 ranks\n"
    );
    let mut answer = sample::deadlock();
    assert!(!render(&answer, "d").contains("<dt>Since"), "no record tells a time");
    assert!(render(&answer, "d").contains("<dt>Where</dt><dd>all_reduce #3 in tp_01<"), "the headline does not say it");
    answer.outcome = Outcome::Healthy;
    let time = mycroft_diagnose::Evidence { rank: None, op: None, flow: None, at: HostTime(1) };
    answer.because = vec![Reason { rule: "a.b".into(), text: "c".into(), evidence: vec![time] }];
    assert!(!render(&answer, "d").contains("<dt>Since"), "nothing is wrong since then");
}

#[test]
fn records_stand_behind_the_reasons_and_folded() {
    let page = render(&pairs::stuck(), "dumps");
    let because =
        document(&page).split_once("<h3>Because</h3>").expect("reasons").1.split_once("</section>").expect("end").0;
    let (open, folded) = because.split_once("<details><summary>The records behind it</summary>").expect("a fold");
    assert_eq!((open.matches("<li>").count(), folded.matches("<li>").count()), (2, 2), "{because}");
    assert!(!open.contains("dump.records") && folded.matches("dump.records").count() == 2, "{because}");
    let mut answer = pairs::stuck();
    answer.because = vec![answer.because[0].clone(); 61];
    assert!(render(&answer, "d").contains("<summary>49 more</summary>"));
    answer.because = vec![answer.because[0].clone(); 1_000];
    assert!(render(&answer, "d").contains("<summary>988 more, 256 of them here</summary>"));
}

#[test]
fn outcomes_without_a_suspect_are_said_too() {
    let Some(mut opened) = Opened::new(&sample::empty(Outcome::Healthy), "healthy") else { return };
    assert_eq!(opened.text("h1"), "Nothing is wrong.");
    opened.quiet();
}
