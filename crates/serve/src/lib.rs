//! serve (skeleton)
