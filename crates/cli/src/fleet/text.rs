//! The table of what was found, for people: the worst first, healthy hosts in one line.
use super::finding::Finding;
use super::told::Found;
use crate::check::Grade;
use crate::told::age;
use mycroft_record::NANOS_PER_SEC;
use mycroft_record::text::printable;
use std::fmt::Write as _;

/// Hosts that are named in a line.
const HOSTS_SHOWN: usize = 3;
/// Width of the columns of places and of checks.
const PLACE_WIDTH: usize = 24;
const CHECK_WIDTH: usize = 11;

/// The table.
pub(super) fn text(found: &Found) -> String {
    let mut out = String::new();
    head(&mut out, found);
    for finding in &found.findings {
        line(&mut out, finding);
    }
    let hosts = match (found.hosts, found.healthy) {
        (0, _) => "no host is known".to_owned(),
        (all, healthy) if all == healthy => format!("all {all} hosts: nothing to mend"),
        (all, healthy) => format!("{healthy} of {all} hosts: nothing to mend"),
    };
    let mark = if found.hosts > 0 && found.healthy > 0 { "   ok" } else { "     " };
    let _ = writeln!(out, "{mark}  {hosts}");
    out
}

fn head(out: &mut String, found: &Found) {
    let (url, version) = (printable(&found.url), printable(&found.version));
    let up = age((found.uptime_s.max(0.0) * 1e9) as u64);
    let _ = writeln!(out, "{url}: version {version}, up {up}, {} agents connected", found.agents);
    if let Some(disk) = found.disk {
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let _ = writeln!(
            out,
            "store: keeps records for {}, at most {:.0} GiB; {:.1} of {:.1} GiB of its disk are free",
            age(disk.retain_s.saturating_mul(NANOS_PER_SEC)),
            gib(disk.retain_bytes),
            gib(disk.free_bytes),
            gib(disk.bytes)
        );
    }
    if let Some(clocks) = &found.clocks {
        let _ = writeln!(
            out,
            "clocks of {} hosts: {:.4} s apart at most, from {} (behind) to {} (ahead), to within {:.4} s",
            clocks.hosts,
            clocks.apart_s,
            printable(&clocks.behind),
            printable(&clocks.ahead),
            clocks.bound_s
        );
    }
    out.push('\n');
}

fn line(out: &mut String, finding: &Finding) {
    let mark = match finding.grade {
        Grade::Ok => "   ok",
        Grade::Warn => " warn",
        Grade::Fail => " FAIL",
    };
    let (place, check) = (place(finding), finding.check);
    let of_job = finding.job.as_ref().filter(|_| !finding.hosts.is_empty());
    let of_job = of_job.map(|job| format!(" (job {job})")).unwrap_or_default();
    // Long lists of hosts have a line of their own.
    let place = if place.chars().count() > PLACE_WIDTH {
        let _ = writeln!(out, "{mark}  {place}");
        format!("{:PLACE_WIDTH$}", "")
    } else {
        format!("{place:<PLACE_WIDTH$}")
    };
    let mark = if place.trim().is_empty() { "     " } else { mark };
    let _ = writeln!(out, "{mark}  {place} {check:<CHECK_WIDTH$}{}{of_job}", finding.found);
    let indent = 7 + PLACE_WIDTH + 1 + CHECK_WIDTH;
    if !finding.fix.is_empty() {
        let _ = writeln!(out, "{:indent$}-> {}", "", finding.fix);
    }
}

/// `h1, h2, h3 and 9 more`, `job train`, `server`.
fn place(finding: &Finding) -> String {
    match (&finding.hosts[..], &finding.job) {
        ([], Some(job)) => format!("job {job}"),
        ([], None) => "server".to_owned(),
        (hosts, _) if hosts.len() <= HOSTS_SHOWN => hosts.join(", "),
        (hosts, _) => format!("{} and {} more", hosts[..HOSTS_SHOWN].join(", "), hosts.len() - HOSTS_SHOWN),
    }
}
