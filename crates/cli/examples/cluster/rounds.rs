//! Rounds, in each of which one part of the cluster is killed while a job stalls: what is lost, doubled or false, and how long the case
//! took. Each round has a job of its own, since a job that has stalled before is asked to wait longer; it ends a round later. One more job
//! never stalls. When, for how long and which part is drawn from a seed.
use crate::kept::kept;
use crate::site::{AGENTS, SERVERS, Site};
use mycroft_sim::Random;
use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The job that never stalls. Others have the number of their round.
const WELL: &str = "well";
/// From so long of a job's iterations a stall is told from them.
const HEALTHY: Duration = Duration::from_secs(6);
/// A round begins so much after the one before, milliseconds.
const CALM_MS: (u64, u64) = (1_000, 4_000);
/// What was killed comes back after so long, milliseconds: before and after a lease (4 s) is over.
const AWAY_MS: (u64, u64) = (200, 8_000);
/// A case that is not there, or not over, after so long is lost.
const LOST: Duration = Duration::from_secs(60);
/// Records that are not in a store by then are lost.
const KEPT: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(50);

/// What is killed in turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Brokers,
    Server,
    Database,
    Agent,
}

const PARTS: [Part; 4] = [Part::Brokers, Part::Server, Part::Database, Part::Agent];

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Part::Brokers => "brokers: all connections cut, none taken",
            Part::Server => "server that has the job: kill -9",
            Part::Database => "PostgreSQL: kill -9",
            Part::Agent => "agent of a rank: kill -9",
        })
    }
}

/// What came of the rounds of one part.
#[derive(Default)]
struct Sum {
    rounds: u64,
    lost: u64,
    doubled: u64,
    untrue: u64,
    /// From the kill, and the stall, to the case in the database, milliseconds.
    took_ms: Vec<u64>,
}

fn between(random: &mut Random, (low, high): (u64, u64)) -> Duration {
    Duration::from_millis(low + random.below(high - low))
}

fn kill(site: &mut Site, part: Part, one: usize) {
    match part {
        Part::Brokers => site.brokers().down(),
        Part::Server => site.kill_server(one % SERVERS),
        Part::Database => site.database.kill(),
        Part::Agent => site.kill_agent(one % AGENTS),
    }
}

fn bring_back(site: &mut Site, part: Part, one: usize) {
    match part {
        Part::Brokers => site.brokers().up(),
        Part::Server => site.start_server(one % SERVERS),
        Part::Database => site.database.go_on(),
        Part::Agent => site.start_agent(one % AGENTS),
    }
}

/// Cases of a job: how many there are, and the state of the newest.
fn cases(site: &Site, job: &str) -> (u64, String) {
    let sql = format!(
        "SELECT count(*) OVER () || ' ' || state FROM mycroft_cases WHERE job = '{job}' \
         ORDER BY opened_at DESC, id DESC LIMIT 1"
    );
    let row = site.database.sql(&sql);
    let (count, state) = row.split_once(' ').unwrap_or_default();
    (count.parse().unwrap_or(0), state.to_owned())
}

/// Looks until it is so; false: it was not in time.
fn is_in_time(site: &Site, mut is_so: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < LOST {
        if is_so() {
            return true;
        }
        site.wait(LOOK);
    }
    false
}

/// The job that stalls in a round.
fn job_of(round: u64) -> String {
    format!("train-{round}")
}

/// Plays one round. The job of the next one begins with it.
fn round(site: &mut Site, number: u64, part: Part, random: &mut Random, sum: &mut Sum) {
    let job = job_of(number);
    site.start_job(&job_of(number + 1));
    if let Some(before) = number.checked_sub(1) {
        site.end_job(&job_of(before));
    }
    site.wait(between(random, CALM_MS));
    let drawn = random.below(AGENTS as u64) as usize;
    let one = if part == Part::Server { site.server_of(&job).unwrap_or(drawn) } else { drawn };
    let (away, absent) = (between(random, AWAY_MS), random.below(AGENTS as u64) as usize);
    let killed = Instant::now();
    kill(site, part, one);
    site.job(&job).stall(absent);
    // Nobody can be asked for cases while the database is away.
    let is_told = |site: &Site| part != Part::Database && cases(site, &job).0 > 0;
    let mut took = None;
    while killed.elapsed() < away {
        if took.is_none() && is_told(site) {
            took = Some(killed.elapsed());
        }
        site.wait(LOOK);
    }
    bring_back(site, part, one);
    let is_found = is_in_time(site, || cases(site, &job).0 > 0);
    let took = took.unwrap_or_else(|| killed.elapsed());
    site.job(&job).go_on();
    // One that was short is withdrawn: it was a pause that went away by itself.
    let is_over = is_in_time(site, || matches!(cases(site, &job).1.as_str(), "closed" | "withdrawn"));
    sum.rounds += 1;
    sum.lost += u64::from(!is_found || !is_over);
    if is_found {
        sum.took_ms.push(took.as_millis() as u64);
    }
    println!(
        "{part:?} {one}, away for {:.1} s: {} after {:.1} s",
        away.as_secs_f64(),
        if is_found && is_over { "a case" } else { "NO CASE, or it does not end" },
        sum.took_ms.last().map_or(0.0, |ms| *ms as f64 / 1e3)
    );
}

/// Cases so far that are not the one of a stall.
#[derive(Default)]
struct Seen {
    doubled: u64,
    untrue: u64,
}

/// Counts, after a round, cases that are not the one of each stall so far, and prints them.
fn untrue(site: &Site, number: u64, sum: &mut Sum, before: &mut Seen) {
    let rows =
        site.database.sql("SELECT job || ' ' || id || ' ' || json FROM mycroft_cases ORDER BY job, opened_at, id");
    let mut seen = BTreeSet::new();
    let (mut doubled, mut untrue) = (Vec::new(), Vec::new());
    for row in rows.lines() {
        let job = row.split(' ').next().unwrap_or_default();
        let is_due = (0..=number).any(|round| job_of(round) == job);
        match (is_due, seen.insert(job.to_owned())) {
            (false, _) => untrue.push(row),
            (true, true) => {}
            (true, false) => doubled.push(row),
        }
    }
    let now = (doubled.len() as u64, untrue.len() as u64);
    if now.0 > before.doubled || now.1 > before.untrue {
        let of = |row: &str| row.split(' ').next().unwrap_or_default().to_owned();
        let jobs: BTreeSet<String> = [doubled, untrue].concat().into_iter().map(of).collect();
        rows.lines().filter(|row| jobs.contains(&of(row))).for_each(|row| println!("  ONE OF TOO MANY: {row}"));
    }
    sum.doubled += now.0.saturating_sub(before.doubled);
    sum.untrue += now.1.saturating_sub(before.untrue);
    *before = Seen { doubled: now.0, untrue: now.1 };
}

/// Step marks that ranks have written, and how many of them are in stores when they all should be.
fn found(site: &Site) -> (u64, u64) {
    let stores: Vec<_> = (0..SERVERS).map(|server| site.store(server)).collect();
    let runs = site.jobs.iter().map(|job| (job.name().to_owned(), job.marks()));
    let written: Vec<(String, u64)> = runs.chain(site.ended.iter().cloned()).collect();
    let all = written.iter().map(|(_, marks)| marks * AGENTS as u64).sum();
    let begun = Instant::now();
    loop {
        let kept = kept(&stores);
        let of = |job: &str, rank: u32, marks: u64| {
            let found = kept.get(&(job.into(), rank));
            found.map_or(0, |found| (1..=marks).filter(|mark| found.contains(mark)).count() as u64)
        };
        let ranks = 0..AGENTS as u32;
        let sum = written.iter().flat_map(|(job, marks)| ranks.clone().map(move |rank| of(job, rank, *marks))).sum();
        if sum == all || begun.elapsed() > KEPT {
            return (all, sum);
        }
        site.wait(LOOK);
    }
}

/// Plays rounds, with the topic of `bus` or on brokers of this process, and prints what came of them; false where something was lost,
/// doubled or false. Only brokers of this process are cut.
pub(crate) fn play(program: &Path, rounds: u64, seed: u64, bus: Option<&str>) -> bool {
    let Some(mut site) = Site::start(program, bus) else { return false };
    let parts: Vec<Part> = PARTS.into_iter().filter(|part| bus.is_none() || *part != Part::Brokers).collect();
    let (mut random, begun) = (Random::new(seed), Instant::now());
    let first = job_of(0);
    [&first, WELL].into_iter().for_each(|job| site.start_job(job));
    site.until("servers have the jobs", || [&first, WELL].iter().all(|job| site.server_of(job).is_some()));
    site.wait(HEALTHY);
    let mut sums: Vec<Sum> = parts.iter().map(|_| Sum::default()).collect();
    let mut seen = Seen::default();
    for number in 0..rounds {
        print!("round {}: ", number + 1);
        let turn = (number % parts.len() as u64) as usize;
        let sum = &mut sums[turn];
        round(&mut site, number, parts[turn], &mut random, sum);
        untrue(&site, number, sum, &mut seen);
    }
    let (written, kept) = found(&site);
    let is_right = sums.iter().all(|sum| sum.lost + sum.doubled + sum.untrue == 0) && written == kept;
    drop(site);
    print_table(&parts, &sums);
    println!("\nStep marks written by ranks: {written}, found in stores: {kept}.");
    println!("{rounds} rounds of seed {seed} in {:.0} s.", begun.elapsed().as_secs_f64());
    is_right
}

fn print_table(parts: &[Part], sums: &[Sum]) {
    println!(
        "\n| killed, while a job stalls | rounds | cases lost | doubled | false | s to the case: min | median | max |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|---:|");
    for (part, sum) in parts.iter().zip(sums) {
        let Sum { rounds, lost, doubled, untrue, took_ms } = sum;
        let mut sorted = took_ms.clone();
        sorted.sort_unstable();
        let at = |index: usize| sorted.get(index).map_or_else(String::new, |ms| format!("{:.1}", *ms as f64 / 1e3));
        let last = sorted.len().saturating_sub(1);
        println!(
            "| {part} | {rounds} | {lost} | {doubled} | {untrue} | {} | {} | {} |",
            at(0),
            at(sorted.len() / 2),
            at(last)
        );
    }
}
