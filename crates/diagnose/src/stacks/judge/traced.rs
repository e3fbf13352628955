//! What profilers' traces decide, where nothing else tells of a fault: who is late, or that nobody in particular is.
use super::{Judge, Ruling, fault, ruling};
use crate::case::Reason;
use crate::fact::these;
use crate::stacks::traces::Late;
use crate::stacks::verdict::{Cause, Outcome, Role};
use mycroft_record::{Category, What};

impl Judge<'_, '_> {
    /// A slow rank comes last in most iterations, by more than its peers ever do, with work of the same size.
    pub(super) fn traced(&self, answer: Ruling) -> Ruling {
        let late = self.late.as_ref().filter(|_| matches!(answer.outcome, Outcome::Unknown | Outcome::Healthy));
        let Some(late) = late else { return answer };
        let reason = |rule: &'static str, text: String| Reason { rule: rule.into(), text, evidence: Vec::new() };
        let from = match late.is_parts {
            true => format!("{} parts of {:.1} ms in collectives each, in {}", late.steps, late.step_ms, files(late)),
            false => format!("{} iterations of {:.1} ms in {}", late.steps, late.step_ms, files(late)),
        };
        let part = if late.is_parts { "a part" } else { "an iteration" };
        if let Some((rank, ms)) = late.rank() {
            let mut out = fault(What::Slowdown, Category::Unknown, Cause::Slow);
            let doing = format!("comes last to collectives: {ms:.1} ms of {part} are waited for it alone");
            self.blame(&mut out, rank, 0.8, Role::Slow).doing = doing;
            let next = late.costs.get(1).map_or(0.0, |next| next.1);
            let text = format!(
                "rank {rank} costs its peers {ms:.1} ms of {part}: it is in the collectives for the shortest time, so it \
                 came last, in {} of {from}; the next rank costs {next:.1} ms",
                late.times
            );
            out.said.push(reason("trace.late", text));
            return out;
        }
        let bundle = self.index.bundle;
        let only = bundle.dumps.is_empty() && bundle.logs.is_empty() && bundle.stacks.is_empty();
        let mut out = match late.is_much() {
            true => Ruling { doubts: answer.doubts, ..ruling(Outcome::Fault(What::Slowdown)) },
            // What else is here may not tell; traces of a moment say nothing of that.
            false if only => ruling(Outcome::Healthy),
            false => answer,
        };
        let (rule, text) = match (late.is_much(), late.is_uneven()) {
            (false, _) => ("trace.even", format!("{} come alike to their collectives: {from}", these(&late.ranks))),
            (true, true) => (
                "trace.uneven-work",
                format!(
                    "{:.1} ms of {part} are waited for who comes last, and sizes differ between ranks in {} of {} \
                     collectives: uneven work, and no slower rank; {from}",
                    late.whole_ms, late.uneven, late.matched
                ),
            ),
            (true, false) => (
                "trace.wanders",
                format!(
                    "{:.1} ms of {part} are waited for who comes last, and that is not one rank, or too few iterations tell: uneven work or \
                     pauses that wander; {from}",
                    late.whole_ms
                ),
            ),
        };
        if late.is_much() {
            out.cause = Some(Cause::Slow);
        }
        out.said.push(reason(rule, text));
        out
    }
}

/// The first and the last file.
fn files(late: &Late) -> String {
    match late.sources.as_slice() {
        [first, .., last] => format!("{first} to {last}"),
        _ => String::new(),
    }
}
