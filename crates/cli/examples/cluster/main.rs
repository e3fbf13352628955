//! A cluster on one machine: brokers (librdkafka's, in this process), PostgreSQL, two servers with a bus and four agents, each a process
//! of `mycroft`. `cargo xtask cluster` builds and runs it; alone:
//! `cargo run -p mycroft-cli --features kafka --example cluster -- show PROGRAM [kafka://HOST:PORT/TOPIC]` or
//! `... -- rounds PROGRAM ROUNDS SEED [TOPIC]`, where PROGRAM is the built `mycroft` and the topic one of brokers that are there. `cargo xtask bench cluster` runs `... -- load PROGRAM JOBS RANKS SECONDS`.
#[path = "../../../store/tests/server/mod.rs"]
mod database;
#[path = "../../../serve/tests/hosts/mod.rs"]
mod hosts;
#[path = "../../../serve/examples/scale/job.rs"]
#[allow(dead_code, reason = "what is healthy is wanted only")]
mod job;
mod kept;
mod load;
mod recordings;
mod rounds;
mod show;
mod site;
#[path = "../../../serve/examples/scale/used.rs"]
#[allow(dead_code, reason = "processes of others are looked at only")]
mod used;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let is_done = match arguments[..] {
        ["show", program] => show::show(program.as_ref(), None),
        ["show", program, bus] => show::show(program.as_ref(), Some(bus)),
        ["rounds", program, rounds, seed, ref bus @ ..] if bus.len() < 2 => match (rounds.parse(), seed.parse()) {
            (Ok(rounds), Ok(seed)) => rounds::play(program.as_ref(), rounds, seed, bus.first().copied()),
            _ => usage(),
        },
        ["load", program, jobs, ranks, seconds] => match (jobs.parse(), ranks.parse(), seconds.parse()) {
            (Ok(jobs), Ok(ranks), Ok(seconds)) => load::drive(program.as_ref(), jobs, ranks, seconds),
            _ => usage(),
        },
        _ => usage(),
    };
    std::process::exit(i32::from(!is_done));
}

fn usage() -> bool {
    eprintln!(
        "usage: cluster show PROGRAM [kafka://HOST:PORT/TOPIC]\n       \
         cluster rounds PROGRAM ROUNDS SEED [kafka://HOST:PORT/TOPIC]\n       cluster load PROGRAM JOBS RANKS SECONDS"
    );
    false
}
