//! Validation: plans of every size cover every way once without anybody being asked twice, and whoever is 1.2 times as slow
//! as its peers is named, and nobody else, whatever the noise.
#[path = "validate/found.rs"]
mod found;
#[path = "validate/plain.rs"]
mod plain;
#[path = "validate/plans.rs"]
mod plans;
#[path = "validate/weighed.rs"]
mod weighed;
