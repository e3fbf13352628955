//! Lines that training loops print of each iteration, or of every so many.
//!
//! Which loop prints how: docs/formats/job-logs.md. A line counts only if it tells both which iteration it is of and what that
//! took, in the words of a known loop.
use super::words::{after, count_after};
use mycroft_record::pace::Unit;

/// Longest name of a loop; bytes.
const NAME_BYTES_MAX: usize = 64;
/// Longest iteration that is believed: a week. What is longer is a duration of something else.
const MILLIS_MAX: f64 = 7.0 * 86_400.0 * 1e3;

/// What a line tells of an iteration.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Told {
    /// Name of the loop.
    pub(super) name: String,
    pub(super) iteration: Option<u64>,
    pub(super) unit: Unit,
    pub(super) value: f64,
    pub(super) own_ms: Option<f64>,
    /// A row of a table.
    pub(super) is_row: bool,
    /// A moving average.
    pub(super) is_smoothed: bool,
}

/// Words before an iteration's number, words before its time, milliseconds in one of the time's unit, what it is called.
const TIMES: &[(&str, &str, f64, &str)] = &[
    ("iteration", "elapsed time per iteration (ms):", 1.0, "iteration"),
    ("steps:", "iter time (s):", 1e3, "step"),
    ("global_step:", "train_step_timing in s:", 1e3, "global_step"),
    ("global_step=", "train_step_timing in s=", 1e3, "global_step"),
    ("step:", "timing_s/step:", 1e3, "step"),
    ("iter ", ", time ", 1.0, "iter"),
];
/// Words before a time of which the unit stands behind it, or in the word; seconds where neither tells.
const NAMED: &[&str] = &["step_time", "step time", "iter_time", "iteration_time", "iteration time"];
/// Words before a number of an iteration.
const NUMBERS: &[&str] = &["iteration", "global_step", "step", "iter"];
/// Words before what a rank itself needed of an iteration.
const OWN: &[&str] =
    &["fwd_microstep", "forward-compute", "forward_time", "forward", "fwd", "compute_time", "data_time"];

/// Reads a line; `None` where it tells no iteration's time.
pub(super) fn read(text: &str) -> Option<Told> {
    bar(text).or_else(|| timed(text)).or_else(|| rate(text)).or_else(|| named(text)).filter(|told| {
        told.value > 0.0 && told.value.is_finite() && (told.unit != Unit::Millis || told.value < MILLIS_MAX)
    })
}

/// The number that `text` begins with, behind white space, `:`, `=` and dots that fill a line; with the rest.
fn decimal(text: &str) -> Option<(f64, &str)> {
    let text = text.trim_start_matches([' ', ':', '=', '\t']);
    let end = text.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | ',')).unwrap_or(text.len());
    let digits = text[..end].trim_end_matches(['.', ',']);
    // A comma is a separator of thousands where three digits follow; else the number ends there.
    let digits = match digits.split_once(',') {
        Some((whole, _)) if !is_thousands(digits) => whole,
        _ => digits,
    };
    if !digits.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let number = if digits.contains(',') { digits.replace(',', "").parse() } else { digits.parse() };
    number.ok().map(|number| (number, &text[digits.len()..]))
}

fn is_thousands(digits: &str) -> bool {
    let whole = digits.split('.').next().unwrap_or_default();
    whole.split(',').skip(1).all(|group| group.len() == 3)
}

fn decimal_after<'a>(text: &'a str, key: &str) -> Option<(f64, &'a str)> {
    decimal(after(text, key)?)
}

/// A bar of tqdm, as Hugging Face's Trainer and Lightning have it: `41%|###   | 410/1000 [10:15<14:45, 1.52s/it]`.
fn bar(text: &str) -> Option<Told> {
    let at = [text.find("s/it"), text.find("it/s")].into_iter().flatten().min()?;
    let is_rate = text[at..].starts_with("it/s");
    let start = text[..at].rfind(|c: char| !c.is_ascii_digit() && c != '.').map_or(0, |last| last + 1);
    // What precedes may be a character of several bytes.
    let value: f64 = text.get(start..at)?.parse().ok()?;
    let head = &text[..start];
    let (count, total) = head.split_whitespace().rev().find_map(fraction)?;
    // `[10:15<14:45, `: without it the rate is of something else, or smoothed otherwise.
    head.rfind('[').filter(|at| head[at + 1..].starts_with(|c: char| c.is_ascii_digit()))?;
    let bar_start = head.find('|').unwrap_or(0);
    let before = head.get(..bar_start).unwrap_or_default().trim_end().trim_end_matches(['%', ' ']);
    let millis = if is_rate { 1e3 / value } else { value * 1e3 };
    let name = format!("{}{total}", unnumbered(before));
    Some(Told {
        name,
        iteration: Some(count),
        unit: Unit::Millis,
        value: millis,
        own_ms: None,
        is_row: false,
        is_smoothed: true,
    })
}

/// `410/1000` as 410 and `/1000`; `410it` as 410 and nothing.
fn fraction(word: &str) -> Option<(u64, &str)> {
    if let Some(count) = word.strip_suffix("it") {
        return count.parse().ok().map(|count| (count, ""));
    }
    let at = word.find('/')?;
    let total = &word[at..];
    (total.len() > 1 && total[1..].bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| Some((word[..at].parse().ok()?, total)))?
}

/// Words with numbers taken out, so that the next epoch is the same loop.
fn unnumbered(text: &str) -> String {
    let mut out = String::new();
    for c in text.trim().chars() {
        if !c.is_ascii_digit() {
            out.push(c);
        } else if !out.ends_with('#') {
            out.push('#');
        }
        if out.len() >= NAME_BYTES_MAX {
            break;
        }
    }
    // What the percentage leaves.
    out.trim_end_matches(['#', ' ', '/', ':']).to_owned()
}

/// Loops that say what an iteration took, in a unit of their own.
fn timed(text: &str) -> Option<Told> {
    TIMES.iter().find_map(|(number, time, millis, name)| {
        let (value, rest) = decimal_after(text, time)?;
        if *time == ", time " && !rest.starts_with("ms") {
            return None;
        }
        let iteration = Some(count_after(text, number)?);
        let name = (*name).to_owned();
        Some(Told {
            name,
            iteration,
            unit: Unit::Millis,
            value: value * millis,
            own_ms: own(text),
            is_row: false,
            is_smoothed: false,
        })
    })
}

/// Loops that say how much they do in a second: torchtitan, DeepSpeed.
fn rate(text: &str) -> Option<Told> {
    let tokens = || {
        let (value, _) = decimal_after(text, "tps:")?;
        Some(("step", count_after(text, "step:")?, Unit::Tokens, value))
    };
    let samples = || {
        let (value, _) = decimal_after(text, "CurrSamplesPerSec=")?;
        Some(("global_step", count_after(text, "global_step=")?, Unit::Samples, value))
    };
    let (name, iteration, unit, value) = tokens().or_else(samples)?;
    Some(Told {
        name: name.to_owned(),
        iteration: Some(iteration),
        unit,
        value,
        own_ms: own(text),
        is_row: false,
        is_smoothed: false,
    })
}

/// Loops of one's own: `step 410 ... step_time=1.52s`, with the unit in the name or behind the number.
fn named(text: &str) -> Option<Told> {
    let (name, rest) = NAMED.iter().find_map(|name| Some((*name, after(text, name)?)))?;
    let unit = rest.find([':', '=', ' ']).map(|end| &rest[..end])?;
    let (value, behind) = decimal(rest.get(unit.len()..)?.trim_start_matches([' ', '(', 'm', 's', ')']))?;
    let head = &text[..text.len() - rest.len() - name.len()];
    let whole = [head, behind];
    let (key, number) =
        whole.iter().find_map(|part| NUMBERS.iter().find_map(|key| Some((*key, counted(part, key)?))))?;
    let is_millis = unit == "_ms" || rest.starts_with(" (ms)") || behind.trim_start().starts_with("ms");
    let value = if is_millis { value } else { value * 1e3 };
    let told = Told {
        name: key.to_owned(),
        iteration: Some(number),
        unit: Unit::Millis,
        value,
        own_ms: own(text),
        is_row: false,
        is_smoothed: false,
    };
    matches!(unit, "" | "_ms" | "_s" | "_sec" | "_seconds").then_some(told)
}

/// The number behind a word and at most one sign.
fn counted(text: &str, key: &str) -> Option<u64> {
    let rest = after(text, key)?.trim_start_matches([' ', ':', '=', '[']);
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// What the rank itself needed, milliseconds: the sum of the parts that nobody else makes longer.
fn own(text: &str) -> Option<f64> {
    let mut sum: Option<f64> = None;
    let mut rest = text;
    while let Some((at, key)) = OWN.iter().filter_map(|key| Some((rest.find(key)?, *key))).min_by_key(|hit| hit.0) {
        rest = &rest[at + key.len()..];
        let unit = rest.find([':', '=', ' ']).map_or("", |end| &rest[..end]);
        if let Some((value, behind)) = rest.get(unit.len()..).and_then(decimal) {
            let is_millis = unit.ends_with("_ms") || behind.starts_with("ms") || text.contains("(ms)");
            *sum.get_or_insert(0.0) += if is_millis { value } else { value * 1e3 };
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> (String, Option<u64>, Unit, f64) {
        let told = read(line).unwrap_or_else(|| panic!("{line}"));
        (told.name, told.iteration, told.unit, (told.value * 1e3).round() / 1e3)
    }

    #[test]
    fn loops_of_the_field_are_understood() {
        let millis = |name: &str, iteration, value| (name.to_owned(), Some(iteration), Unit::Millis, value);
        for (line, want) in [
            (
                " [2026-11-26 10:00:00] iteration      410/  500000 | consumed samples:       104960 | elapsed time per \
                 iteration (ms): 2010.3 | learning rate: 1.0E-05 |",
                millis("iteration", 410, 2010.3),
            ),
            (" 41%|\u{2588}\u{2588}\u{258d}   | 410/1000 [10:15<14:45,  1.52s/it]", millis("/1000", 410, 1520.0)),
            (
                "Epoch 3:  41%|####   | 410/1000 [10:15<14:45,  2.00it/s, v_num=0, loss=2.1]",
                millis("Epoch/1000", 410, 500.0),
            ),
            ("Train: 410it [10:15,  4.00it/s]", millis("", 410, 250.0)),
            ("steps: 410 loss: 6.9011 iter time (s): 1.234 samples/sec: 12.965", millis("step", 410, 1234.0)),
            (
                "Training epoch 0, iteration 9/99 | lr: 1e-4 | global_step: 410 | train_step_timing in s: 1.52",
                millis("global_step", 410, 1520.0),
            ),
            ("step:410 - actor/loss:0.1 - timing_s/step:12.5 - x:1", millis("step", 410, 12500.0)),
            ("iter 410: loss 2.1034, time 1520.33ms, mfu 40.01%", millis("iter", 410, 1520.33)),
            ("INFO step 410 loss=2.1 step_time=1.52s", millis("step", 410, 1520.0)),
            ("step_time_ms: 152.5 | step: 410", millis("step", 410, 152.5)),
        ] {
            assert_eq!(of(line), want, "{line}");
        }
        assert_eq!(
            of("[titan] root - INFO - step: 410  loss:  7.2  memory: 40.1GiB(42%)  tps: 5,123  tflops: 40.1  mfu: 4%"),
            ("step".to_owned(), Some(410), Unit::Tokens, 5123.0)
        );
        assert_eq!(
            of("epoch=0/micro_step=820/global_step=410, RunningAvgSamplesPerSec=12.1, CurrSamplesPerSec=12.3, Mem=1"),
            ("global_step".to_owned(), Some(410), Unit::Samples, 12.3)
        );
    }

    #[test]
    fn what_is_no_iteration_is_left_out() {
        for line in [
            "Map (num_proc=8):  45%|####  | 4500/10000 [00:10<00:11, 450.10 examples/s]",
            " 0%|          | 0/1000 [00:00<?, ?it/s]",
            "the time, time 5 of them",
            "iteration time is long",
            "s/it",
            "Epoch 0/9 \u{2501} 410/1000 0:10:15 \u{2022} 0:14:45 4.00it/s",
            "1it/s",
            "elapsed time per iteration (ms): 12",
            "iteration 5 | elapsed time per iteration (ms): 0.0 |",
            "step 4 step_time_p99=3",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
    }

    #[test]
    fn what_a_rank_needed_itself_is_told() {
        let own = |line: &str| read(line).and_then(|told| told.own_ms);
        assert_eq!(own("step 4 step_time=2.0s forward=0.5s data_time=0.25s backward=1.0s"), Some(750.0));
        assert_eq!(own("step 4 step_time_ms=20 forward_ms=5"), Some(5.0));
        assert_eq!(own("step 4 step_time=2.0s"), None);
    }
}
