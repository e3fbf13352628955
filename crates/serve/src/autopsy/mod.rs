//! What a finished autopsy looks like to others: text for a terminal, JSON for machines, a page for people.
pub mod json;
pub mod page;
pub mod text;

pub use json::AutopsyJson;
pub use text::Style;
