//! The picture of docs/results/scale.md: cost of a look against ranks, and memory of a backend against time.
use super::{BACKEND_BYTES_MAX, CLOCK_MS, Run, Runs, SIZES};
use anyhow::Result;
use std::fmt::Write as _;

/// Width and height of one of the two panels, and its margin.
const PANEL: (f64, f64, f64) = (540.0, 380.0, 72.0);
/// What keeps words readable where a line of the grid runs through them.
const HALO: &str = "paint-order=\"stroke\" stroke=\"white\" stroke-width=\"4\"";
/// Powers of ten of milliseconds that the first panel shows.
const DECADES: i32 = 4;

/// A rectangle with two axes.
struct Panel {
    left: f64,
}

impl Panel {
    /// A place by shares of both axes.
    fn at(&self, x: f64, y: f64) -> (f64, f64) {
        let (width, height, margin) = PANEL;
        (self.left + margin + x * (width - 1.5 * margin), height - margin - y * (height - 2.0 * margin))
    }

    fn grid(&self, out: &mut String, y: f64, label: &str) {
        let ((from, at), (to, _)) = (self.at(0.0, y), self.at(1.0, y));
        let _ = writeln!(out, "<path d=\"M{from:.0} {at:.0}H{to:.0}\" stroke=\"#ddd\"/>");
        let _ = writeln!(out, "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{label}</text>", from - 6.0, at + 4.0);
    }

    fn tick(&self, out: &mut String, x: f64, label: &str) {
        let (at, bottom) = self.at(x, 0.0);
        let _ = writeln!(out, "<text x=\"{at:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{label}</text>", bottom + 20.0);
    }

    fn limit(&self, out: &mut String, y: f64, label: &str) {
        let ((from, at), (to, _)) = (self.at(0.0, y), self.at(1.0, y));
        let _ = writeln!(out, "<path d=\"M{from:.0} {at:.0}H{to:.0}\" stroke=\"#999\" stroke-dasharray=\"3\"/>");
        let (at, place) = (at - 5.0, "text-anchor=\"end\" fill=\"#666\"");
        let _ = writeln!(out, "<text x=\"{to:.0}\" y=\"{at:.0}\" {place} {HALO}>{label}</text>");
    }

    fn title(&self, out: &mut String, text: &str) {
        let (at, top) = self.at(0.0, 1.0);
        let _ = writeln!(out, "<text x=\"{at:.0}\" y=\"{:.0}\" font-weight=\"bold\">{text}</text>", top - 16.0);
    }

    /// A line through places given as shares, named in the `number`-th row of the legend.
    fn line(&self, out: &mut String, number: usize, name: &str, colour: &str, places: &[(f64, f64)], dots: bool) {
        let points: Vec<(f64, f64)> = places.iter().map(|(x, y)| self.at(*x, *y)).collect();
        for (x, y) in points.iter().filter(|_| dots) {
            let _ = writeln!(out, "<circle cx=\"{x:.0}\" cy=\"{y:.0}\" r=\"3\" fill=\"{colour}\"/>");
        }
        let points: Vec<String> = points.iter().map(|(x, y)| format!("{x:.0},{y:.0}")).collect();
        let points = points.join(" ");
        let _ = writeln!(out, "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>");
        let (left, top) = self.at(0.0, 1.0);
        let at = top + 18.0 + 16.0 * number as f64;
        let x = left + 8.0;
        let _ = writeln!(out, "<text x=\"{x:.0}\" y=\"{at:.0}\" fill=\"{colour}\" {HALO}>{name}</text>");
    }
}

/// Both panels.
pub(super) fn draw(runs: &Runs) -> Result<String> {
    let (width, height) = (2.0 * PANEL.0, PANEL.1);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    costs(&mut out, &Panel { left: 0.0 }, runs)?;
    memory(&mut out, &Panel { left: PANEL.0 }, &runs.backends);
    out.push_str("</svg>\n");
    Ok(out)
}

/// Ranks against milliseconds, both logarithmic.
fn costs(out: &mut String, panel: &Panel, runs: &Runs) -> Result<()> {
    panel.title(out, "Processor time of the brain");
    let (first, last) = (f64::from(SIZES[0].0).log10(), f64::from(SIZES[SIZES.len() - 1].0).log10());
    let x = |ranks: u32| 0.05 + 0.9 * (f64::from(ranks).log10() - first) / (last - first);
    // The kernel does not tell less than its clock's tick.
    let y = |ms: f64| ms.max(CLOCK_MS).log10() / f64::from(DECADES);
    for exponent in 0..=DECADES {
        panel.grid(out, f64::from(exponent) / f64::from(DECADES), &format!("{} ms", 10f64.powi(exponent)));
    }
    for (ranks, _) in SIZES {
        panel.tick(out, x(ranks), &format!("{ranks} ranks"));
    }
    let lines = [
        ("case to verdict, stall", "stall", "verdict_ms", "#c0392b"),
        ("case to verdict, slow", "slow", "verdict_ms", "#e67e22"),
        ("usual look", "slow", "tick_ms", "#2980b9"),
        ("report", "slow", "report_ms", "#7f8c8d"),
    ];
    for (number, (name, fault, value, colour)) in lines.into_iter().enumerate() {
        let own = runs.faulty.iter().filter(|(of, _)| *of == fault);
        let places = own.map(|(_, run)| Ok((x(run.ranks), y(run.of(value)?)))).collect::<Result<Vec<(f64, f64)>>>()?;
        panel.line(out, number, name, colour, &places, true);
    }
    panel.limit(out, y(CLOCK_MS), &format!("at most {CLOCK_MS:.0} ms"));
    Ok(())
}

/// Time of the job against memory of the process.
fn memory(out: &mut String, panel: &Panel, backends: &[Run]) {
    panel.title(out, "Memory of a backend");
    let all = || backends.iter().flat_map(Run::memory);
    let longest = f64::from(all().map(|(second, _)| second).max().unwrap_or(1));
    let most = all().map(|(_, bytes)| bytes).fold(1.25 * BACKEND_BYTES_MAX, f64::max);
    let gigabytes = (most / 1e9) as u32;
    for number in 0..=gigabytes {
        panel.grid(out, f64::from(number) * 1e9 / most, &format!("{number} GB"));
    }
    for quarter in 0..=4 {
        let share = f64::from(quarter) / 4.0;
        panel.tick(out, share, &format!("{:.0} s", share * longest));
    }
    for (number, (run, colour)) in backends.iter().zip(["#2980b9", "#c0392b"]).enumerate() {
        let place = |(second, bytes): (u32, f64)| (f64::from(second) / longest, bytes / most);
        let places: Vec<(f64, f64)> = run.memory().into_iter().map(place).collect();
        panel.line(out, number, &format!("{} ranks, against time of the job", run.ranks), colour, &places, false);
    }
    panel.limit(out, BACKEND_BYTES_MAX / most, "promised at 10240 ranks");
}
