//! How a process ended.

/// How a process ended: what its parent gets from `wait`, as far as an agent, which is not its parent, can read it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum ExitStatus {
    /// Nobody could read it.
    #[default]
    Unknown,
    /// It ended by itself with this code.
    Code(u8),
    /// This signal ended it.
    Signal(u8),
}

impl ExitStatus {
    /// The stable number: 0, 256 + code, 512 + signal.
    pub fn code(self) -> u32 {
        match self {
            ExitStatus::Unknown => 0,
            ExitStatus::Code(code) => 0x100 | u32::from(code),
            ExitStatus::Signal(signal) => 0x200 | u32::from(signal),
        }
    }

    /// ` (SIGKILL)` and the like, to stand behind a word; nothing where nobody could read it.
    pub fn in_brackets(self) -> String {
        if self == ExitStatus::Unknown { String::new() } else { format!(" ({self})") }
    }

    /// What a stable number means; a number of a newer version is unknown.
    pub fn from_code(code: u32) -> ExitStatus {
        let low = code.to_le_bytes()[0];
        match code >> 8 {
            1 => ExitStatus::Code(low),
            2 => ExitStatus::Signal(low),
            _ => ExitStatus::Unknown,
        }
    }
}

impl std::fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ExitStatus::Unknown => f.write_str("status not seen"),
            ExitStatus::Code(code) => write!(f, "exit code {code}"),
            ExitStatus::Signal(1) => f.write_str("SIGHUP"),
            ExitStatus::Signal(2) => f.write_str("SIGINT"),
            ExitStatus::Signal(6) => f.write_str("SIGABRT"),
            ExitStatus::Signal(7) => f.write_str("SIGBUS"),
            ExitStatus::Signal(9) => f.write_str("SIGKILL"),
            ExitStatus::Signal(10) => f.write_str("SIGUSR1"),
            ExitStatus::Signal(11) => f.write_str("SIGSEGV"),
            ExitStatus::Signal(15) => f.write_str("SIGTERM"),
            ExitStatus::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ExitStatus;

    #[test]
    fn numbers_stand_for_one_status_each() {
        let all = (0..=255).flat_map(|low| [ExitStatus::Code(low), ExitStatus::Signal(low)]);
        for status in all.chain([ExitStatus::Unknown]) {
            assert_eq!(ExitStatus::from_code(status.code()), status);
        }
        assert_eq!(ExitStatus::from_code(0x309), ExitStatus::Unknown, "what a newer version may tell");
        assert_eq!(ExitStatus::Signal(9).in_brackets(), " (SIGKILL)");
        assert_eq!(ExitStatus::Code(3).in_brackets(), " (exit code 3)");
        assert_eq!(ExitStatus::Unknown.in_brackets(), "");
    }
}
