//! What is drawn below the verdict: on wide and narrow screens, on paper, and in which order.
use super::{pairs, sample};
use crate::Opened;
use serde_json::json;

fn width(opened: &mut Opened, width: u32) {
    let metrics = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
    opened.browser.call("Emulation.setDeviceMetricsOverride", metrics);
    opened.eval("new Promise((done) => setTimeout(() => requestAnimationFrame(done), 200))");
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
