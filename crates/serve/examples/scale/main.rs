//! What the product costs at scale, measured on simulated jobs; prints one `NAME VALUE` a line. `cargo xtask bench scale`
//! runs all of it; one measurement alone:
//! `cargo run --release -p mycroft-serve --example scale -- simulate RANKS SECONDS`,
//! `... diagnose RANKS none|stall|slow SECONDS` `... backend RANKS SECONDS TIMES FOLDER`
//! or `... page RANKS FOLDER`.
mod backend;
mod diagnose;
mod job;
mod page;
mod used;

use mycroft_sim::Simulation;
use std::time::Instant;

/// As the program `mycroft` has it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["simulate", ranks, seconds] => simulate(number(ranks), number(seconds)),
        ["diagnose", ranks, fault, seconds] => diagnose::measure(number(ranks), fault, number(seconds)),
        ["backend", ranks, seconds, times, folder] => {
            backend::measure(number(ranks), number(seconds), number(times), folder.as_ref());
        }
        ["page", ranks, folder] => page::measure(number(ranks), folder.as_ref()),
        [page::SERVE, folder] => page::serve(folder.as_ref()),
        [backend::SERVE, folder] => backend::serve(folder.as_ref()),
        _ => {
            eprintln!("usage: scale simulate RANKS SECONDS");
            eprintln!("       scale diagnose RANKS none|stall|slow SECONDS");
            eprintln!("       scale backend RANKS SECONDS TIMES FOLDER");
            eprintln!("       scale page RANKS FOLDER");
            std::process::exit(2);
        }
    }
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("`{text}` is no number"))
}

/// The simulator alone.
fn simulate(ranks: u32, seconds: u32) {
    let scenario = job::scenario(ranks, job::Fault::None, seconds);
    let begun = Instant::now();
    let mut simulation = Simulation::new(&scenario);
    let mut records = 0;
    while let Some(stretch) = simulation.next_stretch() {
        records += stretch.iter().map(|delivery| delivery.batch.records.len() as u64).sum::<u64>();
    }
    let (wall, processor) = (begun.elapsed().as_secs_f64(), used::by_process().as_secs_f64());
    println!("records_per_rank_second {:.1}", records as f64 / f64::from(ranks) / f64::from(seconds));
    println!("times_real {:.2}", f64::from(seconds) / wall);
    println!("times_real_of_processor {:.2}", f64::from(seconds) / processor);
    println!("resident_bytes {}", used::memory_of("self"));
}
