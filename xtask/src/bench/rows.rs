//! Rows that the measuring programs print, medians over rounds, and the Markdown of docs/results.
use anyhow::{Context, Result, bail};
use std::fmt::Write;
use std::path::Path;

/// Separates a row's number from its name.
const UNIT: &str = " ns  ";

/// Nanoseconds by name, one for each round; in the order in which the names came first.
#[derive(Default)]
pub(crate) struct Rows(Vec<(String, Vec<f64>)>);

/// Median and range over the rounds.
#[derive(Clone, Copy)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Rows {
    /// Takes in the `NUMBER ns  NAME` lines of one round; other lines are for people.
    pub(crate) fn add_output(&mut self, text: &str) {
        for line in text.lines() {
            let row = line.split_once(UNIT).and_then(|(ns, name)| Some((ns.trim().parse().ok()?, name)));
            if let Some((ns, name)) = row {
                self.add(name.trim(), ns);
            }
        }
    }

    /// Takes in one measurement.
    pub(crate) fn add(&mut self, name: &str, ns: f64) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, all)) => all.push(ns),
            None => self.0.push((name.to_owned(), vec![ns])),
        }
    }

    /// Names in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_str())
    }

    /// Median and range of a name.
    ///
    /// # Errors
    /// The measuring program printed no such row.
    pub(crate) fn summary(&self, name: &str) -> Result<Summary> {
        let found = self.0.iter().find(|(known, _)| known == name);
        let (_, all) = found.with_context(|| format!("the measuring program printed no row `{name}`"))?;
        let mut sorted = all.clone();
        sorted.sort_by(f64::total_cmp);
        let (Some(&min), Some(&max)) = (sorted.first(), sorted.last()) else { bail!("`{name}` was never measured") };
        let upper = sorted.len() / 2;
        let lower = (sorted.len() - 1) / 2;
        Ok(Summary { median: f64::midpoint(sorted[lower], sorted[upper]), min, max })
    }
}

impl Summary {
    /// Millions per second at the median.
    pub(crate) fn millions_per_sec(self) -> f64 {
        1000.0 / self.median
    }
}

/// The machine and how busy it was: one sentence for the head of a page. No name of the machine.
pub(crate) fn machine(load_before: &str) -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        let line = info.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(':')).map_or("unknown", |(_, value)| value.trim()).to_owned()
    };
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    format!(
        "Machine: {} (family {}, model {}), {cores} cores. Load average (1, 5, 15 minutes) before: {load_before}; after: {}.",
        field("model name"),
        field("cpu family"),
        field("model"),
        load()
    )
}

/// The three load averages.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load: Vec<&str> = text.split_whitespace().take(3).collect();
    if load.is_empty() { "unknown".to_owned() } else { load.join(", ") }
}

/// "met" or "NOT MET".
pub(crate) fn verdict(is_met: bool) -> &'static str {
    if is_met { "met" } else { "**not met**" }
}

/// Writes a page under docs/results and prints it.
pub(crate) fn write_page(root: &Path, name: &str, text: &str) -> Result<()> {
    let path = root.join("docs/results").join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write docs/results/{name}"))?;
    println!("{text}");
    eprintln!("written: docs/results/{name}");
    Ok(())
}

/// A line of a Markdown table.
pub(crate) fn line(page: &mut String, cells: &[String]) {
    let _ = writeln!(page, "| {} |", cells.join(" | "));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_over_rounds_by_name() {
        let mut rows = Rows::default();
        rows.add_output("a heading\n  10.0 ns  write, small\n   3.0 ns  read\n");
        rows.add_output("  30.0 ns  write, small\n");
        rows.add_output("  11.0 ns  write, small\n");
        assert_eq!(rows.names().collect::<Vec<_>>(), ["write, small", "read"]);
        let write = rows.summary("write, small").expect("measured");
        assert_eq!((write.median, write.min, write.max), (11.0, 10.0, 30.0));
        rows.add("read", 4.0);
        assert_eq!(rows.summary("read").expect("measured").median, 3.5);
        let missing = rows.summary("nothing").err().expect("not measured");
        assert!(missing.to_string().contains("`nothing`"));
    }
}
