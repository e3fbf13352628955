//! What was sent over RDMA, as lines of a file: the truth beside which a measurement of packets can be held.

use crate::clock::globaltimer_ns;
use std::fs::File;
use std::io::Write;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The folder in which a process writes `PID.sent`.
const ENV_FOLDER: &str = "MYCROFT_TESTBED_SENT";

/// What one operation has sent on one connection so far.
#[derive(Debug, Default)]
pub(crate) struct Sent {
    /// When its first slice was about to go, nanoseconds since 1970; 0 before.
    began_ns: u64,
    bytes: u64,
}

impl Sent {
    /// A slice is about to go.
    pub(super) fn slice(&mut self, bytes: usize) {
        if self.began_ns == 0 {
            self.began_ns = globaltimer_ns();
        }
        self.bytes += bytes as u64;
    }

    /// All of it has arrived: a line of sender, receiver, the receiver's queue pair, beginning, end and bytes.
    pub(crate) fn tell(&self, from: IpAddr, to: Option<(IpAddr, u32)>) {
        static FILE: OnceLock<Option<Mutex<File>>> = OnceLock::new();
        let open = || {
            let folder = std::env::var_os(ENV_FOLDER)?;
            let path = Path::new(&folder).join(format!("{}.sent", std::process::id()));
            File::create(path).ok().map(Mutex::new)
        };
        let (Some((to, number)), Some(file)) = (to, FILE.get_or_init(open)) else { return };
        let (began, bytes) = (self.began_ns, self.bytes);
        let line = format!("{from} {to} {number} {began} {} {bytes}\n", globaltimer_ns());
        // Who reads the file sees that lines are missing.
        let _ = file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes());
    }
}
