//! The page of an autopsy in a real browser: opened from disk, looked at, scrolled, driven by keys and mouse.
//!
//! Screenshots go to the folder that `MYCROFT_SHOTS` names, for people to look at, otherwise to a folder that is removed.
mod page {
    pub(crate) mod browser;
    pub(crate) mod sample;
}

use mycroft_diagnose::stacks::{Autopsy, Outcome, RankRow};
use mycroft_serve::autopsy::page::{PAGE_BYTES_MAX, render};
use page::browser::{self, Browser};
use page::sample;
use serde_json::{Value, json};
use std::path::PathBuf;
use tempfile::TempDir;

/// 30 frames per second.
const FRAME_MS_MAX: f64 = 1_000.0 / 30.0;

/// A page in a browser, with the folder it lies in.
struct Opened {
    browser: Browser,
    folder: TempDir,
}

impl Opened {
    /// `None` where there is no browser.
    fn new(answer: &Autopsy, title: &str) -> Option<Opened> {
        let program = browser::find()?;
        let folder = tempfile::tempdir().expect("a folder for the page");
        let file = folder.path().join("report.html");
        std::fs::write(&file, render(answer, title)).expect("the page can be written");
        Some(Opened { browser: Browser::open(&program, &file, 1_400, 900), folder })
    }

    fn eval(&mut self, expression: &str) -> Value {
        self.browser.eval(expression)
    }

    fn text(&mut self, selector: &str) -> String {
        let text = self.eval(&format!("document.querySelector({}).textContent", json!(selector)));
        text.as_str().expect(selector).to_owned()
    }

    fn shot(&mut self, name: &str) {
        let folder = std::env::var_os("MYCROFT_SHOTS").map_or_else(|| self.folder.path().to_owned(), PathBuf::from);
        self.browser.screenshot(&folder.join(format!("{name}.png")));
    }

    /// Nothing was asked of the network and nothing went wrong, up to now.
    fn quiet(&mut self) {
        self.eval("new Promise(requestAnimationFrame)");
        assert!(self.browser.complaints.is_empty(), "{:#?}", self.browser.complaints);
    }
}

#[test]
fn the_page_says_the_verdict_without_network_and_without_errors() {
    let Some(mut opened) = Opened::new(&sample::small(), "dumps/desync") else { return };
    assert_eq!(opened.text("#what"), "Desync");
    assert_eq!(opened.text("h1"), "Rank 2 differs from its peers at all_reduce #9 in default_pg.");
    assert_eq!(opened.text("title"), "dumps/desync - Mycroft autopsy");
    let page = opened.text("main");
    for part in [
        "node-b",
        "93\u{2009}%",
        "saving a checkpoint",
        "CPU side \u{203a} divergence",
        "code-divergence",
        "stacks.type-differs",
        "at default_pg #9 rank 2 issued broadcast",
        "Look at checkpoint.py:64",
        "TORCH_NCCL_ENABLE_TIMING=1",
        "0, 1, 3 wait for 2 in all_reduce default_pg #9",
    ] {
        assert!(page.contains(part), "`{part}` is not on the page");
    }
    opened.shot("small-light");
    opened.quiet();
}

#[test]
fn outcomes_without_a_suspect_are_said_too() {
    let Some(mut opened) = Opened::new(&sample::empty(Outcome::Healthy), "healthy") else { return };
    assert_eq!(opened.text("h1"), "Nothing is wrong.");
    opened.quiet();
}
