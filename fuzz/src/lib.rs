//! Fuzzing of the readers: one target each, see `README.md`.
pub mod check;

#[global_allocator]
static ALLOCATOR: check::Counting = check::Counting;
