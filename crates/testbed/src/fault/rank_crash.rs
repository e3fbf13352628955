//! `rank-crash`: one rank's process is killed.
use super::site::{Guard, Site};
use crate::error::TestbedError;
use mycroft_sim::Fault;

/// SIGKILL, as the out-of-memory killer sends it.
pub(super) fn inject(fault: &Fault, site: &Site) -> Result<Guard, TestbedError> {
    let pid = site.pids[site.culprit(fault) as usize];
    // SAFETY: kill has no memory effects. The launcher reaps ranks only when it looks at them, and it looks before it
    // injects, so the id is still the rank's.
    if unsafe { libc::kill(pid as i32, libc::SIGKILL) } != 0 {
        let message = format!("process {pid}: {}", std::io::Error::last_os_error());
        return Err(TestbedError::Fault { fault: fault.to_string(), message });
    }
    Ok(Guard::permanent())
}
