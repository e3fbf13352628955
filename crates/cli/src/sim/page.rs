//! Scores as text, as JSON (`docs/formats/sim.md`) and as a page of `docs/results`.
use super::args::ScoreArgs;
use super::columns::table;
use super::score::Seed;
use mycroft_sim::{Family, Spread, Tally};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

/// Row of the confusion table for cases that no fault deserves.
const NO_FAULT: &str = "(no fault)";
/// Column of the confusion table for faults that no case names.
const MISSED: &str = "(missed)";

/// A seed that is not as it should be.
pub(crate) struct Failing {
    pub(crate) seed: u64,
    family: &'static str,
    pub(crate) scenario: String,
    pub(crate) why: Vec<String>,
}

/// Everything that is told at the end.
pub(crate) struct Scores {
    range: String,
    family: Option<Family>,
    /// Seeds that were played.
    pub(crate) seeds: u64,
    all: Tally,
    families: BTreeMap<&'static str, Tally>,
    /// (right kind, said kind) -> how often.
    confusion: BTreeMap<(&'static str, &'static str), u64>,
    /// In seed order.
    pub(crate) failing: Vec<Failing>,
    /// Smallest and largest job.
    ranks: Option<(u32, u32)>,
    slowest_tick: Duration,
}

impl Scores {
    /// Nothing yet.
    pub(crate) fn new(args: &ScoreArgs) -> Scores {
        Scores {
            range: args.seeds.to_string(),
            family: args.family,
            seeds: 0,
            all: Tally::default(),
            families: BTreeMap::new(),
            confusion: BTreeMap::new(),
            failing: Vec::new(),
            ranks: None,
            slowest_tick: Duration::ZERO,
        }
    }

    /// Adds a seed.
    pub(crate) fn add(&mut self, seed: u64, family: &'static str, scenario: &str, done: &Seed) {
        let Seed { judgement, said, ranks, slowest_tick } = done;
        self.seeds += 1;
        self.all.add(seed, scenario, judgement);
        self.families.entry(family).or_default().add(seed, scenario, judgement);
        for outcome in &judgement.outcomes {
            let given = match outcome.given {
                // Any of the right words counts as the best one.
                Some(_) if outcome.words_right => outcome.expected.as_str(),
                Some(given) => given.as_str(),
                None if outcome.due => MISSED,
                None => continue,
            };
            *self.confusion.entry((outcome.expected.as_str(), given)).or_default() += 1;
        }
        for given in judgement.false_cases.iter().filter_map(|(case, _)| said.get(*case)) {
            *self.confusion.entry((NO_FAULT, given.as_str())).or_default() += 1;
        }
        if !judgement.correct() {
            let why = judgement.wrong.clone();
            self.failing.push(Failing { seed, family, scenario: scenario.to_owned(), why });
        }
        self.ranks = Some(self.ranks.map_or((*ranks, *ranks), |(least, most)| (least.min(*ranks), most.max(*ranks))));
        self.slowest_tick = self.slowest_tick.max(*slowest_tick);
    }

    /// Adds a seed that ended without a verdict.
    pub(crate) fn add_failed(&mut self, seed: u64, family: &'static str, scenario: &str, why: &str) {
        self.seeds += 1;
        let why = vec![format!("the run itself failed: {why}")];
        self.failing.push(Failing { seed, family, scenario: scenario.to_owned(), why });
    }

    /// The command that plays a seed again.
    fn again(&self, failing: &Failing) -> String {
        let family = self.family.map_or(String::new(), |family| format!(" --family {family}"));
        format!("mycroft sim run --swarm {}{family}", failing.seed)
    }

    /// The one object that `--json` prints.
    pub(crate) fn json(&self) -> Value {
        let mut value = numbers(&self.all);
        value["seeds"] = json!(self.seeds);
        value["range"] = json!(self.range);
        value["family"] = json!(self.family.map(Family::as_str));
        value["ranks"] = json!(self.ranks.map(|(least, most)| json!({"least": least, "most": most})));
        value["slowest_tick_ms"] = json!(self.slowest_tick.as_secs_f64() * 1e3);
        let families = self.families.iter().map(|(family, tally)| ((*family).to_owned(), numbers(tally)));
        value["families"] = Value::Object(families.collect());
        let mut confusion = serde_json::Map::new();
        for ((right, said), count) in &self.confusion {
            confusion.entry(*right).or_insert_with(|| json!({}))[*said] = json!(count);
        }
        value["confusion"] = Value::Object(confusion);
        let failing = self.failing.iter().map(|failing| {
            json!({
                "seed": failing.seed,
                "family": failing.family,
                "scenario": failing.scenario,
                "why": failing.why.join("; "),
                "again": self.again(failing),
            })
        });
        value["failing"] = failing.collect();
        value
    }
}

/// What a tally says in numbers.
fn numbers(tally: &Tally) -> Value {
    let times = |spread: Option<Spread>| match spread {
        Some(spread) => json!({"median": spread.median, "p99": spread.p99}),
        None => json!({"median": null, "p99": null}),
    };
    json!({
        "seeds": tally.runs,
        "faults": tally.due,
        "named": tally.named,
        "cases": {"true": tally.cases.0, "false": tally.cases.1, "unnamed": tally.open_questions},
        "precision": tally.precision(),
        "recall": tally.recall(),
        "exact": tally.exact_recall(),
        "category_accuracy": tally.category_accuracy(),
        "detection_ms": times(some(tally, tally.detection_ms())),
        "diagnosis_ms": times(some(tally, tally.diagnosis_ms())),
    })
}

/// A spread of something: there is none where no fault was named.
fn some(tally: &Tally, spread: Spread) -> Option<Spread> {
    (tally.worded.0 > 0).then_some(spread)
}

/// Four digits after the point: one of ten thousand shows.
fn ratio(value: f64) -> String {
    format!("{value:.4}")
}

/// Seconds with two digits, median / p99.
fn seconds(spread: Option<Spread>) -> String {
    spread.map_or("-".to_owned(), |Spread { median, p99 }| {
        format!("{:.2} / {:.2}", median as f64 / 1000.0, p99 as f64 / 1000.0)
    })
}

/// One line per family and one for all.
fn by_family(scores: &Scores) -> String {
    let row = |name: &str, tally: &Tally| {
        vec![
            name.to_owned(),
            tally.runs.to_string(),
            tally.due.to_string(),
            tally.named.to_string(),
            format!("{} / {} / {}", tally.cases.0, tally.cases.1, tally.open_questions),
            ratio(tally.precision()),
            ratio(tally.recall()),
            ratio(tally.exact_recall()),
            ratio(tally.category_accuracy()),
            seconds(some(tally, tally.detection_ms())),
            seconds(some(tally, tally.diagnosis_ms())),
        ]
    };
    let mut rows: Vec<Vec<String>> = scores.families.iter().map(|(name, tally)| row(name, tally)).collect();
    rows.push(row("all", &scores.all));
    let head = [
        "family",
        "seeds",
        "faults",
        "named",
        "cases: true / false / unnamed",
        "precision",
        "recall",
        "exact",
        "category",
        "detection s",
        "diagnosis s",
    ];
    table(&head, &rows)
}

/// Which kinds of fault were taken for which.
fn confusion(scores: &Scores) -> String {
    let rows: BTreeSet<&str> = scores.confusion.keys().map(|(right, _)| *right).collect();
    let columns: BTreeSet<&str> = scores.confusion.keys().map(|(_, said)| *said).collect();
    if rows.is_empty() {
        return "No fault and no case.\n".to_owned();
    }
    let head: Vec<&str> = std::iter::once("right").chain(columns.iter().copied()).collect();
    let row = |right: &&'static str| {
        let count = |said: &&'static str| scores.confusion.get(&(*right, *said));
        let cell = |said| count(said).map_or(".".to_owned(), ToString::to_string);
        std::iter::once((*right).to_owned()).chain(columns.iter().map(cell)).collect::<Vec<String>>()
    };
    table(&head, &rows.iter().map(row).collect::<Vec<_>>())
}

fn failing(scores: &Scores) -> String {
    let mut out = String::new();
    for failing in &scores.failing {
        let _ = writeln!(out, "- {}: {}: `{}`", failing.scenario, failing.why.join("; "), scores.again(failing));
    }
    if scores.failing.is_empty() { "None.\n".to_owned() } else { out }
}

/// What a person reads at the end.
pub(crate) fn text(scores: &Scores) -> String {
    format!(
        "{}\nwhich kind of fault (rows) was taken for which (columns):\n{}\nfailing seeds: {}{}",
        by_family(scores),
        confusion(scores),
        if scores.failing.is_empty() { "" } else { "\n" },
        failing(scores).replace("None.", "none"),
    )
}

/// The page that `--write` makes: nothing in it depends on the machine.
pub(crate) fn page(scores: &Scores) -> String {
    let ranks = match scores.ranks {
        Some((least, most)) if least == most => format!("{least} ranks"),
        Some((least, most)) => format!("{least} to {most} ranks"),
        None => "no rank".to_owned(),
    };
    let family = scores.family.map_or(String::new(), |family| format!(" --family {family}"));
    let flags = format!("--seeds {}{family}", scores.range);
    format!(
        "# Accuracy on simulated jobs

Made by `mycroft sim score {}` (version {}): {} scenarios of {ranks}, each drawn whole from its seed - shape, sizes,
algorithm, jitter, clocks, what healthy jobs do besides, fault, place, severity. The truth comes from the scenario; the
diagnosis sees records only. The numbers are the same on any machine.

{}
- *Faults*: those that a case is due for: they last 8 s or longer, nothing stopped the job before, and because of them
  iterations take 1.3 times as long or longer (the first fault of a job against the job before it, as if no other came;
  another against the same job without it). *Named*: a case names the culprit's host or better, no innocent as surely, and
  no other fault's culprit more surely. *Exact*: exactly the culprit, that is the rank for a fault of a rank; share of all
  faults. What cannot be told apart in principle is in `docs/formats/scenario.md`.
- *Cases*: that name a culprit / that name an innocent or come without a fault / that name nobody.
  *Precision*: the first of the first two. *Recall*: named of all faults.
- *Category*: of the named faults, those whose case also says what is wrong and the kind of fault rightly.
- *Detection*: from the fault's first moment (also where it comes on slowly) to the case. *Diagnosis*: from the case to its
  settled suspect and category. Median / 99th percentile.
- A seed is *failing* when a fault is not named or given the wrong words, or a case is false.

## Which kind was taken for which

Rows: the kind that is right; `{NO_FAULT}`: no fault deserved that case. Columns: the kind that was said.

{}
## Failing seeds

{}",
        flags,
        env!("CARGO_PKG_VERSION"),
        scores.seeds,
        by_family(scores),
        confusion(scores),
        failing(scores),
    )
}
