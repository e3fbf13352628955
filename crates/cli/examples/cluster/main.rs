//! A cluster on one machine: brokers (librdkafka's, in this process), PostgreSQL, two servers with a bus and four agents, each a process
//! of `mycroft`. `cargo xtask cluster` builds and runs it; alone:
//! `cargo run -p mycroft-cli --features kafka --example cluster -- show PROGRAM` or `... -- rounds PROGRAM ROUNDS SEED`,
//! where PROGRAM is the built `mycroft`.
#[path = "../../../store/tests/server/mod.rs"]
mod database;
#[path = "../../../serve/tests/hosts/mod.rs"]
mod hosts;
mod kept;
mod rounds;
mod show;
mod site;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let is_done = match arguments[..] {
        ["show", program] => show::show(program.as_ref()),
        ["rounds", program, rounds, seed] => match (rounds.parse(), seed.parse()) {
            (Ok(rounds), Ok(seed)) => rounds::play(program.as_ref(), rounds, seed),
            _ => usage(),
        },
        _ => usage(),
    };
    std::process::exit(i32::from(!is_done));
}

fn usage() -> bool {
    eprintln!("usage: cluster show PROGRAM\n       cluster rounds PROGRAM ROUNDS SEED");
    false
}
