//! What a finished autopsy looks like to others: a page for people.
pub mod page;
