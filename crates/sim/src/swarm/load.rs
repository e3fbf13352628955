//! What a job puts on its machines in one healthy iteration, by arithmetic: enough to choose speeds and severities.
use crate::layout::GroupKind;
use crate::scenario::{DpMode, Scenario};

/// Bytes of one iteration that the busiest NIC and the inside of a host carry one after the other.
#[derive(Clone, Debug, Default)]
pub(super) struct Load {
    /// Bytes of each kind of group (in the order of [`GroupKind::ALL`]) that a NIC carries while one rank waits: its own
    /// and those that share the NIC.
    network: [f64; 5],
    /// Bytes inside a host that a rank waits for.
    pub(super) local_bytes: f64,
}

impl Load {
    pub(super) fn of(scenario: &Scenario) -> Load {
        let mut load = Load::default();
        for (at, kind) in GroupKind::ALL.into_iter().enumerate() {
            let bytes = bytes_of_rank(scenario, kind);
            let sharing = sharing(scenario, kind);
            match sharing {
                0 => load.local_bytes += bytes,
                _ => load.network[at] = bytes * f64::from(sharing) * slowest_path(scenario),
            }
        }
        load
    }

    /// Bytes that wait for the network in an iteration.
    pub(super) fn network_bytes(&self) -> f64 {
        self.network.iter().sum()
    }

    /// The same of one kind of group.
    pub(super) fn network_bytes_of(&self, kind: GroupKind) -> f64 {
        GroupKind::ALL.iter().position(|other| *other == kind).map_or(0.0, |at| self.network[at])
    }
}

/// Passes over a layer in an iteration, forward and backward.
fn passes(scenario: &Scenario) -> f64 {
    2.0 * f64::from(scenario.micro_batches * scenario.layers)
}

/// Messages between neighbour stages in one direction.
fn messages(scenario: &Scenario) -> f64 {
    2.0 * f64::from(scenario.micro_batches * scenario.virtual_stages)
}

/// Calls of a fully sharded job on its data-parallel group, beside the norm: two gathers and a scatter per layer.
fn sharded_calls(scenario: &Scenario) -> f64 {
    1.5 * passes(scenario)
}

/// Operations of a rank in an iteration.
pub(super) fn operations(scenario: &Scenario) -> f64 {
    let layout = scenario.layout();
    let passes = passes(scenario);
    let mut operations = if scenario.dp_mode == DpMode::Fsdp { sharded_calls(scenario) + 1.0 } else { 2.0 };
    operations += if layout.tp > 1 { passes } else { 0.0 };
    operations += if layout.cp > 1 { passes } else { 0.0 };
    operations += if layout.pp > 1 { 2.0 * messages(scenario) } else { 0.0 };
    operations + passes * 2.0 * f64::from(layout.ep.max(1) - 1)
}

/// The share of an iteration's bytes over the network that its largest operation carries.
pub(super) fn largest_share(scenario: &Scenario) -> f64 {
    let load = Load::of(scenario);
    let calls = |kind: GroupKind| match kind {
        GroupKind::Tensor | GroupKind::Context => passes(scenario),
        GroupKind::Pipeline => messages(scenario),
        GroupKind::Expert => passes(scenario) * f64::from(scenario.layout().ep.max(2) - 1),
        GroupKind::Data if scenario.dp_mode == DpMode::Fsdp => sharded_calls(scenario),
        GroupKind::Data if scenario.dp_mode == DpMode::ReduceScatter => 2.0,
        GroupKind::Data => 1.0,
    };
    let largest = GroupKind::ALL.into_iter().map(|kind| load.network_bytes_of(kind) / calls(kind).max(1.0));
    largest.fold(0.0, f64::max) / load.network_bytes().max(1.0)
}

/// Those of them that cross hosts.
pub(super) fn far_operations(scenario: &Scenario) -> f64 {
    let layout = scenario.layout();
    let passes = passes(scenario);
    let of = |kind: GroupKind| match kind {
        _ if layout.size(kind) < 2 || sharing(scenario, kind) == 0 => 0.0,
        GroupKind::Tensor | GroupKind::Context => passes,
        // Messages have one flow, not one for each channel in both directions.
        GroupKind::Pipeline => 2.0 * messages(scenario) / f64::from(2 * scenario.channels),
        GroupKind::Expert => passes * 2.0 * f64::from(layout.ep.max(1) - 1) / f64::from(2 * scenario.channels),
        GroupKind::Data if scenario.dp_mode == DpMode::Fsdp => sharded_calls(scenario) + 1.0,
        GroupKind::Data => 2.0,
    };
    GroupKind::ALL.into_iter().map(of).sum()
}

/// Bytes that a rank sends in its groups of a kind (Pulse appendix B).
pub(super) fn bytes_of_rank(scenario: &Scenario, kind: GroupKind) -> f64 {
    let layout = scenario.layout();
    let members = f64::from(layout.size(kind).max(1));
    let around = (members - 1.0) / members;
    let passes = passes(scenario);
    match kind {
        _ if members < 2.0 => 0.0,
        GroupKind::Tensor => passes * 2.0 * around * scenario.tp_bytes as f64,
        GroupKind::Context => passes * around * scenario.tp_bytes as f64,
        GroupKind::Pipeline => messages(scenario) * scenario.pp_bytes as f64,
        GroupKind::Expert => passes * around * scenario.ep_bytes as f64,
        GroupKind::Data if scenario.dp_mode == DpMode::Fsdp => {
            sharded_calls(scenario) * around * scenario.dp_bytes as f64 / f64::from(scenario.layers)
        }
        GroupKind::Data => 2.0 * around * scenario.dp_bytes as f64,
    }
}

/// Ranks that send to another host through one NIC at the same time, at most; 0: the kind stays inside hosts.
fn sharing(scenario: &Scenario, kind: GroupKind) -> u32 {
    let layout = scenario.layout();
    let (per_host, nics) = (scenario.ranks_per_host, scenario.cluster.nics_per_host);
    let mut sending = vec![0u32; (scenario.hosts * nics) as usize];
    for rank in 0..scenario.world() {
        if peers(scenario, kind, rank).iter().any(|peer| scenario.host_of(*peer) != scenario.host_of(rank)) {
            let nic = rank / per_host * nics + rank % per_host * nics / per_host;
            sending[nic as usize] += 1;
        }
    }
    if layout.size(kind) < 2 { 0 } else { sending.into_iter().max().unwrap_or(0) }
}

/// Whom a rank sends to in its group of a kind: next in the ring, next stage, all other experts.
pub(super) fn peers(scenario: &Scenario, kind: GroupKind, rank: u32) -> Vec<u32> {
    let layout = scenario.layout();
    let size = layout.size(kind);
    if size < 2 {
        return Vec::new();
    }
    let at = layout.place(kind, rank).1;
    let members = layout.group(kind, rank).ranks;
    match kind {
        GroupKind::Expert => members.into_iter().filter(|member| *member != rank).collect(),
        GroupKind::Pipeline => vec![members[if at + 1 < size { at + 1 } else { at - 1 } as usize]],
        _ => vec![members[((at + 1) % size) as usize]],
    }
}

/// Slices of a step in a ring: the engine's.
pub(super) const SLICES_OF_STEP: f64 = 2.0;

/// Steps that a rank sends to other hosts in an iteration, one after the other.
pub(super) fn steps(scenario: &Scenario) -> f64 {
    let layout = scenario.layout();
    let of = |kind: GroupKind| {
        let members = f64::from(layout.size(kind));
        match kind {
            _ if sharing(scenario, kind) == 0 => 0.0,
            GroupKind::Pipeline => messages(scenario),
            GroupKind::Expert => passes(scenario) * (members - 1.0),
            GroupKind::Tensor => passes(scenario) * 2.0 * (members - 1.0),
            GroupKind::Context => passes(scenario) * (members - 1.0),
            GroupKind::Data if scenario.dp_mode == DpMode::Fsdp => sharded_calls(scenario) * (members - 1.0),
            GroupKind::Data => 2.0 * (members - 1.0),
        }
    };
    GroupKind::ALL.into_iter().map(of).sum()
}

/// Hand-overs of a proxy thread that an iteration waits for one after the other. Messages do so each by itself; in a ring
/// only the first of a turn is waited for, the others are in flight meanwhile.
pub(super) fn hand_overs(scenario: &Scenario) -> f64 {
    const OF_MESSAGE: f64 = 1.0;
    const OF_COLLECTIVE: f64 = 6.0;
    let of = |kind: GroupKind| match kind {
        _ if sharing(scenario, kind) == 0 => 0.0,
        GroupKind::Pipeline => OF_MESSAGE * messages(scenario),
        GroupKind::Expert => OF_MESSAGE * passes(scenario),
        GroupKind::Tensor | GroupKind::Context => OF_COLLECTIVE * passes(scenario),
        GroupKind::Data if scenario.dp_mode == DpMode::Fsdp => OF_COLLECTIVE * sharded_calls(scenario),
        GroupKind::Data => OF_COLLECTIVE * 2.0,
    };
    GroupKind::ALL.into_iter().map(of).sum()
}

/// How much slower the paths that cross leaves are.
fn slowest_path(scenario: &Scenario) -> f64 {
    match scenario.cluster.fabric {
        crate::Fabric::Single => 1.0,
        _ => scenario.cluster.oversubscription,
    }
}
