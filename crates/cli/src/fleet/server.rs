//! The server itself: its version, its state, its disk, its certificates, and whom it refused.
use super::finding::Finding;
use super::refusals;
use super::told::Asked;
use crate::check::Grade;
use crate::told::{age, to_the_second};
use mycroft_record::text::printable;
use mycroft_record::{HostTime, NANOS_PER_SEC};
use mycroft_serve::api::{CertificateJson, DiskJson, DroppedJson, FleetJson, HealthJson};

/// A certificate that ends within so many days is to be renewed; within fewer it is late.
const CERTIFICATE_DAYS: (u64, u64) = (21, 3);
/// Of the store's disk that is free, thousandths: less is little, and less than the second is too little.
const FREE_MILLI: (u64, u64) = (50, 10);
/// Diagnosis that is behind by more is told of, milliseconds.
const LAG_MS: u64 = 5_000;
const GIB: f64 = (1_u64 << 30) as f64;

/// What is to be said of the server.
pub(super) fn findings(asked: &Asked) -> Vec<Finding> {
    let Asked { health, fleet, .. } = asked;
    let mut found = versions(health, fleet.is_some());
    let problem = |text: &String| Finding::new(Grade::Warn, "server", printable(text), "see docs/runbook/server.md");
    found.extend(health.problems.iter().map(problem));
    if health.lag_ms > LAG_MS {
        let text = format!("diagnosis is {:.1} s behind the jobs", health.lag_ms as f64 / 1e3);
        found.push(Finding::new(
            Grade::Warn,
            "server",
            text,
            "give the server more cores, or each cluster a server of its own",
        ));
    }
    found.extend(dropped(&health.dropped));
    found.extend(disk(health.disk));
    if let Some(fleet) = fleet {
        found.extend(refused(fleet));
        found.extend(fleet.certificates.iter().filter_map(|one| certificate(one, fleet.now.ns)));
    }
    found
}

fn versions(health: &HealthJson, tells_of_hosts: bool) -> Vec<Finding> {
    let (own, theirs) = (env!("CARGO_PKG_VERSION"), printable(&health.version));
    let mut found = Vec::new();
    if !tells_of_hosts {
        let text = format!(
            "the server ({theirs}) is too old to tell of its hosts (GET /api/v1/fleet): only its own state and clocks that are \
             off were looked at"
        );
        found.push(Finding::new(Grade::Fail, "version", text, "upgrade the server; agents may be older than it"));
    } else if own != theirs {
        let text = format!("the server has version {theirs}, this program {own}");
        found.push(Finding::new(Grade::Warn, "version", text, "use the same version everywhere"));
    }
    found
}

fn dropped(dropped: &DroppedJson) -> Vec<Finding> {
    let more_cores = "give the server more cores; mycroft_ingest_queue_records says how much waits";
    let places = [
        (dropped.queue, "neither diagnosed nor stored: its queue was full", more_cores),
        (
            dropped.store,
            "diagnosed and not stored: the disk was too slow or failed",
            "look at the store's disk: iostat -x 1",
        ),
        (dropped.jobs, "not diagnosed: more than 256 jobs", "give each cluster a server of its own"),
        (
            dropped.limits,
            "not diagnosed: they name too many ranks, hosts or communicators",
            "look for agents that invent names",
        ),
    ];
    let lost = places.into_iter().filter(|(records, _, _)| *records > 0);
    let text = |records: u64, what: &str| format!("{records} records since the server's start were {what}");
    lost.map(|(records, what, fix)| Finding::new(Grade::Warn, "lost", text(records, what), fix)).collect()
}

fn disk(disk: Option<DiskJson>) -> Option<Finding> {
    let Some(DiskJson { free_bytes, bytes, retain_bytes, .. }) = disk else {
        let text = "nothing is stored: records and cases end with the server";
        return Some(Finding::new(Grade::Warn, "disk", text, "on the server: mycroft serve --store DIR"));
    };
    let milli = free_bytes.saturating_mul(1000).checked_div(bytes).unwrap_or(1000);
    let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / GIB);
    if milli < FREE_MILLI.0 {
        let grade = if milli < FREE_MILLI.1 { Grade::Fail } else { Grade::Warn };
        let text = format!("of the store's disk {} of {} are free", gib(free_bytes), gib(bytes));
        let fix =
            "on the server: a smaller --retain-bytes or --retain-days, or free the disk of what is not the store's";
        return Some(Finding::new(grade, "disk", text, fix));
    }
    (retain_bytes > bytes).then(|| {
        let text =
            format!("--retain-bytes lets records take {}, the store's disk has {}", gib(retain_bytes), gib(bytes));
        let fix = format!("on the server: --retain-bytes {} (four fifths of the disk)", bytes / 5 * 4);
        Finding::new(Grade::Warn, "disk", text, fix)
    })
}

/// Connections that were refused, where no agent is named, and that were put out.
fn refused(fleet: &FleetJson) -> Vec<Finding> {
    let mut found = refusals::findings(fleet);
    let since = age((fleet.uptime_s.max(0.0) * 1e9) as u64);
    if fleet.refused > 0 && fleet.refusals.is_empty() {
        let text =
            format!("{} connections of agents were refused in {since}: token, certificate or version", fleet.refused);
        let fix =
            "on the server: journalctl -u mycroft-server | grep refused; then there: mycroft doctor --server HOST:7700";
        found.push(Finding::new(Grade::Warn, "refused", text, fix));
    }
    if fleet.put_out > 0 {
        let text = format!("{} connections were put out before they had shown a token: too many came", fleet.put_out);
        let fix = "on the server: LimitNOFILE=65536; journalctl -u mycroft-server | grep 'put out'";
        found.push(Finding::new(Grade::Warn, "refused", text, fix));
    }
    found
}

fn certificate(one: &CertificateJson, now_ns: u64) -> Option<Finding> {
    let (of, flag) = match &*one.of {
        "http" => ("of the HTTP address", "--http-tls-cert"),
        "wire" => ("for agents", "--tls-cert"),
        "agents-authority" => ("of the authority of agents", "--tls-client-ca"),
        other => (other, "TLS"),
    };
    let of = printable(of);
    let fix = format!("renew the file of {flag}; the server reads it again by itself");
    let Some(ends) = &one.ends_at else {
        let text = format!("the certificate {of} cannot be read any more; the one that was read before is in use");
        return Some(Finding::new(Grade::Fail, "certificate", text, fix));
    };
    let left_days = HostTime(ends.ns).since_ns(HostTime(now_ns)) / (86_400 * NANOS_PER_SEC);
    let (soon, late) = CERTIFICATE_DAYS;
    if left_days >= soon {
        return None;
    }
    let word = if ends.ns <= now_ns { "ended at" } else { "ends at" };
    let text = format!("the certificate {of} {word} {}", to_the_second(&printable(&ends.text)));
    Some(Finding::new(if left_days < late { Grade::Fail } else { Grade::Warn }, "certificate", text, fix))
}
