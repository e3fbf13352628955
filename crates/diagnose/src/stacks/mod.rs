//! Post-mortem: from what a job left behind (dumps, stacks) to one verdict, over the same wait-for graph, facts and
//! reasons as the live side (design D4). Flight Recorder paper, "How to leverage FR dumps".
mod verdict;

use mycroft_record::dump::Bundle;

pub use verdict::{
    Arrow, Autopsy, AutopsyCaveat, Blamed, Cause, Cell, CellMark, Family, GroupGrid, Outcome, RankRow, Role, StackGroup,
};

/// What an autopsy is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Question {
    /// Fill [`Autopsy::grid`] (and its tables): costs memory in proportion to the entries.
    pub grid: bool,
}

/// Says what became of the job that left `bundle` behind.
pub fn autopsy(bundle: &Bundle, _question: &Question) -> Autopsy {
    Autopsy {
        outcome: Outcome::Unknown,
        category: None,
        cause: None,
        suspects: Vec::new(),
        group: String::new(),
        seq: None,
        collective: String::new(),
        because: Vec::new(),
        do_next: Vec::new(),
        ranks: bundle.dumps.iter().map(|dump| dump.rank).collect(),
        missing_dumps: Vec::new(),
        caveats: Vec::new(),
        arrows: Vec::new(),
        op_names: Vec::new(),
        frames: Vec::new(),
        call_stacks: Vec::new(),
        grid: Vec::new(),
        stack_groups: Vec::new(),
    }
}
