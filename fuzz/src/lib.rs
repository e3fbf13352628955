//! Fuzzing of the readers: one target each, see `README.md`.
#[path = "../../crates/formats/tests/promise/mod.rs"]
pub mod check;

#[global_allocator]
static ALLOCATOR: check::Counting = check::Counting;
