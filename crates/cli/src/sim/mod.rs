//! `mycroft sim`: simulated jobs, their diagnosis, and the truth beside them.
pub(crate) mod args;
mod corpus;
mod label;
mod page;
mod play;
mod run;
mod score;
mod worker;

pub(crate) use corpus::corpus;
pub(crate) use run::run;
pub(crate) use score::score;
