//! Renaming ranks renames the answer and changes nothing else: no rule hangs on the order of a list.
use crate::golden::blamed;
use crate::{print, truth};
use mycroft_diagnose::stacks::{Question, autopsy};
use mycroft_record::Rank;
use mycroft_record::dump::Bundle;

/// The bundle with every rank renamed; group-rank order is kept, so that transfers mean the same.
pub(crate) fn renamed(bundle: &Bundle, name: &dyn Fn(Rank) -> Rank) -> Bundle {
    let mut out = bundle.clone();
    for dump in out.dumps.iter_mut().chain(&mut out.heads) {
        dump.rank = name(dump.rank);
        for group in dump.groups.iter_mut().filter(|group| !group.local_ranks) {
            for rank in &mut group.ranks {
                *rank = name(*rank);
            }
        }
    }
    for stacks in &mut out.stacks {
        stacks.rank = stacks.rank.map(name);
    }
    for file in &mut out.unusable {
        file.rank = file.rank.map(name);
    }
    // The reader's order: by rank, then recorder or process.
    out.dumps.sort_by_key(|dump| dump.rank);
    out.heads.sort_by_key(|dump| dump.rank);
    out.stacks.sort_by_key(|stacks| stacks.rank);
    out.unusable.sort();
    out
}

/// All orders of `0..n`.
fn permutations(n: usize) -> Vec<Vec<u32>> {
    let mut out: Vec<Vec<u32>> = vec![Vec::new()];
    for next in 0..n as u32 {
        let insert = |order: &Vec<u32>| {
            let order = order.clone();
            (0..=order.len()).map(move |at| {
                let mut longer = order.clone();
                longer.insert(at, next);
                longer
            })
        };
        out = out.iter().flat_map(insert).collect();
    }
    out
}

#[test]
fn renaming_the_ranks_renames_the_culprits() {
    let orders = permutations(4);
    assert_eq!(orders.len(), 24);
    let mut wrong = Vec::new();
    for truth in truth::ALL {
        let bundle = truth.bundle();
        let plain = autopsy(&bundle, &Question::default());
        for order in &orders {
            let name = |rank: Rank| order.get(rank.0 as usize).map_or(rank, |new| Rank(*new));
            let answer = autopsy(&renamed(&bundle, &name), &Question::default());
            let mut expected: Vec<Rank> = blamed(&plain).into_iter().map(name).collect();
            expected.sort_unstable();
            let same = blamed(&answer) == expected
                && answer.outcome == plain.outcome
                && (answer.category, answer.cause, answer.seq) == (plain.category, plain.cause, plain.seq)
                && answer.blamed().all(|(rank, suspect, conduct)| {
                    let before = plain.blamed().find(|(before, ..)| name(*before) == rank);
                    before.is_some_and(|(_, s, c)| s.confidence == suspect.confidence && c.role == conduct.role)
                });
            if !same {
                wrong.push(format!("{} as {order:?}\n{}", truth.folder, print::text(&answer)));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_order_of_files_does_not_matter() {
    for truth in truth::ALL {
        let bundle = truth.bundle();
        let mut other = bundle.clone();
        // Within a rank, and of what carries no rank, order is the reader's; entries may come in any order of files.
        other.unusable.reverse();
        other.notes.reverse();
        other.stacks.reverse();
        other.stacks.sort_by_key(|stacks| stacks.rank);
        let (a, b) = (autopsy(&bundle, &Question::default()), autopsy(&other, &Question::default()));
        assert_eq!(
            (blamed(&a), a.outcome, a.category, a.seq),
            (blamed(&b), b.outcome, b.category, b.seq),
            "{}",
            truth.folder
        );
        assert_eq!(a.because, b.because, "{}", truth.folder);
    }
}
