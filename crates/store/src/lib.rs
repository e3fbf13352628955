//! store (skeleton)
