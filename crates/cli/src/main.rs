//! The mycroft command.
fn main(){}
