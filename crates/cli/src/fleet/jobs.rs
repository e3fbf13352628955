//! Jobs: ranks of which no agent tells, and libraries that differ among hosts.
use super::finding::Finding;
use crate::check::Grade;
use mycroft_record::text::printable;
use mycroft_serve::api::{FleetJson, RanksOfJobJson};
use std::collections::{BTreeMap, BTreeSet};

/// A job that is younger is still starting: its ranks come one after the other, seconds.
const STARTING_S: f64 = 60.0;
/// Ranges of ranks, and hosts of a version, that are shown.
const SHOWN: usize = 4;

/// What is to be said of jobs.
pub(super) fn findings(fleet: &FleetJson) -> Vec<Finding> {
    let missing = fleet.jobs.iter().filter_map(missing);
    missing.chain(mixed(fleet)).collect()
}

fn missing(job: &RanksOfJobJson) -> Option<Finding> {
    let world = job.world_size.filter(|_| job.missing > 0 && job.known_s >= STARTING_S)?;
    let range = |[first, last]: &[u32; 2]| if first == last { first.to_string() } else { format!("{first}-{last}") };
    let mut shown: Vec<String> = job.missing_ranks.iter().take(SHOWN).map(range).collect();
    if job.missing_ranks.len() > SHOWN {
        shown.push("...".to_owned());
    }
    let name = printable(&job.job);
    let found = format!(
        "{} of {world} ranks of job {name} are told of by no agent ({}): no agent on their hosts, or no tracer in them; who is \
         to blame there is not seen",
        job.missing,
        shown.join(", ")
    );
    let fix = format!(
        "on their hosts: systemctl start mycroft-agent@USER, and mycroft doctor --pid PID of such a rank; where they run: \
         squeue -n {name} -o %N"
    );
    Some(Finding::new(Grade::Fail, "ranks", found, fix).of_job(&name))
}

/// Jobs whose hosts have loaded different versions of NCCL.
fn mixed(fleet: &FleetJson) -> Vec<Finding> {
    let mut jobs: BTreeMap<&str, BTreeMap<(u32, &str), BTreeSet<&str>>> = BTreeMap::new();
    for host in &fleet.hosts {
        for traced in &host.traced {
            if let Some(nccl) = &traced.nccl {
                jobs.entry(&traced.job)
                    .or_default()
                    .entry((traced.nccl_code, nccl.as_str()))
                    .or_default()
                    .insert(&host.host);
            }
        }
    }
    let differ = jobs.into_iter().filter(|(_, versions)| versions.len() > 1);
    let finding = |(job, versions): (&str, BTreeMap<(u32, &str), BTreeSet<&str>>)| {
        let of = |((_, version), hosts): ((u32, &str), BTreeSet<&str>)| {
            let more = hosts.len().saturating_sub(SHOWN);
            let names: Vec<_> = hosts.into_iter().take(SHOWN).map(printable).collect();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{} on {}{more}", printable(version), names.join(", "))
        };
        let told: Vec<String> = versions.into_iter().map(of).collect();
        let found = format!("job {} has NCCL {}", printable(job), told.join("; "));
        let fix = "give all ranks one NCCL: the same image or environment on each host";
        Finding::new(Grade::Warn, "nccl", found, fix).of_job(&printable(job))
    };
    differ.map(finding).collect()
}
