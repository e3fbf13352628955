//! Ranks without a usable dump.
use super::{Doubt, Judge, Ruling, Sink, fault, ruling, wrote};
use crate::fact::Fact;
use crate::stacks::doing::Activities;
use crate::stacks::verdict::{Cause, Outcome, Role};
use mycroft_record::{Category, Rank, What};

impl Judge<'_, '_> {
    /// A rank without a usable dump that everybody waits for is the lead; of several, only one that stacks single out is
    /// named.
    pub(super) fn gone(&self, sinks: &[Sink]) -> Option<Ruling> {
        let first = sinks.first()?;
        let unusable =
            |rank: Rank| self.index.bundle.unusable.iter().find(|file| file.rank == Some(rank) && wrote(file));
        let mut named: Vec<&Sink> = sinks.iter().collect();
        named.retain(|sink| {
            let told = self.doings.of.contains_key(&sink.rank) || self.ended(sink.rank);
            told || !self.is_unread(sink.rank)
        });
        if sinks.len() > 1 {
            // One without dump and stacks may be gone or have lost both: then only a report of its end tells.
            let bare = sinks.iter().any(|sink| !self.doings.of.contains_key(&sink.rank));
            named.retain(|sink| if bare { self.ended(sink.rank) } else { self.doings.of.contains_key(&sink.rank) });
        }
        let tears =
            |sink: &&Sink| self.doings.of.get(&sink.rank).is_some_and(|doing| doing.activity == Activities::TearsDown);
        if sinks.iter().filter(tears).count() * 2 > sinks.len() {
            return Some(self.tears_down(&sinks.iter().filter(tears).collect::<Vec<_>>()));
        }
        let [sink] = named.as_slice() else {
            let mut ruling = ruling(Outcome::Fault(What::Hang));
            ruling.category = Some(Category::Unknown);
            ruling.at = Some(first.op);
            ruling.facts.extend(sinks.iter().map(|sink| self.no_dump(sink)));
            ruling.missing = sinks.iter().map(|sink| sink.rank).collect();
            let unread = sinks.iter().map(|sink| sink.rank).filter(|rank| self.is_unread(*rank)).collect::<Vec<_>>();
            ruling.doubts.extend((!unread.is_empty()).then_some(Doubt::Unread(unread)));
            if sinks.len() > 1 {
                ruling.doubts.push(Doubt::WhichOf(sinks.iter().map(|sink| sink.rank).collect()));
            }
            return Some(ruling);
        };
        let doing = self.doings.of.get(&sink.rank);
        let (what, category, cause, role) = match doing.map(|doing| doing.activity) {
            Some(Activities::DataLoading) => (What::Hang, Category::DataLoading, Cause::DataImbalance, Role::Absent),
            // A dump with stacks needs the interpreter's lock: who holds it in native code leaves none, and lives.
            Some(_) => (What::Hang, Category::NotStarted, Cause::Stuck, Role::Absent),
            None if unusable(sink.rank).is_some() => (What::Hang, Category::NotStarted, Cause::Stuck, Role::Gone),
            None => (What::Crash, Category::ProcessExit, Cause::ProcessGone, Role::Gone),
        };
        let mut ruling = fault(what, category, cause);
        let confidence = match (doing.is_some() || self.ended(sink.rank), sinks.len()) {
            (true, _) => 0.9,
            (false, 1) => 0.8,
            _ => 0.6,
        };
        self.blame(&mut ruling, sink.rank, confidence, role);
        ruling.missing.push(sink.rank);
        ruling.at = Some(sink.op);
        ruling.facts.push(self.no_dump(sink));
        ruling.facts.extend(self.doing_facts([sink.rank].into_iter()));
        ruling.facts.extend(self.records(&sink.op, &sink.waiting));
        Some(ruling)
    }

    /// Ranks that left no dump and give up their communicators while their peers wait for them: they are ending, which a
    /// recorder of such a rank cannot write down any more.
    fn tears_down(&self, sinks: &[&Sink]) -> Ruling {
        let mut ruling = fault(What::Crash, Category::ProcessExit, Cause::ErrorHandling);
        for sink in sinks {
            self.blame(&mut ruling, sink.rank, 0.8, Role::Gone);
            ruling.missing.push(sink.rank);
            ruling.facts.push(self.no_dump(sink));
        }
        ruling.at = sinks.first().map(|sink| sink.op);
        ruling.facts.extend(self.doing_facts(sinks.iter().map(|sink| sink.rank)));
        ruling
    }

    /// The tool that was to take its stacks found no process.
    pub(super) fn ended(&self, rank: Rank) -> bool {
        self.index.bundle.unusable.iter().any(|file| file.rank == Some(rank) && !wrote(file))
    }

    pub(super) fn no_dump(&self, sink: &Sink) -> Fact {
        let unusable = self.index.bundle.unusable.iter().find(|file| file.rank == Some(sink.rank));
        let unread = self.index.bundle.unread.iter().find(|file| file.rank == Some(sink.rank));
        let why = match unusable {
            Some(file) if !wrote(file) => {
                format!("which left no dump, and whose process was gone when its stacks were taken ({})", file.source)
            }
            _ if self.is_unread(sink.rank) => {
                let file = unread.map(|file| format!(" ({}: {})", file.source, file.why)).unwrap_or_default();
                format!("of which nothing is known: its dump could not be read{file}")
            }
            Some(file) => format!("which left no usable dump ({}: {})", file.source, file.why),
            None if self.doings.of.contains_key(&sink.rank) => "which left no dump although it lives".to_owned(),
            None => "which left no dump: it was killed, it exited, or it holds the interpreter's lock".to_owned(),
        };
        let op = self.op_ref(&sink.waiting, &sink.op);
        Fact::NoDump { rank: sink.rank, host: self.host(sink.rank), op, waiting: sink.waiting.clone(), why }
    }
}
