//! What to do next, per kind of fault: concrete steps, most useful first.
use mycroft_record::{Category, Place, Suspect, What};

/// Suspects of equal confidence that a step names; a whole host of 8 fits.
const ALIKE_MAX: usize = 8;

fn who(place: &Place) -> String {
    match place {
        Place::Rank { rank, host } if host.is_empty() => format!("rank {rank}"),
        Place::Rank { rank, host } => format!("rank {rank} on {host}"),
        Place::Host { host } => host.to_string(),
        Place::Link { from, to } => format!("the link {from} -> {to}"),
    }
}

/// The last step where a job stands still.
const STANDS: &str = "the job will not go on by itself: save the evidence, then restart it";
/// The last step where ranks are in different operations and the job goes on.
const WRONG: &str =
    "what the job computes since then is wrong: save the evidence, then restart it from a checkpoint before it";

/// The step where nobody is named.
fn nobody(what: What, category: Category) -> &'static str {
    match (what, category) {
        (What::Slowdown, Category::NotStarted) => {
            "ranks pause in turn: if it is garbage collection, let all collect in the same step (gc.disable, gc.collect)"
        }
        (What::Slowdown, Category::DataLoading) => {
            "all ranks wait outside of collectives: look at the storage and at what feeds the data loaders, and dump the stack of any main thread (py-spy dump)"
        }
        _ => "no suspect yet: look at the ranks that have no data, and at the stacks of all ranks",
    }
}

/// Steps for a verdict on `suspects`, most likely first.
pub(crate) fn steps(what: What, category: Category, suspects: &[Suspect]) -> Vec<String> {
    let Some(first) = suspects.first() else {
        return vec![nobody(what, category).to_string()];
    };
    let place = &first.place;
    let equal = suspects.get(1).filter(|second| second.confidence == first.confidence);
    let alike = suspects.iter().take_while(|other| other.confidence == first.confidence).take(ALIKE_MAX);
    let who = match equal {
        Some(second) if category == Category::NetworkSend && what == What::Slowdown => {
            format!(
                "{} and {} (they talk to each other only: nothing tells the two ends apart)",
                who(place),
                who(&second.place)
            )
        }
        _ => alike.map(|other| who(&other.place)).collect::<Vec<_>>().join(" and "),
    };
    let lines: Vec<String> = match category {
        Category::NotStarted => vec![
            format!("dump the stacks of {who} (py-spy dump): its main thread is outside the collective"),
            "check its data loader, checkpoint writer and any branch on rank or data".to_string(),
        ]
        .into_iter()
        .chain((what == What::Hang).then(|| {
            "if that thread waits for its device (a synchronize call): nvidia-smi -q and dmesg for Xid messages"
                .to_string()
        }))
        .collect(),
        Category::Gpu => vec![
            format!("on {who}: nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE and dmesg for Xid messages"),
            "look for other processes on its devices; run a compute microtest against a healthy rank".to_string(),
            "replace it if the microtest confirms, and restart from the last checkpoint".to_string(),
        ],
        Category::GpuCopy => vec![
            format!("on {who}: lspci -vv (LnkSta speed and width) and nvidia-smi -q -d PCIE against a healthy rank"),
            "reseat or replace the device if the link is downgraded".to_string(),
        ],
        Category::HostThread if matches!(place, Place::Host { .. }) => vec![
            format!(
                "on {who}: find what else runs on its processors (top, systemd-cgtop) and whether they are throttled \
                 (cpupower frequency-info, cpu.stat of the job's cgroup)"
            ),
            "keep it off the job's cores; compare CPU pinning with a healthy host".to_string(),
        ],
        Category::HostThread => vec![
            format!("on {who}: look for a stopped or starved proxy thread (state, CPU affinity, cgroup throttling)"),
            "compare its NCCL proxy settings and CPU pinning with a healthy rank".to_string(),
        ],
        Category::NetworkSend => vec![
            format!(
                "on {who}: ip -s link, ethtool or ibstat: link state, rate, errors; check its cable and switch port"
            ),
            "drain it if the link does not come back, and restart without it".to_string(),
        ],
        Category::NetworkReceive => vec![
            format!("on {who}: receive errors, pause frames and the switch port that feeds it"),
            "compare the receive rate with its neighbours'".to_string(),
        ],
        Category::NetworkCongestion => vec![
            format!(
                "find the other traffic at {who}: per-flow counters at the NIC and the switch between the suspects"
            ),
            "move the other job, or give the training traffic its own class".to_string(),
        ],
        Category::ProcessExit => vec![
            format!("read the log and exit status of {who}; dmesg for the OOM killer; look for a core file"),
            "restart from the last checkpoint; replace the host if it happens there again".to_string(),
        ],
        Category::ArgumentMismatch => {
            vec![format!("compare the arguments of this operation on {who} with its peers' code path")]
        }
        Category::CodeDivergence => vec![
            format!("compare the stacks of {who} with its peers': they issue different operations"),
            "look for a branch on rank, data or an exception that was caught".to_string(),
        ],
        Category::DataLoading => vec![format!("look at the input pipeline of {who}")],
        Category::Peer | Category::Unknown => {
            vec![format!("look at {who} first: stacks, device and link state; switch on kernel events if they are off")]
        }
    };
    let together = equal.is_some() && what == What::Hang && category == Category::NetworkSend;
    let switch = together.then(|| "they went together: look at the switch that they have in common".to_string());
    let restart = matches!(what, What::Hang | What::Deadlock | What::Desync);
    lines.into_iter().chain(switch).chain(restart.then(|| STANDS.to_owned())).collect()
}

/// The same where the job has not stopped.
pub(crate) fn goes_on(steps: &mut [String]) {
    steps.iter_mut().filter(|step| *step == STANDS).for_each(|step| WRONG.clone_into(step));
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_record::{HostName, Rank};

    #[test]
    fn a_job_that_goes_on_is_not_said_to_stand() {
        let place = Place::Rank { rank: Rank(3), host: HostName::from("a") };
        let mut told = steps(What::Desync, Category::CodeDivergence, &[Suspect { place, confidence: 0.95 }]);
        assert_eq!(told.last().map(String::as_str), Some(STANDS));
        goes_on(&mut told);
        assert_eq!(told.last().map(String::as_str), Some(WRONG));
        assert!(!told.iter().any(|step| step == STANDS));
    }
}
