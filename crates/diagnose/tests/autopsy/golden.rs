//! The right answer for every copied scenario, and the whole text as golden files.
use crate::{load, print, truth};
use mycroft_diagnose::stacks::{Autopsy, Question, autopsy};
use mycroft_record::Rank;
use std::path::Path;

/// Ranks blamed, ascending.
pub(crate) fn blamed(answer: &Autopsy) -> Vec<Rank> {
    let mut ranks: Vec<Rank> = answer.blamed().map(|(rank, ..)| rank).collect();
    ranks.sort_unstable();
    ranks
}

#[test]
fn every_scenario_gets_its_culprits_number_and_category() {
    let mut wrong = Vec::new();
    for truth in truth::ALL {
        let answer = autopsy(&truth.bundle(), &Question::default());
        let category = answer.category.map(|category| category.as_str());
        let right = answer.outcome.as_str() == truth.what
            && category == truth.category
            && blamed(&answer) == truth.ranks()
            && answer.seq == truth.seq;
        if !right {
            wrong.push(format!("{truth:?}\n{}", print::text(&answer)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_answers_read_as_they_did() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/autopsy/golden");
    for truth in truth::ALL {
        let text = print::text(&autopsy(&truth.bundle(), &Question::default()));
        let file = folder.join(format!("{}.txt", truth.folder.replace('/', "-")));
        if std::env::var_os("MYCROFT_UPDATE_GOLDEN").is_some() {
            std::fs::create_dir_all(&folder).expect("the golden folder can be made");
            std::fs::write(&file, &text).expect("a golden file can be written");
        }
        let golden = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        assert_eq!(text, golden, "{}: set MYCROFT_UPDATE_GOLDEN=1 if it is meant", file.display());
    }
}

/// Two sets of 16 ranks of a GPU job, with injected faults. Not ours to hold.
#[test]
fn gpu_dumps_need_both_frontiers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/flight-recorder/nvrx");
    if !folder.is_dir() {
        println!("skipped: {} is not here", folder.display());
        return;
    }
    let of = |name: &str| autopsy(&load::folder(&folder.join(name), &|_| true), &Question::default());
    let gpu = of("gpu_error_1st");
    assert_eq!(blamed(&gpu), [Rank(12), Rank(14)], "{}", print::text(&gpu));
    assert_eq!(gpu.category.map(|category| category.as_str()), Some("gpu"));
    assert_eq!(gpu.seq, Some(42806), "{}", print::text(&gpu));
    let gil = of("lock_gil_2nd");
    assert_eq!(blamed(&gil), [Rank(10), Rank(15)], "{}", print::text(&gil));
    assert_eq!(gil.category.map(|category| category.as_str()), Some("not-started"));
}

#[test]
fn the_grid_has_a_row_per_member_and_a_column_per_number() {
    let truth = truth::ALL.iter().find(|truth| truth.folder == "hook/p2p_missing").expect("it is listed");
    let answer = autopsy(&truth.bundle(), &Question { grid: true });
    let [group] = answer.grid.as_slice() else { panic!("one group, not {}", answer.grid.len()) };
    assert_eq!(group.rows.len(), 4);
    let first = group.columns.first().map(String::as_str);
    assert_eq!((first, group.columns.last().map(String::as_str)), (Some("#1"), Some("#2")));
    assert!(group.columns.iter().any(|column| column == "1 send 1->2"), "{:?}", group.columns);
    for row in &group.rows {
        assert!(row.cells.is_sorted_by_key(|cell| cell.column), "rank {}", row.rank);
        for cell in &row.cells {
            assert!((cell.column as usize) < group.columns.len());
            assert!(cell.op == u32::MAX || (cell.op as usize) < answer.op_names.len());
            assert!(cell.stack == u32::MAX || (cell.stack as usize) < answer.call_stacks.len());
        }
    }
    // Both halves of a transfer stand in one column.
    let column = group.columns.iter().position(|column| column == "1 send 0->1").expect("a transfer") as u32;
    let there = group.rows.iter().filter(|row| row.cells.iter().any(|cell| cell.column == column)).count();
    assert_eq!(there, 2);
    let missing: Vec<u32> = group
        .rows
        .iter()
        .filter(|row| row.cells.iter().any(|cell| cell.mark == mycroft_diagnose::stacks::CellMark::Missing))
        .map(|row| row.rank.0)
        .collect();
    assert_eq!(missing, [1]);
}
