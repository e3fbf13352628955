//! Autopsies of real dumps with known truth, of what is left of them when evidence is taken away, of the same jobs with
//! their ranks renamed, and of bundles made by hand for what no CPU run shows.
mod build;
mod golden;
mod load;
mod made;
mod print;
mod reduced;
mod relabel;
mod retired;
mod scale;
mod truth;
mod unread;
