//! `cargo xtask bench drift`: change points in series of iteration times of the kinds that FALCON's Tables 4 and 5 are about, by
//! four methods, and in labelled series where they are given. Prints a page in Markdown.
//!
//! ```text
//! drift SEED [FILE.csv]
//! ```
mod field;
mod methods;
#[path = "../../tests/change/noise.rs"]
#[allow(dead_code)]
mod noise;
mod score;
mod series;

use methods::{METHODS, all};
use score::{Score, judge};
use series::{Severity, Side, jobs};

fn main() {
    let mut args = std::env::args().skip(1);
    let Some(seed) = args.next().and_then(|text| text.parse().ok()) else {
        eprintln!("drift SEED [FILE.csv]");
        std::process::exit(2);
    };
    for severity in [Severity::Paper, Severity::Mild, Severity::Rough] {
        println!("## {}\n\n{}\n", severity.title(), severity.says());
        for side in [Side::Computation, Side::Communication] {
            table(side, severity, seed);
        }
    }
    field::print(args.next().as_deref());
}

/// One table: all jobs of a side, all methods.
fn table(side: Side, severity: Severity, seed: u64) {
    let jobs = jobs(side, severity, seed);
    let slow = jobs.iter().filter(|job| !job.faults.is_empty()).count();
    let faults: usize = jobs.iter().map(|job| job.faults.len()).sum();
    println!("### {}\n", side.title());
    println!("{} jobs, {slow} of them slow for a while, {faults} onsets.\n", jobs.len());
    println!(
        "| method | jobs judged right | healthy jobs with an alarm | onsets missed | alarms beside onsets and ends | delay, iterations: median, 95 % | onset off by, median | FALCON's accuracy, FPR, FNR |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let mut scores: [Score; METHODS.len()] = Default::default();
    for job in &jobs {
        for (score, told) in scores.iter_mut().zip(all(&job.values)) {
            judge(job, &told, score);
        }
    }
    for (name, score) in METHODS.iter().zip(&mut scores) {
        println!("| {name} | {} | {} |", score.row(), side.paper(name));
    }
    println!();
}
