//! Scenarios: the language in which a training job, its hosts and its fault are written down, what a correct diagnosis
//! of each fault is, and how a verdict is scored.
//!
//! The testbed plays a scenario on real processes; a simulator can play the same one without any. Nothing here reads a
//! clock: every random choice comes from the scenario's seed.
#![forbid(unsafe_code)]

pub mod fault;
pub mod layout;
pub mod random;
pub mod scenario;
pub mod score;

pub use fault::{Fault, FaultKind, FaultLevel};
pub use layout::{Coordinates, Group, GroupKind, Layout};
pub use random::Random;
pub use scenario::{Algo, DpMode, Scenario, ScenarioError, Transport};
pub use score::{Expectation, Score, Truth, expected, score};
