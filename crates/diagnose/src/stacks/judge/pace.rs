//! What progress lines add: since when the job was slow. Beside another verdict it is a fact; alone it is the answer.
use super::{Doubt, Judge, Ruling, fault, ruling};
use crate::change::Shape;
use crate::fact::{these, these_do};
use crate::stacks::pace::PaceChange;
use crate::stacks::printed::Pace;
use crate::stacks::verdict::{Cause, Outcome, Role};
use mycroft_record::{Category, Rank, What};

impl Judge<'_, '_> {
    /// Adds when iterations changed. Nobody is named unless a rank's own time grew and its peers' did not.
    pub(super) fn paced(&self, mut answer: Ruling) -> Ruling {
        let Pace { changes, own, compared } = &self.told().pace;
        if changes.is_empty() {
            return answer;
        }
        if matches!(answer.outcome, Outcome::Unknown | Outcome::Healthy | Outcome::HealthyAsFar) {
            let doubts = std::mem::take(&mut answer.doubts);
            answer = self.slow_by_lines(*own, *compared);
            answer.doubts.extend(doubts);
        }
        for change in changes {
            let rule = if change.is_slower { "log.slower" } else { "log.faster-again" };
            answer.said.push(self.told().reason(rule, &sentence(change), &[]));
        }
        answer
    }

    fn slow_by_lines(&self, own: Option<(Rank, f64, f64)>, compared: usize) -> Ruling {
        let Some((rank, before, after)) = own else {
            let mut out = ruling(Outcome::Fault(What::Slowdown));
            out.cause = Some(Cause::Slow);
            out.doubts.push(Doubt::WhoIsSlow);
            return out;
        };
        let mut out = fault(What::Slowdown, Category::Unknown, Cause::Slow);
        let text = format!("its own part of an iteration went from {before:.0} ms to {after:.0} ms");
        self.blame(&mut out, rank, 0.75, Role::Slow).doing = text;
        let text = format!(
            "the own time of rank {rank} (forward pass, input) went from {before:.0} ms to {after:.0} ms when the job got \
             slower, and that of the {} other ranks that print theirs did not",
            compared.saturating_sub(1)
        );
        out.said.push(self.told().reason("log.own-time", &text, &[]));
        out
    }
}

/// `The job got slower at iteration 410 (12:03:10): 1.52 s -> 2.01 s an iteration, +32 % (job.log:17)`.
fn sentence(change: &PaceChange) -> String {
    let who = if change.name.is_empty() { "the job".to_owned() } else { format!("the job ({})", change.name) };
    let verb = if change.is_slower { "got slower" } else { "got faster again" };
    let from = match change.shape {
        Shape::Step => "at",
        Shape::Ramp => "by and by from",
    };
    let place = change.iteration.map_or_else(|| format!("line {}", change.line), |at| format!("iteration {at}"));
    let time = change.time_of_day().map_or_else(String::new, |time| format!(" ({time})"));
    let percent = (change.ratio() - 1.0) * 100.0;
    let mut text = format!("{who} {verb} {from} {place}{time}: {}, {percent:+.0} %", change.levels());
    if !change.others.is_empty() {
        text += &format!(
            "; {} it, {} not",
            these_do(&change.ranks, "shows", "show"),
            these_do(&change.others, "does", "do")
        );
    } else if change.ranks.len() > 1 {
        text += &format!("; {} print it alike", these(&change.ranks));
    }
    text + &format!(" ({}:{})", change.source, change.line)
}
