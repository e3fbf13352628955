//! `mycroft dump`: stacks and Flight Recorder dumps of a running job, and what they say.
use crate::api::{Api, escaped};
use crate::api::{OWN_URL, ServerArgs};
use crate::autopsy::{self, AutopsyArgs};
use crate::exit::{EXIT_FOUND, EXIT_OK};
use crate::token::TokenArgs;
use crate::told::{json, print};
use anyhow::{Context, Result, bail};
use clap::{Args, FromArgMatches};
use mycroft_record::text::printable;
use mycroft_serve::api::{DumpFileJson, DumpJson, DumpTriedJson, JobsJson, untold};
use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

/// How often the server is asked how far it is.
const POLL: Duration = Duration::from_millis(200);
/// A capture is over after 10 s at most; the rest is for a server with 1,024 dumps to look into.
const PATIENCE: Duration = Duration::from_secs(60);
/// Processes named one by one.
const NAMED_MAX: usize = 12;

const AFTER_HELP: &str = "\
Examples:
  mycroft dump --job llama-70b                         who hangs and where, while the job still runs
  mycroft dump --job llama-70b --out dumps             keep the files: mycroft autopsy dumps reads them again
  mycroft dump --job llama-70b --no-stacks --json      Flight Recorder dumps only, for scripts

Nothing is paused or killed. Stacks need an agent that may look into the job's processes: the same user (and
kernel.yama.ptrace_scope=0), root, or CAP_SYS_PTRACE. Flight Recorder dumps need a job started with
TORCH_NCCL_DEBUG_INFO_PIPE_FILE=/tmp/fr-pipe- (torch adds RANK.pipe) or with torch's worker server
(TORCH_WORKER_SERVER_SOCKET); without, dumps that torch's watchdog has written are taken as they lie.

Exit codes: 0 nothing is wrong, 1 something is wrong or it cannot be told, 2 nothing could be taken.";

#[derive(clap::Args, Debug)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct DumpArgs {
    /// The job; may be left out while the server knows only one.
    #[arg(long)]
    job: Option<String>,
    /// HTTP address of the server.
    #[arg(long, alias = "url", env = "MYCROFT_URL", default_value = OWN_URL, value_name = "URL")]
    server: String,
    /// Certificate authority (PEM) of a server whose address begins with https://; default the public ones.
    #[arg(long, env = "MYCROFT_URL_CA", value_name = "FILE")]
    url_ca: Option<PathBuf>,
    #[command(flatten)]
    token: TokenArgs,
    /// Keep the files in this folder, which must be empty or not exist.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write a page for a browser here.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Print one JSON object instead of text, as `mycroft autopsy --json` does.
    #[arg(long)]
    json: bool,
    /// No stacks.
    #[arg(long)]
    no_stacks: bool,
    /// No Flight Recorder dumps.
    #[arg(long, conflicts_with = "no_stacks")]
    no_flight_recorder: bool,
}

/// Takes a capture, waits for it, fetches its files and says what they show.
pub(crate) fn dump(args: &DumpArgs) -> Result<u8> {
    let api =
        Api::new(&ServerArgs { url: args.server.clone(), url_ca: args.url_ca.clone(), token: args.token.clone() })?;
    let job = match &args.job {
        Some(job) => job.clone(),
        None => only_job(&api)?,
    };
    if let Some(out) = &args.out {
        prepare(out)?;
    }
    let (path, dump) = ask(&api, &job, !args.no_stacks, !args.no_flight_recorder, &|| false)?;
    tell(&dump);
    if dump.files.is_empty() && dump.state == "done" {
        bail!("capture {} brought nothing, see above for why and what to do", dump.id);
    }
    let temporary;
    let folder = match &args.out {
        Some(out) => out.as_path(),
        None => {
            temporary = tempfile::tempdir().context("making a temporary folder")?;
            temporary.path()
        }
    };
    fetch(&api, &path, &dump.files, folder)?;
    if dump.state != "done" {
        // Also when there are files: what was gathered before it failed is evidence all the same.
        bail!("capture {}: {}", dump.id, printable(&dump.error));
    }
    if let Some(out) = &args.out {
        eprintln!(
            "{} files in {}: `mycroft autopsy {}` reads them again",
            dump.files.len(),
            out.display(),
            out.display()
        );
    }
    let has_dumps = dump.tried.iter().any(|tried| tried.kind == "flight-recorder" && tried.file.is_some());
    if has_dumps || args.html.is_some() { whole(args, &dump, folder) } else { stacks_only(args, &dump) }
}

/// Orders a capture of a job and waits for it, or until it should stop: its path at the server, and what came of it.
fn ask(
    api: &Api,
    job: &str,
    stacks: bool,
    flight_recorder: bool,
    should_stop: &dyn Fn() -> bool,
) -> Result<(String, DumpJson)> {
    let path = format!("/api/v1/jobs/{}/dumps", escaped(job));
    let begun: DumpJson = api.post(&format!("{path}?stacks={stacks}&flight_recorder={flight_recorder}"))?;
    eprintln!("capture {} of job {job:?}", begun.id);
    let path = format!("{path}/{}", begun.id);
    let dump = wait(api, &path, should_stop)?;
    Ok((path, dump))
}

/// Stacks and dumps of a job.
pub(crate) struct Captured {
    /// By path below the capture: host and file name.
    pub(crate) files: Vec<(String, Vec<u8>)>,
    /// What is not among them, and why.
    pub(crate) missing: Vec<String>,
}

/// Takes stacks and dumps of a job on all its hosts, through the server.
///
/// # Errors
/// The server cannot be asked, knows no such job, or failed, or it should stop.
pub(crate) fn capture(server: &ServerArgs, job: &str, should_stop: &dyn Fn() -> bool) -> Result<Captured> {
    let api = Api::new(server)?;
    let (path, dump) = ask(&api, job, true, true, should_stop)?;
    let mut files = Vec::new();
    for file in &dump.files {
        files.push((checked(file)?.to_string_lossy().into_owned(), fetched(&api, &path, file)?));
    }
    let mut missing: Vec<String> = silent_hosts(&dump).collect();
    let tried = dump.tried.iter().filter(|tried| tried.file.is_none() && !tried.text.is_empty());
    let rank = |rank: Option<u32>| rank.map_or("?".to_owned(), |rank| rank.to_string());
    missing.extend(tried.map(|tried| format!("{} of rank {}: {}", tried.kind, rank(tried.rank), tried.text)));
    if dump.state != "done" {
        missing.push(format!("capture {}: {}", dump.id, dump.error));
    }
    Ok(Captured { files, missing })
}

fn only_job(api: &Api) -> Result<String> {
    let jobs: JobsJson = api.get("/api/v1/jobs")?;
    let names: Vec<&str> = jobs.jobs.iter().map(|job| job.name.as_str()).collect();
    match names[..] {
        [only] => Ok(only.to_owned()),
        [] => bail!("the server knows no job: check that an agent runs on its hosts and connects to it"),
        _ => bail!(
            "the server knows {} jobs: name one with --job, e.g. {}",
            names.len(),
            printable(&names[..names.len().min(8)].join(", "))
        ),
    }
}

/// Makes the folder; what is there is never mixed with what comes.
fn prepare(out: &Path) -> Result<()> {
    let making = || format!("--out {}", out.display());
    DirBuilder::new().recursive(true).mode(0o700).create(out).with_context(making)?;
    if std::fs::read_dir(out).with_context(making)?.next().is_some() {
        bail!("--out {}: the folder is not empty; name another, so that old and new dumps do not mix", out.display());
    }
    Ok(())
}

/// Waits until the capture is over, saying how far it is.
fn wait(api: &Api, path: &str, should_stop: &dyn Fn() -> bool) -> Result<DumpJson> {
    let begun = Instant::now();
    let mut said = String::new();
    loop {
        let dump: DumpJson = api.get(path)?;
        if dump.state != "running" {
            return Ok(dump);
        }
        let waiting = dump.hosts.iter().filter(|host| host.state == "waiting").count();
        let now = format!("  {}: {} files, {waiting} agents to answer", printable(&dump.progress), dump.files.len());
        if now != said {
            eprintln!("{}", printable(&now));
            said = now;
        }
        if begun.elapsed() > PATIENCE {
            bail!("the capture is not over after {} s; the server's log says more", PATIENCE.as_secs());
        }
        if should_stop() {
            bail!("interrupted");
        }
        std::thread::sleep(POLL);
    }
}

/// Hosts that gave no answer, and why.
fn silent_hosts(dump: &DumpJson) -> impl Iterator<Item = String> {
    let silent = dump.hosts.iter().filter(|host| host.state != "ok");
    silent.map(|host| format!("host {}: {} ({})", host.host, host.state, host.text))
}

/// What went wrong, on which host and rank; many of a kind together.
fn tell(dump: &DumpJson) {
    for host in silent_hosts(dump) {
        eprintln!("  {}", printable(&host));
    }
    let mut alike: BTreeMap<(&str, bool, &str), Vec<&DumpTriedJson>> = BTreeMap::new();
    for tried in dump.tried.iter().filter(|tried| !tried.text.is_empty()) {
        alike.entry((&tried.kind, tried.file.is_some(), &tried.text)).or_default().push(tried);
    }
    for ((kind, got, text), of) in alike {
        let ranks: Vec<String> =
            of.iter().take(NAMED_MAX).map(|t| t.rank.map_or("?".to_owned(), |r| r.to_string())).collect();
        let more = if of.len() > NAMED_MAX { format!(" and {} more", of.len() - NAMED_MAX) } else { String::new() };
        let none = if got { "" } else { "none: " };
        eprintln!("  {} of rank {}{more}: {none}{}", printable(kind), ranks.join(", "), printable(text));
    }
}

/// Fetches the files into a folder.
fn fetch(api: &Api, path: &str, files: &[DumpFileJson], folder: &Path) -> Result<()> {
    for file in files {
        let place = folder.join(checked(file)?);
        let bytes = fetched(api, path, file)?;
        let dir = place.parent().unwrap_or(folder);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .with_context(|| format!("making {}", dir.display()))?;
        std::fs::write(&place, bytes).with_context(|| format!("writing {}", place.display()))?;
    }
    Ok(())
}

/// Where a file lies; the server's names are checked, since they decide where something is written.
fn checked(file: &DumpFileJson) -> Result<&Path> {
    let relative = Path::new(&file.path);
    if relative.components().any(|part| !matches!(part, Component::Normal(_))) || relative.is_absolute() {
        bail!("the server names a file {:?}, which leads out of the folder", file.path);
    }
    Ok(relative)
}

fn fetched(api: &Api, path: &str, file: &DumpFileJson) -> Result<Vec<u8>> {
    let escaped = file.path.split('/').map(escaped).collect::<Vec<_>>().join("/");
    Ok(api.bytes(&format!("{path}/files/{escaped}"))?)
}

/// The autopsy of the folder as `mycroft autopsy DIR` gives it, and with what agents said of ranks that gave no dump.
fn whole(args: &DumpArgs, dump: &DumpJson, folder: &Path) -> Result<u8> {
    let mut typed: Vec<std::ffi::OsString> = vec!["autopsy".into(), "--quiet".into(), folder.into()];
    if args.json {
        typed.push("--json".into());
    }
    if let Some(file) = &args.html {
        typed.extend(["--html".into(), file.into()]);
    }
    let matches = AutopsyArgs::augment_args(clap::Command::new("autopsy")).try_get_matches_from(typed)?;
    autopsy::autopsy_of(&AutopsyArgs::from_arg_matches(&matches)?, untold(&dump.tried))
}

/// Without a dump there are no operations to compare: equal stacks, largest group first, and those that stand out.
fn stacks_only(args: &DumpArgs, dump: &DumpJson) -> Result<u8> {
    let Some(answer) = &dump.autopsy else { return Ok(EXIT_OK) };
    if args.json {
        print(&format!("{}\n", json(answer)?))?;
        return Ok(EXIT_FOUND);
    }
    let mut text = format!(
        "stacks of {} processes, no Flight Recorder dump: what follows is where each rank is, not who is to blame\n",
        dump.files.len()
    );
    for group in &answer.stacks {
        let ranks: Vec<String> = group.ranks.iter().map(u32::to_string).collect();
        let doing = if group.doing.is_empty() { String::new() } else { format!(" ({})", printable(&group.doing)) };
        let mark = if group.odd { "* " } else { "  " };
        text.push_str(&format!("{mark}ranks {}{doing}\n", ranks.join(", ")));
        for frame in &group.frames {
            let place = format!("{}:{}", printable(&frame.file), frame.line);
            text.push_str(&format!("      {} ({place})\n", printable(&frame.name)));
        }
    }
    print(&text)?;
    Ok(EXIT_FOUND)
}
