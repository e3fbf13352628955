//! Plans against slowness: each mechanism against exhaustive search, or against whoever knows the future.
#[path = "mitigate/follow.rs"]
mod follow;
#[path = "mitigate/known.rs"]
mod known;
#[path = "mitigate/place.rs"]
mod place;
#[path = "mitigate/plan.rs"]
mod plan;
#[path = "mitigate/rent.rs"]
mod rent;
#[path = "mitigate/split.rs"]
mod split;
