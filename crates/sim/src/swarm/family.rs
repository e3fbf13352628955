//! The families of scenarios.
use std::fmt;
use std::str::FromStr;

/// Where a scenario's faults come from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// No fault of the job: no case may be opened.
    Healthy,
    /// Mycroft section 7.1, and the testbed's three more.
    Mycroft,
    /// Pulse Tables 3 and 4 with their severities.
    Pulse,
    /// FALCON section 3: what slows a job down for a while, often slowly.
    Falcon,
    /// Flight Recorder's four categories.
    FlightRecorder,
    /// Switches, links and whole hosts; agents and the store.
    Infrastructure,
    /// Several faults of a job (FALCON Figures 5, 6 and 20).
    Compound,
    /// Jobs that are ended, and ranks and hosts that go first.
    Endings,
    /// One slowdown that costs 3 to 150 % of an iteration, on jobs of every length, from sharp to creeping.
    Slow,
    /// Healthy jobs of the same shapes.
    Steady,
}

impl Family {
    /// Every family.
    pub const ALL: [Family; 10] = [
        Family::Healthy,
        Family::Mycroft,
        Family::Pulse,
        Family::Falcon,
        Family::FlightRecorder,
        Family::Infrastructure,
        Family::Compound,
        Family::Endings,
        Family::Slow,
        Family::Steady,
    ];
    /// Those that are drawn where none is named. Another one here would make other scenarios of known seeds.
    pub(super) const DRAWN: [Family; 7] = [
        Family::Healthy,
        Family::Mycroft,
        Family::Pulse,
        Family::Falcon,
        Family::FlightRecorder,
        Family::Infrastructure,
        Family::Compound,
    ];

    /// Whether a fault of it is due as its cost is measured ([`crate::due`]), and not by length and growth.
    pub fn is_measured(self) -> bool {
        matches!(self, Family::Slow | Family::Steady)
    }

    /// The stable word.
    pub fn as_str(self) -> &'static str {
        match self {
            Family::Healthy => "healthy",
            Family::Mycroft => "mycroft",
            Family::Pulse => "pulse",
            Family::Falcon => "falcon",
            Family::FlightRecorder => "flight-recorder",
            Family::Infrastructure => "infrastructure",
            Family::Compound => "compound",
            Family::Endings => "endings",
            Family::Slow => "slow",
            Family::Steady => "steady",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Family {
    type Err = String;

    fn from_str(text: &str) -> Result<Family, String> {
        Family::ALL.into_iter().find(|family| family.as_str() == text).ok_or_else(|| {
            let known = Family::ALL.map(Family::as_str).join(", ");
            format!("unknown family `{text}`: expected one of {known}")
        })
    }
}
