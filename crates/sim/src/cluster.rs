//! The machines: what a host has and how hosts are joined. Only the simulator can choose these; the testbed's hosts are
//! what its machine gives.
use serde::{Deserialize, Serialize};

/// How hosts are joined.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fabric {
    /// One switch that carries everything.
    #[default]
    Single,
    /// One leaf per NIC index (rail): equal indices meet in one switch, others cross the spine.
    Rail,
    /// Hosts share leaves, leaves share a spine.
    SpineLeaf,
}

/// `[cluster]` of a scenario file. The defaults are the testbed's: one NIC per host, one switch.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Cluster {
    /// NICs of a host; its ranks share them evenly.
    pub nics_per_host: u32,
    /// How hosts are joined.
    pub fabric: Fabric,
    /// Hosts under one leaf switch (spine-leaf).
    pub hosts_per_leaf: u32,
    /// How much more the hosts under a leaf can send than its uplinks carry (spine-leaf, rail).
    pub oversubscription: f64,
    /// One direction through the fabric, microseconds.
    pub latency_us: f64,
    /// Copies between device memory and the transport's slots, bytes per second.
    pub copy_bytes_per_sec: u64,
    /// Between the devices of a host, bytes per second.
    pub nvlink_bytes_per_sec: u64,
    /// Coefficient of variation of what an inter-host connection carries from one operation to the next (FALCON Table 2:
    /// 0.29 for RDMA over months and links; from one operation to the next on one link it is less).
    pub rdma_spread: f64,
    /// The same between the devices of a host (FALCON Table 2: 0.02).
    pub nvlink_spread: f64,
    /// Hosts' clocks differ by up to this, microseconds.
    pub clock_offset_us: f64,
    /// Hosts' clocks drift by up to this, parts per million.
    pub clock_drift_ppm: f64,
    /// Whether kernel events are on; without them the tracer knows no start of an operation, and of one inside a host not
    /// even its end.
    pub kernel_events: bool,
    /// Bytes of a slot of a connection (NCCL: 512 KiB), which rings and messages use as often as their data need; 0: slots grow
    /// with the data, so that a run stays cheap.
    pub slot_bytes: u64,
    /// Whether a collective's protocol follows its size (LL, LL128, Simple), as NCCL's tuning does; else all are Simple.
    pub protocols: bool,
}

impl Default for Cluster {
    fn default() -> Cluster {
        Cluster {
            nics_per_host: 1,
            fabric: Fabric::Single,
            hosts_per_leaf: 16,
            oversubscription: 1.0,
            latency_us: 20.0,
            copy_bytes_per_sec: 2_000_000_000,
            nvlink_bytes_per_sec: 2_000_000_000,
            rdma_spread: 0.05,
            nvlink_spread: 0.02,
            clock_offset_us: 0.0,
            clock_drift_ppm: 0.0,
            kernel_events: true,
            slot_bytes: 0,
            protocols: false,
        }
    }
}
