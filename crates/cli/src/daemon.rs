//! `mycroft agent` and `mycroft serve`: start, say where, wait for a signal, stop in order.
use crate::EXIT_OK;
use crate::args::{AgentArgs, ServeArgs};
use crate::stop::Stop;
use anyhow::{Context, Result};
use mycroft_agent::{Agent, AgentConfig, CaptureConfig, SpyProgram};
use mycroft_serve::{ServeConfig, Server};
use mycroft_wire::{Endpoint, TlsClient, TlsIdentity, TlsServer};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How often a waiting daemon looks for a signal.
const SIGNAL_POLL: Duration = Duration::from_millis(100);

/// Runs the agent until a signal comes.
pub(crate) fn agent(args: &AgentArgs) -> Result<u8> {
    let stop = Stop::on_signals()?;
    let endpoint: Endpoint = args.server.parse().context("--server")?;
    let segment_dir = args.dir.clone().unwrap_or_else(default_segment_dir);
    let spool_dir = args.spool.clone().unwrap_or_else(|| default_spool_dir(&segment_dir));
    let mut config = AgentConfig::new(&segment_dir, &spool_dir, endpoint);
    config.host = args.host.clone();
    config.token = args.token.clone();
    config.sample_every = Duration::from_millis(args.sample_ms);
    config.ship_every = config.sample_every;
    config.spool_max_bytes = args.spool_bytes;
    config.nic_root = args.nic_root.clone();
    config.nics = args.nic.clone();
    config.capture = CaptureConfig { enabled: !args.no_dump, spy: Some(own_spy()) };
    if let Some(path) = &args.tls_ca {
        // Without it the server would seem to be away, for ever.
        std::fs::File::open(path).with_context(|| format!("--tls-ca {}: cannot be read", path.display()))?;
    }
    config.tls = args.tls_ca.clone().map(|ca_pem| TlsClient {
        ca_pem,
        server_name: Some(args.tls_name.clone()),
        identity: None,
    });
    // Before the agent's threads exist: they inherit it.
    rustix::process::nice(args.nice).with_context(|| format!("--nice {}: cannot lower the priority", args.nice))?;
    let handle = Agent::start(config).context("cannot start the agent")?;
    eprintln!("mycroft agent: watching {}, shipping to {}", segment_dir.display(), args.server);
    while !stop.asked() {
        for notice in handle.take_notices() {
            eprintln!("mycroft agent: {notice}");
        }
        std::thread::sleep(SIGNAL_POLL);
    }
    let stats = handle.stop();
    eprintln!("mycroft agent: stopped; {stats:?}");
    Ok(EXIT_OK)
}

/// This program again, also after its file was replaced.
fn own_spy() -> SpyProgram {
    SpyProgram { program: PathBuf::from("/proc/self/exe"), args: vec!["spy".into()] }
}

/// /dev/shm/mycroft-UID, where the tracer writes unless MYCROFT_DIR says otherwise.
pub(crate) fn default_segment_dir() -> PathBuf {
    PathBuf::from(format!("/dev/shm/mycroft-{}", uid()))
}

/// Beside the segments in name, on disk in fact.
fn default_spool_dir(segment_dir: &std::path::Path) -> PathBuf {
    let name = segment_dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    std::env::temp_dir().join(format!("mycroft-spool-{}-{name}", uid()))
}

fn uid() -> u32 {
    std::fs::metadata("/proc/self").map_or(0, |metadata| metadata.uid())
}

/// Runs the server until a signal comes.
pub(crate) fn serve(args: &ServeArgs) -> Result<u8> {
    let stop = Stop::on_signals()?;
    let mut wire = Vec::new();
    for text in &args.wire {
        wire.push(text.parse::<Endpoint>().context("--wire")?);
    }
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(cert), Some(key)) => Some(TlsServer {
            identity: TlsIdentity { cert_pem: cert.clone(), key_pem: key.clone() },
            client_ca_pem: None,
        }),
        _ => None,
    };
    let config = ServeConfig {
        http: args.http,
        wire,
        token: args.token.clone(),
        tls,
        store_dir: args.store.clone(),
        tick: Duration::from_millis(args.tick_ms),
        webhook: args.webhook.clone(),
        dump_on_case: !args.no_dump_on_case,
        log: Some(Arc::new(|line: &str| eprintln!("mycroft serve: {line}"))),
    };
    let handle = Server::start(config).context("cannot start the server")?;
    let endpoints: Vec<String> = handle.wire_endpoints().iter().map(ToString::to_string).collect();
    eprintln!("mycroft serve: http://{}/, agents at {}", handle.http_addr(), endpoints.join(" and "));
    while !stop.asked() {
        std::thread::sleep(SIGNAL_POLL);
    }
    handle.stop();
    eprintln!("mycroft serve: stopped");
    Ok(EXIT_OK)
}
