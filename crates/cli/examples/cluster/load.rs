//! Many jobs through two servers: records that wait are written to the bus as fast as servers weigh them. Prints one `NAME VALUE` a
//! line.
use crate::recordings::{self, Recorded};
use crate::site::{SERVERS, Site};
use crate::used;
use mycroft_bus::kafka::mock::MockWriter;
use std::path::Path;
use std::time::{Duration, Instant};

/// Eight a server.
const PARTITIONS: u32 = 16;
/// Records that are written and not weighed, at most: half of the queue of one server, some 4 MB, which the brokers of this program
/// keep even if all of it is in one partition.
const ON_THE_WAY: u64 = 1 << 18;
/// Servers are asked so often how far they are.
const LOOK: Duration = Duration::from_millis(20);
/// Servers that weigh nothing for so long have lost what is on its way.
const LOST: Duration = Duration::from_secs(60);
/// Sending ends where others would have less memory than this left, bytes.
const LEAVE_BYTES: u64 = 8_000_000_000;

/// What servers have done so far.
#[derive(Clone, Copy, Default)]
struct Done {
    weighed: u64,
    /// Of these and others, those that found no room.
    dropped_queue: u64,
    dropped_else: u64,
}

/// The driver.
struct Load {
    site: Site,
    urls: Vec<String>,
    sent: u64,
    bytes: u64,
    done: Done,
    looked_at: Instant,
    /// When servers last went on.
    moved_at: Instant,
}

fn value(line: &str) -> u64 {
    line.rsplit(' ').next().and_then(|value| value.parse().ok()).unwrap_or(0)
}

fn of_server(url: &str) -> Done {
    let mut done = Done::default();
    let text =
        ureq::get(format!("{url}/metrics")).call().ok().and_then(|mut told| told.body_mut().read_to_string().ok());
    for line in text.unwrap_or_default().lines() {
        if line.starts_with("mycroft_ingest_records_total ") {
            done.weighed += value(line);
        } else if line.starts_with("mycroft_ingest_dropped_records_total{where=\"queue\"}") {
            done.dropped_queue += value(line);
        } else if line.starts_with("mycroft_ingest_dropped_records_total{") {
            done.dropped_else += value(line);
        }
    }
    done
}

/// Memory that nobody uses, bytes.
fn available() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or(u64::MAX / 1024)
        * 1024
}

impl Load {
    fn start(site: Site) -> Load {
        let shares = "SELECT string_agg(count::text, ' ') FROM (SELECT count(*) FROM mycroft_leases \
                      WHERE job LIKE 'bus % partition %' AND until > clock_timestamp() GROUP BY holder) AS shares";
        let half = PARTITIONS as usize / SERVERS;
        site.until("servers share the partitions", || {
            site.database.sql(shares) == vec![half.to_string(); SERVERS].join(" ")
        });
        let urls = (0..SERVERS).map(|server| site.url(server)).collect();
        let now = Instant::now();
        Load { site, urls, sent: 0, bytes: 0, done: Done::default(), looked_at: now, moved_at: now }
    }

    /// Asks servers how far they are.
    fn look(&mut self) {
        let before = self.done.weighed + self.done.dropped_queue;
        self.done = Done::default();
        for done in self.urls.iter().map(|url| of_server(url)) {
            self.done.weighed += done.weighed;
            self.done.dropped_queue += done.dropped_queue;
            self.done.dropped_else += done.dropped_else;
        }
        self.looked_at = Instant::now();
        if self.done.weighed + self.done.dropped_queue > before {
            self.moved_at = self.looked_at;
        }
    }

    fn on_the_way(&self) -> u64 {
        self.sent.saturating_sub(self.done.weighed + self.done.dropped_queue)
    }

    /// Waits until no more than so many records are on their way; false: they never come.
    fn wait(&mut self, most: u64) -> bool {
        while self.on_the_way() > most {
            self.site.wait(LOOK.saturating_sub(self.looked_at.elapsed()));
            self.look();
            if self.moved_at.elapsed() > LOST {
                return false;
            }
        }
        true
    }

    /// Sends one second of all jobs; `None`: they are over, or nothing is taken any more.
    fn second(&mut self, jobs: &mut [Recorded], writer: &MockWriter) -> Option<()> {
        for job in jobs {
            for _ in 0..job.hosts()? {
                let sent = job.next();
                writer.write(job.job.as_bytes(), &sent.value);
                self.sent += sent.records;
                self.bytes += sent.value.len() as u64;
                if self.on_the_way() > ON_THE_WAY && !self.wait(ON_THE_WAY) {
                    return None;
                }
            }
        }
        Some(())
    }

    fn memory(&self) -> Vec<u64> {
        let of = |server| self.site.pid(server).map_or(0, |pid| used::memory_of(&pid.to_string()));
        (0..SERVERS).map(of).collect()
    }

    fn processor(&self) -> Vec<Duration> {
        let of = |server| self.site.pid(server).map_or(Duration::ZERO, |pid| used::of_process(&pid.to_string()));
        (0..SERVERS).map(of).collect()
    }
}

/// Drives them and prints what was measured; false where it cannot be driven here, or something was lost.
pub(crate) fn drive(program: &Path, jobs: u32, ranks: u32, seconds: u32) -> bool {
    let Some(site) = Site::without_agents(program, PARTITIONS) else { return false };
    let folder = site.path("recordings");
    std::fs::create_dir_all(&folder).expect("a folder");
    let mut recorded = recordings::make(folder.as_ref(), jobs, ranks, seconds);
    let mut load = Load::start(site);
    println!("memory_at_0 {}", load.memory().iter().sum::<u64>());
    let (writer, before, ours) = (load.site.brokers().writer(), load.processor(), used::by_process());
    let (begun, mut driven) = (Instant::now(), 0);
    load.moved_at = begun;
    while load.second(&mut recorded, &writer).is_some() {
        driven += 1;
        println!("memory_at_{driven} {}", load.memory().iter().sum::<u64>());
        if available() < LEAVE_BYTES {
            println!("short_of_memory 1");
            break;
        }
    }
    writer.flush();
    let is_weighed = load.wait(0);
    let took = begun.elapsed();
    let processor: Vec<f64> =
        load.processor().iter().zip(before).map(|(now, before)| now.saturating_sub(before).as_secs_f64()).collect();
    println!("seconds_driven {driven}\nwall_s {:.3}", took.as_secs_f64());
    println!("times_real {:.4}", f64::from(driven) / took.as_secs_f64());
    println!("records {}\nbytes {}", load.sent, load.bytes);
    for (server, (seconds, bytes)) in processor.iter().zip(load.memory()).enumerate() {
        println!("processor_s_{server} {seconds:.2}\nresident_bytes_{server} {bytes}");
    }
    println!("processor_s_driver {:.2}", used::by_process().saturating_sub(ours).as_secs_f64());
    println!("dropped_queue {}\ndropped_else {}", load.done.dropped_queue, load.done.dropped_else);
    println!("unweighed {}", load.on_the_way());
    is_weighed & finish(load, &recorded)
}

/// Stops servers, and looks for what they should have kept; false where something is missing.
fn finish(mut load: Load, recorded: &[Recorded]) -> bool {
    let of = |server: usize| recorded.iter().filter(|job| load.site.server_of(&job.job) == Some(server)).count();
    (0..SERVERS).for_each(|server| println!("jobs_{server} {}", of(server)));
    let cases = load.site.database.sql("SELECT count(*) FROM mycroft_cases");
    println!("cases {cases}");
    (0..SERVERS).for_each(|server| load.site.stop_server(server));
    let stored = (0..SERVERS).flat_map(|server| mycroft_store::read_only(&load.site.store(server)).expect("a store"));
    let kept: u64 = stored.map(|delivery| delivery.expect("read").batch.records.len() as u64).sum();
    println!("kept_records {kept}");
    kept == load.sent && load.done.dropped_queue + load.done.dropped_else == 0
}
