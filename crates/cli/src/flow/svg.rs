//! Rates of flows over time, one below the other, as a picture.
use super::intake::Seen;
use super::ranks::Ranks;
use super::text::{rate, time};
use mycroft_flow::limits::Grain;
use mycroft_flow::{Curve, WireFlow};
use std::fmt::Write;

/// Pixels of a curve, and of the text above it.
const WIDTH: usize = 1200;
const HEIGHT: usize = 90;
const TITLE: usize = 22;
const MARGIN: usize = 16;

/// The picture. Where several epochs share a pixel, its height is the fullest one's rate.
pub(super) fn draw(seen: &Seen, grain: Grain, flows: &[(&WireFlow, &Curve)], ranks: &Ranks) -> String {
    let (from, to) = seen.span_ns.map_or((0, 1), |(from, to)| (grain.epoch(from), grain.epoch(to) + 1));
    let row = HEIGHT + TITLE + MARGIN;
    let (width, height) = (WIDTH + 2 * MARGIN, flows.len() * row + TITLE + 2 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <title>Rates of flows, epochs of {}</title>\n<rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n",
        time(grain.epoch_ns()),
    );
    // One scale for all: a slower flow is to be seen as slower.
    let peak = flows.iter().map(|(_, curve)| curve.peak_bytes).max().unwrap_or(0).max(1);
    for (number, (key, curve)) in flows.iter().enumerate() {
        let top = MARGIN + number * row;
        let said = curve.actual_rate(grain).map_or_else(|| "-".to_owned(), rate);
        let _ = writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{}\">{}, {said} while it sends</text>",
            top + 14,
            ranks.name(key, curve).replace('>', "&gt;")
        );
        let (base, left) = (top + TITLE + HEIGHT, MARGIN);
        let _ = writeln!(svg, "<path d=\"M{left} {base}H{}\" stroke=\"#bbb\"/>", left + WIDTH);
        let _ = writeln!(svg, "<path d=\"{}\" fill=\"#2a6f97\"/>", area(curve, (from, to), peak, base));
    }
    #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
    let scale = rate(peak as f64 * 1e9 / grain.epoch_ns() as f64);
    let _ = writeln!(
        svg,
        "<text x=\"{MARGIN}\" y=\"{}\" fill=\"#555\">{} from left to right, 0 to {scale} each, epochs of {}</text>\n</svg>",
        height - MARGIN,
        time((to - from) * grain.epoch_ns()),
        time(grain.epoch_ns()),
    );
    svg
}

/// The fullest epoch of each pixel, as an area on a base line.
fn area(curve: &Curve, (from, to): (u64, u64), peak: u64, base: usize) -> String {
    let epochs = u128::from((to - from).max(1));
    let pixel = |epoch: u64| usize::try_from(u128::from(epoch - from) * WIDTH as u128 / epochs).unwrap_or(WIDTH);
    let mut heights = vec![0u64; WIDTH];
    for (epoch, bytes) in curve.points.iter().filter(|(epoch, _)| (from..to).contains(epoch)) {
        // An epoch wider than a pixel fills all of them.
        let (first, after) = (pixel(*epoch), pixel(*epoch + 1));
        for height in heights.iter_mut().take(after.max(first + 1)).skip(first) {
            *height = (*height).max(u64::from(*bytes));
        }
    }
    let mut path = String::new();
    let mut x = 0;
    while x < WIDTH {
        let run = heights[x..].iter().take_while(|height| **height == heights[x]).count();
        if heights[x] > 0 {
            let high = (u128::from(heights[x]) * HEIGHT as u128).div_ceil(u128::from(peak));
            let _ = write!(path, "M{} {base}v-{high}h{run}v{high}z", MARGIN + x);
        }
        x += run;
    }
    path
}
