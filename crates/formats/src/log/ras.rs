//! What NCCL's RAS prints (`ncclras`, 2.24 and newer): how far the ranks of each communicator have come.
use super::words::{between, count_after, number, small_after, word};
use crate::opname;
use mycroft_record::Rank;
use mycroft_record::dump::OpName;
use mycroft_record::printed::{Counts, Kind, Says};

/// Camps of a communicator, and ranks listed for one: RAS lists the few.
const CAMPS_MAX: usize = 64;
const RANKS_MAX: usize = 4096;
/// Lines without a word of RAS after which its block is over.
const QUIET_LINES: u32 = 8;

/// The block that is being read.
#[derive(Default)]
pub(super) struct Ras {
    open: Option<Open>,
    /// Sizes of the communicators in the table of groups: ranks each.
    sizes: Vec<u32>,
    ok: Option<u64>,
    bad: bool,
    done: Vec<(u64, Says)>,
}

struct Open {
    at: u64,
    counts: Counts,
    quiet: u32,
}

impl Ras {
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    pub(super) fn line(&mut self, number: u64, text: &str) {
        let row: Vec<&str> = text.split_whitespace().collect();
        // `    0         1         4         8        32        32   RUNNING  MISMATCH`
        if let [_, _, _, _, per_comm, _, "RUNNING", status] = row.as_slice()
            && let Ok(size) = per_comm.parse()
        {
            self.sizes.push(size);
            match *status {
                "OK" => drop(self.ok.get_or_insert(number)),
                _ => self.bad = true,
            }
            return;
        }
        let head = text.trim_start();
        if head.starts_with('#') && (text.contains("MISMATCH") || text.contains("INCOMPLETE")) {
            self.close();
            let comm = between(text, "(", ")").unwrap_or_default();
            self.start(number, comm);
            return;
        }
        if let Some(op) = between(text, "have different ", " operation counts") {
            // One communicator may differ in operations of several kinds.
            let comm = self.open.as_ref().map(|open| open.counts.comm.clone()).unwrap_or_default();
            if self.open.as_ref().is_none_or(|open| !open.counts.camps.is_empty()) {
                self.close();
                self.start(number, &comm);
            }
            if let Some(open) = &mut self.open {
                open.counts.op = op_name(op);
                open.quiet = 0;
            }
            return;
        }
        self.inside(number, head);
    }

    fn start(&mut self, at: u64, comm: &str) {
        self.open = Some(Open { at, counts: Counts { comm: comm.into(), ..Counts::default() }, quiet: 0 });
    }

    fn inside(&mut self, line: u64, head: &str) {
        if head.contains("launched up to operation") && self.open.is_none() {
            self.start(line, "");
        }
        let Some(open) = &mut self.open else { return };
        let camps = &mut open.counts.camps;
        let none = head.contains("not launched any operations").then_some(0);
        if let Some(last) = none.or_else(|| count_after(head, "launched up to operation ")) {
            let how_many = number(head).and_then(|count| u32::try_from(count).ok()).unwrap_or(1);
            if camps.len() < CAMPS_MAX {
                // `Rank 3 has launched up to operation 640`.
                let one = small_after(head, "Rank ").filter(|_| head.starts_with("Rank "));
                camps.push((last, how_many, one.map(Rank).into_iter().collect()));
            }
            open.quiet = 0;
        } else if head.starts_with("Rank ") {
            let rank = small_after(head, "Rank ").filter(|rank| *rank <= crate::RANK_MAX).map(Rank);
            let listed = camps.last_mut().map_or(&mut open.counts.silent, |camp| &mut camp.2);
            listed.extend(rank.filter(|_| listed.len() < RANKS_MAX));
            open.quiet = 0;
        } else {
            open.quiet += 1;
            if open.quiet > QUIET_LINES {
                self.close();
            }
        }
    }

    fn close(&mut self) {
        if let Some(open) =
            self.open.take().filter(|open| !open.counts.camps.is_empty() || !open.counts.silent.is_empty())
        {
            self.done.push((open.at, Says::Counts(Box::new(open.counts))));
        }
    }

    /// What was said, by line.
    pub(super) fn finish(&mut self) -> Vec<(u64, Says)> {
        self.close();
        let only = (self.sizes.len() == 1).then(|| self.sizes[0]);
        for (_, says) in &mut self.done {
            if let Says::Counts(counts) = says {
                let told: u32 = counts.camps.iter().map(|camp| camp.1).fold(0, u32::saturating_add);
                counts.size = only.unwrap_or(told).max(told);
            }
        }
        if let Some(line) = self.ok.filter(|_| !self.bad && self.done.is_empty()) {
            let text = "every rank of every communicator has launched as many operations";
            self.done.push((line, Says::Event(Kind::CountsAgree, text.into())));
        }
        std::mem::take(&mut self.done)
    }
}

/// `AllGather` as recorders of torch write it.
pub(super) fn op_name(name: &str) -> OpName {
    let name = word(name, &[]);
    let mut op = String::new();
    for c in name.chars().take(40) {
        if c.is_ascii_uppercase() && !op.is_empty() {
            op.push('_');
        }
        op.push(c.to_ascii_lowercase());
    }
    let kind = opname::parts(&op).kind;
    OpName { text: name.into(), op: op.into(), kind, ..OpName::default() }
}
