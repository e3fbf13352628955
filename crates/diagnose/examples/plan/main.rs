//! `cargo xtask bench plan`: how fast and how good plans are, on drawn jobs of many sizes. Prints a page in Markdown.
//!
//! ```text
//! plan SEED [MILLISECONDS,... MICRO_BATCHES THEIRS,...]
//! ```
#[path = "../../tests/change/noise.rs"]
#[allow(dead_code)]
mod noise;
mod place;
mod split;

fn main() {
    let mut args = std::env::args().skip(1);
    let Some(seed) = args.next().and_then(|text| text.parse().ok()) else {
        eprintln!("plan SEED [MILLISECONDS,... MICRO_BATCHES THEIRS,...]");
        std::process::exit(2);
    };
    split::print(seed);
    split::print_run(&args.collect::<Vec<String>>());
    place::print(seed);
}

/// The middle of some values, which become sorted.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
