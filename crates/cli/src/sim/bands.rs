//! Tables of seeds: by what a fault costs, by kind, by onset, and how sure verdicts are against how often they are right.
use super::columns::table;
use super::line::{Felt, Line};
use mycroft_sim::Share;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Costs of a fault in percent of an iteration: where a row begins. What was drawn with 3 % may be measured with less.
const COSTS: [(f64, &str); 5] =
    [(f64::MIN, "below 3"), (3.0, "3 to 8"), (8.0, "8 to 12"), (12.0, "12 to 20"), (20.0, "above 20")];
/// Confidences: where a row begins.
const SURE: [(f64, &str); 5] =
    [(0.0, "below 0.5"), (0.5, "0.5 to 0.65"), (0.65, "0.65 to 0.8"), (0.8, "0.8 to 0.95"), (0.95, "above 0.95")];
/// Iterations by which an onset may be off, where a fault costs more than a fifth and where it costs less.
const OFF: (f64, f64) = (5.0, 20.0);

/// The row that a value is in.
fn row_of(rows: &[(f64, &'static str)], value: f64) -> (usize, &'static str) {
    let at = rows.partition_point(|(from, _)| *from <= value).saturating_sub(1);
    (at, rows[at].1)
}

/// What became of some seeds with a fault.
#[derive(Clone, PartialEq, Debug, Default)]
struct Row {
    /// Faults that are due, and those of them that were found.
    due: Share,
    /// The same of all.
    all: Share,
    /// Cases that are true of those that name somebody or have no fault.
    precision: Share,
    /// Right words, of the found.
    category: Share,
    /// Onsets within 5 and within 20 iterations, of the found.
    near: (Share, Share),
    off: Vec<f64>,
}

impl Row {
    fn add(&mut self, line: &Line, felt: &Felt) {
        self.all.add(felt.found);
        if felt.due {
            self.due.add(felt.found);
        }
        self.precision.hits += line.true_cases;
        self.precision.of += line.true_cases + line.false_cases;
        if felt.found {
            self.category.add(felt.category_right);
        }
        if let Some(off) = felt.onset_off {
            self.near.0.add(off <= OFF.0);
            self.near.1.add(off <= OFF.1);
            self.off.push(off);
        }
    }

    fn cells(&self, name: &str) -> Vec<String> {
        let mut off = self.off.clone();
        off.sort_by(f64::total_cmp);
        let median = off.get(off.len() / 2).map_or("-".to_owned(), |off| format!("{off:.1}"));
        let near = |share: Share| share.value().map_or("-".to_owned(), |value| format!("{value:.2}"));
        vec![
            name.to_owned(),
            self.all.of.to_string(),
            self.due.of.to_string(),
            self.due.hits.to_string(),
            told(self.due),
            told(self.all),
            told(self.precision),
            told(self.category),
            format!("{median} ({} / {})", near(self.near.0), near(self.near.1)),
        ]
    }

    fn json(&self) -> Value {
        json!({
            "n": self.all.of,
            "due": self.due.of,
            "found": self.all.hits,
            "found_of_due": self.due.hits,
            "recall_of_due": of_share(self.due),
            "recall_of_all": of_share(self.all),
            "precision": of_share(self.precision),
            "category": of_share(self.category),
            "onset_within_5": of_share(self.near.0),
            "onset_within_20": of_share(self.near.1),
        })
    }
}

fn of_share(share: Share) -> Value {
    let (from, to) = share.interval();
    json!({"value": share.value(), "from": from, "to": to, "hits": share.hits, "of": share.of})
}

/// A share with its interval, two digits.
fn told(share: Share) -> String {
    let (from, to) = share.interval();
    share.value().map_or("-".to_owned(), |value| format!("{value:.2} [{from:.2}, {to:.2}]"))
}

/// Rows of the lines with a fault, by a key that says their order and name.
fn rows(lines: &[Line], key: impl Fn(&Felt) -> (usize, &'static str)) -> BTreeMap<(usize, &'static str), Row> {
    let mut rows: BTreeMap<(usize, &'static str), Row> = BTreeMap::new();
    for line in lines {
        if let Some(felt) = &line.felt {
            rows.entry(key(felt)).or_default().add(line, felt);
        }
    }
    rows
}

fn by_cost(felt: &Felt) -> (usize, &'static str) {
    row_of(&COSTS, 100.0 * felt.cost)
}

fn by_kind(felt: &Felt) -> (usize, &'static str) {
    (0, felt.kind)
}

fn by_onset(felt: &Felt) -> (usize, &'static str) {
    (felt.onset as usize, felt.onset.as_str())
}

fn all(_: &Felt) -> (usize, &'static str) {
    (usize::MAX, "all")
}

/// How often verdicts are right, by how sure they are.
fn calibration(lines: &[Line]) -> BTreeMap<(usize, &'static str), Share> {
    let mut rows: BTreeMap<(usize, &'static str), Share> = BTreeMap::new();
    for (sure, right) in lines.iter().flat_map(|line| &line.verdicts) {
        rows.entry(row_of(&SURE, *sure)).or_default().add(*right);
    }
    rows
}

/// Jobs without a fault: seeds, those with a case, cases, simulated hours.
fn healthy(lines: &[Line]) -> (u64, u64, u64, f64) {
    let of = lines.iter().filter(|line| line.felt.is_none());
    of.fold((0, 0, 0, 0.0), |(seeds, touched, cases, hours), line| {
        let touches = u64::from(line.false_cases > 0);
        (seeds + 1, touched + touches, cases + line.false_cases, hours + line.duration_s / 3600.0)
    })
}

/// The one object that `--json` prints.
pub(crate) fn summary(lines: &[Line]) -> Value {
    let object = |rows: BTreeMap<(usize, &'static str), Row>| -> Value {
        let named = rows.iter().map(|((_, name), row)| ((*name).to_owned(), row.json()));
        Value::Object(named.collect())
    };
    let sure = calibration(lines).into_iter().map(|((_, name), share)| (name.to_owned(), of_share(share)));
    let (seeds, touched, cases, hours) = healthy(lines);
    json!({
        "seeds": lines.len(),
        "all": object(rows(lines, all))["all"],
        "by_cost": object(rows(lines, by_cost)),
        "by_onset": object(rows(lines, by_onset)),
        "by_kind": object(rows(lines, by_kind)),
        "calibration": Value::Object(sure.collect()),
        "healthy": {"seeds": seeds, "seeds_with_a_case": touched, "false_cases": cases, "hours": hours},
    })
}

/// A line for each seed that is not as it should be, with the command that plays it again.
fn failing(lines: &[Line]) -> String {
    let text: String = lines
        .iter()
        .filter(|line| !line.wrong.is_empty())
        .map(|line| {
            let again = format!("mycroft sim run --family {} --swarm {}", line.family, line.seed);
            let more = if line.wrong.len() > 1 { format!(" and {} more", line.wrong.len() - 1) } else { String::new() };
            format!("- `{again}`: {}{more}\n", line.wrong[0])
        })
        .collect();
    if text.is_empty() { "None.\n".to_owned() } else { text }
}

/// The page: what `--write` keeps and what is printed. Nothing in it depends on the machine.
pub(crate) fn page(command: &str, lines: &[Line]) -> String {
    let whole = rows(lines, all);
    let tables = |rows: BTreeMap<(usize, &'static str), Row>, what: &str| {
        let head = [what, "n", "due", "found", "recall of due", "recall of all", "precision", "category", "onset off"];
        let cells: Vec<Vec<String>> = rows.iter().chain(&whole).map(|((_, name), row)| row.cells(name)).collect();
        table(&head, &cells)
    };
    let sure: Vec<Vec<String>> = calibration(lines)
        .iter()
        .map(|((_, name), share)| vec![(*name).to_owned(), share.of.to_string(), told(*share)])
        .collect();
    let (seeds, touched, cases, hours) = healthy(lines);
    let wrong = failing(lines);
    format!(
        "# Slowdowns by what they cost

Made by `{command}` (version {}). Numbers in brackets are Wilson's 95 % intervals. The numbers are the same on any machine.

## By cost, percent of an iteration

{}
## By onset

{}
## By kind

{}
- *Due*: an ideal test would see the fault in the job's own spread before the run ends (`crates/sim/src/due.rs`). *Found*: of those,
  a case names the culprit and no innocent as surely; a fault of the whole job is found by a case that names nobody before others.
- *Precision*: cases that name a culprit, of these and those that name an innocent. *Category*: right words, of the found.
- *Onset off*: by how many iterations a case's onset is off, median (share within {} / within {}).

## How sure verdicts are

Cases that name somebody, by the confidence of the first suspect: how many name the culprit and the right category.

{}
## Without a fault

{seeds} seeds, {hours:.1} simulated hours: {cases} false cases, in {touched} of them.

## Failing seeds

{}",
        env!("CARGO_PKG_VERSION"),
        tables(rows(lines, by_cost), "cost"),
        tables(rows(lines, by_onset), "onset"),
        tables(rows(lines, by_kind), "kind"),
        OFF.0,
        OFF.1,
        table(&["confidence", "cases", "right"], &sure),
        wrong,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::line::Onset;

    fn line(seed: u64, cost: f64, due: bool, found: bool) -> Line {
        let felt = Felt {
            text: "gpu-power@host0".to_owned(),
            kind: "gpu-power",
            onset: Onset::Sharp,
            cost,
            spread: 0.01,
            due,
            seen_after: due.then_some(3),
            found,
            exactly: found,
            category_right: found,
            said: None,
            onset_off: found.then_some(6.0),
            detection_ms: None,
        };
        let verdicts = if found { vec![(0.9, true)] } else { vec![(0.9, false)] };
        let (hits, misses) = (u64::from(found), u64::from(!found));
        Line {
            family: "slow",
            seed,
            felt: Some(felt),
            true_cases: hits,
            false_cases: misses,
            verdicts,
            wrong: if found { vec![] } else { vec!["wrong".to_owned()] },
            ..Line::default()
        }
    }

    #[test]
    fn seeds_are_counted_where_they_belong() {
        let lines = [
            line(1, 0.10, true, true),
            line(2, 0.11, true, false),
            line(3, 0.05, false, false),
            Line { family: "steady", duration_s: 7200.0, ..Line::default() },
        ];
        let summary = summary(&lines);
        let band = &summary["by_cost"]["8 to 12"];
        assert_eq!((&band["n"], &band["due"], &band["recall_of_due"]["value"]), (&json!(2), &json!(2), &json!(0.5)));
        assert_eq!(summary["by_cost"]["3 to 8"]["due"], json!(0));
        assert_eq!(summary["all"]["precision"]["hits"], json!(1));
        assert_eq!(summary["calibration"]["0.8 to 0.95"]["of"], json!(3));
        assert_eq!(summary["healthy"], json!({"seeds": 1, "seeds_with_a_case": 0, "false_cases": 0, "hours": 2.0}));
        let page = page("x", &lines);
        assert!(page.contains("| 8 to 12 | 2 | 2   | 1     | 0.50 [0.09, 0.91]"), "{page}");
        assert!(page.contains("- `mycroft sim run --family slow --swarm 2`: wrong"), "{page}");
    }

    #[test]
    fn a_cost_is_in_one_row() {
        assert_eq!(row_of(&COSTS, 2.9).1, "below 3");
        assert_eq!(row_of(&COSTS, 8.0).1, "8 to 12");
        assert_eq!(row_of(&COSTS, 1e9).1, "above 20");
        assert_eq!(row_of(&COSTS, -5.0).1, "below 3");
    }
}
