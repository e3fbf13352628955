//! Hosts in other places (FALCON S3, 5.3): slow paths where little or nothing passes, slow devices where they do least harm.
//!
//! A job is a grid: a row for each pipeline stage, a column for each group of replicas whose ranks share a host. A host has
//! one position, with all of its ranks: tensor parallelism never leaves it. Neighbours in a row exchange gradients around a
//! ring (heavy, once per iteration), neighbours in a column exchange activations (light, per micro-batch). Healthy hosts are all
//! alike, so a placement is where the *odd* ones are: hosts whose devices or NICs are slow, and ends of slow paths.
//!
//! **Model.** A column takes the sum of its stages and links once, and `m - 1` times the slowest of them; an iteration the
//! slowest column, and after it the slowest ring. Gradients that are exchanged while the backward pass still runs are not
//! modelled: give only what is exposed of them. Where stages wait for their row in each micro-batch ([`Waits`]) a row is as slow
//! as its slowest host, which is what the paper assumes.
mod model;
mod odd;
mod search;

pub use model::{HEALTHY, HOSTS_MAX, Job, Pace, PlaceError, Placement, SLOWEST, SlowPath, Waits, ring_ns};

/// A better placement, or the same where there is none.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Placed {
    /// Which host is at each position.
    pub placement: Placement,
    /// Iteration time in the present placement, nanoseconds.
    pub before_ns: u64,
    /// Iteration time in the new one.
    pub after_ns: u64,
    /// Whether no placement is faster; otherwise none was found within the limits of the search.
    pub is_exact: bool,
}

impl Job {
    /// The placement that iterates fastest, as far as is found; see [`Placed::is_exact`]. Of placements as fast as each
    /// other the one with slow devices in fewer stages, then fewer of them in the first and last stage, then fewer hosts that
    /// move.
    ///
    /// # Errors
    /// See [`PlaceError`].
    pub fn place(&self, present: &[usize]) -> Result<Placed, PlaceError> {
        let before_ns = self.iteration_ns(present)?;
        let (placement, is_exact) = search::best(self, present);
        let after_ns = self.iteration_ns(&placement)?;
        if after_ns >= before_ns {
            return Ok(Placed { placement: present.to_vec(), before_ns, after_ns: before_ns, is_exact });
        }
        Ok(Placed { placement, before_ns, after_ns, is_exact })
    }
}
