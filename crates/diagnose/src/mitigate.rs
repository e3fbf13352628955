//! What could be done about a slow job (FALCON 5): plans, never actions.
//!
//! ```text
//! slow devices and paths -> split (S2), place (S3), leave (S4): what each would gain
//!                                        -> rent (S1 to S4: which one now) -> Plan -> lint
//! ```
//!
//! A [`plan::Plan`] is made of a [`plan::Situation`] and is complete: the arrangement of the job before and after it, what that
//! gains by the model of [`place`], what it costs, and why it is due now. [`lint::lint`] looks for what is wrong with one without
//! knowing how it was made. [`follow::Follower`] makes one plan after the other from what is measured of a job that runs.
pub mod effect;
pub mod follow;
pub mod known;
pub mod leave;
pub mod lint;
pub mod place;
pub mod plan;
pub mod rent;
pub mod seen;
pub mod split;
mod words;

pub use words::render;
