//! Plans against slowness: each mechanism against exhaustive search, or against whoever knows the future.
#[path = "mitigate/rent.rs"]
mod rent;
#[path = "mitigate/split.rs"]
mod split;
