//! Hosts to leave out at a restart (FALCON S4): with a reason and an end date. Bad once: for a short time; bad often: longer.
use mycroft_record::{Category, HostName, HostTime, JobName, NANOS_PER_SEC};
use std::collections::BTreeMap;

const HOUR_NS: u64 = 3600 * NANOS_PER_SEC;
const DAY_NS: u64 = 24 * HOUR_NS;
/// Strikes count for so long: a host that was repaired is not remembered for ever.
pub const REMEMBERED_NS: u64 = 30 * DAY_NS;
/// Strikes of one host that are so near to each other are one: the same fault seen twice.
pub const SAME_FAULT_NS: u64 = HOUR_NS;
/// Longest time that a host is left out: by then somebody has looked at it.
pub const LONGEST_NS: u64 = 30 * DAY_NS;

/// A host was the suspect of a case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Strike {
    /// The host.
    pub host: HostName,
    /// When the fault began (server's clock).
    pub at: HostTime,
    /// What kind of fault.
    pub category: Category,
    /// The job that saw it.
    pub job: JobName,
}

/// A host that the next start is to do without.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftOut {
    /// The host.
    pub host: HostName,
    /// Faults of it that count, the present one included.
    pub strikes: u32,
    /// Until when (server's clock).
    pub until: HostTime,
    /// One sentence.
    pub because: String,
}

/// How long a host is left out after its first fault of a kind. Hardware is looked at within a day; what other jobs on the
/// same switch or host cause goes away by itself (FALCON 3.5: 10 to 72 minutes).
pub fn first_term_ns(category: Category) -> u64 {
    match category {
        Category::Gpu | Category::GpuCopy | Category::ProcessExit => DAY_NS,
        Category::NetworkSend | Category::NetworkReceive | Category::Peer => 6 * HOUR_NS,
        _ => 2 * HOUR_NS,
    }
}

/// Which of the hosts that cases name now are left out, at most `spares` of them: those with most strikes first, then in the order
/// given. Each fault remembered doubles the term. `history` may be of any job and in any order.
pub fn leave_out(
    named: &[(HostName, Category)],
    history: &[Strike],
    now: HostTime,
    spares: Option<usize>,
) -> Vec<LeftOut> {
    let mut worst: BTreeMap<&HostName, (usize, Category)> = BTreeMap::new();
    for (order, (host, category)) in named.iter().enumerate() {
        let known = worst.entry(host).or_insert((order, *category));
        if first_term_ns(*category) > first_term_ns(known.1) {
            known.1 = *category;
        }
    }
    let mut out: Vec<(usize, LeftOut)> =
        worst.into_iter().map(|(host, (order, category))| (order, term(host, category, history, now))).collect();
    out.sort_by_key(|(order, left)| (std::cmp::Reverse(left.strikes), *order));
    out.truncate(spares.unwrap_or(usize::MAX));
    out.into_iter().map(|(_, left)| left).collect()
}

fn term(host: &HostName, category: Category, history: &[Strike], now: HostTime) -> LeftOut {
    let counts =
        |strike: &&Strike| strike.host == *host && strike.at <= now && now.since_ns(strike.at) <= REMEMBERED_NS;
    let mut times: Vec<HostTime> = history.iter().filter(counts).map(|strike| strike.at).collect();
    times.push(now);
    times.sort_unstable();
    let apart = times.windows(2).filter(|pair| pair[1].since_ns(pair[0]) > SAME_FAULT_NS).count();
    let strikes = u32::try_from(apart + 1).unwrap_or(u32::MAX);
    let doubled = 1u64 << (strikes - 1).min(16);
    let term_ns = first_term_ns(category).saturating_mul(doubled).min(LONGEST_NS);
    let times = match strikes {
        1 => "for the first time".to_owned(),
        more => format!("for the {more}th time in {} days", REMEMBERED_NS / DAY_NS),
    };
    let because = format!("suspect of {category} {times}: left out for {} h", term_ns / HOUR_NS);
    LeftOut { host: host.clone(), strikes, until: HostTime(now.0.saturating_add(term_ns)), because }
}
