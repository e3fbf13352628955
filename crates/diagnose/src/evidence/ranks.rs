//! How much longer each rank, and each host, takes for a component than its peers, or than before.
use super::expected::{Expected, First, Scale, by_host, exposed, most_of_host, shared};
use super::later::Later;
use super::past::{Furthest, Past};
use super::track::Value;
use super::{COST, Evidence, Subject, value};
use crate::measure::{Component, Role, Row};
use mycroft_record::HostName;

impl Evidence {
    /// What ranks compute and issue later together. A device that idles until operations are issued computes meanwhile, as far as anybody sees,
    /// where they are issued in time: what one takes more and the other less makes nobody late.
    pub(super) fn take_later(&mut self, hosts: &[HostName], roles: &[Role], row: &Row, is_raised: bool) {
        let (expected, at_hosts) = self.expected(Component::Later, hosts, roles, row, is_raised);
        let of_hosts = by_host(&at_hosts.beyond, hosts);
        let shares: Vec<Option<f64>> = of_hosts.values().copied().map(Some).collect();
        let hosts = of_hosts.into_keys().zip(exposed(&shares)).collect();
        self.later = Later { ranks: exposed(&expected.beyond), hosts };
    }

    /// What a component of ranks should be, by all peers and by those of other hosts; what is usual is learned.
    fn expected(
        &mut self,
        component: Component,
        hosts: &[HostName],
        roles: &[Role],
        row: &Row,
        is_raised: bool,
    ) -> (Expected, Expected) {
        let values: Vec<Option<f64>> = row.ranks.iter().map(|cells| cells.as_ref()?.ms(component)).collect();
        let pasts = &mut self.ranks.entry(component).or_default().pasts;
        pasts.resize(values.len(), Past::default());
        let grows = if component.is_work() { Scale::Times(row.iteration_ms) } else { Scale::Plus(row.iteration_ms) };
        // A rank that sends to others than its peers do takes longer by design: its past tells.
        let role_of = |role: &Role| Some(*role).filter(|_| component != Component::Sending);
        let roles: Vec<Option<Role>> = roles.iter().map(role_of).collect();
        let expected = Expected::of(&values, &roles, pasts, grows, First::Peers);
        let at_hosts = Expected::of(&values, &shared(&roles, hosts), pasts, grows, First::Peers);
        let is_tested = |slot| self.tracks.contains_key(&(component, Subject::Rank(slot as u32)));
        let is_slow = |slot: usize| at_hosts.beyond[slot].is_some_and(|share| share >= COST / 2.0);
        expected.learn(&values, pasts, (|slot| is_raised || is_slow(slot), is_tested), COST);
        self.common.take(component, expected.common);
        (expected, at_hosts)
    }

    /// A component of all ranks, by slot, on `hosts` with `roles`. `is_raised`: something may be slow meanwhile, and nothing is learned.
    pub(super) fn take_ranks(
        &mut self,
        component: Component,
        hosts: &[HostName],
        roles: &[Role],
        row: &Row,
        is_raised: bool,
    ) {
        let (expected, at_hosts) = self.expected(component, hosts, roles, row, is_raised);
        if component == Component::Rest {
            return; // it only tells more work from slower devices
        }
        let known = self.ranks.entry(component).or_default();
        known.spread.take(&expected.beyond);
        let of_each = if component == Component::Local { most_of_host } else { by_host };
        let of_hosts = of_each(&at_hosts.beyond, hosts);
        let shares: Vec<Option<f64>> = of_hosts.values().copied().map(Some).collect();
        known.host_spread.take(&shares);
        let (sigma, host_sigma) = (known.spread.sigma(), known.host_spread.sigma());
        let (mut of_ranks, mut at_each) = (exposed(&expected.beyond), exposed(&shares));
        if matches!(component, Component::Computation | Component::Issue) {
            self.later.limit(&mut of_ranks, of_hosts.keys().zip(&mut at_each));
        }
        let values = |furthest: &Furthest, shares: &[Option<f64>], own: &[Option<f64>]| -> Vec<Option<Value>> {
            let tells = |of: Value| Value { tells: furthest.most(of.share, shares.len()), ..of };
            let each = shares.iter().zip(own);
            each.map(|(share, own)| value(*share, row.iteration_ms, *own).map(tells)).collect()
        };
        let own_of = by_host(&at_hosts.sigmas, hosts);
        let host_own: Vec<Option<f64>> = of_hosts.keys().map(|host| own_of.get(host).copied()).collect();
        let rank_values = values(&known.furthest, &of_ranks, &expected.sigmas);
        let host_values = values(&known.furthest_host, &at_each, &host_own);
        if !is_raised {
            known.furthest.take(&of_ranks);
            known.furthest_host.take(&at_each);
        }
        let doubts: Vec<Option<f64>> = row.ranks.iter().map(|cells| Some(cells.as_ref()?.doubt())).collect();
        let of_host = by_host(&doubts, hosts);
        let of_one = |_: &_| component != Component::Local; // what ranks do together is their host's
        for (slot, value) in rank_values.into_iter().enumerate().filter(of_one) {
            let sigma = sigma.max(expected.sigmas[slot].unwrap_or(0.0)) * doubts[slot].unwrap_or(1.0);
            self.test((component, Subject::Rank(slot as u32)), value, (COST, sigma), row);
        }
        if matches!(component, Component::Sending | Component::Through) {
            return; // a host whose ranks all send slowly has slow ways; ways through hosts are the hosts'
        }
        for ((host, value), own) in of_hosts.keys().zip(host_values).zip(host_own) {
            let sigma = host_sigma.max(own.unwrap_or(0.0)) * of_host.get(host).copied().unwrap_or(1.0);
            self.test((component, Subject::Host(host.clone())), value, (COST, sigma), row);
        }
    }
}
