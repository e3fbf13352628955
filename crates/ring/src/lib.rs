//! ring (skeleton)
