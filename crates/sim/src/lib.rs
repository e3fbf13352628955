//! sim (skeleton)
