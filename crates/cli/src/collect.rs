//! `mycroft collect`: what tells why, into one package, before a restart destroys it.
mod archive;
mod content;
mod hide;
mod host;

use crate::dump::{Captured, capture};
use crate::exit::{EXIT_INTERRUPTED, EXIT_OK};
use crate::files::{Found, find};
use crate::stop::Stop;
use anyhow::{Context, Result, bail};
use archive::Archive;
use content::{Content, content, is_dump};
use hide::Hider;
use mycroft_agent::{SpyProgram, Taken, local_ranks, take_here};
use mycroft_formats::{FOR_PEOPLE, Naming};
use mycroft_record::text::printable;
use std::collections::BTreeMap;
use std::io::{BufWriter, Read, Write};
use std::path::PathBuf;
use std::time::Duration;

/// Stacks of 16 ranks with their loaders take 2 s on two cores, a dump up to 5 s.
const CAPTURE_LIMIT: Duration = Duration::from_secs(10);
/// Longest log, unpacked: what `mycroft autopsy` reads of one package.
const TEXT_BYTES_MAX: u64 = 16 << 30;

const AFTER_HELP: &str = "\
Examples:
  mycroft collect --out case.tar.zst --log '/var/log/job/*.log'     this host: its ranks, its logs, its kernel
  mycroft collect --out case.tar.zst --job llama-70b                stacks and dumps of all hosts, by the server's agents
  mycroft collect --out case.tar.zst --log logs --hide-addresses    to be given away
  mycroft autopsy case.tar.zst                                      who started it

Gathers, each in seconds and none of it stopping the job: stacks of the ranks of this host and of their children, their Flight
Recorder dumps (with --job those of all hosts of the job, through the server), logs, NCCL's status of the job (RAS), the kernel's
log, `nvidia-smi -q`, versions, and the variables of the ranks that begin with NCCL_, TORCH_, CUDA_ and the like. Of other hosts
only stacks and dumps come through the server: run it there too, and give all packages to `mycroft autopsy` at once.

Secrets are taken out of all text: values that are called token, password, key and the like, known forms of tokens, passwords in
URLs, private keys. It is a search for patterns: look through a package before you give it to strangers. A dump is taken as it is:
it holds function names, file names and shapes. Files that are neither text nor dumps are left out.

Exit codes: 0 the package is there (what is not in it is told, there and here), 2 it could not be made or nothing was found.";

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct CollectArgs {
    /// The package, a new file: .tar.zst.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Logs: files, folders, or patterns like '/logs/rank_*.log' (repeatable).
    #[arg(long = "log", value_name = "PATTERN")]
    logs: Vec<String>,
    /// Take stacks and dumps of this job through the server, from all its hosts.
    #[arg(long)]
    job: Option<String>,
    #[command(flatten)]
    server: crate::api::ServerArgs,
    /// Only these processes of this host (repeatable); default: all that were started with RANK.
    #[arg(long, value_name = "PID", conflicts_with = "job")]
    pid: Vec<u32>,
    /// Replace IPv4, IPv6 and hardware addresses, each by one that is nobody's, the same wherever it stands.
    #[arg(long)]
    hide_addresses: bool,
    /// Nothing on standard error but errors.
    #[arg(long, short)]
    quiet: bool,
}

/// A package in the making.
struct Collection {
    archive: Archive,
    hider: Hider,
    stop: Stop,
    is_quiet: bool,
    naming: Naming,
    /// What could not be had, and why; also in the package.
    missing: Vec<String>,
}

/// Somebody asked us to stop.
#[derive(Debug, thiserror::Error)]
#[error("interrupted: no package was made")]
struct Interrupted;

/// Makes the package.
pub(crate) fn collect(args: &CollectArgs) -> Result<u8> {
    let naming = Naming::default();
    let files = logs(&args.logs, &naming)?;
    let name = std::env::var("MYCROFT_HOST").ok().filter(|name| !name.is_empty()).unwrap_or_else(host::name);
    let mut all = Collection {
        archive: Archive::create(&args.out, &name.replace('/', "_"))?,
        hider: Hider::new(args.hide_addresses).context("the patterns of secrets")?,
        stop: Stop::on_signals()?,
        is_quiet: args.quiet,
        naming,
        missing: files.1,
    };
    match all.gather(args, &files.0) {
        Ok(()) => {}
        Err(error) if error.is::<Interrupted>() => {
            eprintln!("mycroft: {error}");
            return Ok(EXIT_INTERRUPTED);
        }
        Err(error) => return Err(error),
    }
    let Collection { archive, hider, missing, .. } = all;
    for why in missing.iter().filter(|_| !args.quiet) {
        eprintln!("  not there: {}", printable(why));
    }
    let (files, bytes) = (archive.files, archive.bytes);
    let packed = archive.finish()?;
    if !args.quiet {
        let shown = args.out.display();
        eprintln!(
            "{shown}: {files} files, {:.1} MB, {:.1} MB packed; secrets taken out: {}; `mycroft autopsy {shown}` reads it",
            bytes as f64 / 1e6,
            packed as f64 / 1e6,
            hider.removed
        );
    }
    Ok(EXIT_OK)
}

/// The files that patterns name, and what they do not.
fn logs(patterns: &[String], naming: &Naming) -> Result<(Vec<Found>, Vec<String>)> {
    let (mut paths, mut missing) = (Vec::new(), Vec::new());
    for pattern in patterns {
        let found: Vec<PathBuf> = match PathBuf::from(pattern) {
            path if path.exists() => vec![path],
            _ => glob::glob(pattern).with_context(|| format!("--log {pattern}"))?.filter_map(Result::ok).collect(),
        };
        if found.is_empty() {
            missing.push(format!("--log {pattern}: no file has such a name"));
        }
        paths.extend(found);
    }
    let (mut files, mut names) = (Vec::new(), std::collections::BTreeSet::new());
    for path in paths {
        // One at a time: names in the package are those on disk.
        match find(std::slice::from_ref(&path), naming) {
            Ok(findings) => {
                let is_folder = path.is_dir();
                let shown = path.display().to_string();
                for mut file in findings.files {
                    file.name = if is_folder { format!("{shown}/{}", file.name) } else { shown.clone() };
                    if names.insert(file.name.clone()) {
                        files.push(file);
                    }
                }
                missing.extend(findings.notes.iter().map(|note| format!("{shown}/{note}")));
                missing.extend(findings.unread.iter().map(|file| format!("{shown}/{}: {}", file.source, file.why)));
            }
            Err(why) => missing.push(why),
        }
    }
    Ok((files, missing))
}

impl Collection {
    fn gather(&mut self, args: &CollectArgs, logs: &[Found]) -> Result<()> {
        self.say("stacks and Flight Recorder dumps")?;
        let took_all = match &args.job {
            Some(job) => self.through_server(&args.server, job)?,
            None => false,
        };
        self.here(&args.pid, !took_all)?;
        self.say("NCCL's status")?;
        match host::ras(std::env::var("NCCL_RAS_ADDR").ok().as_deref(), &self.stop) {
            Ok(text) => self.text("ras.txt", &text)?,
            Err(why) => self.missing.push(format!("RAS at {why}")),
        }
        self.say("dmesg")?;
        match host::program("dmesg", &["-T"], &self.stop) {
            Ok(text) => self.text("dmesg.txt", &text)?,
            Err(why) => self.missing.push(format!("dmesg: {why}")),
        }
        self.say("nvidia-smi")?;
        match host::program("nvidia-smi", &["-q"], &self.stop) {
            Ok(text) => self.for_people("nvidia-smi.txt", "nvidia-smi -q", &text)?,
            Err(why) => self.missing.push(format!("nvidia-smi: {why}")),
        }
        for (nth, file) in logs.iter().enumerate() {
            self.say(&format!("logs: {} of {}", nth + 1, logs.len()))?;
            if let Some(why) = self.log(file)? {
                self.missing.push(format!("{}: {why}", file.name));
            }
        }
        self.say("versions")?;
        if self.archive.files == 0 {
            let why = self.missing.join("; ");
            bail!("nothing was found: {}", printable(&why));
        }
        self.for_people("versions.txt", "versions", host::versions().as_bytes())?;
        let missing: String = self.missing.iter().map(|why| format!("{}\n", printable(why))).collect();
        self.for_people("collected.txt", "what could not be had", missing.as_bytes())
    }

    /// A file that `mycroft autopsy` passes over.
    fn for_people(&mut self, name: &str, title: &str, text: &[u8]) -> Result<()> {
        self.text(name, &[FOR_PEOPLE.as_bytes(), title.as_bytes(), b"\n", text].concat())
    }

    /// What is taken now; ends where somebody asked to.
    fn say(&self, what: &str) -> Result<()> {
        if self.stop.asked() {
            return Err(Interrupted.into());
        }
        if !self.is_quiet {
            eprintln!("  {what}");
        }
        Ok(())
    }

    fn text(&mut self, name: &str, text: &[u8]) -> Result<()> {
        let text = self.hider.text(text);
        self.archive.add(name, &text)
    }

    /// A file that a rank or a server gave: stacks are text, dumps are taken as they are.
    fn taken(&mut self, name: &str, bytes: &[u8]) -> Result<()> {
        if is_dump(name, bytes, &self.naming) { self.archive.add(name, bytes) } else { self.text(name, bytes) }
    }

    /// Stacks and dumps of all hosts; whether they came.
    fn through_server(&mut self, server: &crate::api::ServerArgs, job: &str) -> Result<bool> {
        let stop = self.stop.clone();
        match capture(server, job, &|| stop.asked()) {
            Ok(Captured { files, missing }) => {
                let took = !files.is_empty();
                for (name, bytes) in files {
                    self.taken(&format!("of-job/{name}"), &bytes)?;
                }
                self.missing.extend(missing);
                Ok(took)
            }
            Err(error) => {
                self.missing.push(format!("from the server: {error:#}; taken from this host alone"));
                Ok(false)
            }
        }
    }

    /// What the ranks of this host show; `with_stacks`: also their stacks and dumps.
    fn here(&mut self, pids: &[u32], with_stacks: bool) -> Result<()> {
        let (mut ranks, denied) = local_ranks();
        ranks.retain(|rank| pids.is_empty() || pids.contains(&rank.pid));
        for pid in pids.iter().filter(|pid| ranks.iter().all(|rank| rank.pid != **pid)) {
            self.missing.push(format!("process {pid}: it is not there, or was not started with RANK"));
        }
        if ranks.is_empty() {
            let others = if denied > 0 {
                format!("; {denied} processes of other users were not looked at: run it as the job's user or as root")
            } else {
                String::new()
            };
            self.missing.push(format!("no process of this host was started as a rank (RANK){others}"));
            return Ok(());
        }
        let mut of_rank: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let mut variables = String::new();
        for rank in &ranks {
            of_rank.entry(rank.rank).or_default().push(rank.pid);
            variables.push_str(&format!("rank {}, process {}\n", rank.rank, rank.pid));
            variables.extend(rank.variables.iter().map(|(name, value)| format!("{name}={value}\n")));
        }
        self.for_people("environment.txt", "variables of the ranks of this host", variables.as_bytes())?;
        if !with_stacks {
            return Ok(());
        }
        if let Some((rank, pids)) = of_rank.iter().find(|(_, pids)| pids.len() > 1) {
            let text =
                format!("{pids:?} are all rank {rank}: several jobs run here; name the processes of one with --pid");
            self.missing.push(format!("stacks and dumps: processes {text}"));
            return Ok(());
        }
        let stop = self.stop.clone();
        let spy = SpyProgram { program: PathBuf::from("/proc/self/exe"), args: vec!["spy".into()] };
        for taken in take_here(&ranks, spy, CAPTURE_LIMIT, || stop.asked()) {
            match taken {
                Taken::File { name, bytes } => self.taken(&format!("ranks/{name}"), &bytes)?,
                Taken::Note { rank, kind, text } => self.missing.push(format!("{kind} of rank {rank}: {text}")),
            }
        }
        Ok(())
    }

    /// A log, through a temporary file, since a package tells a file's size before it. `Some`: why it is left out.
    fn log(&mut self, file: &Found) -> Result<Option<String>> {
        let (name, content) = match content(file, &self.naming) {
            Ok((name, content)) => (format!("logs/{name}"), content),
            Err(why) => return Ok(Some(why)),
        };
        let from = match content {
            Content::Dump(bytes) => return self.archive.add(&name, &bytes).map(|()| None),
            Content::Text(from) => from,
        };
        let mut from = from.take(TEXT_BYTES_MAX);
        let mut text = tempfile::tempfile().context("a temporary file")?;
        let mut out = BufWriter::new(&mut text);
        let copied = self.hider.copy(&mut from, &mut out).and_then(|()| out.flush());
        drop(out);
        if let Err(error) = copied {
            return Ok(Some(format!("cannot be read: {error}")));
        }
        if from.limit() == 0 {
            return Ok(Some(format!("longer than {} GiB: left out", TEXT_BYTES_MAX >> 30)));
        }
        self.archive.add_file(&name, &mut text).map(|()| None)
    }
}
