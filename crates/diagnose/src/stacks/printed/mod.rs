//! What a job printed, as the wait-for graph and the judge can use it.
//!
//! Lines of watchdogs become one small dump per rank ([`groups`]), so that one brain judges what recorders and what lines
//! tell. What came before the first timeout is told from what followed ([`cause`]). Nothing is made up for ranks whose
//! lines may just not be here.
mod cause;
mod fold;
mod groups;
mod notes;
mod pace;
mod told;
mod used;
mod words;

use fold::Folded;
use mycroft_record::Rank;
use mycroft_record::dump::Bundle;
use mycroft_record::printed::{Kind, LogLine, Says};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use words::in_words;

pub(crate) use pace::Pace;
pub(crate) use told::{Begun, Broken, Cite, Raised, Told};
pub(super) use used::used;

/// What the logs of a job tell.
pub(super) fn read(bundle: &Bundle) -> Told {
    let mut told = Told::default();
    if bundle.logs.is_empty() {
        return told;
    }
    told.sources = bundle.logs.iter().map(|log| log.source.clone()).collect();
    let folded = Folded::of(bundle);
    told.world = groups::world(bundle, &folded);
    let mut inits = Inits::new();
    for (at, file) in bundle.logs.iter().enumerate() {
        for line in &file.lines {
            let cite = Cite { file: at, line: line.number };
            take(&mut told, fold::rank_of(file, line), line, cite, &mut inits);
        }
    }
    let open = inits.into_iter().find(|(_, (_, _, done, _))| !done);
    told.init = open.map(|(comm, (ranks, size, _, cite))| (comm, ranks.into_iter().collect(), size, cite));
    groups::dumps(bundle, &folded, &mut told);
    told.begun = cause::begun(bundle, &folded, &told);
    told.broken = cause::broken(bundle);
    told.lone.clone_from(&folded.lone);
    told.ranks.extend(&folded.heard);
    told.ranks.extend((0..told.world.size).map(Rank).filter(|_| !folded.groups.is_empty()));
    let stands = || folded.groups.values().flat_map(|group| group.stands.values());
    told.timed_out |= stands().next().is_some();
    told.never_worked = stands().any(|stand| stand.open.is_some() && stand.status.is_some())
        && stands().filter(|stand| stand.open.is_some()).all(|stand| stand.status.is_some_and(|(_, done)| done < 0));
    told.pace = pace::read(bundle);
    notes::list(&mut told, bundle, &folded);
    told
}

/// Communicators that are being made: the ranks that began, how many there are, whether any is done.
type Inits = BTreeMap<Arc<str>, (BTreeSet<u32>, u32, bool, Cite)>;

/// Lines that need no other line to be understood.
fn take(told: &mut Told, rank: Option<Rank>, line: &LogLine, cite: Cite, inits: &mut Inits) {
    match &line.says {
        Says::Event(Kind::CountsAgree, _) => told.agree = told.agree.or(Some(cite)),
        Says::Event(Kind::TimedOut, _) => told.timed_out = true,
        Says::Counts(counts) if counts.camps.is_empty() => {
            told.unheard.get_or_insert_with(|| (counts.silent.clone(), counts.size, cite));
        }
        Says::Counts(counts) => {
            let least = counts.camps.iter().map(|camp| camp.0).min();
            let behind = counts.camps.iter().filter(|camp| Some(camp.0) == least).flat_map(|camp| &camp.2);
            told.by_ras.extend(behind);
            told.counts.get_or_insert_with(|| (in_words(counts), cite));
        }
        Says::Event(Kind::Mismatch, text) => {
            told.mismatch.get_or_insert_with(|| (text.clone(), cite));
        }
        Says::Raised(Kind::PeerGone | Kind::Interrupt | Kind::Teardown, _, frames) => {
            if let Some(rank) = rank {
                told.raised.entry(rank).or_insert_with(|| Raised { frames: frames.clone(), cite });
            }
        }
        Says::NotThere(what, ranks) => {
            told.not_there.get_or_insert_with(|| (what.clone(), ranks.clone(), cite));
        }
        Says::Init(comm, rank, size, done) => {
            let known = inits.entry(comm.clone()).or_insert((BTreeSet::new(), *size, false, cite));
            known.0.insert(*rank);
            known.2 |= done;
        }
        _ => {}
    }
}
