//! What a job changes to while it runs: the division of its micro-batches (FALCON 5.3, strategy S2) and who is where in the layout
//! (strategy S3).
use crate::error::TestbedError;
use mycroft_sim::{GroupKind, Scenario};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// A complete value: carried out twice it is carried out once.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Change {
    /// Micro-batches in an iteration of each data-parallel replica; their sum is the scenario's.
    pub micro_batches: Vec<u32>,
    /// The position in the layout, as a global rank at the start, that each rank takes.
    pub positions: Vec<u32>,
}

impl Change {
    /// The job as it starts.
    pub fn none(scenario: &Scenario) -> Change {
        let replicas = scenario.layout().size(GroupKind::Data) as usize;
        Change { micro_batches: vec![scenario.micro_batches; replicas], positions: (0..scenario.world()).collect() }
    }

    /// Whether a job can change to it.
    ///
    /// # Errors
    /// Says what it cannot do.
    pub fn check(&self, scenario: &Scenario) -> Result<(), String> {
        let none = Change::none(scenario);
        let sum = |counts: &[u32]| counts.iter().map(|count| u64::from(*count)).sum::<u64>();
        let (is, due) = (sum(&self.micro_batches), sum(&none.micro_batches));
        if self.micro_batches.len() != none.micro_batches.len() || self.micro_batches.contains(&0) || is != due {
            let replicas = none.micro_batches.len();
            return Err(format!(
                "{:?}: expected {due} micro-batches for {replicas} replicas, each at least 1",
                self.micro_batches
            ));
        }
        if scenario.layout().size(GroupKind::Expert) > 1 && self.micro_batches != none.micro_batches {
            return Err("replicas that exchange tokens between experts must take equally many micro-batches".to_owned());
        }
        let mut positions = self.positions.clone();
        positions.sort_unstable();
        if positions != none.positions {
            return Err(format!("{:?}: expected each position of {} once", self.positions, scenario.world()));
        }
        Ok(())
    }

    fn path(run_dir: &Path, number: u64) -> PathBuf {
        run_dir.join(format!("change-{number}.json"))
    }

    /// Lays it where ranks read it. They do once they are told its number.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn write(&self, run_dir: &Path, number: u64) -> Result<(), TestbedError> {
        let path = Change::path(run_dir, number);
        let text = serde_json::to_vec(self).map_err(std::io::Error::from);
        text.and_then(|text| std::fs::write(&path, text)).map_err(|source| TestbedError::file("write", path, source))
    }

    /// What change `number` is.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn read(run_dir: &Path, number: u64) -> Result<Change, TestbedError> {
        let path = Change::path(run_dir, number);
        let text = std::fs::read(&path).map_err(|source| TestbedError::file("read", &path, source))?;
        serde_json::from_slice(&text).map_err(|error| TestbedError::file("understand", &path, error.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_divisions_and_permutations_are_changes() {
        let scenario = Scenario { micro_batches: 4, ..Scenario::default() };
        let none = Change::none(&scenario);
        assert_eq!((none.micro_batches.clone(), none.check(&scenario)), (vec![4, 4], Ok(())));
        let divided = |counts: &[u32]| Change { micro_batches: counts.to_vec(), ..none.clone() }.check(&scenario);
        assert!(divided(&[7, 1]).is_ok());
        for wrong in [&[8, 0][..], &[4, 5], &[8], &[2, 2, 4]] {
            assert!(divided(wrong).unwrap_err().contains("expected 8 micro-batches for 2 replicas"), "{wrong:?}");
        }
        let mut twice = none.clone();
        twice.positions[3] = 2;
        assert!(twice.check(&scenario).unwrap_err().contains("each position of 16 once"));
        let experts = Scenario { moe: true, ep: 2, ..scenario };
        assert!(Change { micro_batches: vec![7, 1], ..none }.check(&experts).unwrap_err().contains("experts"));
    }
}
