//! probe core
