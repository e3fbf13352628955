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
        if std::env::var("BRIEF").is_ok() {
            let list = |ranks: Vec<u32>| format!("{ranks:?}");
            println!(
                "{folder}|{}|{}|{}|{}|{}|{}|{}|{}",
                autopsy.outcome.as_str(),
                autopsy.category.map_or("", |c| c.as_str()),
                autopsy.cause.map_or("", |c| c.as_str()),
                list(autopsy.suspects.iter().map(|s| s.rank.0).collect()),
                autopsy.seq.map_or(String::new(), |s| s.to_string()),
                autopsy.group,
                autopsy.collective,
                list(autopsy.missing_dumps.iter().map(|m| m.0.0).collect())
            );
            continue;
        }
        println!("=== {folder} ({:?})\n{}", t.elapsed(), print::text(&autopsy));
    }
}
