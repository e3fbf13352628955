//! Feeds an engine as a server would.
use super::{Cluster, MS, Plan, T0};
use mycroft_diagnose::{Case, CaseEvent, CaseId, Config, Engine, Said};
use mycroft_record::{Batch, HostTime, NANOS_PER_SEC};
use std::collections::BTreeMap;

/// What a run of the engine gave.
pub struct Outcome {
    pub engine: Engine,
    pub events: Vec<(u64, CaseEvent)>,
    pub end: HostTime,
}

impl Outcome {
    pub fn case(&self) -> &Case {
        let cases = self.engine.cases();
        assert_eq!(cases.len(), 1, "one fault, one case:\n{}", mycroft_diagnose::render(&self.engine.report(self.end)));
        &cases[0]
    }

    pub fn text(&self) -> String {
        mycroft_diagnose::render(&self.engine.report(self.end))
    }
}

/// What settled cases say, to see that only a revision changes it.
#[derive(Default)]
struct Settled(BTreeMap<CaseId, Said>);

impl Settled {
    /// Between "settled" and "revised" nothing of what is wrong, category and first suspect changes.
    fn check(&mut self, engine: &Engine, events: &[CaseEvent]) {
        for case in engine.cases() {
            if events.contains(&CaseEvent::Revised(case.id)) {
                let said = self.0.remove(&case.id).expect("only what was settled is revised");
                let before = case.said_before.last().expect("a revised case says what it said before");
                assert!(before.what == said.what && before.category == said.category, "{case:#?}");
            }
            if let Some(said) = self.0.get(&case.id) {
                assert!(said.is_said_by(&case.finding), "it said {said:#?}, and without a word {case:#?}");
            } else if case.finding.diagnosed_at.is_some() {
                self.0.insert(case.id, Said::of(&case.finding, HostTime::NONE));
            }
        }
    }
}

/// No part of an iteration that is told is above the whole.
fn check_parts(case: &Case) {
    for reason in &case.because {
        let Some((before, after)) = reason.text.split_once(" ms more, of ") else { continue };
        let part: f64 = before.rsplit(' ').next().unwrap().parse().unwrap();
        let whole: f64 = after.split(' ').next().unwrap().parse().unwrap();
        assert!(part <= whole, "{}", reason.text);
    }
}

/// Feeds batches as a server would: each arrives 100 ms after collection, a tick every second and when one is due.
pub fn drive(batches: &[Batch], until: u64, delay: impl Fn(usize) -> u64) -> Outcome {
    let mut engine = Engine::new("job".into(), Config::default());
    let mut arrivals: Vec<(u64, usize)> =
        batches.iter().enumerate().map(|(i, b)| (b.collected_at.0 + 100 * MS + delay(i), i)).collect();
    arrivals.sort_by_key(|(at, _)| *at);
    let mut events = Vec::new();
    let mut settled = Settled::default();
    let mut next_tick = T0;
    let mut due: Option<u64> = None;
    let mut at = 0;
    let end = T0 + until;
    loop {
        let tick = due.map_or(next_tick, |d| d.min(next_tick));
        if tick > end {
            break;
        }
        while at < arrivals.len() && arrivals[at].0 <= tick {
            engine.observe(&batches[arrivals[at].1]);
            at += 1;
        }
        let now = HostTime(tick);
        let told = engine.tick(now);
        settled.check(&engine, &told);
        engine.cases().iter().for_each(check_parts);
        events.extend(told.into_iter().map(|event| (tick - T0, event)));
        if tick >= next_tick {
            next_tick += NANOS_PER_SEC;
        }
        due = engine.next_check(now).map(|d| d.0.max(tick + 10 * MS));
    }
    Outcome { engine, events, end: HostTime(end) }
}

pub fn run(plan: Plan) -> Outcome {
    let until = plan.until;
    drive(&Cluster::new(plan).batches(), until, |_| 0)
}
