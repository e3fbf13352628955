//! `mycroft autopsy`: a folder of dumps and stacks to one verdict.
use crate::{EXIT_FOUND, EXIT_OK};
use anyhow::{Context, Result, bail};
use mycroft_diagnose::render::{Style, render_autopsy};
use mycroft_diagnose::stacks::{Autopsy, Outcome, Question};
use mycroft_formats::{Clash, Naming, Piece};
use mycroft_record::What;
use mycroft_record::dump::{Bundle, Unusable};
use mycroft_serve::autopsy::{AutopsyJson, page};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Largest file that is read: a recorder of 1 M entries (500 times the default) with stacks is 240 MB.
const FILE_BYTES_MAX: u64 = 512 << 20;
/// Most files of a folder: 100,000 ranks with a dump, its JSON and two stack files each, and as many again.
const FILES_MAX: usize = 1 << 20;
/// Deepest folder: node/rank/kind is three.
const DEPTH_MAX: usize = 32;
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

Reads Flight Recorder dumps (pickle or JSON; nothing in them is executed), py-spy and faulthandler stacks, and the files
of torch.distributed.debug, in any depth below DIR. The rank is the last number of a file's name.

Exit codes: 0 nothing is wrong (also: only slow, and nobody is to blame), 1 something is wrong or it cannot be told,
2 the input cannot be used (no dump in it, or two files that claim one rank).";

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct AutopsyArgs {
    /// Folders of dumps and stacks, or single files.
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
    let naming = match &args.rank_pattern {
        Some(pattern) => Naming::with_pattern(pattern).context("--rank-pattern")?,
        None => Naming::default(),
    };
    let found = find(&args.dirs)?;
    let pieces = read_all(&found.files, &naming, !args.quiet && std::io::stderr().is_terminal());
    let mut bundle = mycroft_formats::assemble(pieces).map_err(|clash| anyhow::anyhow!(told(&clash)))?;
    let mut notes = found.notes;
    notes.append(&mut bundle.notes);
    if bundle.dumps.is_empty() {
        bail!("{}", without_dumps(args, &bundle, &notes, found.files.len()));
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
        [only] => format!("\n1 remark on the files: {only}\n"),
        [first, ..] => format!("\n{} remarks on the files, e.g. {first} (--json has all)\n", notes.len()),
    }
}

/// 0 when nothing is wrong; a job that is merely slow, with nobody to blame, is not wrong. What cannot be told is not 0:
/// scripts take 0 for "fine".
fn exit_code(answer: &Autopsy) -> u8 {
    match answer.outcome {
        Outcome::Healthy => EXIT_OK,
        Outcome::Fault(What::Slowdown) if answer.suspects.is_empty() => EXIT_OK,
        Outcome::Fault(_) | Outcome::Unknown => EXIT_FOUND,
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

// ------------------------------------------------------------------------------------------------- finding the files

/// A file to be read.
struct Found {
    /// Where it is.
    path: PathBuf,
    /// Its name for people and for ranks: relative to the folder, `/` between parts.
    name: String,
    /// Its length, for progress.
    bytes: u64,
}

/// The files below the folders, in the order of their names, and what was passed over.
#[derive(Default)]
struct Findings {
    files: Vec<Found>,
    notes: Vec<String>,
}

/// Walks the folders. Links are not followed: one to inside is met where it points to, one to outside is not ours.
fn find(dirs: &[PathBuf]) -> Result<Findings> {
    let mut findings = Findings::default();
    for dir in dirs {
        let meta = std::fs::metadata(dir)
            .with_context(|| format!("{}: cannot be read; give the folder that holds the dumps", dir.display()))?;
        // One folder needs no name; of several, each file tells whose it is.
        let prefix = if dirs.len() > 1 { format!("{}/", dir.display()) } else { String::new() };
        if meta.is_dir() {
            let root = std::fs::canonicalize(dir).with_context(|| format!("{}: cannot be read", dir.display()))?;
            walk(&root, dir, &prefix, DEPTH_MAX, &mut findings)
                .with_context(|| format!("{}: cannot be listed; check its permissions", dir.display()))?;
        } else {
            let name = dir.file_name().map_or_else(|| prefix.clone(), |name| name.to_string_lossy().into_owned());
            findings.files.push(Found { path: dir.clone(), name, bytes: meta.len() });
        }
    }
    findings.files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(findings)
}

/// One folder and those in it; folders that cannot be listed are noted, except the first.
fn walk(root: &Path, dir: &Path, prefix: &str, depth: usize, findings: &mut Findings) -> std::io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            let target = std::fs::canonicalize(entry.path());
            if !target.is_ok_and(|target| target.starts_with(root)) {
                findings.notes.push(format!("{name}: a link to outside the folder, not followed"));
            }
        } else if kind.is_dir() {
            if depth == 0 {
                findings.notes.push(format!("{name}: more than {DEPTH_MAX} folders deep, not read"));
            } else if let Err(error) = walk(root, &entry.path(), &format!("{name}/"), depth - 1, findings) {
                findings.notes.push(format!("{name}: cannot be listed: {error}"));
            }
        } else if !kind.is_file() {
            // The pipes that trigger dumps lie beside them; opening one would wait for ever.
            findings.notes.push(format!("{name}: no regular file, not read"));
        } else if is_unfinished(&entry.file_name()) {
            findings.notes.push(format!("{name}: hidden, not read"));
        } else if findings.files.len() == FILES_MAX {
            findings.notes.push(format!("{name}: beyond {FILES_MAX} files, not read"));
            return Ok(());
        } else {
            let bytes = entry.metadata()?.len();
            findings.files.push(Found { path: entry.path(), name, bytes });
        }
    }
    Ok(())
}

/// Hidden files are what editors and copying tools leave behind.
fn is_unfinished(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(b".")
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
        let piece = match load(file, &mut bytes) {
            Ok(()) => mycroft_formats::read(&file.name, &bytes, naming),
            Err(why) => Piece::Unusable(Unusable { rank: naming.rank(&file.name), source: (&*file.name).into(), why }),
        };
        pieces.push((at, piece));
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// The bytes of a file, into a buffer that is used again; what went wrong, in words.
fn load(file: &Found, bytes: &mut Vec<u8>) -> Result<(), String> {
    bytes.clear();
    let too_long = |bytes: u64| format!("{bytes} bytes, at most {FILE_BYTES_MAX} are read");
    if file.bytes > FILE_BYTES_MAX {
        return Err(too_long(file.bytes));
    }
    let open = File::open(&file.path).map_err(|error| format!("cannot be opened: {error}"))?;
    bytes.reserve(usize::try_from(file.bytes).unwrap_or(0));
    // It may grow while it is read, and a single file may be a pipe.
    let read = open.take(FILE_BYTES_MAX + 1).read_to_end(bytes);
    let read = read.map_err(|error| format!("cannot be read: {error}"))?;
    if read as u64 > FILE_BYTES_MAX { Err(too_long(read as u64)) } else { Ok(()) }
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
    let first = bundle.unusable.iter().map(|file| format!("{}: {}", file.source, file.why));
    let first = first.chain(notes.iter().cloned()).next();
    let first = first.map_or(String::new(), |first| format!("; first: {first}"));
    let stacks = if bundle.stacks.is_empty() { "" } else { " (stacks, but no dump)" };
    format!("{dirs}: no usable dump in {files} files{stacks}{first}; {SWITCHES}")
}

/// Names the files that did not help, a few of them; the answer's caveats say what follows from it.
fn name_unused(bundle: &Bundle) {
    for file in bundle.unusable.iter().take(NAMED_MAX) {
        let rank = file.rank.map_or(String::new(), |rank| format!("rank {rank}: "));
        eprintln!("mycroft: {rank}{}: {}", file.source, file.why);
    }
    if let Some(more) = bundle.unusable.len().checked_sub(NAMED_MAX).filter(|more| *more > 0) {
        eprintln!("mycroft: and {more} more files without use");
    }
}
