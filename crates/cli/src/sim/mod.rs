//! `mycroft sim`: simulated jobs, their diagnosis, and the truth beside them.
mod act;
pub(crate) mod args;
mod bands;
mod columns;
mod corpus;
mod curve;
mod label;
mod line;
mod page;
mod play;
mod run;
mod score;
mod seeds;
mod worker;

pub(crate) use act::act;
pub(crate) use corpus::corpus;
pub(crate) use run::run;
pub(crate) use score::score;
