//! What is known of versions of NCCL and RCCL that a tracer must mind: one table for the tracer's mask, the doctor, and
//! what a report says about its limits. `docs/nccl-versions.md` shows it.
use crate::kind::OpKind;
use std::fmt;

/// A version as `ncclGetVersion` gives it: 22907 is 2.29.7. 0 is not known.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct NcclVersion(pub u32);

impl fmt::Display for NcclVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Up to 2.8 a version was X * 1000 + Y * 100 + Z.
        let major = if self.0 < 10_000 { 1_000 } else { 10_000 };
        match self.0 {
            0 => f.write_str("of unknown version"),
            code => write!(f, "{}.{}.{}", code / major, code % major / 100, code % 100),
        }
    }
}

/// Whose library it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Library {
    /// NVIDIA's.
    Nccl,
    /// AMD's, which counts its versions as NCCL does.
    Rccl,
}

impl fmt::Display for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Library::Nccl => "NCCL",
            Library::Rccl => "RCCL",
        })
    }
}

/// What a peculiarity means for whoever traces.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Effect {
    /// Operations of this kind give no events but those of their calls: issued, and no more is visible.
    NotVisible(OpKind),
    /// Sends and receives have no flows: not observed, which is not "no data moved".
    FlowsNotObserved,
    /// Kernel events cost what the job would feel: they are not asked for unless somebody wants them.
    KernelEventsCostly,
    /// Events of sends and receives damage the library's memory: they are not asked for.
    P2pEventsUnsafe,
    /// The library itself crashes or hangs, with or without a tracer: the doctor says so.
    Unsound,
}

/// One peculiarity of a range of versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peculiarity {
    /// Whose versions.
    pub library: Library,
    /// The first version that has it.
    pub from: NcclVersion,
    /// The first version that has it no more.
    pub before: NcclVersion,
    /// What it means for whoever traces.
    pub effect: Effect,
    /// One sentence: what happens.
    pub what: &'static str,
    /// What to set or install, with its price; empty where nothing helps.
    pub remedy: &'static str,
    /// Where it is known from.
    pub source: &'static str,
}

impl Peculiarity {
    /// Whether `version` of `library` has it; never for a version that is not known.
    pub fn concerns(&self, library: Library, version: NcclVersion) -> bool {
        self.library == library && self.from <= version && version < self.before
    }
}

/// The table, oldest versions first.
pub const PECULIARITIES: &[Peculiarity] = &[
    Peculiarity {
        library: Library::Rccl,
        from: NcclVersion(1),
        before: NcclVersion(22_707),
        effect: Effect::P2pEventsUnsafe,
        what: "events of sends and receives end in a damaged handle (all-to-all)",
        remedy: "RCCL 2.27.7 or later; until then sends and receives are not traced",
        source: "ROCm/rccl PR 1973",
    },
    Peculiarity {
        library: Library::Nccl,
        from: NcclVersion(22_700),
        before: NcclVersion(22_800),
        effect: Effect::FlowsNotObserved,
        what: "of the sends and receives of a kernel that share channel and direction only the first has events of its proxy; \
               the others show start and end of their kernels alone",
        remedy: "",
        source: "NCCL 2.27.5 proxy.cc, ncclProxyOpToArgs; host code of 2.27.5 run, 2.29.7 does not do so",
    },
    Peculiarity {
        library: Library::Nccl,
        from: NcclVersion(22_809),
        before: NcclVersion(22_810),
        effect: Effect::Unsound,
        what: "large jobs stop without a word (7 of 7 runs on 512 GPUs), and states come for events that were stopped",
        remedy: "NCCL 2.30.7",
        source: "marin-community/marin issue 7344; NVIDIA/nccl issues 1992, 2000",
    },
    Peculiarity {
        library: Library::Nccl,
        from: NcclVersion(22_900),
        before: NcclVersion(23_100),
        effect: Effect::NotVisible(OpKind::Broadcast),
        what: "a Broadcast gives no event but that of its call: it is known to be issued, not when it runs or ends",
        remedy: "NCCL_ALLGATHERV_ENABLE=0 in the job; its price: broadcasts of a group are not merged into one kernel",
        source: "NCCL 2.29.7 enqueue.cc; host code of 2.29.7, 2.30.7 run",
    },
    Peculiarity {
        library: Library::Nccl,
        from: NcclVersion(23_003),
        before: NcclVersion(23_004),
        effect: Effect::Unsound,
        what: "a small all-to-all over two hosts crashes when a plugin asks for all events; this tracer does not, a chained \
               plugin may",
        remedy: "NCCL 2.30.7, or no chained plugin",
        source: "NVIDIA/nccl issue 2112",
    },
    Peculiarity {
        library: Library::Nccl,
        from: NcclVersion(23_100),
        before: NcclVersion(23_200),
        effect: Effect::KernelEventsCostly,
        what: "kernel events cost 4 to 13 % of an all-reduce of 128 kB to 4 MB",
        remedy: "they are off here; MYCROFT_KERNEL_EVENTS=on asks for them at that price",
        source: "NVIDIA/nccl issue 2355, measured with 2.31.2",
    },
];

/// What is known of a version.
pub fn peculiarities(library: Library, version: NcclVersion) -> impl Iterator<Item = &'static Peculiarity> {
    PECULIARITIES.iter().filter(move |known| known.concerns(library, version))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effects(library: Library, code: u32) -> Vec<Effect> {
        peculiarities(library, NcclVersion(code)).map(|known| known.effect).collect()
    }

    #[test]
    fn a_version_reads_as_its_makers_write_it() {
        let text = |code| NcclVersion(code).to_string();
        assert_eq!([text(22_907), text(23_203), text(2_804)], ["2.29.7", "2.32.3", "2.8.4"]);
        assert_eq!(text(0), "of unknown version");
    }

    #[test]
    fn each_range_ends_where_it_is_said_to() {
        let hidden = Effect::NotVisible(OpKind::Broadcast);
        assert_eq!(effects(Library::Nccl, 22_602), []);
        assert_eq!(effects(Library::Nccl, 22_705), [Effect::FlowsNotObserved]);
        assert_eq!(effects(Library::Nccl, 22_809), [Effect::Unsound]);
        assert_eq!(effects(Library::Nccl, 23_003), [hidden, Effect::Unsound]);
        assert_eq!(effects(Library::Nccl, 23_102), [Effect::KernelEventsCostly]);
        assert_eq!(effects(Library::Nccl, 0), [], "what is not known is not guessed");
        assert_eq!(effects(Library::Rccl, 22_606), [Effect::P2pEventsUnsafe]);
        assert_eq!(effects(Library::Rccl, 22_707), []);
    }

    #[test]
    fn the_page_shows_the_table() {
        let page = include_str!("../../../docs/nccl-versions.md");
        for known in PECULIARITIES {
            let Peculiarity { library, from, before, what, remedy, source, .. } = known;
            let from = if from.0 < 10_000 { "first".to_owned() } else { from.to_string() };
            let remedy = if remedy.is_empty() { "-" } else { remedy };
            let row = format!("| {library} | {from} | {before} | {what} | {remedy} | {source} |");
            assert!(page.contains(&row), "docs/nccl-versions.md lacks: {row}");
        }
        let rows = page.lines().filter(|line| line.starts_with("| NCCL") || line.starts_with("| RCCL")).count();
        assert_eq!(rows, PECULIARITIES.len());
    }
}
