//! Who begins operations later, whatever it does meanwhile.
use mycroft_record::HostName;
use std::collections::BTreeMap;

/// By how much each rank, and each host, begins operations later than others, in shares of an iteration.
#[derive(Debug, Default)]
pub(super) struct Later {
    /// By slot.
    pub(super) ranks: Vec<Option<f64>>,
    pub(super) hosts: BTreeMap<HostName, Option<f64>>,
}

impl Later {
    /// Nobody is later by a part than by both together, where both are known.
    pub(super) fn limit<'a>(
        &self,
        ranks: &mut [Option<f64>],
        hosts: impl Iterator<Item = (&'a HostName, &'a mut Option<f64>)>,
    ) {
        let least = |share: &mut Option<f64>, both: Option<f64>| {
            if let (Some(share), Some(both)) = (share, both) {
                *share = share.min(both);
            }
        };
        ranks.iter_mut().zip(&self.ranks).for_each(|(share, both)| least(share, *both));
        hosts.for_each(|(host, share)| least(share, self.hosts.get(host).copied().flatten()));
    }
}
