//! Labelled series of real jobs: 15 iterations each, the first ones warm-up, with a delay on pipeline messages from about the
//! eighth on.
use crate::methods::{METHODS, Told, all};
use crate::score::share;

/// Iterations, counted from 1, at which the labels let an onset be.
const LABELLED: std::ops::RangeInclusive<usize> = 7..=11;

/// A series.
#[derive(Default)]
struct Series {
    name: String,
    method: String,
    values: Vec<f64>,
}

/// Prints the part of the page about them; a sentence where there is no such file.
pub(crate) fn print(path: Option<&str>) {
    println!("## Labelled iterations of real jobs\n");
    let Some(text) = path.and_then(|path| std::fs::read_to_string(path).ok()) else {
        println!("Left out: the labelled series are not on this machine.");
        return;
    };
    let labelled = read(&text);
    println!(
        "Pipelines of 7 to 60 billion parameters with a delay added to each message of a link from about the eighth of 15 iterations on; the first ones are warm-up, so that a method has six healthy values and seven slow ones. An onset told at iterations 7 to 11 is right, any other change is beside it. A window of 110 values says nothing about so few; plain BOCD is told nothing of its first 20 values.\n"
    );
    println!("| pipeline | method | series | onset told | nothing told | told elsewhere |");
    println!("|---|---|---|---|---|---|");
    let mut open = Vec::new();
    for pipeline in ["1F1B", "ZB"] {
        let series: Vec<&Series> = labelled.iter().filter(|series| series.method == pipeline).collect();
        for (at, name) in METHODS.into_iter().enumerate() {
            let (mut found, mut nothing, mut beside) = (0, 0, 0);
            for series in &series {
                let told: &[Told] = &all(&series.values)[at];
                let right = told.iter().filter(|told| LABELLED.contains(&(told.onset + 1))).count();
                found += usize::from(right > 0);
                nothing += usize::from(told.is_empty());
                beside += told.len() - right;
                if name == "ours" && (right == 0 || told.len() > right) {
                    let places: Vec<usize> = told.iter().map(|told| told.onset + 1).collect();
                    open.push(format!("- {}: told at {places:?}; ms {:.0?}", series.name, series.values));
                }
            }
            let n = series.len();
            println!("| {pipeline} | {name} | {n} | {} | {nothing} | {beside} |", share(found, n));
        }
    }
    println!("\nSeries of which ours told no labelled onset, or another change:\n\n{}", open.join("\n"));
}

/// The series of a file `experiment,model,method,links,delay_s,iteration,ms`; links may be quoted. One begins with iteration 1.
fn read(text: &str) -> Vec<Series> {
    let mut all: Vec<Series> = Vec::new();
    for line in text.lines().skip(1) {
        let mut cells: Vec<&str> = line.rsplitn(4, ',').collect();
        cells.reverse();
        let [head, delay, iteration, ms] = cells[..] else { continue };
        let mut names = head.splitn(4, ',');
        let (_, model, method, links) = (names.next(), names.next(), names.next(), names.next());
        let Ok(ms) = ms.parse::<f64>() else { continue };
        if iteration == "1" {
            let name = format!("{} {} {} {delay} s", model.unwrap_or(""), method.unwrap_or(""), links.unwrap_or(""));
            all.push(Series { name, method: method.unwrap_or("").to_owned(), values: Vec::new() });
        }
        if let Some(series) = all.last_mut() {
            series.values.push(ms);
        }
    }
    all
}
