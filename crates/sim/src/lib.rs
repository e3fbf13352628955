//! Scenarios: the language in which a training job, its hosts and its fault are written down, what a correct diagnosis
//! of each fault is, and how a verdict is scored.
//!
//! The testbed plays a scenario on real processes; [`Simulation`] plays the same one without any, and larger ones.
//! Nothing here reads a clock: every random choice comes from the scenario's seed.
#![forbid(unsafe_code)]

pub mod check;
mod choice;
pub mod cluster;
mod collective;
pub mod due;
pub mod effects;
pub mod engine;
pub mod fault;
mod fold;
mod inject;
pub mod iteration;
pub mod judge;
pub mod layout;
pub mod life;
pub mod profile;
mod program;
pub mod random;
pub mod scenario;
pub mod schedule;
pub mod score;
pub mod share;
pub mod swarm;
pub mod tally;

pub use cluster::{Cluster, Fabric};
pub use due::Due;
pub use effects::Effects;
pub use engine::{Delivery, EPOCH, Progress, Simulation, Slice};
pub use fault::{Facts, Fault, FaultKind, FaultLevel, Nature, Stretch};
pub use iteration::Iteration;
pub use judge::{Closeness, Judgement, Outcome, judge};
pub use layout::{Coordinates, Group, GroupKind, Layout};
pub use life::Life;
pub use random::Random;
pub use scenario::{Algo, DpMode, Scenario, ScenarioError, Schedule, Transport};
pub use score::{Expectation, Score, Truth, expected, score};
pub use share::Share;
pub use swarm::{Family, swarm};
pub use tally::{Failure, Spread, Tally};
