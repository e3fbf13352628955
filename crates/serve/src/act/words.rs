//! The words of the audit log, and how what is not done is said.
use axum::http::StatusCode;

pub(super) const SPLIT: &str = "split";
pub(super) const RESTART: &str = "restart";
pub(super) const APPLIED: &str = "applied";
pub(super) const KEPT: &str = "kept";
pub(super) const TAKEN_BACK: &str = "taken-back";
pub(super) const REPLACED: &str = "replaced";
pub(super) const FAILED: &str = "failed";
pub(super) const WRITTEN: &str = "written";
pub(super) const BY_POLICY: &str = "policy";

/// What is not done: status and what the client is told.
pub(crate) type Declined = (StatusCode, String);

pub(super) fn conflict(text: impl Into<String>) -> Declined {
    (StatusCode::CONFLICT, text.into())
}
