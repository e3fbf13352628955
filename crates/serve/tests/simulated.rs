//! Every scenario of `scenarios/`, played by the simulator: the brain's verdict is right. And drawn ones: what a case says as
//! settled changes only by a revision.
use mycroft_diagnose::{CaseEvent, CaseId, Config, Engine, Said, render};
use mycroft_record::HostTime;
use mycroft_serve::TICK;
use mycroft_serve::replay::{Player, TAIL};
use mycroft_sim::{Family, Scenario, Simulation, Truth, score, swarm};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn files() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scenarios");
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|ext| ext == "toml")).collect();
    files.sort();
    files
}

#[test]
fn every_scenario_is_diagnosed_right() {
    let files = files();
    assert!(files.len() >= 30, "ten faults at two sizes, and ten healthy jobs: {}", files.len());
    for file in files {
        let scenario = Scenario::load(&file).unwrap();
        let mut simulation = Simulation::new(&scenario);
        let mut player = Player::new(TICK);
        while let Some(stretch) = simulation.next_stretch() {
            for delivery in stretch {
                player.deliver(mycroft_record::HostTime(delivery.arrives_at), &delivery.batch);
            }
        }
        let report = player.finish(TAIL).pop_first().unwrap().1.report;
        let truth = simulation.truth().pop().unwrap_or_else(Truth::healthy);
        let verdict = score(&truth, report.cases.first().map(|case| &case.finding));
        assert!(verdict.correct, "{}: {}\n{}", scenario.name, verdict.why, render(&report));
        let progress = simulation.progress();
        assert!(progress.iterations >= 5, "{}: {progress:?}", scenario.name);
    }
}

/// Feeds an engine as a server would: a look every tick, and when one is due. `look` sees what each said.
fn feed(scenario: &Scenario, mut look: impl FnMut(&Engine, &[CaseEvent])) {
    let mut simulation = Simulation::new(scenario);
    let mut engine = Engine::new("job".into(), Config::default());
    let tick_ns = TICK.as_nanos() as u64;
    let mut next_tick = None;
    while let Some(stretch) = simulation.next_stretch() {
        for delivery in stretch {
            let mut now = *next_tick.get_or_insert(HostTime(delivery.arrives_at + tick_ns));
            while now.0 <= delivery.arrives_at {
                let events = engine.tick(now);
                look(&engine, &events);
                let due = engine.next_check(now).filter(|due| *due > now);
                now = due.map_or(now + tick_ns, |due| due.min(now + tick_ns));
                next_tick = Some(now);
            }
            engine.observe(&delivery.batch);
        }
    }
}

/// Between "settled" and "revised" nothing of what is wrong, category and first suspect changes.
#[test]
fn what_is_settled_changes_only_by_a_revision() {
    let families = [Family::Pulse, Family::FlightRecorder, Family::Infrastructure, Family::Compound, Family::Endings];
    let (mut settled, mut revised) = (0, 0);
    for (seed, family) in
        families.into_iter().enumerate().flat_map(|(at, family)| [(at as u64, family), (at as u64 + 50, family)])
    {
        let scenario = swarm(seed, Some(family));
        let mut told: BTreeMap<CaseId, Said> = BTreeMap::new();
        feed(&scenario, |engine, events| {
            for case in engine.cases() {
                if events.contains(&CaseEvent::Revised(case.id)) {
                    assert!(told.remove(&case.id).is_some(), "{}: only what was settled is revised", scenario.name);
                    revised += 1;
                }
                if let Some(said) = told.get(&case.id) {
                    assert!(
                        said.is_said_by(&case.finding),
                        "{}: it said {said:?}, now {:?}",
                        scenario.name,
                        case.finding
                    );
                } else if case.finding.diagnosed_at.is_some() {
                    told.insert(case.id, Said::of(&case.finding, HostTime::NONE));
                    settled += 1;
                }
            }
        });
    }
    assert!(settled > revised && settled >= 6, "{settled} settled, {revised} revised");
}
