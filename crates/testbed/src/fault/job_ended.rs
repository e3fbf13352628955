//! `job-ended`: somebody outside the job ends all of it.
use super::{Guard, Site};
use crate::error::TestbedError;
use mycroft_sim::Fault;

/// SIGTERM to all ranks, as a scheduler sends it to a job that is cancelled.
pub(super) fn inject(fault: &Fault, site: &Site) -> Result<Guard, TestbedError> {
    for pid in site.pids.iter() {
        // SAFETY: kill has no memory effects. The launcher reaps ranks only when it looks at them, and it looks before it
        // injects, so the id is still the rank's.
        if unsafe { libc::kill(*pid as i32, libc::SIGTERM) } != 0 {
            let message = format!("process {pid}: {}", std::io::Error::last_os_error());
            return Err(TestbedError::Fault { fault: fault.to_string(), message });
        }
    }
    Ok(Guard::permanent())
}
