//! `mycroft demo`: one terminal, a 16-rank job, a fault, the diagnosis, and nothing left behind.
use crate::args::DemoArgs;
use crate::exit::{EXIT_FOUND, EXIT_INTERRUPTED, EXIT_OK};
use crate::live::{Live, Moment, Options, Outcome};
use crate::stop::Stop;
use crate::testbed::parse_fault;
use anyhow::{Result, anyhow};
use mycroft_sim::Scenario;
use std::io::{IsTerminal, Write};

/// The demo's job: 16 ranks on 4 hosts, tensor parallel inside a host, pipeline and data parallel across.
fn scenario(args: &DemoArgs) -> Result<Scenario> {
    let mut scenario = Scenario {
        name: "demo".to_owned(),
        hosts: 4,
        ranks_per_host: 4,
        tp: 4,
        pp: 2,
        dp: 2,
        seed: args.seed,
        duration_s: args.wait,
        transport: args.transport.into(),
        fault: parse_fault(&args.fault)?,
        ..Scenario::default()
    };
    if let Some(fault) = &mut scenario.fault {
        fault.after_s = args.after;
    }
    scenario.check_testbed().map_err(|message| anyhow!("{message}"))?;
    Ok(scenario)
}

/// Runs the demo. Exit 0: the verdict was right; 1: it was wrong or none came.
pub(crate) fn demo(args: &DemoArgs) -> Result<u8> {
    let stop = Stop::on_signals()?;
    let scenario = scenario(args)?;
    let fault = scenario.fault.as_ref().map_or("none".to_owned(), ToString::to_string);
    println!("mycroft demo: {} ranks on {} hosts, fault: {fault}", scenario.world(), scenario.hosts);
    let mut screen = Screen { live: std::io::stdout().is_terminal(), last: String::new() };
    let live = Live::start(scenario, Options::default())?;
    println!("  transport {}; job {}; API http://{}/", live.transport(), live.job(), live.http_addr());
    let (url, job, is_live) = (format!("http://{}", live.http_addr()), live.job().to_owned(), screen.live);
    let after = |outcome: &Outcome| {
        end_line(is_live);
        print_outcome(outcome);
        if args.keep {
            print_commands(&url, &job);
            stop.wait();
        }
    };
    let Some(outcome) = live.run(&stop, |moment| screen.show(moment), after)? else {
        end_line(is_live);
        println!("interrupted; everything is cleaned up");
        return Ok(EXIT_INTERRUPTED);
    };
    Ok(if outcome.score.correct { EXIT_OK } else { EXIT_FOUND })
}

/// Progress on one line that is redrawn in a terminal, and one line per change elsewhere.
struct Screen {
    live: bool,
    last: String,
}

impl Screen {
    fn show(&mut self, moment: &Moment) {
        let phase = match (&moment.fault_since_s, &moment.verdict) {
            (None, _) => "healthy training".to_owned(),
            (Some(seconds), None) => format!("fault injected {seconds:.1} s ago, no case yet"),
            (Some(seconds), Some(verdict)) => format!("fault injected {seconds:.1} s ago; {verdict}"),
        };
        let median = moment.iteration_ms_median.map_or("-".to_owned(), |ms| format!("{ms:.0} ms"));
        let line =
            format!("  {:>5.1} s  iteration {:>4}  median {median:>7}  {phase}", moment.seconds, moment.iterations);
        if self.live {
            print!("\r\x1b[2K{line}");
            let _ = std::io::stdout().flush();
            return;
        }
        let news = moment.verdict.clone().unwrap_or_else(|| format!("{}", moment.fault_since_s.is_some()));
        if news != self.last {
            println!("{line}");
            self.last = news;
        }
    }
}

/// Ends the line that was redrawn.
fn end_line(is_live: bool) {
    if is_live {
        println!();
    }
}

/// What to try while job and server go on.
fn print_commands(url: &str, job: &str) {
    println!();
    println!("job and server go on until Ctrl-C; in a browser: {url}/    in another terminal:");
    for (command, what) in [
        (format!("mycroft watch --url {url}"), "the job, rank by rank"),
        (format!("mycroft cases --url {url} --all"), "every case"),
        (format!("mycroft cases 1 --url {url}"), "the first one whole"),
        (format!("mycroft dump --server {url} --job {job} --no-flight-recorder"), "stacks, where processes are Python"),
        (format!("curl {url}/metrics"), "what Prometheus reads"),
    ] {
        println!("  {command:<72} {what}");
    }
}

/// What a person reads at the end of a run.
pub(crate) fn print_outcome(outcome: &Outcome) {
    println!();
    print!("{}", outcome.report_text);
    println!();
    let truth = &outcome.truth;
    match &truth.fault {
        Some(fault) => println!("truth: {fault} (hosts {}, ranks {:?})", truth.hosts.join(" "), truth.ranks),
        None => println!("truth: healthy"),
    }
    if let Some(release) = outcome.nccl.filter(|release| *release != "default") {
        println!("library: as NCCL {release}");
    }
    let seconds = |ms: Option<i64>| ms.map_or("-".to_owned(), |ms| format!("{:.2} s", ms as f64 / 1000.0));
    println!(
        "verdict: {} - {}; case after {}, diagnosed after {}; {} iterations, median {:.0} ms",
        outcome.score.word(),
        outcome.score.why.strip_prefix("MISSED: ").unwrap_or(&outcome.score.why),
        seconds(outcome.detected_after_ms),
        seconds(outcome.diagnosed_after_ms),
        outcome.iterations,
        outcome.iteration_ms_median.unwrap_or(0.0),
    );
}
