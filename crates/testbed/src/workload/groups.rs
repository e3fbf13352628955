//! The communicators of a rank, and how its peers find each other.
use crate::error::TestbedError;
use crate::library::{Comm, Nccl, UniqueId};
use mycroft_sim::{GroupKind, Scenario};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a rank waits for its groups' roots: 256 ranks start within a minute on two cores.
const RENDEZVOUS_LIMIT: Duration = Duration::from_secs(120);
/// How often a rank looks for a root's file meanwhile.
const RENDEZVOUS_POLL: Duration = Duration::from_millis(5);

/// The communicators of a rank, each where the group has more than one member.
pub struct Groups {
    /// Tensor-parallel.
    pub tp: Option<Comm>,
    /// Pipeline-parallel.
    pub pp: Option<Comm>,
    /// Data-parallel.
    pub dp: Option<Comm>,
    /// Expert-parallel.
    pub ep: Option<Comm>,
}

impl Groups {
    /// Joins those of a position in the layout, in the order in which every rank does; `change`: which change of the job
    /// this is for, 0 at its start.
    ///
    /// # Errors
    /// The library refuses, or a group's first rank does not come.
    pub fn join(
        nccl: &Nccl,
        scenario: &Scenario,
        run_dir: &Path,
        place: u32,
        change: u64,
    ) -> Result<Groups, TestbedError> {
        let join = |kind: GroupKind| -> Result<Option<Comm>, TestbedError> {
            let group = scenario.layout().group(kind, place);
            let size = group.ranks.len() as u32;
            let Some(position) = group.position(place).filter(|_| size > 1) else { return Ok(None) };
            let id = rendezvous(nccl, run_dir, &format!("{}-{change}", group.name()), position == 0)?;
            nccl.join(id, position, size, &group.name(), scenario.channels).map(Some)
        };
        Ok(Groups {
            tp: join(GroupKind::Tensor)?,
            pp: join(GroupKind::Pipeline)?,
            dp: join(GroupKind::Data)?,
            ep: join(GroupKind::Expert)?,
        })
    }

    fn each(&self) -> impl Iterator<Item = &Comm> {
        [&self.tp, &self.pp, &self.dp, &self.ep].into_iter().flatten()
    }

    /// Whether none of them has failed meanwhile.
    ///
    /// # Errors
    /// One has.
    pub fn healthy(&self, nccl: &Nccl) -> Result<(), TestbedError> {
        self.each().try_for_each(|comm| nccl.healthy(comm))
    }

    /// Leaves all of them.
    ///
    /// # Errors
    /// The library refuses.
    pub fn leave(self, nccl: &Nccl) -> Result<(), TestbedError> {
        [self.ep, self.dp, self.pp, self.tp].into_iter().flatten().try_for_each(|comm| nccl.leave(comm))
    }
}

/// The unique id of a group: its first rank makes it and lays it in the run directory, the others wait for the file.
pub(super) fn rendezvous(nccl: &Nccl, run_dir: &Path, group: &str, is_root: bool) -> Result<UniqueId, TestbedError> {
    let path = run_dir.join(format!("id-{group}"));
    if is_root {
        let id = nccl.unique_id()?;
        let part = run_dir.join(format!("id-{group}.part"));
        std::fs::write(&part, id.bytes).map_err(|source| TestbedError::file("write", &part, source))?;
        std::fs::rename(&part, &path).map_err(|source| TestbedError::file("rename", &path, source))?;
        return Ok(id);
    }
    let begun = Instant::now();
    loop {
        match std::fs::read(&path) {
            Ok(bytes) => {
                let bytes = bytes
                    .try_into()
                    .map_err(|_| TestbedError::file("understand", &path, std::io::Error::other("not 128 bytes")))?;
                return Ok(UniqueId { bytes });
            }
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(TestbedError::file("read", &path, error));
            }
            Err(_) if begun.elapsed() > RENDEZVOUS_LIMIT => {
                return Err(TestbedError::TimedOut {
                    what: format!("the first rank of {group} did not come"),
                    seconds: RENDEZVOUS_LIMIT.as_secs_f64(),
                    hint: "look at its log in the run directory".to_owned(),
                });
            }
            Err(_) => std::thread::sleep(RENDEZVOUS_POLL),
        }
    }
}
