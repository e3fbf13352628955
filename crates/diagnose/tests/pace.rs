//! Iterations that became slower, from what training loops print and nothing else.
use mycroft_diagnose::render::{Style, render_autopsy};
use mycroft_diagnose::stacks::{Autopsy, Outcome, PaceChange, Question, autopsy};
use mycroft_formats::{LogReader, Naming, Piece, assemble};
use mycroft_record::{Rank, What};
use std::fmt::Write as _;
use std::path::Path;

/// What logs of these names and texts say together.
fn of(logs: &[(&str, &str)]) -> Autopsy {
    let read = |(name, text): &(&str, &str)| {
        let mut reader = LogReader::new(name, &Naming::default());
        // In pieces that end anywhere.
        text.as_bytes().chunks(1013).for_each(|piece| reader.feed(piece));
        Some(Piece::Log(Box::new(reader.finish()?)))
    };
    let pieces = logs.iter().filter_map(read).collect();
    autopsy(&assemble(pieces).expect("one file for each"), &Question::default())
}

/// Noise of 2 %, the same in every run.
fn noisy(value: f64, seed: u64) -> f64 {
    let mixed = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value * (1.0 + 0.02 * ((mixed >> 40) as f64 / (1 << 24) as f64 - 0.5) * 2.0)
}

/// What iteration `at` of a job takes that is a third slower from iteration 40 on, milliseconds.
fn slower(at: u64) -> f64 {
    noisy(if at < 40 { 1520.0 } else { 2010.0 }, at)
}

fn megatron(of: impl Fn(u64) -> f64, until: u64) -> String {
    (1..=until).fold(String::new(), |mut out, at| {
        let (minute, second) = (at / 60 % 60, at % 60);
        let _ = writeln!(
            out,
            " [2026-11-26 12:{minute:02}:{second:02}] iteration {at:8}/  500000 | consumed samples: {:12} | elapsed time per \
             iteration (ms): {:.1} | learning rate: 1.000000E-05 | global batch size:   256 | lm loss: 2.1E+00 |",
            at * 256,
            of(at)
        );
        out
    })
}

/// The only change, at iteration 40 or one beside it.
fn only(answer: &Autopsy) -> &PaceChange {
    let [change] = answer.pace.as_slice() else { panic!("{:?}", answer.pace) };
    assert!(change.is_slower && change.iteration.is_some_and(|at| (39..=41).contains(&at)), "{change:?}");
    change
}

#[test]
fn a_log_alone_tells_since_when_the_job_is_slow() {
    let answer = of(&[("job.log", &megatron(slower, 80))]);
    let change = only(&answer);
    assert_eq!((answer.outcome, answer.suspects.len()), (Outcome::Fault(What::Slowdown), 0));
    assert_eq!((change.line, change.time_of_day()), (40, Some("12:00:40".to_owned())));
    assert!((1.28..1.36).contains(&change.ratio()), "{change:?}");
    let text = render_autopsy(&answer, Style { width: 400, ..Style::default() });
    assert!(text.contains("the job got slower at iteration 40 (12:00:40): 1.5"), "{text}");
    assert!(text.contains(" s an iteration, +3") && text.contains("(job.log:40) [log.slower]"), "{text}");
    assert!(text.contains("nobody is blamed"), "{text}");
}

#[test]
fn a_log_without_a_change_says_nothing_of_it() {
    let answer = of(&[("job.log", &megatron(|at| noisy(1520.0, at), 300))]);
    assert_eq!((answer.outcome, answer.pace.len(), answer.because.len()), (Outcome::Unknown, 0, 0));
    // Slow first iterations are no slowdown that ended.
    let start = |at: u64| noisy(if at < 4 { 9000.0 } else { 1520.0 }, at);
    assert_eq!(of(&[("job.log", &megatron(start, 60))]).pace, []);
    let faster = |at: u64| noisy(if at < 40 { 2010.0 } else { 1520.0 }, at);
    assert_eq!(of(&[("job.log", &megatron(faster, 80))]).pace, []);
}

#[test]
fn relief_is_told_with_its_line() {
    let wave = |at: u64| if at < 80 { slower(at) } else { noisy(1520.0, at) };
    let answer = of(&[("job.log", &megatron(wave, 120))]);
    let told: Vec<(bool, Option<u64>)> =
        answer.pace.iter().map(|change| (change.is_slower, change.iteration)).collect();
    assert_eq!(told, [(true, Some(40)), (false, Some(80))]);
    assert!(answer.because[1].text.contains("faster again at iteration 80 (12:01:20): 2.0"), "{:?}", answer.because);
}

#[test]
fn beside_a_hang_it_is_a_fact_and_no_headline() {
    let waits = |rank: u32| {
        format!(
            "[rank{rank}]:[E1126 12:20:00.1 ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught collective operation \
             timeout: WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=2048, NumelOut=2048, Timeout(ms)=600000) ran for 600011 \
             milliseconds before timing out.\n"
        )
    };
    let hang: String = [0, 1, 3].into_iter().map(waits).collect();
    let alone = of(&[("job.log", &hang)]);
    let both = of(&[("job.log", &(megatron(slower, 80) + &hang))]);
    only(&both);
    assert_eq!((both.outcome, both.category, &both.suspects), (alone.outcome, alone.category, &alone.suspects));
    assert_eq!(both.outcome, Outcome::Fault(What::Hang));
    assert!(both.because.iter().any(|reason| reason.rule == "log.slower"));
}

/// Bars of tqdm, which smooths; noise of this relative width.
fn bars(until: u64, noise: f64, of: impl Fn(u64) -> f64) -> String {
    let mut average = of(1);
    let bar = |at: u64| {
        average = 0.3 * (of(at) + noise / 0.02 * (noisy(of(at), at) - of(at))) + 0.7 * average;
        format!("\r Epoch 0: {:3}%|####   | {at}/{until} [10:15<14:45,  {average:.2}s/it, loss=2.1]", at * 100 / until)
    };
    (1..=until).map(bar).collect()
}

/// A moving average of noise wanders, and one long value stays in it for a while: neither is a change.
#[test]
fn what_a_bar_smooths_is_no_change() {
    assert_eq!(of(&[("job.log", &bars(2000, 0.2, |_| 1.5))]).pace, []);
    let rare = |at: u64| if at % 61 == 60 { 7.5 } else { 1.5 };
    assert_eq!(of(&[("job.log", &bars(2000, 0.05, rare))]).pace, []);
}

#[test]
fn bars_count_though_no_line_ends_them() {
    let text = format!("starting\n{}\nSaved.\n", bars(400, 0.02, |at| if at < 200 { 1.52 } else { 2.01 }));
    let answer = of(&[("job.log", &text)]);
    let [change] = answer.pace.as_slice() else { panic!("{:?}", answer.pace) };
    assert!(change.is_slower && change.line == 2, "{change:?}");
    assert!(change.iteration.is_some_and(|at| (199..=206).contains(&at)), "{change:?}");
    let titan = |at: u64| {
        format!(
            "[titan] 2026-11-26 12:00:{:02},000 - root - INFO - \u{1b}[31mstep: {at:2}  \u{1b}[32mloss:  7.2  \u{1b}[34mtps: {}  \
                 \u{1b}[36mtflops: 40.1  \u{1b}[35mmfu: 4.10%\u{1b}[39m\n",
            at % 60,
            thousands(8e6 / slower(at))
        )
    };
    let answer = of(&[("job.log", &(1..=80).map(titan).collect::<String>())]);
    let change = only(&answer);
    assert!(change.ratio() > 1.25 && change.levels().ends_with("tokens a second"), "{change:?}");
}

fn thousands(value: f64) -> String {
    let whole = value as u64;
    format!("{},{:03}", whole / 1000, whole % 1000)
}

/// Logs of four ranks; `own` is what a rank needs itself of an iteration.
fn of_ranks(own: impl Fn(u64, u64) -> f64, whole: impl Fn(u64, u64) -> f64) -> Autopsy {
    let line = |rank: u64, at: u64| {
        format!(
            "[rank{rank}]: step {at} loss=2.1 step_time={:.4}s forward={:.4}s\n",
            whole(rank, at) / 1e3,
            own(rank, at) / 1e3
        )
    };
    let text: String =
        (1..=80).flat_map(|at| (0..4).map(move |rank| (rank, at))).map(|(rank, at)| line(rank, at)).collect();
    of(&[("job.log", &text)])
}

#[test]
fn only_a_rank_whose_own_time_grew_is_named() {
    let even = |rank: u64, at: u64| noisy(500.0, at * 4 + rank);
    let answer = of_ranks(even, |_, at| slower(at));
    assert_eq!((answer.suspects.len(), &only(&answer).ranks), (0, &(0..4).map(Rank).collect::<Vec<_>>()));
    let one = |rank: u64, at: u64| even(rank, at) + if rank == 2 && at >= 40 { 450.0 } else { 0.0 };
    let answer = of_ranks(one, |_, at| slower(at));
    let named: Vec<Rank> = answer.blamed().map(|(rank, ..)| rank).collect();
    assert_eq!(named, [Rank(2)], "{:?}", answer.because);
    // All do more: the work grew.
    let all = |rank: u64, at: u64| even(rank, at) + if at >= 40 { 450.0 } else { 0.0 };
    assert_eq!(of_ranks(all, |_, at| slower(at)).suspects, []);
    // One that does not show it is told, and not named.
    let answer = of_ranks(even, |rank, at| if rank == 3 { noisy(1520.0, at) } else { slower(at) });
    assert_eq!((answer.suspects.len(), &*only(&answer).others), (0, &[Rank(3)][..]));
}

#[test]
fn a_table_of_iterations_is_read() {
    let rows =
        (1..=80).fold("iteration,time_s\n".to_owned(), |out, at| out + &format!("{at},{:.4}\n", slower(at) / 1e3));
    assert_eq!(only(&of(&[("times.csv", &rows)])).line, 41);
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/field/39-pipemorph-labelled-iterations");
    let Ok(all) = std::fs::read_to_string(folder.join("small.csv")) else {
        return eprintln!("skipped: {} is not here", folder.display());
    };
    let wanted = "increasing-delay,14B,1F1B";
    let even: String = all
        .lines()
        .filter(|line| line.starts_with("experiment") || line.starts_with(wanted))
        .map(|line| format!("{line}\n"))
        .collect();
    let answer = of(&[("small.csv", &even)]);
    assert!(!answer.pace.is_empty());
    assert!(
        answer.pace.iter().all(|change| change.iteration.is_some_and(|at| (8..=10).contains(&at))),
        "{:?}",
        answer.pace
    );
    assert_eq!(answer.suspects, []);
}
