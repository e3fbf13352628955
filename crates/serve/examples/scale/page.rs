//! What the live page costs the server and the browser: a job is played at its own pace into a server that is a process of its own,
//! and a real browser looks at it.
#[path = "../../tests/page/browser.rs"]
#[expect(dead_code, reason = "the page is looked at, not used")]
mod browser;

use crate::backend::{CONNECTIONS, itself, read_number, simulate};
use crate::job::{self, Fault};
use crate::used;
use browser::Browser;
use mycroft_serve::{ServeConfig, Server};
use mycroft_sim::EPOCH;
use mycroft_wire::{Client, ClientConfig, Endpoint};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The word that makes this program the server.
pub(crate) const SERVE: &str = "serve-page";
/// Seconds of the job: until something is known, looked at by nobody, by ten pages, by nobody again, and some.
const JOB_S: u32 = 130;
/// When the simulation is to be ready, seconds from now.
const READY_S: u64 = 130;
/// How long the server's processor time is measured each time.
const LOOK: Duration = Duration::from_secs(20);
/// Pages that are open at once.
const PAGES: usize = 10;
/// What the job is called.
const JOB: &str = "scale";

/// The server: until its standard input ends.
pub(crate) fn serve(folder: &Path) {
    let config = ServeConfig {
        http: ([127, 0, 0, 1], 0).into(),
        wire: vec![Endpoint::Unix(folder.join("socket"))],
        ..ServeConfig::default()
    };
    let server = Server::start(config).expect("the server starts");
    println!("{}", server.http_addr());
    let _ = std::io::stdin().read(&mut [0]);
    server.stop();
}

struct Measured {
    process: Child,
    url: String,
}

impl Measured {
    fn start(folder: &Path) -> Measured {
        let mut process = itself(SERVE, folder);
        let mut address = String::new();
        BufReader::new(process.stdout.take().expect("it is piped"))
            .read_line(&mut address)
            .expect("it says where it listens");
        Measured { process, url: format!("http://{}/", address.trim()) }
    }

    /// The share of a processor that it uses now.
    fn share(&self) -> f64 {
        let pid = self.process.id().to_string();
        let (before, begun) = (used::of_process(&pid), Instant::now());
        std::thread::sleep(LOOK);
        (used::of_process(&pid) - before).as_secs_f64() / begun.elapsed().as_secs_f64()
    }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970")
}

/// Plays the job, looks at it, and prints what that costs.
pub(crate) fn measure(ranks: u32, folder: &Path) {
    let Some(program) = browser::find() else { return };
    std::fs::create_dir_all(folder).expect("the folder can be made");
    let file = folder.join("frames");
    let start_at = now() + Duration::from_secs(READY_S);
    let scenario = job::scenario(ranks, Fault::Slow, JOB_S);
    simulate(&scenario, start_at.as_nanos() as u64 - EPOCH, &file);
    assert!(now() < start_at, "the simulation took longer than {READY_S} s");
    let mut server = Measured::start(folder);
    std::thread::scope(|scope| {
        scope.spawn(|| play(folder, &file, start_at));
        std::thread::sleep((start_at + Duration::from_secs(25)).saturating_sub(now()));
        look(&server, &program);
    });
    drop(server.process.stdin.take());
    assert!(server.process.wait().expect("the server ends").success(), "the server failed");
    println!("resident_bytes {}", used::memory_of("self"));
}

/// Sends each second of the job when it is over.
fn play(folder: &Path, file: &Path, start_at: Duration) {
    let endpoint = Endpoint::Unix(folder.join("socket"));
    // A connection on which nothing comes is closed.
    std::thread::sleep(start_at.saturating_sub(now()));
    let mut clients: Vec<Client> = (0..CONNECTIONS)
        .map(|_| Client::connect(&endpoint, &ClientConfig::default()).expect("the server listens"))
        .collect();
    let mut reader = BufReader::with_capacity(1 << 20, File::open(file).expect("the file was written"));
    let mut second = 0.0;
    while let Some(count) = read_number(&mut reader) {
        for number in 0..count {
            let due = start_at + Duration::from_secs_f64(second + 1.0 + f64::from(number) / f64::from(count));
            std::thread::sleep(due.saturating_sub(now()));
            let mut frame = vec![0; read_number(&mut reader).expect("the file is whole") as usize];
            reader.read_exact(&mut frame).expect("the file is whole");
            clients[number as usize % CONNECTIONS].send_frame(&frame).expect("the server takes it");
        }
        second += 1.0;
    }
}

/// Measures the server looked at by nobody, by one page and by ten, and the page itself.
fn look(server: &Measured, program: &Path) {
    let before = server.share();
    println!("server_share_unseen {before:.4}");
    let mut browser = Browser::open_url(program, &server.url, 1280, 900);
    browser.eval(&format!("location.hash = '#job={JOB}'"));
    browser.until("document.querySelectorAll('.spent .parts').length == 64");
    println!("dropped_before {}", health(&mut browser)["dropped"]["queue"]);
    let paint = browser.eval("performance.getEntriesByName('first-contentful-paint')[0].startTime");
    println!("first_paint_ms {:.0}", paint.as_f64().expect("a time"));
    let nodes = browser.eval("document.querySelectorAll('*').length").as_u64().expect("a number");
    println!("elements {nodes}");
    frames(&mut browser);
    growth(&mut browser);
    for _ in 1..PAGES {
        browser.call("Target.createTarget", json!({ "url": format!("{}#job={JOB}", server.url) }));
    }
    println!("server_share_ten {:.4}", server.share());
    let told = health(&mut browser);
    println!("lag_ms {}", told["lag_ms"]);
    println!("dropped {}", told["dropped"]["queue"]);
    assert!(browser.complaints.is_empty(), "{:#?}", browser.complaints);
    drop(browser);
    println!("server_share_unseen_after {:.4}", server.share());
}

fn health(browser: &mut Browser) -> Value {
    browser.eval("fetch('/api/v1/health').then((answer) => answer.json())")
}

/// Frames a second while the page is scrolled and shown anew each second, and how long showing takes.
fn frames(browser: &mut Browser) {
    let told = browser.eval(
        "(async () => {
            const frame = () => new Promise(requestAnimationFrame), gaps = [], shown = [];
            let last = await frame();
            const begun = last, turns = mycroft.turns;
            for (let at = 0; last - begun < 10000; at++) {
                scrollTo(0, (at * 23) % document.documentElement.scrollHeight);
                const now = await frame();
                gaps.push(now - last);
                shown.push(mycroft.shownMs);
                last = now;
            }
            gaps.sort((a, b) => a - b);
            return [gaps.length / ((last - begun) / 1000), gaps[Math.floor(gaps.length * 0.95)], gaps[gaps.length - 1], Math.max(...shown), mycroft.turns - turns];
        })()",
    );
    let number = |at: usize| told[at].as_f64().expect("a number");
    println!("frames_per_second {:.1}", number(0));
    println!("frame_ms_p95 {:.1}", number(1));
    println!("frame_ms_max {:.1}", number(2));
    println!("shown_ms_max {:.1}", number(3));
    println!("turns {:.0}", number(4));
}

/// Memory of the page after garbage was collected, and whether it grows from turn to turn.
fn growth(browser: &mut Browser) {
    let mut heap = || {
        browser.call("HeapProfiler.collectGarbage", json!({}));
        let metrics = browser.call("Runtime.getHeapUsage", json!({}));
        let turns = browser.eval("mycroft.turns").as_f64().expect("a number");
        let bytes =
            metrics["usedSize"].as_f64().expect("bytes") + metrics["embedderHeapUsedSize"].as_f64().unwrap_or(0.0);
        (bytes, turns)
    };
    let (first, began) = heap();
    std::thread::sleep(LOOK);
    let (last, ended) = heap();
    println!("heap_bytes {last:.0}");
    println!("heap_bytes_per_turn {:.0}", (last - first) / (ended - began).max(1.0));
}
