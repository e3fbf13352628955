//! What a cell should be, from its peers and its own past.
use super::past::{FEW_MIN, PAST_MIN, Past};
use crate::measure::Role;
use crate::median::{low_median, median};
use mycroft_record::HostName;
use std::collections::{BTreeMap, BTreeSet};

/// Ranks of one role that make a median worth comparing with: of two, neither is usual.
pub(super) const PEERS_MIN: usize = 3;
/// Healthy devices of a kind differ by this share at most; more is never learned as usual (FALCON Table 2: healthy iterations
/// vary by 1 to 3 %).
const LEARNED_MAX: f64 = 0.03;
/// Ranks, or hosts, that may be slow at once: one in so many, and so many at most. What is beyond the others is beyond those
/// that are not among so many slowest.
const ONE_OF: usize = 8;
/// See [`ONE_OF`].
const AT_ONCE: usize = 3;

/// How what all take more is told, and the unit of shares.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Scale {
    /// So many times as long: work that scales. The unit in milliseconds.
    Times(f64),
    /// So much longer. The unit in milliseconds.
    Plus(f64),
}

impl Scale {
    fn unit_ms(self) -> f64 {
        match self {
            Scale::Times(ms) | Scale::Plus(ms) => ms,
        }
    }
}

/// Whether peers or the own past say what should be, where both are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum First {
    /// Ranks of a role do the same by design.
    Peers,
    /// Ways of a role only seem to: what they carry has messages of different sizes.
    Past,
}

impl First {
    /// Rows that make a past: ways are fewer, and each says by itself how much it varies.
    fn rows(self) -> u32 {
        match self {
            First::Peers => PAST_MIN,
            First::Past => FEW_MIN,
        }
    }
}

/// What one row's cells of a component should be.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Expected {
    /// By how much each is beyond it, in shares of the unit; `None`: missing, or not known.
    pub(super) beyond: Vec<Option<f64>>,
    /// How much each varies by itself, in shares of the unit; `None`: peers say what it should take.
    pub(super) sigmas: Vec<Option<f64>>,
    /// What all take more than before.
    pub(super) common: f64,
    /// By how much each is beyond the median of its peers, milliseconds; 0 without peers.
    offsets: Vec<f64>,
    unit_ms: f64,
    first: First,
}

impl Expected {
    /// `first`: who is asked first, where both are known.
    pub(super) fn of(
        values: &[Option<f64>],
        roles: &[Option<Role>],
        pasts: &[Past],
        scale: Scale,
        first: First,
    ) -> Expected {
        let unit_ms = scale.unit_ms();
        let usual = usual(values, roles);
        let common = common(values, pasts, scale, first.rows());
        let mut offsets = vec![0.0; values.len()];
        let (mut beyond, mut sigmas) = (vec![None; values.len()], vec![None; values.len()]);
        for (at, value) in values.iter().enumerate() {
            let (Some(ms), past) = (value, &pasts[at]) else { continue };
            let peers = roles.get(at).copied().flatten().and_then(|role| usual.get(&role));
            let peers = peers.filter(|_| first == First::Peers || past.n < first.rows());
            let more_ms = match (peers, scale) {
                (Some(usual), _) => {
                    offsets[at] = ms - usual;
                    ms - usual - past.offset(LEARNED_MAX * unit_ms)
                }
                (None, _) if past.n < first.rows() => continue,
                // The same bytes take a way as long as before, whatever other ways do.
                (None, Scale::Times(_)) if first == First::Past => (ms / past.level - 1.0) * unit_ms,
                (None, Scale::Times(_)) => ms - past.level * common,
                (None, Scale::Plus(_)) => ms - past.level - common,
            };
            // Who is judged by its past alone is no surer than that.
            if peers.is_none() {
                sigmas[at] = Some(past.sigma_ms() / unit_ms);
            }
            beyond[at] = Some(more_ms / unit_ms);
        }
        Expected { beyond, sigmas, common, offsets, unit_ms, first }
    }

    /// `is_raised`: whether something else is slow meanwhile. `is_tested`: whether more than one row says that it takes longer. What is usual is learned from what is within half of what counts while iterations are as usual; first of all from
    /// anything.
    pub(super) fn learn(
        &self,
        values: &[Option<f64>],
        pasts: &mut [Past],
        (is_raised, is_tested): (impl Fn(usize) -> bool, impl Fn(usize) -> bool),
        counts: f64,
    ) {
        for (at, value) in values.iter().enumerate() {
            let Some(ms) = value else { continue };
            let is_usual = self.beyond[at].is_none_or(|share| share.abs() < counts / 2.0);
            let off_ms = match self.beyond[at] {
                // How far it is from what peers take says nothing of how much it varies.
                Some(_) if self.first == First::Past && pasts[at].n < self.first.rows() => {
                    (ms / pasts[at].level - 1.0) * self.unit_ms
                }
                Some(share) => share * self.unit_ms,
                None => ms - pasts[at].level,
            };
            // What a fault moves says nothing of how much it varies, nor do rows that follow one that may be the first of a fault.
            if !is_raised(at) && !is_tested(at) {
                pasts[at].vary(off_ms.abs(), self.first.rows());
            }
            if (is_usual && !is_raised(at)) || pasts[at].n < self.first.rows() {
                let most = LEARNED_MAX * self.unit_ms;
                pasts[at].learn(*ms, self.offsets[at].clamp(-most, most));
                if self.first == First::Past && pasts[at].n == FEW_MIN {
                    pasts[at].settle(self.unit_ms);
                }
            }
        }
    }
}

/// The median of each role that has enough ranks. Faults make slower: of two in the middle the lower one, so that of two hosts
/// with the ranks of a role one may be slow.
fn usual(values: &[Option<f64>], roles: &[Option<Role>]) -> BTreeMap<Role, f64> {
    let mut of_role: BTreeMap<Role, Vec<f64>> = BTreeMap::new();
    for (value, role) in values.iter().zip(roles) {
        if let Some(role) = role {
            of_role.entry(*role).or_default().extend(*value);
        }
    }
    let medians = of_role.into_iter().filter(|(_, list)| list.len() >= PEERS_MIN);
    medians.filter_map(|(role, list)| Some((role, low_median(list)?))).collect()
}

/// The roles of ranks that others elsewhere have too: of those that one host has all ranks of, peers do not say that it is slow.
pub(super) fn shared(roles: &[Option<Role>], hosts: &[HostName]) -> Vec<Option<Role>> {
    let mut on: BTreeMap<Role, BTreeSet<&HostName>> = BTreeMap::new();
    for (role, host) in roles.iter().zip(hosts).filter_map(|(role, host)| Some(((*role)?, host))) {
        on.entry(role).or_default().insert(host);
    }
    roles.iter().map(|role| role.filter(|role| on[role].len() > 1)).collect()
}

/// What all take more than before: the median.
fn common(values: &[Option<f64>], pasts: &[Past], scale: Scale, rows: u32) -> f64 {
    let known = values.iter().zip(pasts).filter(|(_, past)| past.n >= rows);
    match scale {
        Scale::Times(unit_ms) => {
            let large = known.filter(|(_, past)| past.level > LEARNED_MAX * unit_ms);
            median(large.filter_map(|(value, past)| Some((*value)? / past.level)).collect()).unwrap_or(1.0)
        }
        Scale::Plus(_) => {
            median(known.filter_map(|(value, past)| Some((*value)? - past.level)).collect()).unwrap_or(0.0)
        }
    }
}

/// By how much each is beyond the slowest of the others that may not be slow at once with it.
pub(super) fn exposed(beyond: &[Option<f64>]) -> Vec<Option<f64>> {
    let mut sorted: Vec<f64> = beyond.iter().flatten().copied().collect();
    if sorted.len() < 2 {
        return vec![None; beyond.len()];
    }
    sorted.sort_by(|a, b| b.total_cmp(a));
    let at_once = (sorted.len() / ONE_OF).clamp(1, AT_ONCE);
    let others = |share: f64| if share > sorted[at_once] { sorted[at_once] } else { sorted[at_once - 1] };
    beyond.iter().map(|share| share.map(|share| share - others(share))).collect()
}

/// By how much the rank of a host is beyond that is so most.
pub(super) fn most_of_host(beyond: &[Option<f64>], hosts: &[HostName]) -> BTreeMap<HostName, f64> {
    let mut most: BTreeMap<HostName, f64> = BTreeMap::new();
    for (share, host) in beyond.iter().zip(hosts).filter_map(|(share, host)| Some(((*share)?, host))) {
        let known = most.entry(host.clone()).or_insert(share);
        *known = known.max(share);
    }
    most
}

/// By how much all ranks of a host but a quarter are beyond.
pub(super) fn by_host(beyond: &[Option<f64>], hosts: &[HostName]) -> BTreeMap<HostName, f64> {
    let mut lists: BTreeMap<&HostName, Vec<f64>> = BTreeMap::new();
    for (share, host) in beyond.iter().zip(hosts) {
        lists.entry(host).or_default().extend(*share);
    }
    let low = |mut list: Vec<f64>| {
        list.sort_by(f64::total_cmp);
        list.get(list.len() / 4).copied()
    };
    lists.into_iter().filter_map(|(host, list)| Some((host.clone(), low(list)?))).collect()
}
