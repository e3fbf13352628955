//! Recall against cost as a picture: SVG by hand, readable in light and in dark.
use super::line::Line;
use mycroft_sim::Share;
use std::fmt::Write as _;

/// Width and height of the picture.
const SIZE: (f64, f64) = (640.0, 360.0);
/// Left, top, right and bottom of what is drawn in.
const FRAME: (f64, f64, f64, f64) = (56.0, 24.0, 624.0, 312.0);
/// The costs at its left and right end, percent.
const COST: (f64, f64) = (2.0, 200.0);
/// Points of a curve; each has the same share of the axis.
const POINTS: usize = 10;
/// Costs with a line, percent: where rows of the tables begin, and round ones.
const TICKS: [f64; 9] = [2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 50.0, 100.0, 200.0];

/// Where a cost is.
fn x(percent: f64) -> f64 {
    let share = (percent / COST.0).ln() / (COST.1 / COST.0).ln();
    FRAME.0 + share * (FRAME.2 - FRAME.0)
}

/// Where a recall is.
fn y(recall: f64) -> f64 {
    FRAME.3 - recall * (FRAME.3 - FRAME.1)
}

/// The curve of what is due, the one of all, and how many faults each point is of.
pub(crate) fn curve(lines: &[Line]) -> String {
    let (mut due, mut all) = ([Share::default(); POINTS], [Share::default(); POINTS]);
    for felt in lines.iter().filter_map(|line| line.felt.as_ref()) {
        let percent = (100.0 * felt.cost).clamp(COST.0, COST.1 * 0.999_999);
        let at = ((percent / COST.0).ln() / (COST.1 / COST.0).ln() * POINTS as f64) as usize;
        all[at].add(felt.found);
        if felt.due {
            due[at].add(felt.found);
        }
    }
    let mut out = format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {} {}" role="img" aria-label="Recall against cost">
<style>
:root {{ color-scheme: light dark; --ink: #1f2328; --faint: #d0d7de; --due: #0969da; --all: #bc4c00; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e6edf3; --faint: #3d444d; --due: #58a6ff; --all: #f0883e; }} }}
text {{ font: 12px sans-serif; fill: var(--ink); }}
.grid {{ stroke: var(--faint); stroke-width: 1; }}
.due {{ stroke: var(--due); fill: none; stroke-width: 2; }}
.all {{ stroke: var(--all); fill: none; stroke-width: 2; stroke-dasharray: 5 3; }}
.due-bar {{ stroke: var(--due); stroke-width: 1; opacity: 0.6; }}
.all-bar {{ stroke: var(--all); stroke-width: 1; opacity: 0.6; }}
</style>
"##,
        SIZE.0, SIZE.1
    );
    axes(&mut out);
    one(&mut out, "all", &all, 3.0);
    one(&mut out, "due", &due, -3.0);
    out.push_str("</svg>\n");
    out
}

fn axes(out: &mut String) {
    for tick in TICKS {
        let at = x(tick);
        let _ = writeln!(out, r#"<line class="grid" x1="{at:.1}" y1="{}" x2="{at:.1}" y2="{}"/>"#, FRAME.1, FRAME.3);
        let _ = writeln!(out, r#"<text x="{at:.1}" y="{}" text-anchor="middle">{tick}</text>"#, FRAME.3 + 16.0);
    }
    for step in 0..=5 {
        let recall = f64::from(step) / 5.0;
        let at = y(recall);
        let _ = writeln!(out, r#"<line class="grid" x1="{}" y1="{at:.1}" x2="{}" y2="{at:.1}"/>"#, FRAME.0, FRAME.2);
        let _ =
            writeln!(out, r#"<text x="{}" y="{:.1}" text-anchor="end">{recall:.1}</text>"#, FRAME.0 - 6.0, at + 4.0);
    }
    let middle = (FRAME.0 + FRAME.2) / 2.0;
    let _ = writeln!(
        out,
        r#"<text x="{middle}" y="{}" text-anchor="middle">cost of a fault, percent of an iteration (bars: 95 % intervals)</text>"#,
        FRAME.3 + 36.0
    );
    let _ = writeln!(out, r#"<text x="{}" y="16">recall</text>"#, FRAME.0 - 40.0);
    for (class, at, name) in [("due", FRAME.0 + 60.0, "of what is due"), ("all", FRAME.0 + 220.0, "of all")] {
        let _ = writeln!(out, r#"<line class="{class}" x1="{at}" y1="12" x2="{}" y2="12"/>"#, at + 28.0);
        let _ = writeln!(out, r#"<text x="{}" y="16">{name}</text>"#, at + 34.0);
    }
}

/// One curve with its intervals, moved a little to the side so that both can be seen.
fn one(out: &mut String, class: &str, shares: &[Share; POINTS], aside: f64) {
    let mut points = String::new();
    for (at, share) in shares.iter().enumerate() {
        let Some(value) = share.value() else { continue };
        let middle = COST.0 * (COST.1 / COST.0).powf((at as f64 + 0.5) / POINTS as f64);
        let (left, (from, to)) = (x(middle) + aside, share.interval());
        let _ = writeln!(
            out,
            r#"<line class="{class}-bar" x1="{left:.1}" y1="{:.1}" x2="{left:.1}" y2="{:.1}"><title>{} of {}</title></line>"#,
            y(from),
            y(to),
            share.hits,
            share.of
        );
        let _ = write!(points, "{left:.1},{:.1} ", y(value));
    }
    let _ = writeln!(out, r#"<polyline class="{class}" points="{}"/>"#, points.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_picture_has_axes_and_both_curves() {
        let picture = curve(&[]);
        assert!(picture.starts_with("<svg") && picture.ends_with("</svg>\n"), "{picture}");
        assert_eq!(picture.matches("<polyline").count(), 2);
        assert_eq!((x(2.0), x(200.0), y(0.0), y(1.0)), (FRAME.0, FRAME.2, FRAME.3, FRAME.1));
    }
}
