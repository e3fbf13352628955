//! Simulator and brain side by side on two threads, as `mycroft sim run` has them: what a record, a look, a verdict and a
//! report cost, and how fast both are together.
use crate::job::{self, Fault};
use crate::used;
use mycroft_diagnose::{CaseEvent, Report, render};
use mycroft_record::{HostTime, Place, Rank};
use mycroft_serve::TICK;
use mycroft_serve::replay::{Moment, Player};
use mycroft_sim::{Delivery, Simulation};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Stretches of a second that the simulator may be ahead.
const AHEAD: usize = 1;

/// What the brain's thread has used for everything and for looks.
struct Cost {
    records: u64,
    observe: Duration,
    ticks: Vec<Duration>,
    report: Duration,
    moments: Vec<Moment>,
}

pub(crate) fn measure(ranks: u32, fault: &str, seconds: u32) {
    let fault = Fault::of(fault);
    let scenario = job::scenario(ranks, fault, seconds);
    let begun = Instant::now();
    let (cost, report) = std::thread::scope(|scope| {
        let (give, take) = sync_channel(AHEAD);
        scope.spawn(move || {
            let mut simulation = Simulation::new(&scenario);
            while let Some(stretch) = simulation.next_stretch() {
                if give.send(stretch).is_err() {
                    return; // the brain failed, and says so itself
                }
            }
        });
        diagnose(&take)
    });
    let wall = begun.elapsed();
    check(fault, ranks, &report);
    print(&cost, ranks, seconds, wall);
}

/// Feeds the brain and measures.
fn diagnose(stretches: &Receiver<Vec<Delivery>>) -> (Cost, Report) {
    let begun = Instant::now();
    let readings = Arc::new(Mutex::new(Vec::new()));
    let book = Arc::clone(&readings);
    let stopwatch = move || {
        let now = used::by_thread(begun);
        book.lock().expect("nobody panicked").push(now);
        now
    };
    let mut player = Player::new(TICK).with_stopwatch(Box::new(stopwatch));
    let (mut records, mut all) = (0, Duration::ZERO);
    for stretch in stretches {
        let before = used::by_thread(begun);
        for Delivery { arrives_at, batch } in &stretch {
            records += batch.records.len() as u64;
            player.deliver(HostTime(*arrives_at), batch);
        }
        all += used::by_thread(begun) - before;
    }
    let before = used::by_thread(begun);
    let (_, played) = player.finish(Duration::ZERO).pop_first().expect("the simulation told something");
    let report = used::by_thread(begun) - before;
    // The clock was read before and after each look.
    let readings = readings.lock().expect("nobody panicked");
    let ticks: Vec<Duration> = readings.chunks_exact(2).map(|pair| pair[1] - pair[0]).collect();
    let observe = all.saturating_sub(ticks.iter().sum());
    (Cost { records, observe, ticks, report, moments: played.moments }, played.report)
}

/// The right rank and no other, or nobody.
fn check(fault: Fault, ranks: u32, report: &Report) {
    let culprit = Rank(job::culprit(ranks));
    let names = |place: &Place| matches!(place, Place::Rank { rank, .. } if *rank == culprit);
    let right = match (fault, &report.cases[..]) {
        (Fault::None, cases) => cases.is_empty(),
        (_, [case]) => case.finding.suspects.first().is_some_and(|suspect| names(&suspect.place)),
        _ => false,
    };
    let text: String = render(report).chars().take(4_000).collect();
    assert!(right, "wrong verdict on {fault:?}, rank {culprit} is to be named:\n{text}");
}

fn print(cost: &Cost, ranks: u32, seconds: u32, wall: Duration) {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let mut ticks = cost.ticks.clone();
    ticks.sort_unstable();
    println!("records_per_rank_second {:.1}", cost.records as f64 / f64::from(ranks) / f64::from(seconds));
    println!("observe_ns {:.0}", cost.observe.as_nanos() as f64 / cost.records.max(1) as f64);
    let brain = cost.observe + cost.ticks.iter().sum::<Duration>();
    println!("brain_times_real {:.2}", f64::from(seconds) / brain.as_secs_f64());
    println!("tick_ms {:.2}", ms(ticks.get(ticks.len() / 2).copied().unwrap_or_default()));
    println!("tick_ms_max {:.2}", ms(ticks.last().copied().unwrap_or_default()));
    let opened = cost.moments.iter().find(|moment| matches!(moment.event, CaseEvent::Opened(_)));
    if let Some(opened) = opened {
        println!("verdict_ms {:.2}", ms(opened.took));
        // Looks do not tell their time: the longest of all but the verdict's is the longest after it at most.
        let others = ticks.iter().rev().find(|took| **took != opened.took);
        println!("other_ms_max {:.2}", ms(others.copied().unwrap_or_default()));
    }
    println!("report_ms {:.2}", ms(cost.report));
    println!("times_real {:.2}", f64::from(seconds) / wall.as_secs_f64());
    println!("resident_bytes {}", used::memory_of("self"));
}
