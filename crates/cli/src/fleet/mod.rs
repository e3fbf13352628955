//! `mycroft doctor --server URL`: every host that a server knows, and what to mend where. Asked with a reader's token; this
//! host is not looked at.
mod clocks;
mod finding;
mod host;
mod jobs;
mod refusals;
mod server;
#[cfg(test)]
mod tests;
mod text;
mod told;

use crate::api::{Api, ApiError, ServerArgs};
use crate::check::Grade;
use crate::exit::{EXIT_FOUND, EXIT_OK};
use crate::told::print;
use anyhow::Result;
use finding::together;
use mycroft_serve::api::{FleetJson, HealthJson};
use std::collections::BTreeSet;
use told::{Asked, Found};

/// The status of a path that a server does not know.
const NOT_FOUND: u16 = 404;

/// Whether `--server` names the HTTP address of a server, and not where agents ship to.
pub(crate) fn is_url(server: &str) -> bool {
    server.starts_with("http://") || server.starts_with("https://")
}

/// Asks the server and prints what it finds; exit code 1 when something must be mended.
///
/// # Errors
/// The server does not answer, wants another token, or answers what this program does not understand.
pub(crate) fn doctor(url: &str, args: &ServerArgs, as_json: bool) -> Result<u8> {
    let found = found(&ask(url, args)?);
    if as_json {
        print(&format!("{}\n", crate::told::json(&found)?))?;
    } else {
        print(&text::text(&found))?;
    }
    let is_failed = found.findings.iter().any(|finding| finding.grade == Grade::Fail);
    Ok(if is_failed { EXIT_FOUND } else { EXIT_OK })
}

fn ask(url: &str, args: &ServerArgs) -> Result<Asked> {
    let args = ServerArgs { url: url.to_owned(), ..args.clone() };
    let api = Api::new(&args)?;
    let health: HealthJson = api.get("/api/v1/health")?;
    let fleet = match api.get::<FleetJson>("/api/v1/fleet") {
        Ok(fleet) => Some(fleet),
        Err(ApiError::Refused { status: NOT_FOUND, .. }) => None,
        Err(error) => return Err(error.into()),
    };
    Ok(Asked { url: url.trim_end_matches('/').to_owned(), health, fleet })
}

/// What is to be said of a server and its hosts. Reads no clock: times are the server's.
fn found(asked: &Asked) -> Found {
    let mut findings = server::findings(asked);
    let hosts = asked.fleet.as_ref().map(|fleet| fleet.hosts.as_slice()).unwrap_or_default();
    match &asked.fleet {
        Some(fleet) => {
            findings.extend(jobs::findings(fleet));
            findings.extend(hosts.iter().flat_map(|host| host::findings(host, fleet)));
        }
        None => findings.extend(clocks::of_an_old_server(&asked.health.clocks)),
    }
    let findings = together(findings);
    let to_mend = findings.iter().filter(|finding| finding.grade != Grade::Ok);
    let sick: BTreeSet<&String> = to_mend.flat_map(|finding| &finding.hosts).collect();
    Found {
        url: asked.url.clone(),
        version: asked.health.version.clone(),
        uptime_s: asked.health.uptime_s,
        hosts: hosts.len(),
        healthy: hosts.iter().filter(|host| !sick.contains(&host.host)).count(),
        agents: asked.health.agents_connected,
        clocks: clocks::spread(hosts),
        disk: asked.health.disk,
        findings,
    }
}
