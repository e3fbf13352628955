//! Blame: who started it? Stalls along the wait-for graph (`graph`, `hang`, `order`, `chunk`), a collective left out without one
//! (`turns`), slowdowns by self time (`slow`), and whether they are over (`own`).
pub(crate) mod chunk;
pub(crate) mod graph;
pub(crate) mod hang;
mod held;
pub(crate) mod history;
mod live;
pub(crate) mod load;
mod messages;
pub(crate) mod moments;
pub(crate) mod nic;
mod order;
pub(crate) mod own;
pub(crate) mod pace;
mod passage;
pub(crate) mod slow;
pub(crate) mod turns;
