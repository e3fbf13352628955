//! Which rank sits where in TP x CP x PP x DP (x EP): tensor parallel fastest, then context, then data, then pipeline
//! (Megatron's tp-cp-dp-pp order), so that tensor-parallel groups stay inside a host.
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
    /// Context-parallel size; 1 = sequences are not split.
    pub cp: u32,
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
    /// Index among the replicas of the model.
    pub dp: u32,
    /// Index in its context-parallel group.
    pub cp: u32,
}

/// What a group communicates for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum GroupKind {
    /// Activations of one layer.
    Tensor,
    /// Activations between stages.
    Pipeline,
    /// Gradients and parameters: all that hold the same weights, so all of `dp` and all of `cp`.
    Data,
    /// Tokens between experts.
    Expert,
    /// Keys and values between the parts of a sequence.
    Context,
}

impl GroupKind {
    /// Every kind, in the order in which a rank joins their communicators.
    pub const ALL: [GroupKind; 5] =
        [GroupKind::Tensor, GroupKind::Pipeline, GroupKind::Data, GroupKind::Expert, GroupKind::Context];
}

impl fmt::Display for GroupKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            GroupKind::Tensor => "TP",
            GroupKind::Pipeline => "PP",
            GroupKind::Data => "DP",
            GroupKind::Expert => "EP",
            GroupKind::Context => "CP",
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
        self.tp * self.cp * self.pp * self.dp
    }

    /// Where `rank` is.
    pub fn coordinates(&self, rank: u32) -> Coordinates {
        let (tp, rest) = (rank % self.tp, rank / self.tp);
        let (cp, rest) = (rest % self.cp, rest / self.cp);
        Coordinates { tp, cp, dp: rest % self.dp, pp: rest / self.dp }
    }

    /// Who is at `at`.
    pub fn rank(&self, at: Coordinates) -> u32 {
        at.tp + self.tp * (at.cp + self.cp * (at.dp + self.dp * at.pp))
    }

    /// Members of each group of `kind`.
    pub fn size(&self, kind: GroupKind) -> u32 {
        match kind {
            GroupKind::Tensor => self.tp,
            GroupKind::Pipeline => self.pp,
            GroupKind::Data => self.dp * self.cp,
            GroupKind::Expert => self.ep,
            GroupKind::Context => self.cp,
        }
    }

    /// Which group of `kind` a rank belongs to, and its rank in that communicator; in constant time.
    pub fn place(&self, kind: GroupKind, rank: u32) -> (u32, u32) {
        let at = self.coordinates(rank);
        match kind {
            GroupKind::Tensor => (rank / self.tp, at.tp),
            GroupKind::Pipeline => (rank % (self.world() / self.pp), at.pp),
            GroupKind::Data => (at.tp + self.tp * at.pp, at.cp + self.cp * at.dp),
            GroupKind::Expert => {
                let block = at.dp / self.ep;
                (at.tp + self.tp * (at.cp + self.cp * (block + self.dp / self.ep * at.pp)), at.dp % self.ep)
            }
            GroupKind::Context => (at.tp + self.tp * (at.dp + self.dp * at.pp), at.cp),
        }
    }

    /// The group of `kind` that `rank` belongs to, in time that grows with the group only; it may have one member.
    pub fn group(&self, kind: GroupKind, rank: u32) -> Group {
        let (index, position) = self.place(kind, rank);
        // The members lie evenly apart.
        let step = match kind {
            GroupKind::Tensor => 1,
            GroupKind::Context | GroupKind::Data => self.tp,
            GroupKind::Expert => self.tp * self.cp,
            GroupKind::Pipeline => self.tp * self.cp * self.dp,
        };
        let first = rank - position * step;
        Group { kind, index, ranks: (0..self.size(kind)).map(|member| first + member * step).collect() }
    }

    /// All groups of more than one rank, by kind and index; in time that grows with the ranks.
    pub fn groups(&self) -> Vec<Group> {
        let mut groups = Vec::new();
        for kind in GroupKind::ALL {
            if self.size(kind) < 2 {
                continue;
            }
            let mut of_kind: Vec<Option<Group>> = vec![None; (self.world() / self.size(kind)) as usize];
            for rank in 0..self.world() {
                let (index, position) = self.place(kind, rank);
                if position == 0 {
                    of_kind[index as usize] = Some(self.group(kind, rank));
                }
            }
            groups.extend(of_kind.into_iter().flatten());
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
        let layout = Layout { tp: 8, pp: 2, dp: 2, cp: 1, ep: 1 };
        assert_eq!(layout.world(), 32);
        assert_eq!(layout.group(GroupKind::Tensor, 9).ranks, (8..16).collect::<Vec<_>>());
        assert_eq!(layout.group(GroupKind::Data, 1).ranks, vec![1, 9]);
        assert_eq!(layout.group(GroupKind::Pipeline, 1).ranks, vec![1, 17]);
        assert_eq!(layout.groups().len(), 4 + 16 + 16);
    }

    #[test]
    fn context_parallel_lies_between_tensor_and_data() {
        // 16 ranks: TP 2, CP 2, DP 2, PP 2.
        let layout = Layout { tp: 2, pp: 2, dp: 2, cp: 2, ep: 2 };
        assert_eq!(layout.coordinates(6), Coordinates { tp: 0, cp: 1, dp: 1, pp: 0 });
        assert_eq!(layout.group(GroupKind::Context, 6).ranks, vec![4, 6]);
        assert_eq!(layout.group(GroupKind::Data, 6).ranks, vec![0, 2, 4, 6]);
        assert_eq!(layout.group(GroupKind::Expert, 6).ranks, vec![2, 6]);
        assert_eq!(layout.group(GroupKind::Pipeline, 6).ranks, vec![6, 14]);
        assert_eq!(layout.group(GroupKind::Context, 6).name(), "CP_2");
    }

    #[test]
    fn every_rank_is_in_exactly_one_group_of_a_kind() {
        for (tp, pp, dp, cp, ep) in
            [(2, 2, 4, 1, 2), (1, 4, 4, 1, 4), (4, 1, 2, 3, 1), (1, 1, 8, 2, 4), (2, 3, 2, 2, 2), (8, 1, 1, 1, 1)]
        {
            let layout = Layout { tp, pp, dp, cp, ep };
            let mut wanted = Vec::new();
            for kind in GroupKind::ALL {
                let mut of_kind = Vec::new();
                for rank in 0..layout.world() {
                    assert_eq!(layout.rank(layout.coordinates(rank)), rank);
                    let group = layout.group(kind, rank);
                    assert_eq!(layout.place(kind, rank), (group.index, group.position(rank).unwrap()));
                    assert_eq!(group.ranks.len() as u32, layout.size(kind));
                    for &member in &group.ranks {
                        assert_eq!(layout.group(kind, member), group);
                    }
                    of_kind.push(group);
                }
                of_kind.sort_by_key(|group| group.index);
                of_kind.dedup();
                wanted.extend(of_kind.into_iter().filter(|group| group.ranks.len() > 1));
            }
            assert_eq!(layout.groups(), wanted);
        }
    }

    #[test]
    fn groups_of_a_hundred_thousand_ranks_are_listed_at_once() {
        // Each group is built once: 102,400 / 8 + 102,400 / 16 + 128 groups.
        let layout = Layout { tp: 8, pp: 16, dp: 400, cp: 2, ep: 1 };
        assert_eq!(layout.world(), 102_400);
        assert_eq!(layout.groups().len(), 12_800 + 6_400 + 128 + 51_200);
    }
}
