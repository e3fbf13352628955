//! Which rank sits where in TP x PP x DP (x EP): tensor parallel fastest, then data, then pipeline (Megatron's tp-dp-pp
//! order), so that tensor-parallel groups stay inside a host.
use std::fmt;

/// The parallel dimensions of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    /// Tensor-parallel size.
    pub tp: u32,
    /// Pipeline-parallel size.
    pub pp: u32,
    /// Data-parallel size.
    pub dp: u32,
    /// Expert-parallel size; divides `dp`, 1 = no expert groups.
    pub ep: u32,
}

/// Where a rank is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Coordinates {
    /// Index in its tensor-parallel group.
    pub tp: u32,
    /// Pipeline stage.
    pub pp: u32,
    /// Index in its data-parallel group.
    pub dp: u32,
}

/// What a group communicates for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum GroupKind {
    /// Activations of one layer.
    Tensor,
    /// Activations between stages.
    Pipeline,
    /// Gradients and parameters.
    Data,
    /// Tokens between experts.
    Expert,
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GroupKind::Tensor => "TP",
            GroupKind::Pipeline => "PP",
            GroupKind::Data => "DP",
            GroupKind::Expert => "EP",
        })
    }
}

/// One communicator of the job.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Group {
    /// What for.
    pub kind: GroupKind,
    /// Which of its kind.
    pub index: u32,
    /// Global ranks, in communicator order.
    pub ranks: Vec<u32>,
}

impl Group {
    /// Name of the communicator, for example `DP_3`.
    pub fn name(&self) -> String {
        format!("{}_{}", self.kind, self.index)
    }

    /// The communicator rank of a global rank.
    pub fn position(&self, rank: u32) -> Option<u32> {
        self.ranks.iter().position(|&member| member == rank).map(|position| position as u32)
    }
}

impl Layout {
    /// Ranks in the job.
    pub fn world(&self) -> u32 {
        self.tp * self.pp * self.dp
    }

    /// Where `rank` is.
    pub fn coordinates(&self, rank: u32) -> Coordinates {
        Coordinates { tp: rank % self.tp, dp: rank / self.tp % self.dp, pp: rank / self.tp / self.dp }
    }

    /// Who is at `at`.
    pub fn rank(&self, at: Coordinates) -> u32 {
        at.tp + self.tp * (at.dp + self.dp * at.pp)
    }

    /// The group of `kind` that `rank` belongs to; it may have one member only.
    pub fn group(&self, kind: GroupKind, rank: u32) -> Group {
        let at = self.coordinates(rank);
        let (index, ranks): (u32, Vec<u32>) = match kind {
            GroupKind::Tensor => {
                (at.dp + self.dp * at.pp, (0..self.tp).map(|tp| self.rank(Coordinates { tp, ..at })).collect())
            }
            GroupKind::Pipeline => {
                (at.tp + self.tp * at.dp, (0..self.pp).map(|pp| self.rank(Coordinates { pp, ..at })).collect())
            }
            GroupKind::Data => {
                (at.tp + self.tp * at.pp, (0..self.dp).map(|dp| self.rank(Coordinates { dp, ..at })).collect())
            }
            GroupKind::Expert => {
                let block = at.dp / self.ep;
                let members = block * self.ep..(block + 1) * self.ep;
                let index = at.tp + self.tp * (block + self.dp / self.ep * at.pp);
                (index, members.map(|dp| self.rank(Coordinates { dp, ..at })).collect())
            }
        };
        Group { kind, index, ranks }
    }

    /// All groups of more than one rank, in a fixed order.
    pub fn groups(&self) -> Vec<Group> {
        let mut groups = Vec::new();
        for kind in [GroupKind::Tensor, GroupKind::Pipeline, GroupKind::Data, GroupKind::Expert] {
            let mut of_kind: Vec<Group> = (0..self.world()).map(|rank| self.group(kind, rank)).collect();
            of_kind.sort_by_key(|group| group.index);
            of_kind.dedup_by_key(|group| group.index);
            groups.extend(of_kind.into_iter().filter(|group| group.ranks.len() > 1));
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn megatron_order_of_the_papers_testbed() {
        // Mycroft section 7.1: 32 ranks, TP 8, PP 2, DP 2 on four machines; machines 1-2 are stage 1.
        let layout = Layout { tp: 8, pp: 2, dp: 2, ep: 1 };
        assert_eq!(layout.world(), 32);
        assert_eq!(layout.group(GroupKind::Tensor, 9).ranks, (8..16).collect::<Vec<_>>());
        assert_eq!(layout.group(GroupKind::Data, 1).ranks, vec![1, 9]);
        assert_eq!(layout.group(GroupKind::Pipeline, 1).ranks, vec![1, 17]);
        assert_eq!(layout.groups().len(), 4 + 16 + 16);
    }

    #[test]
    fn every_rank_is_in_exactly_one_group_of_a_kind() {
        for (tp, pp, dp, ep) in [(2, 2, 4, 2), (1, 4, 4, 4), (4, 1, 2, 1), (1, 1, 8, 4), (2, 3, 2, 2)] {
            let layout = Layout { tp, pp, dp, ep };
            for rank in 0..layout.world() {
                assert_eq!(layout.rank(layout.coordinates(rank)), rank);
                for kind in [GroupKind::Tensor, GroupKind::Pipeline, GroupKind::Data, GroupKind::Expert] {
                    let group = layout.group(kind, rank);
                    assert!(group.position(rank).is_some());
                    for &member in &group.ranks {
                        assert_eq!(layout.group(kind, member), group);
                    }
                }
            }
        }
    }
}
