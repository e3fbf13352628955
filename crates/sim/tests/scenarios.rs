//! The scenarios in `scenarios/` are right, and there are enough of them.
use mycroft_sim::{FaultKind, FaultLevel, Scenario};
use std::collections::BTreeMap;
use std::path::Path;

fn all() -> Vec<(String, Scenario)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let mut scenarios: Vec<(String, Scenario)> = std::fs::read_dir(&dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| {
            let stem = path.file_stem().unwrap().to_string_lossy().into_owned();
            (stem, Scenario::load(&path).unwrap_or_else(|error| panic!("{error}")))
        })
        .collect();
    scenarios.sort_by(|a, b| a.0.cmp(&b.0));
    scenarios
}

#[test]
fn every_file_is_valid_and_named_after_itself() {
    for (stem, scenario) in all() {
        assert_eq!(stem, scenario.name);
        assert_eq!(stem.starts_with("healthy-"), scenario.fault.is_none(), "{stem}");
        if let Some(fault) = &scenario.fault {
            assert!(stem.starts_with(fault.kind.as_str()), "{stem}");
            assert!(fault.after_s + 6.0 <= scenario.duration_s, "{stem}: no time left to see the fault");
            let of_rank = fault.kind.level() == FaultLevel::Rank;
            assert_eq!(fault.rank.is_some(), of_rank, "{stem}: say which rank");
        }
    }
}

#[test]
fn every_fault_has_a_16_and_a_32_rank_scenario() {
    let mut shapes: BTreeMap<FaultKind, Vec<u32>> = BTreeMap::new();
    for (_, scenario) in all() {
        if let Some(fault) = &scenario.fault {
            shapes.entry(fault.kind).or_default().push(scenario.world());
        }
    }
    for kind in FaultKind::TESTBED {
        let mut worlds = shapes.remove(&kind).unwrap_or_default();
        worlds.sort_unstable();
        assert_eq!(worlds, vec![16, 32], "{kind}");
    }
}

#[test]
fn healthy_shapes_cover_what_confuses_a_detector() {
    let healthy: Vec<Scenario> = all().into_iter().map(|(_, s)| s).filter(|s| s.fault.is_none()).collect();
    assert!(healthy.len() >= 10);
    let any = |test: &dyn Fn(&Scenario) -> bool| healthy.iter().any(test);
    assert!(any(&|s| s.moe) && any(&|s| s.algo == mycroft_sim::Algo::Tree) && any(&|s| s.world() == 32));
    assert!(any(&|s| s.start_skew_ms > 0) && any(&|s| s.warm_up_factor > 4.0));
    assert!(any(&|s| s.checkpoint_every > 0 && s.checkpoint_ms == 3000));
    assert!(any(&|s| s.tp == 1 && s.pp == 1) && any(&|s| s.pp == 4) && any(&|s| s.dp == 8));
}
