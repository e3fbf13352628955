//! `mycroft autopsy`: a folder of dumps and stacks to one verdict.
mod unpack;
mod whole;

use crate::exit::{EXIT_FOUND, EXIT_OK};
use crate::files::{Found, find};
use anyhow::{Context, Result, bail};
use mycroft_diagnose::render::{Style, render_autopsy};
use mycroft_diagnose::stacks::{Autopsy, Outcome, Question};
use mycroft_formats::{Clash, Naming, Piece};
use mycroft_record::What;
use mycroft_record::dump::Bundle;
use mycroft_record::text::printable;
use mycroft_serve::autopsy::{AutopsyJson, page};
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Most threads that read: dumps come from one disk.
const READERS_MAX: usize = 64;
/// Work that takes longer than this says how far it is.
const PATIENCE: Duration = Duration::from_millis(700);
/// Notes and unusable files named on standard error.
const NAMED_MAX: usize = 5;

/// What becomes of a file that is not read.
const SWITCHES: &str = "Flight Recorder writes dumps where TORCH_FR_DUMP_TEMP_FILE says, when TORCH_FR_BUFFER_SIZE is \
                        not 0";

const AFTER_HELP: &str = "\
Examples:
  mycroft autopsy /shared/dumps                          one verdict as text
  mycroft autopsy dumps --json | jq .verdict.suspects    for scripts
  mycroft autopsy dumps --html report.html               one page with the grid of all operations
  mycroft autopsy node0 node1 --rank-pattern 'r(\\d+)\\.'   folders of several nodes, ranks by a pattern of your own

  mycroft autopsy job.log ras.txt dmesg.txt              what the job printed, without any dump
  kubectl logs POD | mycroft autopsy -                   the same, piped

Reads Flight Recorder dumps (pickle or JSON; nothing in them is executed), py-spy and faulthandler stacks, the files of
torch.distributed.debug, and logs: lines of torch's watchdog, NCCL's warnings, NCCL RAS as text, exceptions, the kernel's
log, iterations of training loops. Also traces of torch's profiler, or lines of NCCL's Inspector, of three ranks or more.

What a file is, its content tells; .gz, .zst and .tar are unpacked in memory. The rank is the last number of a dump's name;
of a line, its prefix ([rankN]:). All is judged together; every sentence from a log cites file and line.

Only regular files are read. DIR may be a link. A link inside DIR is followed where it leads to a file outside that belongs
to who made the link, or where it is yours; one that leads to a link, a folder or anything else is not.

A file that cannot be read says nothing about its rank: a job that is well in all others is `healthy as far as N of M ranks
tell`.

Exit codes: 0 all was read and nothing is wrong (also: only slow, and nobody is to blame), 1 something is wrong, or it
cannot be told, or not all could be read, 2 the input cannot be used (nothing in it tells anything, or two files claim
one rank).";

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct AutopsyArgs {
    /// Folders, single files, packages of them, or `-` for what is piped in.
    #[arg(required = true, value_name = "DIR")]
    dirs: Vec<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
    /// Write a page for a browser here: one file, opens without a network.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Where a path tells its rank: a regular expression whose group `rank` (or first group) is the rank and whose
    /// group `host`, if there is one, is the host.
    #[arg(long, value_name = "RE")]
    rank_pattern: Option<String>,
    /// Nothing on standard error but errors.
    #[arg(long, short)]
    quiet: bool,
}

/// Prints the verdict; see [`AFTER_HELP`] for the exit codes.
pub(crate) fn autopsy(args: &AutopsyArgs) -> Result<u8> {
    autopsy_of(args, Vec::new())
}

/// The same with what is known beside the files, e.g. of ranks of which there is none.
pub(crate) fn autopsy_of(args: &AutopsyArgs, beside: Vec<Piece>) -> Result<u8> {
    let naming = match &args.rank_pattern {
        Some(pattern) => Naming::with_pattern(pattern).context("--rank-pattern")?,
        None => Naming::default(),
    };
    let found = find(&args.dirs, &naming).map_err(|why| anyhow::anyhow!(printable(&why).into_owned()))?;
    let mut pieces = read_all(&found.files, &naming, !args.quiet && std::io::stderr().is_terminal());
    pieces.extend(found.unread.into_iter().map(Piece::Unread));
    pieces.extend(beside);
    let mut bundle =
        mycroft_formats::assemble(pieces).map_err(|clash| anyhow::anyhow!(printable(&told(&clash)).into_owned()))?;
    let mut notes = found.notes;
    notes.append(&mut bundle.notes);
    let is_empty = bundle.dumps.is_empty() && bundle.logs.is_empty() && bundle.stacks.is_empty();
    if is_empty && bundle.traces.is_empty() {
        bail!("{}", printable(&without_dumps(args, &bundle, &notes, found.files.len())));
    }
    if !args.quiet {
        name_unused(&bundle);
    }
    let answer = mycroft_diagnose::stacks::autopsy(&bundle, &Question { grid: args.html.is_some() });
    if let Some(file) = &args.html {
        let html = page::render(&answer, &title(&args.dirs));
        crate::whole::write(file, &html)?;
    }
    let said = if args.json { as_json(&answer, notes)? } else { render_autopsy(&answer, style()) + &noted(&notes) };
    print(&said)?;
    let code = exit_code(&answer);
    // Freeing two million entries takes a tenth of a second; the system takes the memory back at once.
    std::mem::forget((bundle, answer));
    Ok(code)
}

fn as_json(answer: &Autopsy, notes: Vec<String>) -> Result<String> {
    let json = AutopsyJson { notes, ..AutopsyJson::of(answer) };
    Ok(serde_json::to_string_pretty(&json).context("cannot make JSON")? + "\n")
}

/// Most folders hold each dump twice or thrice (pickle, JSON) beside logs: a count says enough.
fn noted(notes: &[String]) -> String {
    match notes {
        [] => String::new(),
        [only] => format!("\n1 remark on the files: {}\n", printable(only)),
        [first, ..] => format!("\n{} remarks on the files, e.g. {} (--json has all)\n", notes.len(), printable(first)),
    }
}

/// 0 when nothing is wrong; a job that is merely slow, with nobody to blame, is not wrong. What cannot be told is not 0,
/// and neither is what was not read whole: scripts take 0 for "fine".
fn exit_code(answer: &Autopsy) -> u8 {
    match answer.outcome {
        Outcome::Healthy => EXIT_OK,
        Outcome::Fault(What::Slowdown) if answer.suspects.is_empty() && answer.unread.is_empty() => EXIT_OK,
        Outcome::Fault(_) | Outcome::HealthyAsFar | Outcome::Unknown => EXIT_FOUND,
    }
}

/// As wide as the terminal, with colours where it shows them (`NO_COLOR` is respected).
fn style() -> Style {
    if !std::io::stdout().is_terminal() {
        return Style::default();
    }
    let width =
        ratatui::crossterm::terminal::size().map_or(Style::default().width, |(columns, _)| usize::from(columns));
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
        || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    Style { width, is_coloured: !is_plain }
}

/// Prints; a reader that has gone away (`| head`) is nothing to complain about.
fn print(said: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(said.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error).context("cannot print"),
        _ => Ok(()),
    }
}

/// The last part of each folder's name.
fn title(dirs: &[PathBuf]) -> String {
    let name = |dir: &PathBuf| {
        let whole = std::fs::canonicalize(dir).unwrap_or_else(|_| dir.clone());
        whole.file_name().map_or_else(|| dir.display().to_string(), |name| name.to_string_lossy().into_owned())
    };
    dirs.iter().map(name).collect::<Vec<_>>().join(", ")
}

// ------------------------------------------------------------------------------------------------ reading the files

/// Reads the files on all cores, in their order. Each thread holds the bytes of one file at a time.
fn read_all(files: &[Found], naming: &Naming, is_told: bool) -> Vec<Piece> {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = cores.min(READERS_MAX).min(files.len()).max(1);
    let next = AtomicUsize::new(0);
    let done = AtomicUsize::new(0);
    let mut numbered = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..threads).map(|_| scope.spawn(|| read_some(files, naming, &next, &done))).collect();
        if is_told {
            tell(files.len(), &done);
        }
        let mut all = Vec::with_capacity(files.len());
        for reader in readers {
            // A reader that panics is a fault of ours: the same panic here.
            all.extend(reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        all
    });
    numbered.sort_unstable_by_key(|(at, _)| *at);
    numbered.into_iter().map(|(_, piece)| piece).collect()
}

/// Takes files in turn until none is left.
fn read_some(files: &[Found], naming: &Naming, next: &AtomicUsize, done: &AtomicUsize) -> Vec<(usize, Piece)> {
    let mut pieces = Vec::new();
    let mut bytes = Vec::new();
    loop {
        let at = next.fetch_add(1, Ordering::Relaxed);
        let Some(file) = files.get(at) else { return pieces };
        let piece = unpack::piece(file, naming, &mut bytes);
        let piece = if file.is_linked() { unquoted(piece, &file.name) } else { piece };
        pieces.push((at, piece));
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whoever made a link decided what is read: nothing of the file is quoted.
fn unquoted(piece: Piece, name: &str) -> Piece {
    match piece {
        Piece::Unusable(_) | Piece::Ignored(..) | Piece::Log(_) | Piece::Trace(_) => {
            Piece::Ignored(name.to_owned(), "a link to a file that is neither a dump nor stacks".to_owned())
        }
        Piece::Several(pieces) => Piece::Several(pieces.into_iter().map(|piece| unquoted(piece, name)).collect()),
        piece => piece,
    }
}

/// Says how far the readers are, where it takes long enough to ask.
fn tell(files: usize, done: &AtomicUsize) {
    let begun = Instant::now();
    let mut is_shown = false;
    while done.load(Ordering::Relaxed) < files {
        std::thread::sleep(Duration::from_millis(20));
        if begun.elapsed() > PATIENCE {
            is_shown = true;
            eprint!("\rreading {} of {files} files", done.load(Ordering::Relaxed));
        }
    }
    if is_shown {
        eprint!("\r\u{1b}[K");
    }
}

// ---------------------------------------------------------------------------------------------- what cannot be used

/// Two files for one rank: which is right is for the person to say.
fn told(clash: &Clash) -> String {
    format!(
        "rank {} is claimed by different files: {}; keep one, give the folder of one of them, or say with --rank-pattern \
         where a path tells its rank",
        clash.rank,
        clash.sources.join(", ")
    )
}

/// A folder without a dump: what was there instead.
fn without_dumps(args: &AutopsyArgs, bundle: &Bundle, notes: &[String], files: usize) -> String {
    let dirs = args.dirs.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", ");
    let first = bundle.unread.iter().chain(&bundle.unusable).map(|file| format!("{}: {}", file.source, file.why));
    let first = first.chain(notes.iter().cloned()).next();
    let first = first.map_or(String::new(), |first| format!("; first: {first}"));
    let stacks = if bundle.stacks.is_empty() { "" } else { " (stacks, but no dump)" };
    format!("{dirs}: no usable dump in {files} files{stacks}{first}; {SWITCHES}")
}

/// Names the files that did not help, a few of them; the answer's caveats say what follows from it.
fn name_unused(bundle: &Bundle) {
    let all = || bundle.unread.iter().chain(&bundle.unusable);
    for file in all().take(NAMED_MAX) {
        let rank = file.rank.map_or(String::new(), |rank| format!("rank {rank}: "));
        eprintln!("mycroft: {rank}{}: {}", printable(&file.source), printable(&file.why));
    }
    if let Some(more) = all().count().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
        eprintln!("mycroft: and {more} more files without use");
    }
}
