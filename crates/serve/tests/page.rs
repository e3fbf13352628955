//! The page of an autopsy in a real browser: opened from disk, looked at, scrolled, driven by keys and mouse.
//!
//! Screenshots go to the folder that `MYCROFT_SHOTS` names, for people to look at, otherwise to a folder that is removed.
mod page {
    pub(crate) mod browser;
    mod drawn;
    mod pairs;
    mod plain;
    pub(crate) mod printed;
    pub(crate) mod sample;
}

use mycroft_diagnose::stacks::{Autopsy, Outcome, RankRow};
use mycroft_serve::autopsy::page::{PAGE_BYTES_MAX, render};
use page::browser::{self, Browser};
use page::printed;
use page::sample;
use serde_json::{Value, json};
use std::path::PathBuf;
use tempfile::TempDir;

/// 30 frames per second.
const FRAME_MS_MAX: f64 = 1_000.0 / 30.0;

/// Longest time from opening to being ready, with two busy cores: nobody waits longer for a page.
const READY_MS_MAX: f64 = 15_000.0;

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

    fn set_theme(&mut self, theme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] });
        self.browser.call("Emulation.setEmulatedMedia", features);
        self.eval("new Promise((done) => setTimeout(() => requestAnimationFrame(done), 300))");
    }

    fn shot(&mut self, name: &str) {
        let file = self.kept(&format!("{name}.png"));
        self.browser.screenshot(&file);
    }

    fn kept(&self, name: &str) -> PathBuf {
        std::env::var_os("MYCROFT_SHOTS").map_or_else(|| self.folder.path().to_owned(), PathBuf::from).join(name)
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
    assert_eq!(opened.text("title"), "Desync: rank 2 - dumps/desync - Mycroft autopsy");
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
    assert!(!page.contains("What was printed"), "there is no log");
    opened.shot("small-light");
    opened.quiet();
}

/// The promise: 1,024 ranks x 2,000 operations in 15 MB at 30 frames per second.
#[test]
fn a_thousand_ranks_scroll_smoothly_in_a_small_file() {
    let answer = sample::large();
    let cells: usize = answer.grid.iter().flat_map(|group| &group.rows).map(|row| row.cells.len()).sum();
    assert!(cells > 3_000_000, "{cells}");
    let began = std::time::Instant::now();
    let bytes = render(&answer, "1,024 ranks").len();
    println!("{cells} cells in {bytes} bytes, rendered in {:.2} s", began.elapsed().as_secs_f64());
    assert!(bytes <= PAGE_BYTES_MAX, "{bytes} bytes");
    let Some(mut opened) = Opened::new(&answer, "1,024 ranks") else { return };
    let ready = opened.eval("mycroft.readyMs").as_f64().expect("milliseconds");
    println!("ready after {ready:.0} ms");
    assert!(ready < READY_MS_MAX, "{ready} ms until the page was ready");
    opened.shot("large");
    assert_eq!(
        opened.eval("mycroft.model.groups.reduce((n, g) => n + g.rows.reduce((m, r) => m + r.cells.length, 0), 0)"),
        cells
    );
    for (name, zoom) in [("smallest cells", 0), ("cells of 12 pixels", 5), ("cells with names", 9)] {
        scroll_at(&mut opened, name, zoom);
    }
    opened.quiet();
}

/// Scrolls by sixty frames in both directions and holds the page's own time per frame to the promise. What the machine
/// needs beyond that, shared and without a GPU, is printed.
fn scroll_at(opened: &mut Opened, name: &str, zoom: u32) {
    let measured = opened.eval(&format!(
        "(async () => {{
            const {{ grid }} = mycroft, frame = () => new Promise(requestAnimationFrame);
            grid.setZoom({zoom});
            grid.scroller.scrollTo(0, 0);
            await frame(), await frame();
            grid.costs.length = 0;
            const gaps = [];
            let last = await frame();
            for (let i = 0; i < 60; i++) {{
                grid.scroller.scrollBy(37, 61);
                const now = await frame();
                gaps.push(now - last);
                last = now;
            }}
            const part = (list, q) => list.sort((a, b) => a - b)[Math.floor((list.length - 1) * q)];
            const costs = [...grid.costs];
            return [costs.length, part(costs, 0.5), part(costs, 0.95), part(gaps, 0.5), part(gaps, 0.95), grid.scroller.scrollTop];
        }})()"
    ));
    let numbers: Vec<f64> =
        measured.as_array().expect("numbers").iter().map(|n| n.as_f64().expect("a number")).collect();
    println!(
        "{name}: {} drawings, {:.1} ms median, {:.1} ms p95; between frames {:.1} ms median, {:.1} ms p95",
        numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]
    );
    assert!(numbers[0] >= 30.0, "{name}: drawn {} times in 60 frames", numbers[0]);
    assert!(numbers[5] > 1_000.0, "{name}: scrolled to {}", numbers[5]);
    assert!(numbers[1] < FRAME_MS_MAX, "{name}: {} ms per drawing", numbers[1]);
}

#[test]
fn keys_lead_to_the_first_wrong_point_and_beyond() {
    let Some(mut opened) = Opened::new(&sample::small(), "keys") else { return };
    let at = "(() => { const c = mycroft.grid.view.cursor, i = mycroft.grid.layout.items[c.item]; \
              return [i.group.label, i.group.rows[i.rows[c.position]].rank, i.group.columns[c.column]].join(' '); })()";
    opened.eval("document.querySelector('#grid').focus()");
    assert_eq!(opened.eval(at), "default_pg 2 #9", "where the page starts");
    let presses: &[(&str, u32, &str)] = &[
        ("Home", 0, "default_pg 2 #1"),
        ("ArrowUp", 0, "default_pg 1 #1"),
        ("ArrowRight", 0, "default_pg 1 #2"),
        ("End", 0, "default_pg 1 #9"),
        ("]", 0, "tp_0 0 #4"),
        ("ArrowDown", 0, "tp_0 1 #4"),
        ("ArrowDown", 0, "tp_1 2 #4"),
        ("f", 0, "default_pg 2 #9"),
        ("Home", 2, "default_pg 0 #1"),
        ("End", 2, "tp_1 3 #4"),
        ("PageUp", 0, "tp_1 2 #4"),
    ];
    for &(key, modifiers, place) in presses {
        opened.browser.key(key, modifiers);
        assert_eq!(opened.eval(at), place, "after {key}");
    }
    opened.browser.key("r", 0);
    for key in ["3", "Enter"] {
        opened.browser.key(key, 0);
    }
    assert_eq!(opened.eval(at), "tp_1 3 #4", "rank 3 in the same group");
    opened.browser.key("f", 0);
    let shown = "mycroft.grid.layout.items[0].rows.map((i) => mycroft.grid.layout.groups[0].rows[i].rank)";
    opened.browser.key("u", 0);
    assert_eq!(opened.eval(shown), json!([0, 2]), "the unusual rank and one to compare with");
    assert_eq!(opened.eval(at), "default_pg 2 #9", "the cursor stays on its rank");
    opened.browser.key("c", 0);
    assert_eq!(opened.eval(shown), json!([]), "folded");
    opened.browser.key("f", 0);
    opened.browser.key("u", 0);
    assert_eq!(opened.eval(shown), json!([0, 1, 2, 3]), "unfolded by going there");
    opened.browser.key("Home", 0);
    opened.browser.key("/", 0);
    for key in ["b", "r", "o", "a", "d", "Enter"] {
        opened.browser.key(key, 0);
    }
    assert_eq!(opened.eval(at), "default_pg 2 #9", "the only broadcast");
    assert!(opened.text("#grid-status").contains("nccl:broadcast, scheduled, not done, differs from its peers"));
    opened.quiet();
}

#[test]
fn the_icicle_counts_the_selected_operations() {
    let Some(mut opened) = Opened::new(&sample::small(), "icicle") else { return };
    let total = "[mycroft.icicle.root.count, ...['0'].map((level) => [...document.querySelectorAll(`.call[data-level='${level}']`)]\
                 .reduce((n, call) => n + Number(call.dataset.count), 0))]";
    assert_eq!(opened.eval(total), json!([4, 4]), "the first wrong column of four ranks");
    opened.eval("document.querySelector('#grid').scrollIntoView()");
    let corner = opened.eval(
        "(() => { const g = mycroft.grid, i = g.layout.items[0], b = g.scroller.getBoundingClientRect(); \
         return [b.left + g.layout.x(i, 1) + 5, b.top + g.layout.y(i, 0) + 5, g.layout.cell.w, g.layout.cell.h]; })()",
    );
    let [x, y, w, h] = [0, 1, 2, 3].map(|i| corner[i].as_f64().expect("a number"));
    opened.browser.mouse("mouseMoved", x, y);
    assert!(opened.text(".tip").contains("all_gather_into_tensor"), "{}", opened.text(".tip"));
    opened.browser.mouse("mousePressed", x, y);
    opened.browser.mouse("mouseMoved", x + 2.0 * w, y + 2.0 * h);
    opened.browser.mouse("mouseReleased", x + 2.0 * w, y + 2.0 * h);
    assert_eq!(opened.eval(total), json!([9, 9]), "three ranks x three columns by dragging");
    opened.eval("(document.querySelector('.as-table').open = true, new Promise((done) => setTimeout(done, 50)))");
    let table = opened.eval("document.querySelector('.as-table table').innerText");
    assert!(table.as_str().expect("text").contains("all_gather_into_tensor"), "the rows in words: {table}");
    opened.eval("document.querySelector('.call.user').click()");
    opened.shot("icicle");
    assert_eq!(opened.eval("mycroft.icicle.root.count"), 9, "zooming keeps the selection");
    opened.quiet();
}

#[test]
fn a_circle_of_waiting_is_drawn_as_one() {
    let Some(mut opened) = Opened::new(&sample::deadlock(), "deadlock") else { return };
    assert_eq!(
        opened.text("h1"),
        "Ranks 1, 2 call process groups in another order than their peers: a circle of waiting."
    );
    assert_eq!(opened.eval("document.querySelectorAll('.edge.circle').length"), 4);
    assert_eq!(opened.eval("document.querySelectorAll('.node').length"), 5);
    assert_eq!(opened.eval("document.querySelectorAll('.node.suspect').length"), 2);
    opened.shot("deadlock");
    opened.quiet();
}

/// Contrast of every text on the page with what is behind it, by the formula of WCAG 2.
const CONTRASTS: &str = include_str!("page/contrast.js");

#[test]
fn both_themes_have_contrast_and_paper_has_all_that_matters() {
    let Some(mut opened) = Opened::new(&sample::small(), "themes") else { return };
    for theme in ["light", "dark"] {
        opened.set_theme(theme);
        assert_eq!(opened.eval("mycroft.grid.painter.theme"), theme);
        assert_eq!(opened.eval(CONTRASTS), json!([]), "{theme}: texts with too little contrast");
        opened.shot(&format!("theme-{theme}"));
    }
    opened.eval("(document.querySelector('#theme').click(), 1)");
    assert_eq!(opened.eval("mycroft.grid.painter.theme"), "light", "the button overrules the system");
    opened.browser.call("Emulation.setEmulatedMedia", json!({ "media": "print" }));
    assert_eq!(opened.eval("getComputedStyle(document.querySelector('#operations')).display"), "none");
    let paper = opened.eval("document.querySelector('.paper').innerText");
    for part in ["broadcast (scheduled)", "Ranks 0, 1, 3: waiting in all_reduce", "reduce_gradients"] {
        assert!(paper.as_str().expect("text").contains(part), "`{part}` is not in {paper}");
    }
    opened.shot("paper");
    let file = opened.kept("paper.pdf");
    opened.browser.print(&file);
    opened.quiet();
}

#[test]
fn hostile_text_stays_text() {
    let attack = "</script><script>globalThis.hacked=1</script><img src=x onerror=globalThis.hacked=1>\"'`${hacked}\u{0}\u{202e}";
    let mut answer = sample::small();
    answer.op_names = vec![format!("nccl:{attack}"); 4];
    for frame in &mut answer.frames {
        frame.name = attack.into();
        frame.file = format!("/srv/{attack}").into();
    }
    for group in &mut answer.grid {
        group.label = attack.into();
        group.columns.iter_mut().for_each(|label| label.push_str(attack));
    }
    answer.group = attack.into();
    answer.collective = attack.into();
    let rank = mycroft_record::Rank(2);
    answer.conduct.get_mut(&rank).expect("it is blamed").doing = attack.into();
    answer.suspects[0].place = mycroft_record::Place::Rank { rank, host: attack.into() };
    answer.because[0].text = attack.into();
    answer.do_next[0] = attack.into();
    answer.caveats[0].switch = attack.into();
    answer.missing_dumps = vec![(mycroft_record::Rank(7), attack.into())];
    answer.blast_radius[0].text = attack.into();
    answer.stack_groups[1].doing = attack.into();
    answer.grid.push(mycroft_diagnose::stacks::GroupGrid {
        label: "odd numbers".into(),
        rows: vec![RankRow { rank: mycroft_record::Rank(u32::MAX), cells: vec![Default::default(); 3] }],
        columns: Vec::new(),
        first_wrong: Some(9),
    });
    let Some(mut opened) = Opened::new(&answer, attack) else { return };
    assert_eq!(opened.eval("typeof globalThis.hacked"), "undefined");
    assert_eq!(opened.eval("document.querySelectorAll('img').length + document.scripts.length"), 2);
    assert!(opened.text("h1").contains("</script><script>"));
    assert!(opened.text("main").contains("\\u{202e}"), "what reorders text is spelled out");
    assert!(!opened.text("main").contains('\u{202e}'));
    opened.shot("hostile");
    opened.quiet();
}

/// The policy lets the page's own script and style be used, and no other, wherever it stands.
#[test]
fn the_policy_knows_the_pages_own_script_and_style_only() {
    let attack = "<script>globalThis.hacked=1</script><style>h1{display:none}</style>\
                  <svg onload='globalThis.hacked=1'></svg></body>";
    let page = render(&sample::small(), "policy");
    assert!(!page.contains("unsafe-inline") && page.contains("script-src 'sha256-"));
    let Some(program) = browser::find() else { return };
    let folder = tempfile::tempdir().expect("a folder for the page");
    let file = folder.path().join("report.html");
    std::fs::write(&file, page.replace("</body>", attack)).expect("the page can be written");
    let mut browser = Browser::open(&program, &file, 1_400, 900);
    assert_eq!(browser.eval("document.scripts.length"), 3, "the attack is in the document");
    assert_eq!(browser.eval("typeof globalThis.hacked"), "undefined");
    assert_eq!(browser.eval("getComputedStyle(document.querySelector('h1')).display !== 'none'"), true);
    assert_eq!(browser.eval("document.querySelector('#what').textContent"), "Desync", "the page's own script ran");
}

#[test]
fn a_set_that_was_not_read_whole_says_so() {
    let mut answer = sample::empty(Outcome::HealthyAsFar);
    answer.ranks = (0..4).map(mycroft_record::Rank).collect();
    answer.missing_dumps = vec![(mycroft_record::Rank(2), "trace_rank_2: Permission denied".into())];
    answer.unread = vec![mycroft_record::dump::Unusable {
        rank: Some(mycroft_record::Rank(2)),
        source: "trace_rank_2".into(),
        why: "Permission denied".into(),
    }];
    let Some(mut opened) = Opened::new(&answer, "as far") else { return };
    assert_eq!(opened.text("h1"), "Nothing is wrong as far as 3 of 4 ranks tell: other files could not be read.");
    let page = opened.text("main");
    assert!(page.contains("Rank 2: trace_rank_2: Permission denied") && !page.contains("No usable dump"), "{page}");
    opened.quiet();
}

/// Shots of both themes, and of paper.
fn shots(opened: &mut Opened, name: &str) {
    for theme in ["light", "dark"] {
        opened.set_theme(theme);
        assert_eq!(opened.eval(CONTRASTS), json!([]), "{theme}: texts with too little contrast");
        opened.shot(&format!("{name}-{theme}"));
    }
    opened.browser.call("Emulation.setEmulatedMedia", json!({ "media": "print" }));
    opened.shot(&format!("{name}-paper"));
    let file = opened.kept(&format!("{name}.pdf"));
    opened.browser.print(&file);
}

#[test]
fn what_was_printed_is_a_lane_of_marks_by_time_and_rank() {
    let answer = printed::answer(&printed::log(8));
    let Some(mut opened) = Opened::new(&answer, "job.log") else { return };
    let marks = |part: &str| format!("document.querySelectorAll('#printed .picture .mark.{part}').length");
    for (part, count) in [("first-failure", 1), ("evidence", 0), ("consequence", 15), ("beside", 0)] {
        assert_eq!(opened.eval(&marks(part)), count, "{part}");
    }
    let first = opened.text("#printed .picture .mark.first-failure title");
    assert!(first.starts_with("07-14 11:09:58.201 rank 2: KeyError: 'labels' (job.log:4; first failure)"), "{first}");
    let names = opened.eval("[...document.querySelectorAll('#printed .name')].map((name) => name.textContent)");
    assert_eq!(names[2], "rank 2", "{names}");
    opened.eval("(document.querySelector('#printed').scrollIntoView(), 1)");
    shots(&mut opened, "printed");
    let paper = opened.eval("document.querySelector('.paper').innerText");
    assert!(paper.as_str().expect("text").contains("job.log:4"), "{paper}");
    opened.quiet();
}

/// More lines than an answer keeps: the lane says what it leaves out, and the first failure is drawn.
#[test]
fn a_lane_of_many_ranks_is_cut_and_says_so() {
    let mut answer = printed::answer(&(printed::log(3000) + &printed::log(3000)));
    assert!(answer.lines.len() == 4096 && answer.lines_left_out > 0, "{}", answer.lines_left_out);
    assert!(render(&answer, "many").len() < PAGE_BYTES_MAX / 8);
    answer.grid.clear();
    let Some(mut opened) = Opened::new(&answer, "many") else { return };
    assert_eq!(opened.eval("document.querySelectorAll('#printed .name').length"), 256);
    assert_eq!(opened.eval("document.querySelectorAll('#printed .picture .first-failure').length"), 1);
    assert!(opened.text("#printed .legend").contains("Left out: "));
    opened.quiet();
}
