//! Blame: who stopped the job? Stalls along the wait-for graph (`graph`, `hang`, `order`, `chunk`), a collective left out without one
//! (`turns`).
pub(crate) mod chunk;
pub(crate) mod graph;
pub(crate) mod hang;
mod held;
pub(crate) mod history;
mod live;
pub(crate) mod load;
pub(crate) mod nic;
mod order;
pub(crate) mod pace;
pub(crate) mod turns;
