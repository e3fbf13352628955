//! What a finished autopsy looks like to others: JSON for machines, a page for people. (`diagnose`
//! writes it as text for a terminal.)
pub mod json;
pub mod page;

pub use json::AutopsyJson;
