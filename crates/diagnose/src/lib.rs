//! diagnose (skeleton)
