//! Blame: who started it? Stalls along the wait-for graph (`graph`, `hang`, `chunk`), slowdowns by self time (`slow`).
pub(crate) mod chunk;
pub(crate) mod graph;
pub(crate) mod hang;
pub(crate) mod nic;
pub(crate) mod slow;
