//! What is drawn below the verdict: on wide and narrow screens, on paper, and in which order.
use super::{pairs, sample};
use crate::Opened;
use serde_json::json;

fn width(opened: &mut Opened, width: u32) {
    let metrics = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
    opened.browser.call("Emulation.setDeviceMetricsOverride", metrics);
    opened.eval("new Promise((done) => setTimeout(() => requestAnimationFrame(done), 200))");
}

/// Elements that reach beyond the window, unless they lie in something that scrolls or hides.
const BEYOND: &str = "(() => {
  const held = (node) => node.closest('.scroller, .stage, .picture, .as-table, .tiles, .stack-legend, .icicle, .visually-hidden');
  return [...document.querySelectorAll('body *')]
    .filter((node) => node.getClientRects().length > 0 && node.getBoundingClientRect().right > innerWidth + 0.5 && !held(node))
    .map((node) => `${node.tagName} ${node.className} ${node.getBoundingClientRect().right}`);
})()";

/// Sizes of the graph's letters as they are shown, the smallest; null where the graph is not.
const LETTERS: &str = "(() => {
  const picture = document.querySelector('.waitgraph .picture svg');
  if (picture.getClientRects().length === 0) return null;
  const scale = picture.getBoundingClientRect().width / picture.viewBox.baseVal.width;
  return Math.min(...[...picture.querySelectorAll('text')].map((text) => scale * parseFloat(getComputedStyle(text).fontSize)));
})()";

#[test]
fn nothing_overflows_a_phone_and_the_graph_can_be_read_at_any_width() {
    for (name, answer) in [("pairs", pairs::stuck()), ("small", sample::small()), ("deadlock", sample::deadlock())] {
        let Some(mut opened) = Opened::new(&answer, "narrow") else { return };
        for (wide, is_drawn) in [(390, false), (700, true), (1_000, true), (1_400, true)] {
            width(&mut opened, wide);
            assert_eq!(opened.eval(BEYOND), json!([]), "{name} at {wide}");
            let letters = opened.eval(LETTERS).as_f64();
            assert_eq!(letters.is_some(), is_drawn, "{name} at {wide}");
            assert!(letters.unwrap_or(99.0) >= 10.0, "{name} at {wide}: letters of {letters:?} pixels");
            assert!(is_drawn || opened.eval("document.querySelector('.in-words').open") == true, "{name}: no words");
            opened.shot(&format!("{name}-{wide}"));
        }
        opened.quiet();
    }
}

#[test]
fn the_graph_accounts_for_all_ranks() {
    let Some(mut opened) = Opened::new(&pairs::stuck(), "ranks") else { return };
    assert_eq!(
        opened.text(".account"),
        "16 of 16 ranks: 8 wait for others or are waited for; 7 more ranks (0, 2, 4\u{2013}8) are in operations that do \
         not tell whom they wait for; 1 more rank (10) waits for nobody."
    );
    opened.quiet();
}

#[test]
fn who_is_waited_for_does_not_wait() {
    let Some(mut opened) = Opened::new(&pairs::slow(), "slow") else { return };
    let nodes = "[...document.querySelectorAll('.node')].map((node) => node.querySelector('.name').textContent + ': ' + \
                 node.querySelector('.detail').textContent).sort()";
    assert_eq!(opened.eval(nodes), json!(["rank 2: waited for", "ranks 0, 1, 3: 3 ranks wait"]));
    opened.quiet();
}

#[test]
fn groups_of_suspects_come_first_and_are_told_by_their_ranks() {
    let Some(mut opened) = Opened::new(&pairs::stuck(), "groups") else { return };
    let heads = "mycroft.grid.layout.items.slice(0, 3).map((item) => mycroft.grid.painter.headTexts(item.group)[0])";
    assert_eq!(opened.eval(heads), json!(["ranks 12, 13", "ranks 14, 15", "ranks 0, 1"]));
    let name = opened.eval("mycroft.grid.painter.headTexts(mycroft.model.groups[0])[1]");
    assert!(name.as_str().expect("text").starts_with("TENSOR_MODEL"), "{name}");
    let many = "mycroft.grid.painter.headTexts({ label: 'dp', ranks: Array.from({ length: 64 }, (_, i) => 8 * i) })";
    assert_eq!(opened.eval(many), json!(["ranks 0, 8, 16 \u{2026} (64)", "dp"]));
    opened.quiet();
}

#[test]
fn only_states_that_are_not_usual_in_their_column_have_a_pattern() {
    let Some(mut opened) = Opened::new(&pairs::stuck(), "states") else { return };
    // Pixels of other colours than a cell's own within it: its pattern.
    let inked = "(index, position, column) => {
        const { grid } = mycroft, { layout } = grid;
        grid.view = { focused: false };
        grid.draw();
        const item = layout.items[index], { w, h } = layout.cell;
        const x = Math.round(layout.x(item, column) - grid.scroller.scrollLeft), y = layout.y(item, position) - grid.scroller.scrollTop;
        const read = Object.assign(document.createElement('canvas'), { width: w - 9, height: h - 9 }).getContext('2d', { willReadFrequently: true });
        read.drawImage(grid.canvas, -x - 4, -y - 4);
        const { data } = read.getImageData(0, 0, w - 9, h - 9);
        const colours = new Set();
        for (let i = 0; i < data.length; i += 4) colours.add(data.slice(i, i + 3).join());
        return colours.size > 1;
    }";
    opened.eval("(mycroft.grid.scroller.scrollTo(0, 0), mycroft.grid.setZoom(7), 1)");
    for (index, position, column, is_inked) in
        [(0, 0, 0, false), (0, 1, 0, true), (0, 0, 5, false), (0, 1, 5, false), (2, 0, 3, false)]
    {
        let found = opened.eval(&format!("({inked})({index}, {position}, {column})"));
        assert_eq!(found, is_inked, "group {index}, row {position}, column {column}");
    }
    let legend = opened.text("#operations .legend");
    assert!(legend.contains("where most ranks of its column are not"), "{legend}");
    opened.shot("states");
    opened.quiet();
}

#[test]
fn the_grid_uses_the_width_and_shows_the_whole_label_of_the_first_wrong_point() {
    for (name, answer) in [("pairs", pairs::stuck()), ("small", sample::small())] {
        let Some(mut opened) = Opened::new(&answer, "width") else { return };
        for wide in [1_400, 800] {
            width(&mut opened, wide);
            let parts = opened.eval("[mycroft.grid.layout.width, mycroft.grid.stage.clientWidth]");
            let [used, all] = [0, 1].map(|i| parts[i].as_f64().expect("a number"));
            assert!(used > 0.9 * all && used <= all, "{name} at {wide}: {used} of {all}");
        }
        // Also where its column is scrolled away, a label lies between the ranks and the right edge.
        for (zoom, left) in [(7, 0), (11, 0), (11, 500), (11, 5_000)] {
            let label = opened.eval(&format!(
                "(() => {{ const {{ grid }} = mycroft, {{ painter, layout }} = grid; grid.setZoom({zoom}); grid.scroller.scrollLeft = {left}; grid.draw();
                 const box = painter.drawWrongLabel(layout.items[0], grid.scroller.scrollLeft, 0);
                 return [box.left - layout.gutter, painter.width - box.right]; }})()"
            ));
            assert!(
                label[0].as_f64() >= Some(-3.0) && label[1].as_f64() >= Some(-3.0),
                "{name}, {zoom}, {left}: {label}"
            );
        }
        opened.quiet();
    }
}

#[test]
fn no_section_for_call_stacks_where_there_are_none() {
    let Some(mut opened) = Opened::new(&pairs::stuck(), "no stacks") else { return };
    assert_eq!(opened.eval("document.querySelector('#calls')"), json!(null));
    opened.quiet();
    let Some(mut opened) = Opened::new(&sample::small(), "stacks") else { return };
    assert_eq!(opened.eval("document.querySelectorAll('#calls .call').length > 0"), true);
}

#[test]
fn paper_has_the_first_waits_and_says_how_many_more() {
    let mut answer = pairs::stuck();
    let first = answer.blast_radius[0].clone();
    answer.blast_radius = (0..61).map(|_| first.clone()).collect();
    let Some(mut opened) = Opened::new(&answer, "paper") else { return };
    opened.eval("(document.querySelectorAll('details').forEach((fold) => (fold.open = true)), 1)");
    let shown = "[[...document.querySelectorAll('.waits li')].filter((line) => line.getClientRects().length > 0).length, \
                 document.querySelector('.waits-cut').getClientRects().length]";
    assert_eq!(opened.eval(shown), json!([61, 0]), "on a screen all can be unfolded");
    opened.browser.call("Emulation.setEmulatedMedia", json!({ "media": "print" }));
    assert_eq!(opened.eval(shown), json!([12, 1]));
    assert_eq!(opened.text(".waits-cut"), "and 49 more");
    let file = opened.kept("pairs.pdf");
    opened.browser.print(&file);
    opened.quiet();
}
