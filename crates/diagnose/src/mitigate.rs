//! What could be done about a slow job (FALCON 5): plans, never actions.
//!
//! ```text
//! slow devices and paths -> split (S2), place (S3), leave (S4): what each would gain
//!                                        -> rent (S1 to S4: which one now) -> Plan -> lint
//! ```
//!
//! A [`rent::Renting`] says when which strategy is due: the loss so far against the price of the next one.
pub mod rent;
pub mod split;
