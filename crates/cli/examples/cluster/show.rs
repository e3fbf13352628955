//! One fault, from the first case to its end, while the server that has the job is killed.
use crate::site::{AGENTS, SERVERS, Site};
use std::path::Path;
use std::time::{Duration, Instant};

const JOB: &str = "train";
/// The rank that does not come.
const ABSENT: usize = 2;
/// From so long of a job's iterations a stall is told from them.
const HEALTHY: Duration = Duration::from_secs(6);
/// Names of the servers.
const NAMES: [&str; SERVERS] = ["A", "B"];

/// The only case, where there is one.
struct Told {
    number: String,
    state: String,
}

fn told(site: &Site) -> Option<Told> {
    let rows = site.database.sql("SELECT id || ' ' || state FROM mycroft_cases ORDER BY id");
    assert!(rows.lines().count() < 2, "one fault is one case:\n{rows}");
    let (number, state) = rows.split_once(' ')?;
    Some(Told { number: number.to_owned(), state: state.to_owned() })
}

/// What a server tells readers of a case; `None`: it has none of that number.
fn case(site: &Site, server: usize, number: &str) -> Option<serde_json::Value> {
    let url = format!("{}/api/v1/cases/{number}", site.url(server));
    ureq::get(url).call().ok()?.body_mut().read_json().ok()
}

fn line(case: &serde_json::Value) -> String {
    let text = |name: &str| case[name].as_str().unwrap_or_default().to_owned();
    let suspect = &case["suspects"][0];
    let (rank, host) = (&suspect["rank"], suspect["host"].as_str().unwrap_or_default());
    format!("{}, {} ({}), rank {rank} of {host}", text("state"), text("what"), text("category"))
}

/// Shows it in lines; false where it cannot be shown here.
pub(crate) fn show(program: &Path, bus: Option<&str>) -> bool {
    let Some(mut site) = Site::start(program, bus) else { return false };
    let begun = Instant::now();
    let say = |text: &str| println!("{:6.1} s  {text}", begun.elapsed().as_secs_f64());
    let whose = if bus.is_none() { " (librdkafka's, in this process)" } else { "" };
    say(&format!("brokers: {}{whose}", site.bus()));
    say(&format!("database: {}", site.database.sql("SELECT split_part(version(), ' on ', 1)")));
    (0..SERVERS).for_each(|server| say(&format!("server {}: {}", NAMES[server], site.url(server))));
    say(&format!("{AGENTS} agents: host0 to host{}, records by the bus", AGENTS - 1));
    site.start_job(JOB);
    site.until("a server has the job", || site.server_of(JOB).is_some());
    let first = site.server_of(JOB).expect("a server");
    let second = 1 - first;
    say(&format!("job {JOB}: {AGENTS} ranks, an AllReduce each 200 ms; server {} has its partition", NAMES[first]));
    site.wait(HEALTHY);
    site.job(JOB).stall(ABSENT);
    say(&format!("fault: rank {ABSENT} does not enter the next AllReduce"));
    site.until("a settled case", || {
        let found = told(&site).and_then(|told| case(&site, first, &told.number));
        found.is_some_and(|case| case["settled"] == true)
    });
    let number = told(&site).expect("a case").number;
    say(&format!("server {}: case {number} {}", NAMES[first], line(&case(&site, first, &number).expect("a case"))));
    site.kill_server(first);
    say(&format!("kill -9 of server {}", NAMES[first]));
    let took = site.until("the other goes on", || {
        let found = case(&site, second, &number);
        found.is_some_and(|case| case["state"] == "open")
    });
    let found = case(&site, second, &number).expect("a case");
    say(&format!("server {}, {:.1} s later: case {number} {}", NAMES[second], took.as_secs_f64(), line(&found)));
    site.job(JOB).go_on();
    say(&format!("rank {ABSENT} enters it, the job goes on"));
    site.until("the case ends", || told(&site).is_some_and(|told| told.state != "open"));
    let found = case(&site, second, &number).expect("a case");
    say(&format!("server {}: case {number} {}", NAMES[second], line(&found)));
    site.start_server(first);
    say(&format!("server {} is back: {}", NAMES[first], site.url(first)));
    let last = told(&site).expect("a case");
    say(&format!("rows of the database: case {} of {JOB} {}, and no other", last.number, last.state));
    let is_right = last.number == number && last.state == "closed";
    drop(site);
    say("all is ended, and its folders are removed");
    is_right
}
