//! What is true of the copied dumps; `tests/dumps/README.md` says where they come from.
use mycroft_record::Rank;
use mycroft_record::dump::Bundle;
use std::path::{Path, PathBuf};

/// One scenario: its folder below `tests/dumps`, and the right answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Truth {
    pub(crate) folder: &'static str,
    pub(crate) what: &'static str,
    pub(crate) category: Option<&'static str>,
    pub(crate) culprits: &'static [u32],
    pub(crate) seq: Option<u64>,
}

const fn truth(
    folder: &'static str,
    what: &'static str,
    category: &'static str,
    culprits: &'static [u32],
    seq: u64,
) -> Truth {
    Truth { folder, what, category: Some(category), culprits, seq: Some(seq) }
}

const fn nothing(folder: &'static str) -> Truth {
    Truth { folder, what: "healthy", category: None, culprits: &[], seq: None }
}

/// Every scenario.
pub(crate) const ALL: &[Truth] = &[
    nothing("gloo/healthy"),
    truth("gloo/p2p_missing", "hang", "not-started", &[1], 2),
    truth("gloo/rank_missing", "hang", "not-started", &[1], 6),
    Truth { folder: "gloo/straggler", what: "slow", category: None, culprits: &[], seq: Some(10) },
    truth("gloo/two_pg_deadlock", "deadlock", "code-divergence", &[1, 2], 3),
    truth("gloo/wrong_collective", "desync", "code-divergence", &[2], 8),
    nothing("hook/alltoall_uneven_ok"),
    truth("hook/dataloader_stall", "hang", "data-loading", &[2], 8),
    truth("hook/debug_server", "hang", "not-started", &[1], 6),
    truth("hook/dtype_mismatch_hang", "desync", "argument-mismatch", &[1], 8),
    truth("hook/exception_exit", "crash", "process-exit", &[2], 8),
    nothing("hook/healthy"),
    truth("hook/p2p_missing", "hang", "not-started", &[1], 2),
    truth("hook/rank_missing", "hang", "not-started", &[1], 6),
    truth("hook/shifted_by_one", "desync", "code-divergence", &[1], 9),
    truth("hook/two_pg_deadlock", "deadlock", "code-divergence", &[1, 2], 3),
    truth("hook/wraparound_skewed", "hang", "not-started", &[3], 14),
    truth("hook/wrong_collective", "desync", "code-divergence", &[2], 8),
    // Two of four dumps are unusable; the beginning of one shows that its rank had issued what the others wait in.
    truth("variants/damaged", "hang", "not-started", &[1], 6),
    truth("variants/dir_per_node", "hang", "not-started", &[1], 6),
    truth("variants/hostname_in_filename", "hang", "not-started", &[1], 6),
    truth("variants/legacy_nccl_like", "hang", "not-started", &[1], 6),
    truth("variants/missing_dump", "crash", "process-exit", &[1], 6),
    truth("variants/nvrx_json", "hang", "not-started", &[1], 6),
    truth("variants/old_default_name", "hang", "not-started", &[1], 6),
    truth("variants/pickle_proto4", "hang", "not-started", &[1], 6),
    truth("variants/pickle_proto5", "hang", "not-started", &[1], 6),
    truth("variants/torchcomms_like", "hang", "not-started", &[1], 6),
    truth("variants/version_2.4", "hang", "not-started", &[1], 6),
];

/// Where the copies lie.
pub(crate) fn dumps() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/dumps")
}

impl Truth {
    pub(crate) fn bundle(&self) -> Bundle {
        crate::load::folder(&dumps().join(self.folder), &|_| true)
    }

    pub(crate) fn ranks(&self) -> Vec<Rank> {
        self.culprits.iter().map(|rank| Rank(*rank)).collect()
    }
}
