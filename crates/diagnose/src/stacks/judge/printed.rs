//! What lines of logs decide, before the graph is asked and after it.
use super::{Doubt, Judge, Ruling, family_of_call, fault, ruling};
use crate::fact::{these, these_do};
use crate::stacks::doing::is_collective_call;
use crate::stacks::frames;
use crate::stacks::index::{Group, Lane};
use crate::stacks::printed::{Begun, Broken};
use crate::stacks::scene::DumpOp;
use crate::stacks::verdict::{Cause, Conduct, Outcome, Role};
use mycroft_record::printed::Kind;
use mycroft_record::{Category, HostName, OpKind, Place, Rank, Suspect, What};

impl Judge<'_, '_> {
    /// Something befell ranks or hosts before the first timeout was reported: the timeouts follow from it.
    pub(super) fn begun(&self) -> Option<Ruling> {
        let begun = self.told().begun.as_ref()?;
        // What a rank's own recorder holds says more than what was printed of it.
        if begun.ranks.iter().any(|rank| self.has_recorder(*rank)) || (begun.ranks.is_empty() && self.any_recorder()) {
            return None;
        }
        let (category, cause) = kind_of(begun.kind);
        let mut ruling = fault(What::Crash, category, cause);
        let who = self.whom(begun);
        let after = if self.told().timed_out { "; timeouts that are reported after it follow from it" } else { "" };
        if begun.is_everybody {
            let text = format!("{who} say the same, so none of them stands out: {}", begun.text);
            ruling.said.push(self.told().reason("log.everybody", &text, &begun.cites));
            return Some(ruling);
        }
        let confidence = if self.told().timed_out { 0.85 } else { 0.75 };
        for rank in &begun.ranks {
            self.blame(&mut ruling, *rank, confidence, Role::Gone).doing = format!("ended with: {}", begun.text);
        }
        if begun.ranks.is_empty() {
            for host in &begun.hosts {
                self.blame_host(&mut ruling, host, confidence, format!("ended with: {}", begun.text));
            }
        }
        let text = format!("{who}: {}{after}", begun.text);
        ruling.said.push(self.told().reason("log.first-failure", &text, &begun.cites));
        Some(ruling)
    }

    fn whom(&self, begun: &Begun) -> String {
        if !begun.ranks.is_empty() {
            return these(&begun.ranks);
        }
        let hosts: Vec<String> = begun.hosts.iter().map(ToString::to_string).collect();
        if hosts.is_empty() { "a rank that no line tells".to_owned() } else { format!("host {}", hosts.join(", ")) }
    }

    /// A way between two hosts failed, or memory that was registered for it. One end's line does not tell which end it is.
    pub(super) fn broken(&self) -> Option<Ruling> {
        let broken = self.told().broken.as_ref()?;
        let Broken { path, host, cites, .. } = broken;
        let end = if path.remote.is_empty() { &path.peer } else { &path.remote };
        if broken.is_memory {
            let mut ruling = fault(What::Crash, Category::Unknown, Cause::Registration);
            let text = format!(
                "memory that was registered for the network could not be used on {host}{} ({}): GPUDirect, IOMMU or ACS \
                 rather than the way",
                nic(&path.nic),
                path.text
            );
            ruling.said.push(self.told().reason("log.registration", &text, cites));
            return Some(ruling);
        }
        let mut ruling = fault(What::Crash, Category::NetworkSend, Cause::Link);
        let far = HostName::from(&**end);
        if broken.is_shared {
            self.blame_host(&mut ruling, &far, 0.8, "does not answer several hosts".to_owned());
        } else {
            let place = Place::Link { from: host.clone(), to: far };
            ruling.suspects.push(Suspect { place, confidence: 0.5 });
        }
        let which = if broken.is_shared { "" } else { "; which end it is, one end's lines do not tell" };
        let text =
            format!("nothing comes back on the way from {host}{} to {end}{which}: {}", nic(&path.nic), path.text);
        ruling.said.push(self.told().reason("log.path", &text, cites));
        Some(ruling)
    }

    fn blame_all(&self, ruling: &mut Ruling, ranks: &[Rank], confidence: f64, role: Role) {
        for rank in ranks {
            self.blame(ruling, *rank, confidence, role);
        }
    }

    fn blame_host(&self, ruling: &mut Ruling, host: &HostName, confidence: f64, doing: String) {
        ruling.suspects.push(Suspect { place: Place::Host { host: host.clone() }, confidence });
        ruling.hosts.insert(host.clone(), Conduct { role: Role::Gone, doing, at: None });
    }

    /// Nobody completes a collective before everybody has issued it: a rank that completed more than another has issued did
    /// not mean the same operations.
    pub(super) fn passed(&self) -> Option<Ruling> {
        self.index.groups.iter().enumerate().find_map(|(id, group)| {
            let printed = |lane: &&Lane| self.index.is_printed(lane);
            let done = |lane: &Lane| lane.slots.first().map(|slot| slot.seq.saturating_sub(1));
            let least = group.lanes.iter().filter(printed).filter_map(|lane| lane.issued).min()?;
            let ahead: Vec<&Lane> =
                group.lanes.iter().filter(printed).filter(|lane| done(lane).is_some_and(|done| done > least)).collect();
            let behind: Vec<&Lane> =
                group.lanes.iter().filter(printed).filter(|lane| lane.issued == Some(least)).collect();
            let ahead_of_all = ahead.len() + behind.len() == group.lanes.iter().filter(printed).count();
            if ahead.is_empty() || !ahead_of_all {
                return None;
            }
            Some(self.no_common_point(id as u32, group, &ahead, &behind, least))
        })
    }

    fn no_common_point(&self, id: u32, group: &Group, ahead: &[&Lane], behind: &[&Lane], least: u64) -> Ruling {
        let mut ruling = fault(What::Desync, Category::CodeDivergence, Cause::Divergence);
        let ranks = |lanes: &[&Lane]| lanes.iter().map(|lane| lane.rank).collect::<Vec<Rank>>();
        let (ahead, behind) = (ranks(ahead), ranks(behind));
        let all: Vec<Rank> = ahead.iter().chain(&behind).copied().collect();
        let lines = self.stood(id, &all);
        let few = if behind.len() <= ahead.len() { &behind } else { &ahead };
        if few.len() * 2 < all.len() {
            self.blame_all(&mut ruling, few, 0.8, Role::Odd);
        } else {
            if all.len() == 2 {
                self.blame_all(&mut ruling, &all, 0.5, Role::Odd);
            }
            ruling.doubts.push(Doubt::WhichOf(all));
        }
        ruling.at = Some(DumpOp::collective(id, least));
        let text = format!(
            "{} completed operations of {} beyond #{least}, which is the last that {} issued: they did not mean the same \
             operations there or before (numbers of steps or micro-batches that differ)",
            these(&ahead),
            group.label(),
            these(&behind)
        );
        ruling.said.push(self.told().reason("log.passed", &text, &lines));
        ruling
    }

    /// A rank that never issued what its peers wait in, and that was in another collective when its peers' end reached it:
    /// it went another way.
    pub(super) fn elsewhere(&self, mut ruling: Ruling) -> Ruling {
        let kind = ruling.at.and_then(|op| {
            let group = &self.index.groups[op.group as usize];
            let slot = group.lanes.iter().find_map(|lane| lane.slot(op.collective_seq()?))?;
            self.index.tables.ops.get(slot.op as usize).map(|op| op.kind)
        });
        let mut any = false;
        for rank in ruling.missing.clone() {
            let Some(raised) = self.told().raised.get(&rank) else { continue };
            let call = raised.frames.iter().find(|frame| is_collective_call(frame));
            let own = frames::own(raised.frames.iter());
            let at = own.map_or_else(String::new, |frame| format!(" at {}", frames::text(frame)));
            let other = call.and_then(|call| family_of_call(&call.name)).is_some_and(|called| kind != Some(called));
            any |= other;
            let doing = match call {
                Some(call) => format!("waited in {}{at}", call.name),
                None => format!("was{at}"),
            };
            let text = format!("rank {rank} {doing} when its peers' end reached it");
            ruling.said.push(self.told().reason("log.elsewhere", &text, &[raised.cite]));
            if let Some(conduct) = ruling.conduct.get_mut(&rank).filter(|conduct| conduct.doing.is_empty()) {
                conduct.doing = doing;
                conduct.at = own.cloned();
            }
        }
        self.only_silent(&mut ruling);
        if any && kind.is_some_and(|kind| kind != OpKind::Unknown) {
            ruling.outcome = Outcome::Fault(What::Desync);
            (ruling.category, ruling.cause) = (Some(Category::CodeDivergence), Some(Cause::Divergence));
        }
        let printed = ruling.missing.iter().any(|rank| self.told().ranks.contains(rank) && !self.has_recorder(*rank));
        if printed && ruling.outcome == Outcome::Fault(What::Hang) {
            ruling.doubts.push(Doubt::InCall(ruling.missing.clone()));
        }
        ruling
    }

    /// Silence is a lead, and weaker than a rank's own number.
    fn only_silent(&self, ruling: &mut Ruling) {
        let silent: Vec<Rank> =
            ruling.missing.iter().copied().filter(|rank| self.told().silent.contains(rank)).collect();
        for suspect in &mut ruling.suspects {
            if suspect.place.rank().is_some_and(|rank| self.told().by_ras.contains(&rank)) {
                suspect.confidence = suspect.confidence.min(0.6);
            }
        }
        if silent.is_empty() {
            return;
        }
        for suspect in &mut ruling.suspects {
            if suspect.place.rank().is_some_and(|rank| silent.contains(&rank)) {
                suspect.confidence = suspect.confidence.min(0.7);
            }
        }
        let text = format!(
            "{} of a timeout, and every other rank does: {} not in it, by {} silence",
            these_do(&silent, "prints nothing", "print nothing"),
            these_do(&silent, "is", "are"),
            if silent.len() == 1 { "its" } else { "their" }
        );
        ruling.said.push(self.told().reason("log.silent", &text, &[]));
    }

    /// A host thread that has not come back from the call into the library: its entry is newer than what its status counts,
    /// since the number is raised when the call returns. It has not left the operation out.
    pub(super) fn in_call(&self) -> Option<Ruling> {
        let mut inside: Vec<(DumpOp, Rank)> = Vec::new();
        for (id, group) in self.index.groups.iter().enumerate() {
            let at = |lane: &Lane| {
                let last = lane.slots.last().filter(|slot| !slot.done)?;
                let returned = lane.status.filter(|_| !self.index.is_printed(lane))?;
                (last.seq == returned + 1).then_some(last.seq)
            };
            let those: Vec<(DumpOp, Rank)> = group
                .lanes
                .iter()
                .filter_map(|lane| Some((DumpOp::collective(id as u32, at(lane)?), lane.rank)))
                .collect();
            let back = group.lanes.iter().filter(|lane| lane.status.is_some() && at(lane).is_none()).count();
            if those.len() <= back && group.lanes.len() > 1 {
                inside.extend(those);
            }
        }
        let (first, _) = *inside.first()?;
        let mut ranks: Vec<Rank> = inside.iter().map(|(_, rank)| *rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let mut ruling = fault(What::Hang, Category::HostThread, Cause::InLibrary);
        for rank in &ranks {
            let conduct = self.blame(&mut ruling, *rank, 0.85, Role::Stuck);
            if conduct.doing.is_empty() {
                conduct.doing = "has not come back from the call that issues it".to_owned();
            }
        }
        let text = format!(
            "{} made an entry for {} and {} status does not count it: the call into the communication library has not \
             returned (py-spy dump --native shows where)",
            these(&ranks),
            self.scene.label(&first),
            if ranks.len() == 1 { "its" } else { "their" }
        );
        ruling.said.push(self.told().reason("frontier.in-call", &text, &[]));
        ruling.facts.extend(self.doing_facts(ranks.iter().copied()));
        ruling.facts.extend(self.records(&first, &ranks));
        ruling.at = Some(first);
        Some(ruling)
    }

    /// What only sentences of others tell: who did not come, that two do not fit, that a communicator is being made.
    pub(super) fn hearsay(&self) -> Option<Ruling> {
        let told = self.told();
        if let Some((what, ranks, cite)) = &told.not_there {
            let mut ruling = fault(What::Hang, Category::NotStarted, Cause::Stuck);
            self.blame_all(&mut ruling, ranks, 0.8, Role::Absent);
            ruling.missing.clone_from(ranks);
            ruling.called = Some(what.to_string());
            let text = format!("{} not come to {what}, says a rank that waited there", these_do(ranks, "did", "did"));
            ruling.said.push(told.reason("log.not-there", &text, &[*cite]));
            return Some(self.elsewhere(ruling));
        }
        if let Some((print, cite)) = &told.lone {
            let mut ruling = fault(What::Desync, Category::CodeDivergence, Cause::Divergence);
            (ruling.called, ruling.seq) = (Some(print.op.op.to_string()), Some(print.seq));
            let text = format!(
                "rank {} is in {} #{} of {:?} {}, and another rank in something else that the lines here do not show",
                print.rank, print.op.op, print.seq, print.shape, print.dtype
            );
            ruling.said.push(told.reason("log.fingerprint", &text, &[*cite]));
            return Some(ruling);
        }
        if let Some((text, cite)) = &told.mismatch {
            let mut ruling = fault(What::Desync, Category::ArgumentMismatch, Cause::Size);
            ruling.said.push(told.reason("log.mismatch", text, &[*cite]));
            return Some(ruling);
        }
        self.unheard().or_else(|| self.making())
    }

    /// RAS hears nothing of a few ranks: their processes are gone or do not run.
    fn unheard(&self) -> Option<Ruling> {
        let (ranks, size, cite) = self.told().unheard.as_ref()?;
        let mut ruling = fault(What::Crash, Category::ProcessExit, Cause::ProcessGone);
        if ranks.len() * 2 < *size as usize {
            self.blame_all(&mut ruling, ranks, 0.7, Role::Gone);
        }
        let text = format!("RAS hears nothing of {}: the process is gone, or does not run", these(ranks));
        ruling.said.push(self.told().reason("log.unheard", &text, &[*cite]));
        Some(ruling)
    }

    /// A communicator that is not made: nothing was communicated yet.
    fn making(&self) -> Option<Ruling> {
        let (comm, began, size, cite) = self.told().init.as_ref().filter(|_| self.graph.current.is_empty())?;
        let mut ruling = fault(What::Hang, Category::Unknown, Cause::Initialisation);
        let absent: Vec<Rank> = (0..*size).filter(|rank| !began.contains(rank)).take(1 << 16).map(Rank).collect();
        if !absent.is_empty() && absent.len() * 2 < *size as usize {
            self.blame_all(&mut ruling, &absent, 0.6, Role::Absent);
            ruling.category = Some(Category::NotStarted);
        }
        let text = format!(
            "{} of {size} ranks began to make communicator {comm} and none is done: the job hangs in initialisation, before \
             any operation (unequal ranks per node, a network that lets nobody through, a device that does not answer)",
            began.len()
        );
        ruling.said.push(self.told().reason("log.initialisation", &text, &[*cite]));
        Some(ruling)
    }

    /// Somebody's operation timed out and nothing tells more: a hang of nobody in particular.
    pub(super) fn timed_out(&self, answer: Ruling) -> Ruling {
        let told = self.told();
        if !told.timed_out || answer.outcome != Outcome::Unknown {
            return answer;
        }
        let mut out = ruling(Outcome::Fault(What::Hang));
        out.category = Some(Category::Unknown);
        out.doubts = answer.doubts;
        out.at = self.graph.nodes.keys().next().copied();
        let ranks = out.at.and_then(|op| self.waiting_in(&op)).unwrap_or_default();
        let text = match (out.at, ranks.as_slice()) {
            (Some(op), [_, ..]) if !ranks.is_empty() => format!(
                "{} in {} and not through, and no line tells of a rank that is not in it",
                these_do(&ranks, "is", "are"),
                self.scene.label(&op)
            ),
            _ => "operations timed out, and the lines do not tell which".to_owned(),
        };
        out.said.push(told.reason("log.timed-out", &text, &[]));
        out
    }

    /// What the lines say besides, whoever is named.
    pub(super) fn beside(&self, ruling: &mut Ruling) {
        let told = self.told();
        let named = !ruling.suspects.is_empty();
        if let Some(cite) = told.agree
            && !named
        {
            let text = "RAS: every rank has launched as many operations, so nobody left one out; it does not complete on a \
                        device or in the network";
            ruling.said.push(told.reason("log.counts-agree", text, &[cite]));
        }
        if let Some((text, cite)) = &told.counts {
            ruling.said.push(told.reason("log.counts", text, &[*cite]));
        }
        if told.never_worked && !named && !self.any_recorder() {
            let text = "the group never completed anything: its connections were being set up (interfaces, firewalls, peer \
                        access between devices)";
            ruling.said.push(told.reason("log.never-worked", text, &[]));
        }
        if let Some((what, _, cite)) = told.not_there.as_ref().filter(|_| named && told.timed_out) {
            ruling.said.push(told.reason(
                "log.barrier",
                &format!("a rank that waited in {what} says who did not come"),
                &[*cite],
            ));
        }
    }

    fn any_recorder(&self) -> bool {
        self.index.bundle.dumps.iter().any(|dump| !dump.printed)
    }

    /// Whether a recorder's dump of the rank is at hand.
    pub(super) fn has_recorder(&self, rank: Rank) -> bool {
        self.index.bundle.dumps.iter().any(|dump| dump.rank == rank && !dump.printed)
    }
}

fn nic(name: &str) -> String {
    if name.is_empty() { String::new() } else { format!(" ({name})") }
}

fn kind_of(kind: Kind) -> (Category, Cause) {
    match kind {
        Kind::DeviceMemory | Kind::HostMemory => (Category::ProcessExit, Cause::OutOfMemory),
        Kind::Device => (Category::Gpu, Cause::DeviceError),
        Kind::Port => (Category::NetworkSend, Cause::Link),
        Kind::Interrupt => (Category::ProcessExit, Cause::ProcessGone),
        _ => (Category::ProcessExit, Cause::ErrorHandling),
    }
}
