//! What lines of logs tell: the types, and how sentences refer to lines.
use super::pace::Pace;
use crate::case::Reason;
use crate::report::Caveat;
use mycroft_record::dump::{Bundle, Dump, Frame};
use mycroft_record::printed::{Fingerprint, Kind, Path};
use mycroft_record::{HostName, Rank};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Lines that a sentence refers to.
const CITES_MAX: usize = 4;
/// A line of a log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Cite {
    /// Index into the bundle's logs.
    pub(crate) file: usize,
    pub(crate) line: u64,
}

/// Where a rank was when an exception reached it that its peers' end raised.
#[derive(Clone, Debug)]
pub(crate) struct Raised {
    pub(crate) frames: Vec<Frame>,
    pub(crate) cite: Cite,
}

/// What the lines tell.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// One per rank that says where it stands and left no dump of its own.
    pub(crate) dumps: Vec<Dump>,
    /// Members of groups of which nothing is known.
    pub(crate) unknown: BTreeSet<Rank>,
    /// Every rank that lines speak of.
    pub(crate) ranks: BTreeSet<Rank>,
    /// Of these, ranks that are only known to be silent while lines of all others say that they wait.
    pub(crate) silent: BTreeSet<Rank>,
    /// Ranks that RAS sees behind, at the moment of its look.
    pub(crate) by_ras: BTreeSet<Rank>,
    /// Ranks that RAS hears nothing of, and how many the communicator has.
    pub(crate) unheard: Option<(Vec<Rank>, u32, Cite)>,
    /// How many ranks RAS has seen where, in words.
    pub(crate) counts: Option<(String, Cite)>,
    /// Lines that say where a rank stands in a group, by the group's name.
    pub(crate) stood: BTreeMap<(Arc<str>, Rank), Vec<Cite>>,
    /// Groups of which not all members are known.
    pub(crate) partial: BTreeSet<Arc<str>>,
    pub(crate) world: World,
    /// RAS: all ranks have launched as much.
    pub(crate) agree: Option<Cite>,
    pub(crate) begun: Option<Begun>,
    pub(crate) broken: Option<Broken>,
    pub(crate) raised: BTreeMap<Rank, Raised>,
    /// Ranks that did not come to something, as one that waited says.
    pub(crate) not_there: Option<(Arc<str>, Vec<Rank>, Cite)>,
    /// A communicator that is being made and is not done: who began, of how many.
    pub(crate) init: Option<(Arc<str>, Vec<u32>, u32, Cite)>,
    /// One description of a collective that differs from one which is not told.
    pub(crate) lone: Option<(Fingerprint, Cite)>,
    /// The library says that sizes differ.
    pub(crate) mismatch: Option<(Arc<str>, Cite)>,
    /// Somebody's operation timed out.
    pub(crate) timed_out: bool,
    /// Groups that never completed anything: connections were being set up.
    pub(crate) never_worked: bool,
    /// When iterations became slower.
    pub(crate) pace: Pace,
    pub(crate) caveats: Vec<Caveat>,
    pub(crate) sources: Vec<Arc<str>>,
}

/// Where it began.
#[derive(Clone, Debug)]
pub(crate) struct Begun {
    pub(crate) kind: Kind,
    /// Ranks that it befell.
    pub(crate) ranks: Vec<Rank>,
    /// Hosts that it befell, where no rank is told.
    pub(crate) hosts: Vec<HostName>,
    /// In the line's words.
    pub(crate) text: Arc<str>,
    pub(crate) cites: Vec<Cite>,
    /// Most ranks say the same: nobody stands out.
    pub(crate) is_everybody: bool,
}

/// A way that failed.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub(crate) path: Path,
    pub(crate) host: HostName,
    pub(crate) cites: Vec<Cite>,
    /// Other ends that several hosts complain of.
    pub(crate) is_shared: bool,
    /// A matter of registered memory and not of the way.
    pub(crate) is_memory: bool,
}

/// How many ranks there are, and whether anything but the highest rank seen tells it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct World {
    pub(crate) size: u32,
    pub(crate) is_sure: bool,
}

impl Told {
    /// The bundle with the dumps that the lines tell.
    pub(crate) fn join(&mut self, bundle: &Bundle) -> Bundle {
        let mut joined = bundle.clone();
        joined.dumps.append(&mut self.dumps);
        joined.dumps.sort_by(|a, b| (a.rank, &a.source).cmp(&(b.rank, &b.source)));
        joined
    }

    /// `job.log:12, rank_3.log:4`.
    pub(crate) fn at(&self, cites: &[Cite]) -> String {
        let one = |cite: &Cite| format!("{}:{}", self.sources.get(cite.file).map_or("", |source| &**source), cite.line);
        cites.iter().take(CITES_MAX).map(one).collect::<Vec<_>>().join(", ")
    }

    /// A reason that rests on lines.
    pub(crate) fn reason(&self, rule: &'static str, text: &str, cites: &[Cite]) -> Reason {
        let at = self.at(cites);
        let text = if at.is_empty() { text.to_owned() } else { format!("{text} ({at})") };
        Reason { rule: rule.into(), text, evidence: Vec::new() }
    }
}
