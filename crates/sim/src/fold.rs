//! Many equal faults that are one: the same thing at the same time on every rank or host is a fault of the whole job, and the
//! right answer names nobody before others.
use crate::fault::{Fault, FaultKind, FaultLevel};
use crate::scenario::Scenario;
use std::collections::BTreeSet;

impl Scenario {
    /// The same scenario, played to the same records, in which equal faults of all ranks or of all hosts are one fault of the
    /// whole job.
    pub fn folded(mut self) -> Scenario {
        let faults: Vec<Fault> = self.all_faults().cloned().collect();
        for one in &faults {
            let Some(kind) = of_all(one.kind) else { continue };
            let alike = |other: &&Fault| Fault { host: one.host, rank: one.rank, ..(*other).clone() } == *one;
            let places: BTreeSet<u32> = faults.iter().filter(alike).flat_map(|fault| place(fault, &self)).collect();
            let all = if one.kind.level() == FaultLevel::Rank { self.world() } else { self.hosts };
            if places.len() < all as usize {
                continue;
            }
            let whole = Fault { kind, host: 0, rank: None, severity: Some(one.severity()), ..one.clone() };
            let rest: Vec<Fault> = faults.iter().filter(|fault| !alike(fault)).cloned().collect();
            (self.fault, self.faults) = (Some(whole), rest);
            return self.folded();
        }
        self
    }
}

/// What a fault is called that all have.
fn of_all(kind: FaultKind) -> Option<FaultKind> {
    match kind {
        FaultKind::GpuPower | FaultKind::BackgroundCompute => Some(FaultKind::AllDevices),
        FaultKind::NicBandwidth => Some(FaultKind::AllNics),
        FaultKind::DataWait => Some(FaultKind::SlowStorage),
        _ => None,
    }
}

fn place(fault: &Fault, scenario: &Scenario) -> Vec<u32> {
    if fault.kind.level() == FaultLevel::Rank { fault.culprit_ranks(scenario) } else { fault.culprit_hosts(scenario) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effects::Effects;

    #[test]
    fn what_all_ranks_have_is_one_fault_and_what_most_have_is_not() {
        let wait = |rank: u32| Fault { rank: Some(rank), ..Fault::new(FaultKind::DataWait, rank / 4) };
        let of = |ranks: u32| Scenario { faults: (0..ranks).map(wait).collect(), ..Scenario::default() };
        let folded = of(16).folded();
        let kinds: Vec<FaultKind> = folded.all_faults().map(|fault| fault.kind).collect();
        assert_eq!(kinds, [FaultKind::SlowStorage]);
        assert_eq!(Effects::of(&folded), Effects::of(&of(16)));
        assert_eq!(of(15).folded(), of(15));
    }
}
