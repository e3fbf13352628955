//! Which NCCL version the ranks' collective library imitates: `MYCROFT_TESTBED_NCCL`, which ranks inherit.
use crate::error::TestbedError;
use mycroft_testbed_nccl::personality::Personality;

/// The release that is imitated (`2.27.5`), or `default` for the library's own ways.
///
/// # Errors
/// The variable names no version that the library knows.
pub fn nccl() -> Result<&'static str, TestbedError> {
    let chosen = Personality::from_env();
    let row = chosen.map_err(|message| TestbedError::Scenario { name: "environment".to_owned(), message })?;
    Ok(row.map_or("default", |row| row.release))
}
