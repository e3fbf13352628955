//! Autopsies of real dumps with known truth, of what is left of them when evidence is taken away, and of bundles made by
//! hand for what no CPU run shows.
mod load;
mod print;

#[test]
fn probe() {
    for folder in std::env::var("PROBE").unwrap_or_default().split(',').filter(|f| !f.is_empty()) {
        let bundle = load::folder(std::path::Path::new(folder), &|_| true);
        let t = std::time::Instant::now();
        let autopsy = mycroft_diagnose::stacks::autopsy(&bundle, &Default::default());
        println!("=== {folder} ({:?})\n{}", t.elapsed(), print::text(&autopsy));
    }
}
