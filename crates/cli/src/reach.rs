//! Whether the server is there: for readers, for agents, and what it knows of the hosts' clocks.
use crate::api::{Api, ApiError, OWN_URL, ServerArgs};
use crate::check::{Check, fail, ok, warn};
use crate::secure::AgentTlsArgs;
use anyhow::Result;
use mycroft_record::text::printable;
use mycroft_serve::api::{ClockJson, ClocksJson, HealthJson};
use mycroft_wire::{Client, ClientConfig, Endpoint, Refusal, WireError};
use std::path::PathBuf;

#[derive(clap::Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Also look into this training process.
    #[arg(long)]
    pub(crate) pid: Option<u32>,
    /// Directory of trace segments; default /dev/shm/mycroft-UID.
    #[arg(long, env = "MYCROFT_DIR")]
    pub(crate) dir: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) server: ServerArgs,
    /// http://HOST:7701 or https://...: looks at every host that this server knows, and not at this one. Else where agents of this
    /// host ship to, HOST:PORT or unix:/path: looks whether an agent is let in there.
    #[arg(long = "server", env = "MYCROFT_SERVER", value_name = "SERVER")]
    pub(crate) wire: Option<String>,
    /// Name of this host, as its agent says it; default the host name. A token or certificate may be for one host.
    #[arg(long, env = "MYCROFT_HOST")]
    pub(crate) host: Option<String>,
    #[command(flatten)]
    pub(crate) tls: AgentTlsArgs,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

/// What readers find: the HTTP side, and the clocks that the server measures.
pub(crate) fn server(args: &DoctorArgs) -> Vec<Check> {
    let health = Api::new(&args.server).map(|api| api.get::<HealthJson>("/api/v1/health"));
    let clocks = match &health {
        Ok(Ok(health)) => clocks_of_hosts(&health.clocks),
        Ok(Err(_)) | Err(_) => Vec::new(),
    };
    std::iter::once(http(args, health)).chain(clocks).collect()
}

fn http(args: &DoctorArgs, health: Result<Result<HealthJson, ApiError>>) -> Check {
    let (what, url) = ("server", printable(&args.server.url));
    let health = match health {
        Ok(Ok(health)) => health,
        Err(error) => return fail(what, format!("{error:#}"), "give a file that holds the server's token"),
        Ok(Err(ApiError::Token { .. })) => {
            let found = format!("{url} wants the token, or another one than was given");
            return fail(what, found, "give it with --token-file, MYCROFT_TOKEN_FILE or MYCROFT_TOKEN");
        }
        Ok(Err(error @ ApiError::Unreachable { .. })) if args.wire.is_some() && args.server.url == OWN_URL => {
            let fix = "its HTTP side listens where it runs: look from there, or name it with --url";
            return warn(what, error.to_string(), fix);
        }
        Ok(Err(error @ ApiError::Unreachable { .. })) => {
            return warn(what, error.to_string(), "start one with `mycroft serve`, or name it with --url");
        }
        Ok(Err(error)) => {
            return fail(what, error.to_string(), "is this the HTTP address of `mycroft serve`? see --url");
        }
    };
    let version = printable(&health.version).into_owned();
    if health.status != "ok" {
        let problems: Vec<_> = health.problems.iter().map(|problem| printable(problem)).collect();
        let found = format!("{url} version {version} is {}: {}", printable(&health.status), problems.join("; "));
        return warn(what, found, "see docs/runbook/server.md");
    }
    if version != env!("CARGO_PKG_VERSION") {
        return warn(what, format!("{url} has version {version}"), "use the same version everywhere");
    }
    ok(what, format!("{url} version {version}, {} agents connected", health.agents_connected))
}

/// What agents of this host find: the wire, where it is said where that is.
pub(crate) fn wire(args: &DoctorArgs) -> Option<Check> {
    let (what, text) = ("way of agents", args.wire.as_ref()?);
    let endpoint: Endpoint = match text.parse() {
        Ok(endpoint) => endpoint,
        Err(error) => return Some(fail(what, format!("{error}"), "correct --server or MYCROFT_SERVER")),
    };
    let token = match args.server.token.read() {
        Ok(token) => token,
        Err(error) => return Some(fail(what, format!("{error:#}"), "give a file that holds the server's token")),
    };
    let tls = match args.tls.client() {
        Ok(tls) => tls,
        Err(error) => return Some(fail(what, format!("{error:#}"), "correct --tls-ca, --tls-cert and --tls-key")),
    };
    let host = args.host.clone().unwrap_or_else(mycroft_agent::host_name);
    let config = ClientConfig { host, token, tls, ..ClientConfig::default() };
    Some(match Client::connect(&endpoint, &config) {
        Ok(_) => ok(what, format!("{endpoint} lets agents in")),
        Err(error @ WireError::Refused { code: Refusal::BadCertificate, .. }) => {
            fail(what, error.to_string(), "give agents a certificate of their host: --tls-cert and --tls-key")
        }
        Err(error @ WireError::Tls { .. }) => {
            fail(what, error.to_string(), "correct --tls-ca, --tls-name, --tls-cert and --tls-key")
        }
        Err(error @ WireError::Refused { .. }) => {
            fail(what, error.to_string(), "give agents the server's token: --token-file or MYCROFT_TOKEN")
        }
        Err(error) => fail(
            what,
            error.to_string(),
            "does `mycroft serve` run there, with a token (else it listens on its own machine only)? a firewall?",
        ),
    })
}

/// Hosts whose clock is off or not known, as the server measures them.
fn clocks_of_hosts(clocks: &ClocksJson) -> Vec<Check> {
    let what = "clocks of hosts";
    if clocks.hosts == 0 {
        return Vec::new();
    }
    if clocks.told.is_empty() {
        return vec![ok(what, format!("{} hosts within 0.1 s of the server's", clocks.hosts))];
    }
    let mut checks: Vec<Check> = clocks.told.iter().map(clock_of_host).collect();
    let more = (clocks.off + clocks.unknown).saturating_sub(clocks.told.len() as u64);
    if more > 0 {
        checks.push(warn(what, format!("{more} more are off or not known"), "is the server's own clock right?"));
    }
    checks
}

fn clock_of_host(clock: &ClockJson) -> Check {
    let (what, host) = ("clock of a host", printable(&clock.host));
    let word = if clock.offset_s < 0.0 { "behind" } else { "ahead of" };
    let off = format!("{host} is {:.3} s {word} the server", clock.offset_s.abs());
    match clock.bound_s {
        Some(bound_s) => {
            let fix = format!("on {host}: chronyc makestep, then chronyc tracking; reports are corrected meanwhile");
            warn(what, format!("{off} (within {bound_s:.4} s)"), fix)
        }
        None => {
            let fix =
                format!("on {host}: upgrade the agent, or find what sets the clock again and again (chronyc tracking)");
            warn(what, format!("not known: about {off}"), fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Grade;

    #[test]
    fn hosts_whose_clock_is_off_are_named_with_the_command_that_mends_it() {
        let clock = |host: &str, offset_s, bound_s| ClockJson { host: host.to_owned(), offset_s, bound_s };
        let told = vec![clock("h3", 0.0, None), clock("h1", 2.0, Some(0.001)), clock("h2", -3600.0, Some(0.001))];
        let checks = clocks_of_hosts(&ClocksJson { hosts: 9, off: 3, unknown: 1, told });
        let lines: Vec<String> = checks.iter().map(|check| format!("{} -> {}", check.found, check.fix)).collect();
        assert!(lines[0].starts_with("not known: about h3") && lines[0].contains("upgrade the agent"), "{}", lines[0]);
        assert!(lines[1].starts_with("h1 is 2.000 s ahead of the server (within 0.0010 s) -> on h1: chronyc makestep"));
        assert!(lines[2].starts_with("h2 is 3600.000 s behind the server"), "{}", lines[2]);
        assert!(lines[3].starts_with("1 more"), "{}", lines[3]);
        assert!(clocks_of_hosts(&ClocksJson::default()).is_empty(), "an older server says nothing of clocks");
        let right = clocks_of_hosts(&ClocksJson { hosts: 9, ..ClocksJson::default() });
        assert!(right.len() == 1 && right[0].grade == Grade::Ok);
    }
}
