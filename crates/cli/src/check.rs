//! One line of the doctor's list.
use serde::Serialize;

/// How a check ended.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Grade {
    Ok,
    Warn,
    Fail,
}

/// One line of the doctor's list.
#[derive(Serialize)]
pub(crate) struct Check {
    pub(crate) grade: Grade,
    #[serde(rename = "check")]
    pub(crate) what: &'static str,
    pub(crate) found: String,
    pub(crate) fix: String,
}

/// All is well.
pub(crate) fn ok(what: &'static str, found: impl Into<String>) -> Check {
    Check { grade: Grade::Ok, what, found: found.into(), fix: String::new() }
}

/// To be known; nothing fails by it.
pub(crate) fn warn(what: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Check {
    Check { grade: Grade::Warn, what, found: found.into(), fix: fix.into() }
}

/// To be mended.
pub(crate) fn fail(what: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Check {
    Check { grade: Grade::Fail, what, found: found.into(), fix: fix.into() }
}
