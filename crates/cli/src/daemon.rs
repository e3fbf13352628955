//! `mycroft agent` and `mycroft serve`: start, say where, wait for a signal, stop in order.
use crate::args::{AgentArgs, ServeArgs};
use crate::exit::EXIT_OK;
use crate::segment_dir::{default_segment_dir, uid};
use crate::stop::Stop;
use anyhow::{Context, Result, bail};
use mycroft_agent::{Agent, AgentConfig, CaptureConfig, Notice, SpyProgram};
use mycroft_serve::{OtlpHeaders, ServeConfig, Server};
use mycroft_wire::trusted::{self, Holds};
use mycroft_wire::{Endpoint, TlsIdentity, TlsServer};
use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tracing::{error, info, warn};

/// How often a waiting daemon looks for a signal.
const SIGNAL_POLL: Duration = Duration::from_millis(100);
/// Longest that a server takes to stop; it has 0.1 s of it to notice the signal, and usually needs a tenth.
const STOP_WITHIN: Duration = Duration::from_millis(2800);
/// Longest name of a default spool: what a file system takes.
const SPOOL_NAME_BYTES_MAX: usize = 255;

/// Runs the agent until a signal comes.
pub(crate) fn agent(args: &AgentArgs) -> Result<u8> {
    args.log.begin("mycroft agent");
    args.log.end(watch(args))
}

fn watch(args: &AgentArgs) -> Result<u8> {
    args.config.tell();
    let stop = Stop::on_signals()?;
    let way = match args.bus.way()? {
        Some(way) => way,
        None => args.server.parse::<Endpoint>().context("--server")?.into(),
    };
    let server = way.to_string();
    if args.bus.bus.is_some() && args.may_hold {
        warn!("--may-hold does nothing: nobody asks an agent anything by a bus");
    }
    let segment_dir = args.dir.clone().unwrap_or_else(default_segment_dir);
    let spool_dir =
        args.spool.clone().map_or_else(|| default_spool_dir(uid(), |name| std::env::var_os(name), &segment_dir), Ok)?;
    let mut config = AgentConfig::new(&segment_dir, &spool_dir, way);
    config.host = args.host.clone();
    config.token = args.token.read()?;
    config.sample_every = Duration::from_millis(args.sample_ms);
    config.ship_every = config.sample_every;
    config.spool_max_bytes = args.spool_bytes;
    config.nic_root = args.nic_root.clone();
    config.nics = args.nic.clone();
    config.capture = CaptureConfig { enabled: !args.no_dump, spy: Some(own_spy()) };
    config.may_hold = args.may_hold;
    config.tls = args.tls.client()?;
    // Before the agent's threads exist: they inherit it.
    rustix::process::nice(args.nice).with_context(|| format!("--nice {}: cannot lower the priority", args.nice))?;
    let handle = Agent::start(config).context("cannot start the agent")?;
    let path = segment_dir.display();
    info!(%path, server, "watching {path}, shipping to {server}");
    while !stop.asked() {
        handle.take_notices().iter().for_each(tell);
        std::thread::sleep(SIGNAL_POLL);
    }
    let stats = handle.stop();
    info!("stopped; {stats:?}");
    Ok(EXIT_OK)
}

/// Tells what the agent noticed.
fn tell(notice: &Notice) {
    match notice {
        Notice::BadSegment { path, reason } | Notice::DirUnreadable { path, reason } => {
            warn!(path = %path.display(), error = reason, "{notice}");
        }
        Notice::ServerAway { endpoint, reason } | Notice::ServerRefused { endpoint, reason } => {
            warn!(peer = endpoint, error = reason, "{notice}");
        }
        Notice::Rejected { endpoint, reason } => error!(peer = endpoint, error = reason, "{notice}"),
        Notice::ServerBack { endpoint } => info!(peer = endpoint, "{notice}"),
        Notice::SpoolFailed { reason } => error!(error = reason, "{notice}"),
        Notice::TooManySegments { limit } => warn!(limit, "{notice}"),
        Notice::Defect => error!("{notice}"),
    }
}

/// This program again, also after its file was replaced.
fn own_spy() -> SpyProgram {
    SpyProgram { program: PathBuf::from("/proc/self/exe"), args: vec!["spy".into()] }
}

/// Where records wait for a lost server unless told otherwise: a private directory on disk, one for each segment
/// directory. `/var/lib/mycroft/spool/NAME` for root, else `NAME` in `mycroft` of `$XDG_STATE_HOME`, which is
/// `~/.local/state` when it is not set; `NAME` is the segment directory with `-` for each slash.
fn default_spool_dir(
    uid: u32,
    variable: impl Fn(&str) -> Option<OsString>,
    segment_dir: &std::path::Path,
) -> Result<PathBuf> {
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = match uid {
        0 => PathBuf::from("/var/lib/mycroft/spool"),
        _ => match (absolute("XDG_STATE_HOME"), absolute("HOME")) {
            (Some(state), _) => state.join("mycroft"),
            (None, Some(home)) => home.join(".local/state/mycroft"),
            (None, None) => {
                bail!("neither XDG_STATE_HOME nor HOME names a directory: say with --spool where records wait")
            }
        },
    };
    let whole = std::path::absolute(segment_dir).context("--dir")?;
    let name = whole.to_string_lossy().trim_matches('/').replace('/', "-");
    if name.len() > SPOOL_NAME_BYTES_MAX {
        bail!("the segment directory's path is too long to name a spool after: say with --spool where records wait");
    }
    Ok(base.join(name))
}

/// Port on which agents are taken.
const WIRE_PORT: u16 = 7700;

/// Where agents connect: as told; else, where they must show a token, on every address of this machine.
fn wire(args: &ServeArgs, has_token: bool) -> Result<Vec<Endpoint>> {
    if args.wire.is_empty() {
        let address = if has_token { Ipv4Addr::UNSPECIFIED } else { Ipv4Addr::LOCALHOST };
        return Ok(vec![Endpoint::Tcp(format!("{address}:{WIRE_PORT}"))]);
    }
    args.wire.iter().map(|text| text.parse::<Endpoint>().context("--wire")).collect()
}

/// How others can be let in, where only this machine is.
fn how_to_open(args: &ServeArgs, has_token: bool) -> Option<&'static str> {
    (args.wire.is_empty() && !has_token).then_some(
        "agents of other hosts cannot connect: start with --token-file FILE (made if it is not there), and give agents the \
         same file",
    )
}

/// The key of a webhook.
fn webhook_key(path: &Path) -> Result<String> {
    crate::token::read(path).with_context(|| format!("--webhook-key-file {}", path.display()))
}

/// Headers for a collector.
fn otlp_headers(path: &Path) -> Result<OtlpHeaders> {
    let told = || format!("--otlp-header-file {}", path.display());
    let bytes = trusted::read(path, Holds::Secret).with_context(told)?;
    let text = std::str::from_utf8(&bytes).context("is not text").with_context(told)?;
    text.parse().map_err(anyhow::Error::msg).with_context(told)
}

/// Runs the server until a signal comes.
pub(crate) fn serve(args: &ServeArgs) -> Result<u8> {
    args.log.begin("mycroft serve");
    args.log.end(diagnose(args))
}

fn diagnose(args: &ServeArgs) -> Result<u8> {
    args.config.tell();
    let stop = Stop::on_signals()?;
    stop.within(STOP_WITHIN, "what was received and not acknowledged is sent again by the agents")?;
    let (token, is_new) = args.token.read_or_make()?;
    let has_token = token.is_some();
    let wire = wire(args, has_token)?;
    let identity = |cert: &Option<PathBuf>, key: &Option<PathBuf>| {
        cert.clone().zip(key.clone()).map(|(cert_pem, key_pem)| TlsIdentity { cert_pem, key_pem })
    };
    let tls = identity(&args.tls_cert, &args.tls_key).map(|identity| TlsServer {
        identity,
        client_ca_pem: args.tls_client_ca.clone(),
        client_crl_pem: args.tls_client_crl.clone(),
    });
    let http_tls = identity(&args.http_tls_cert, &args.http_tls_key);
    let scheme = if http_tls.is_some() { "https" } else { "http" };
    let config = ServeConfig {
        http: args.http,
        wire,
        bus: args.bus.source()?,
        token,
        tls,
        http_tls,
        store_dir: args.store.clone(),
        meta: args.meta.place()?,
        records: args.records.place()?,
        retain_age: Duration::from_secs(args.retain_days.saturating_mul(24 * 3600)),
        retain_bytes: args.retain_bytes,
        tick: Duration::from_millis(args.tick_ms),
        webhook: args.webhook.clone(),
        webhook_format: args.webhook_format,
        webhook_key: args.webhook_key_file.as_deref().map(webhook_key).transpose()?,
        otlp: args.otlp.clone(),
        otlp_headers: args.otlp_header_file.as_deref().map(otlp_headers).transpose()?.unwrap_or_default(),
        dump_on_case: !args.no_dump_on_case,
        act_dir: args.act_dir.clone(),
        act_token: if args.act_dir.is_some() { args.act_token.read_or_make()? } else { None },
    };
    let handle = Server::start(config).context("cannot start the server")?;
    let endpoints: Vec<String> = handle.wire_endpoints().iter().map(ToString::to_string).collect();
    let (http, wire) = (handle.http_addr(), endpoints.join(" and "));
    info!(%http, wire, "{scheme}://{http}/, agents at {wire}");
    if let Some(how) = how_to_open(args, has_token) {
        info!("{how}");
    }
    if let Some(path) = args.token.token_file.as_ref().filter(|_| is_new) {
        let path = path.display();
        info!(%path, "a new token is in {path}; copy it to the hosts of agents and readers");
    }
    stop.wait();
    handle.stop();
    info!("stopped");
    Ok(EXIT_OK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Args, Command};
    use clap::Parser;
    use std::os::unix::fs::PermissionsExt;

    fn serve_args(typed: &[&str]) -> ServeArgs {
        match Args::try_parse_from([&["mycroft", "serve"], typed].concat()).expect("typed right").command {
            Command::Serve(args) => *args,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn agents_of_other_hosts_are_taken_where_they_must_show_a_token() {
        let at = |typed: &[&str], has_token| {
            let endpoints = wire(&serve_args(typed), has_token).expect("endpoints");
            endpoints.iter().map(Endpoint::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(at(&[], true), "0.0.0.0:7700");
        assert_eq!(at(&[], false), "127.0.0.1:7700");
        for has_token in [false, true] {
            assert_eq!(at(&["--wire", "127.0.0.2:1,unix:/x"], has_token), "127.0.0.2:1 unix:/x");
        }
        assert!(how_to_open(&serve_args(&[]), false).is_some_and(|how| how.contains("--token-file")));
        assert_eq!(how_to_open(&serve_args(&[]), true), None);
        assert!(wire(&serve_args(&["--wire", "nonsense"]), true).is_err());
    }

    #[test]
    fn headers_of_a_collector_come_from_a_file_that_nobody_else_may_change() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("headers");
        std::fs::write(&path, "# key\nAuthorization: Bearer s3cret\n").expect("written");
        assert_eq!(format!("{:?}", otlp_headers(&path).expect("headers")), r#"["Authorization"]"#);
        std::fs::write(&path, "Bearer s3cret\n").expect("written");
        let refused = format!("{:#}", otlp_headers(&path).expect_err("no header"));
        assert!(refused.contains("--otlp-header-file") && refused.contains("line 1 is not"), "{refused}");
        assert!(!refused.contains("s3cret"), "{refused}");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).expect("ours");
        let refused = format!("{:#}", otlp_headers(&path).expect_err("others may change it"));
        assert!(refused.contains("chmod go-w"), "{refused}");
    }

    #[test]
    fn the_default_spool_is_nobody_elses() {
        let spool = |uid: u32, set: &[(&str, &str)], dir: &str| {
            let variable = |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value));
            default_spool_dir(uid, variable, Path::new(dir))
        };
        let home = ("HOME", "/home/ada");
        let spooled = |uid, set: &[(&str, &str)], dir| spool(uid, set, dir).expect("a place");
        let shm = "/dev/shm/mycroft-1000";
        assert_eq!(spooled(0, &[home], shm), Path::new("/var/lib/mycroft/spool/dev-shm-mycroft-1000"));
        assert_eq!(spooled(7, &[home], shm), Path::new("/home/ada/.local/state/mycroft/dev-shm-mycroft-1000"));
        assert_eq!(spooled(7, &[home, ("XDG_STATE_HOME", "/s")], shm), Path::new("/s/mycroft/dev-shm-mycroft-1000"));
        assert_eq!(spooled(7, &[home, ("XDG_STATE_HOME", "s")], "/a"), Path::new("/home/ada/.local/state/mycroft/a"));
        for set in [&[][..], &[("HOME", "relative")]] {
            let why = spool(7, set, shm).expect_err("no place").to_string();
            assert!(why.contains("--spool"), "{why}");
        }
        assert!(spool(0, &[], &"long/".repeat(60)).is_err());
        assert_ne!(spooled(0, &[], "/a/x"), spooled(0, &[], "/b/x"), "one spool for each segment directory");
    }
}
