//! The network's part of a verdict: the smallest set of hosts that covers the slow or stuck links, with the links that
//! carried data meanwhile and the hosts' NIC counters to break ties.
use crate::case::weigh::Hypothesis;
use crate::config::Config;
use crate::fact::Fact;
use crate::timeline::Timeline;
use mycroft_record::{Category, HostName, Place, Suspect};
use std::collections::{BTreeMap, BTreeSet};

/// Share of the worst link's excess under which another link's is its shadow.
const SHADOW: f64 = 0.1;
/// Share of the links' excess that a cover must explain.
const COVERED: f64 = 0.85;

fn host_place(host: &HostName) -> Place {
    Place::Host { host: host.clone() }
}

fn down(facts: &[Fact]) -> BTreeSet<HostName> {
    facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::NicDown { host, .. } => Some(host.clone()),
            _ => None,
        })
        .collect()
}

struct Stuck {
    from: HostName,
    to: HostName,
    /// Ready data was not even accepted by the sender's transport (Table 4: not transmitted).
    untransmitted: bool,
}

/// Who is to blame for data that does not arrive.
pub(crate) fn of_stall(facts: &[Fact]) -> Option<(Category, Vec<Suspect>)> {
    let mut links = Vec::new();
    let mut served = Vec::new();
    for fact in facts {
        let Fact::NotDelivered { from, to, send, served_meanwhile, .. } = fact else { continue };
        if *served_meanwhile {
            served.push((from, to, send.ready > send.transmitted));
        } else {
            let untransmitted = send.ready > send.transmitted;
            links.push(Stuck { from: from.1.clone(), to: to.1.clone(), untransmitted });
        }
    }
    if links.is_empty() {
        // The wire serves others: the proxy thread at the end that does not move.
        let (from, to, untransmitted) = served.first()?;
        let (first, second) = if *untransmitted { (from, to) } else { (to, from) };
        let place = |end: &(mycroft_record::Rank, HostName)| Place::Rank { rank: end.0, host: end.1.clone() };
        let suspects =
            vec![Suspect { place: place(first), confidence: 0.7 }, Suspect { place: place(second), confidence: 0.25 }];
        return Some((Category::HostThread, suspects));
    }
    let down = down(facts);
    let hosts: BTreeSet<HostName> = links.iter().flat_map(|link| [link.from.clone(), link.to.clone()]).collect();
    if let Some(host) = hosts.iter().find(|host| down.contains(*host)) {
        return Some((Category::NetworkSend, vec![Suspect { place: host_place(host), confidence: 0.97 }]));
    }
    let mut scored: Vec<(f64, HostName)> = hosts.iter().map(|host| (score(host, &links), host.clone())).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let best = scored.first()?.clone();
    let second = scored.get(1).map_or(0.0, |other| other.0);
    let confidence = (0.5 + (best.0 - second)).clamp(0.3, 0.95);
    let sends = links.iter().any(|link| link.from == best.1);
    let category = if sends { Category::NetworkSend } else { Category::NetworkReceive };
    let suspects = scored
        .iter()
        .take(4)
        .map(|(score, host)| Suspect {
            place: host_place(host),
            confidence: if *host == best.1 { confidence } else { (1.0 - confidence) * score.clamp(0.1, 1.0) },
        })
        .collect();
    Some((category, suspects))
}

/// Share of the stuck links that touch the host; its own untransmitted data counts against it (Table 4, local cause).
fn score(host: &HostName, links: &[Stuck]) -> f64 {
    let touch = links.iter().filter(|link| link.from == *host || link.to == *host).count();
    let own = links.iter().filter(|link| link.from == *host);
    let (mut sends, mut held) = (0usize, 0usize);
    for link in own {
        sends += 1;
        held += usize::from(link.untransmitted);
    }
    let base = touch as f64 / links.len() as f64;
    base * 0.8 + if sends > 0 { 0.2 * held as f64 / sends as f64 + 0.02 } else { 0.0 }
}

/// Who is to blame for slow links.
pub(crate) fn of_slowdown(timeline: &Timeline, facts: &[Fact], config: &Config) -> Vec<Hypothesis> {
    let mut slow: BTreeMap<(HostName, HostName), (f64, f64)> = BTreeMap::new();
    for fact in facts {
        // Few of many links between the same hosts: not the wire, something at one rank.
        if let Fact::WireExcess { from, to, now_ms, base_ms, links, of, .. } = fact
            && from != to
            && links * 2 >= *of
        {
            slow.insert((from.clone(), to.clone()), (now_ms - base_ms, now_ms / base_ms.max(1.0)));
        }
    }
    let worst = slow.values().map(|(excess, _)| *excess).fold(0.0, f64::max);
    // Who waits for a slow wire holds data, too.
    slow.retain(|_, (excess, _)| *excess >= SHADOW * worst);
    if worst <= config.noise_ms {
        return Vec::new();
    }
    let ratio = slow.values().map(|(_, ratio)| *ratio).fold(0.0, f64::max);
    let known: BTreeSet<(HostName, HostName)> = timeline
        .links
        .all(&timeline.ranks)
        .map(|link| (timeline.host(link.from), timeline.host(link.to)))
        .filter(|(a, b)| a != b)
        .collect();
    let healthy: BTreeSet<(HostName, HostName)> = known.into_iter().filter(|pair| !slow.contains_key(pair)).collect();
    let (category, places) = cover(&slow, &healthy, facts);
    if places.is_empty() {
        return Vec::new();
    }
    let either = category != Category::NetworkCongestion && places.len() > 1;
    vec![Hypothesis { category, places, either, excess_ms: worst, ratio }]
}

type Excess = BTreeMap<(HostName, HostName), (f64, f64)>;

fn cover(slow: &Excess, healthy: &BTreeSet<(HostName, HostName)>, facts: &[Fact]) -> (Category, Vec<Place>) {
    let touched: BTreeSet<HostName> = slow.keys().flat_map(|(a, b)| [a.clone(), b.clone()]).collect();
    let foreign: Vec<HostName> = foreign(facts).into_iter().filter(|host| touched.contains(host)).collect();
    if foreign.len() >= 2 {
        return (Category::NetworkCongestion, foreign.iter().take(2).map(host_place).collect());
    }
    let total: f64 = slow.values().map(|(excess, _)| excess).sum();
    let covers = |hosts: &[&HostName]| -> f64 {
        slow.iter()
            .filter(|((a, b), _)| hosts.contains(&a) || hosts.contains(&b))
            .map(|(_, (excess, _))| excess)
            .sum::<f64>()
            / total
    };
    let single: Vec<&HostName> = touched.iter().filter(|host| covers(&[host]) >= COVERED).collect();
    if !single.is_empty() {
        return single_host(slow, healthy, facts, &single);
    }
    let mut best: Option<(f64, &HostName, &HostName)> = None;
    for a in &touched {
        for b in touched.iter().filter(|b| *b > a) {
            let share = covers(&[a, b]);
            if share >= COVERED && best.as_ref().is_none_or(|(most, _, _)| share > *most + 1e-9) {
                best = Some((share, a, b));
            }
        }
    }
    match best {
        Some((_, a, b)) => (Category::NetworkCongestion, vec![host_place(a), host_place(b)]),
        None => (Category::NetworkCongestion, Vec::new()),
    }
}

/// One host would do; with a single pair of hosts two would.
fn single_host(
    slow: &Excess,
    healthy: &BTreeSet<(HostName, HostName)>,
    facts: &[Fact],
    candidates: &[&HostName],
) -> (Category, Vec<Place>) {
    let sends = |host: &HostName| -> f64 { slow.iter().filter(|((a, _), _)| a == host).map(|(_, (e, _))| e).sum() };
    let receives = |host: &HostName| -> f64 { slow.iter().filter(|((_, b), _)| b == host).map(|(_, (e, _))| e).sum() };
    let rated: BTreeSet<&HostName> = facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::NicSlow { host, .. } | Fact::NicDown { host, .. } => Some(host),
            _ => None,
        })
        .collect();
    // A port that carries other data as before is not the one.
    let cleared = |host: &HostName| -> bool {
        let out_ok = healthy.iter().any(|(a, _)| a == host);
        let in_ok = healthy.iter().any(|(_, b)| b == host);
        (sends(host) == 0.0 || out_ok) && (receives(host) == 0.0 || in_ok)
    };
    let open: Vec<&&HostName> = candidates.iter().filter(|host| !cleared(host)).collect();
    if open.is_empty() && candidates.len() > 1 {
        return (Category::NetworkCongestion, candidates.iter().map(|host| host_place(host)).collect());
    }
    let pool: Vec<&HostName> = if open.is_empty() { candidates.to_vec() } else { open.into_iter().copied().collect() };
    let links = |host: &HostName| slow.keys().filter(|(from, to)| from == host || to == host).count();
    let key = |host: &HostName| (rated.contains(host), links(host));
    if let [one, other] = pool[..]
        && key(one) == key(other)
        && sends(one) > 0.0
        && sends(other) > 0.0
    {
        // Both directions between two hosts that talk to nobody else: nothing tells the two ends apart.
        return (Category::NetworkSend, pool.into_iter().map(host_place).collect());
    }
    let best =
        pool.iter().max_by(|a, b| key(a).cmp(&key(b)).then(sends(a).total_cmp(&sends(b))).then_with(|| b.cmp(a)));
    let Some(best) = best else { return (Category::NetworkCongestion, Vec::new()) };
    let category = if sends(best) >= 0.5 * receives(best) { Category::NetworkSend } else { Category::NetworkReceive };
    (category, vec![host_place(best)])
}

fn foreign(facts: &[Fact]) -> Vec<HostName> {
    let mut loads: BTreeMap<HostName, f64> = BTreeMap::new();
    for fact in facts {
        if let Fact::ForeignTraffic { host, nic_mb_s, job_mb_s, .. } = fact {
            let load = loads.entry(host.clone()).or_insert(0.0);
            *load = load.max(nic_mb_s - job_mb_s);
        }
    }
    let mut out: Vec<(f64, HostName)> = loads.into_iter().map(|(host, load)| (load, host)).collect();
    out.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    out.into_iter().map(|(_, host)| host).collect()
}
