//! `GET /api/v1/fleet`: every host that the server knows.
use super::holders::Holder;
use super::routes::{Asked, ListQuery, Refusal, Shared, list_limit, not_worked_out, parameters};
use crate::api::{AgentJson, FleetJson, HostJson, SpoolJson, TimeJson};
use axum::extract::State;
use axum::response::Json;
use axum::{Extension, Router, routing::get as on_get};
use mycroft_wire::sync::lock;
use mycroft_wire::{ListenerHandle, VERSION_HIGHEST, VERSION_LOWEST};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Hosts where nobody said how many: all of a large cluster, 600 bytes each.
const LIMIT_DEFAULT: usize = 10_000;

/// The route.
pub(super) fn routes() -> Router<Arc<Shared>> {
    Router::new().route("/api/v1/fleet", on_get(fleet))
}

async fn fleet(
    State(shared): State<Arc<Shared>>,
    holder: Extension<Holder>,
    asked: Asked<ListQuery>,
) -> Result<Json<FleetJson>, Refusal> {
    let limit = list_limit(Some(parameters(asked, "limit")?.limit.unwrap_or(LIMIT_DEFAULT)))?;
    // Files of certificates are read: not on the thread that answers others.
    let told = tokio::task::spawn_blocking(move || shared.fleet(&holder, limit)).await;
    told.map(Json).map_err(|_| not_worked_out())
}

impl Shared {
    fn fleet(&self, holder: &Holder, limit: usize) -> FleetJson {
        let now = (self.clock)();
        let over = |job: &crate::api::JobJson| job.state == "ended";
        let ended: BTreeSet<String> = self.stats.jobs().into_iter().filter(over).map(|job| job.name).collect();
        let (mut hosts, jobs) = self.stats.fleet.json(now, |job| holder.sees(job), &ended);
        self.add_agents(&mut hosts);
        let more = hosts.len().saturating_sub(limit) as u64;
        let wire = self.wire();
        FleetJson {
            now: TimeJson::exact(now),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            wire_versions: [VERSION_LOWEST, VERSION_HIGHEST],
            uptime_s: self.stats.started.elapsed().as_secs_f64(),
            hosts: hosts.into_values().take(limit).collect(),
            more,
            jobs,
            refused: wire.refused,
            refusals: self.stats.refusals.json(now),
            put_out: wire.put_out,
            certificates: self.certificates.iter().map(crate::expiry::Watched::json).collect(),
        }
    }

    /// What agents said when they connected, also of hosts that have sent nothing yet.
    fn add_agents(&self, hosts: &mut BTreeMap<String, HostJson>) {
        let peers: Vec<_> = lock(&self.listeners).iter().flat_map(ListenerHandle::peers).collect();
        for peer in peers {
            let agent = AgentJson {
                software: peer.software,
                wire_version: peer.version,
                silent_s: Some(peer.silent.as_secs_f64()),
                spool: peer.spooled.map(SpoolJson::from),
            };
            let host = hosts.entry(peer.host.clone()).or_insert_with(|| HostJson::unheard(peer.host));
            host.last_agent = None;
            host.agents.push(agent);
        }
    }
}
