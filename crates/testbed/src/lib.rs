//! testbed (skeleton)
