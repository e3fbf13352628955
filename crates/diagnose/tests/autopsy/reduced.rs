//! Evidence taken away: an answer may lose precision, it never names an innocent rank.
use crate::golden::blamed;
use crate::truth::Truth;
use crate::{print, truth};
use mycroft_diagnose::stacks::{Question, autopsy};
use mycroft_record::Rank;
use mycroft_record::dump::Bundle;

/// Evidence to take away.
fn without(bundle: &Bundle, stacks: bool, call_stacks: bool, dump: Option<Rank>) -> Bundle {
    let mut out = bundle.clone();
    if stacks {
        out.stacks.clear();
        out.unusable.retain(|file| !file.source.contains("pyspy"));
    }
    if call_stacks {
        for entry in out.dumps.iter_mut().flat_map(|dump| &mut dump.entries) {
            entry.stack = u32::MAX;
        }
    }
    out.dumps.retain(|kept| Some(kept.rank) != dump);
    out
}

/// Culprits; and the rank that everybody waits for, if its own dump is what was taken away: that it was late before and
/// is only late again was in that dump.
fn may_be_named(truth: &Truth, rank: Rank, gone: Option<Rank>) -> bool {
    let awaited = match truth.folder {
        "gloo/straggler" => Some(Rank(2)),
        _ => None,
    };
    truth.ranks().contains(&rank) || (awaited == Some(rank) && gone == awaited)
}

#[test]
fn no_innocent_rank_is_named_whatever_is_missing() {
    let mut wrong = Vec::new();
    for truth in truth::ALL {
        let bundle = truth.bundle();
        let ranks = [None].into_iter().chain(bundle.dumps.iter().map(|dump| Some(dump.rank)));
        for gone in ranks {
            for (stacks, call_stacks) in [(false, false), (true, false), (false, true), (true, true)] {
                let answer = autopsy(&without(&bundle, stacks, call_stacks, gone), &Question::default());
                let innocent = blamed(&answer).into_iter().any(|rank| !may_be_named(truth, rank, gone));
                if innocent {
                    let what = format!("without dump {gone:?}, stacks gone {stacks}, call stacks gone {call_stacks}");
                    wrong.push(format!("{} {what}\n{}", truth.folder, print::text(&answer)));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn stacks_of_processes_are_needed_by_few() {
    let mut lost = Vec::new();
    for truth in truth::ALL {
        let answer = autopsy(&without(&truth.bundle(), true, false, None), &Question::default());
        if blamed(&answer) != truth.ranks() || answer.seq != truth.seq {
            lost.push(truth.folder);
        }
    }
    // Native Gloo records no transfers: without stacks the ranks that wait in one look idle.
    assert_eq!(lost, ["gloo/p2p_missing"]);
}

#[test]
fn nothing_is_said_of_nothing() {
    let answer = autopsy(&Bundle::default(), &Question { grid: true });
    assert_eq!(answer.outcome.as_str(), "unknown");
    assert!(answer.suspects.is_empty() && answer.grid.is_empty());
}
