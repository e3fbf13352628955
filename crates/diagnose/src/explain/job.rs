//! What slows the whole job: all devices, late issue by all or by another rank each time, or nothing that shows. Nobody is named.
use super::found::{Cause, SURELY_LONGER, Told, WORK};
use crate::evidence::{COST, Evidence, PAST_MIN, Subject};
use crate::measure::Component;
use crate::timeline::Timeline;
use mycroft_record::Category;

/// By how many standard deviations iterations must be longer than before where all wait for late issue: many iterations of a job that
/// collects garbage are anyway, so that runs of them are no news. By chance they are at one of 30,000 looks: once in nine hours.
const LATE_LONGER: f64 = 4.0;
/// Iterations that grew by this share are worth a case that names nobody: milder than FALCON's mean losses of 12 and 16 %.
const DUE: f64 = 0.08;
//= mycroft 4.3
/// Where nothing shows why, only what the paper calls a straggler is told: the interval doubles.
const DOUBLED: f64 = 1.0;

/// Devices that are slower take longer for every piece of computation, more micro-batches only for the longest: both must have
/// grown. More micro-batches issue more and compute more: where no rank computes longer, what iterations grew and the latest to
/// issue is late with is what they wait for. All ranks are late by it (storage, input), or now this one is and now that one
/// (garbage that each collects when it has enough).
pub(super) fn cause(timeline: &Timeline, evidence: &Evidence, needed: f64) -> Option<Cause> {
    let subject = Subject::Job;
    let track = evidence.tracks.get(&(Component::Iteration, subject.clone()))?;
    if track.log_odds < needed || track.mean() < DUE {
        return None;
    }
    let common = |component| evidence.common.of(component);
    let (now_ms, more_ms) = evidence.grown_ms(track.since);
    if more_ms.is_some_and(|more_ms| more_ms < DUE * (now_ms - more_ms)) {
        return None; // a few iterations did, not most of the last ones: checkpoints
    }
    let grew = format!("iterations take {now_ms:.0} ms, {:.0} ms more than before", more_ms.unwrap_or(0.0));
    // The track may be older: what was odd before by less began it.
    let longer = evidence.longer(track.onset()).filter(|longer| longer.sigmas >= SURELY_LONGER)?;
    // Else some iterations have more work than others.
    let all_are_longer = longer.low >= DUE;
    let [computation, rest] =
        [Component::Computation, Component::Rest].map(|component| common(component).unwrap_or(1.0));
    if track.rows < PAST_MIN {
        return None; // whoever it is may stand out yet
    }
    // Without kernel events what seems to be computed may wait.
    let knows_work = timeline.ranks.by_slot().iter().all(|state| state.kernel_events);
    let (component, category, text) = if all_are_longer && knows_work && computation >= 1.0 + COST && rest >= 1.0 + COST
    {
        let text = format!(
            "all devices compute {computation:.2} times as long, and {rest:.2} times between operations of one pass"
        );
        (Component::Computation, Category::Gpu, text)
    } else if longer.sigmas >= LATE_LONGER
        && let Some((category, text)) = late(evidence, computation, more_ms?)
    {
        (Component::Issue, category, text)
    } else if all_are_longer && track.mean() >= DOUBLED && evidence.work_ms() < WORK * more_ms? {
        let text = "no rank, host or way stands out, and all compute and issue as before".to_owned();
        (Component::Iteration, Category::Unknown, text)
    } else {
        return None; // more work for all
    };
    let told = |rule, text| Told { rule, text, at: track.until };
    let because = vec![told("job.wide", text), told("evidence.cost", grew)];
    Some(Cause { key: (component, subject), category, suspects: Vec::new(), since: track.onset(), because })
}

/// What is said where iterations wait for late issue, of no rank more than of others.
fn late(evidence: &Evidence, computation: f64, more_ms: f64) -> Option<(Category, String)> {
    let later_ms = evidence.later_ms().filter(|later_ms| *later_ms >= WORK * more_ms)?;
    if computation >= 1.0 + COST {
        return None;
    }
    let all_ms = evidence.common.of(Component::Issue).unwrap_or(0.0);
    Some(if all_ms >= WORK * more_ms {
        let text =
            format!("all ranks give their devices work {all_ms:.0} ms later in each iteration, and compute as before");
        (Category::DataLoading, text)
    } else {
        let text = format!(
            "devices wait {later_ms:.0} ms more for whichever rank issues last in an iteration, another one each time"
        );
        (Category::NotStarted, text)
    })
}
