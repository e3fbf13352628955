//! Weights of a rank, and how they move to who takes its position.
use super::change::Change;
use super::groups::rendezvous;
use crate::error::TestbedError;
use crate::library::Nccl;
use std::path::Path;

/// The name of the communicator of all ranks through which weights move.
const NAME: &str = "move";

/// One exchange of positions.
pub(super) struct Moved<'a> {
    /// The run directory.
    pub(super) run_dir: &'a Path,
    /// Number of the change.
    pub(super) number: u64,
    /// Channels of the communicator.
    pub(super) channels: u32,
}

impl Moved<'_> {
    /// Gives this rank's weights to who takes its position, and takes those of the position that it goes to; all have the same
    /// length. Collective.
    pub(super) fn through(
        &self,
        nccl: &Nccl,
        rank: u32,
        (from, to): (&Change, &Change),
        weights: Vec<f32>,
    ) -> Result<Vec<f32>, TestbedError> {
        let (before, after) = (&from.positions, &to.positions);
        let holder = |positions: &[u32], of: u32| positions.iter().position(|position| *position == of);
        let (mine, next) = (before[rank as usize], after[rank as usize]);
        let id = rendezvous(nccl, self.run_dir, &format!("{NAME}-{}", self.number), rank == 0)?;
        let all = nccl.join(id, rank, before.len() as u32, NAME, self.channels)?;
        let stream = nccl.stream()?;
        let mut taken = vec![f32::NAN; weights.len()];
        if let (true, Some(receiver), Some(sender)) = (mine != next, holder(after, mine), holder(before, next)) {
            nccl.group(|| {
                // SAFETY: both buffers have `weights.len()` elements and stay untouched until the synchronize below.
                unsafe {
                    nccl.send(weights.as_ptr(), weights.len(), receiver as u32, &all, stream)?;
                    nccl.recv(taken.as_mut_ptr(), taken.len(), sender as u32, &all, stream)
                }
            })?;
            nccl.synchronize(stream)?;
        } else {
            taken = weights;
        }
        nccl.leave(all)?;
        Ok(taken)
    }
}
