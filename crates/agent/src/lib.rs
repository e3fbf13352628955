//! agent (skeleton)
