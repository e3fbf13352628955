//! When a cause began, to the iteration.
use super::found::Found;
use crate::evidence::Subject;
use crate::measure::Component;
use crate::median::median;
use crate::timeline::{Iteration, Timeline};
use mycroft_record::HostTime;

/// Iterations before that say what was usual.
const BEFORE: usize = 16;
/// Something has begun in an iteration that took this share of what it takes more now.
const BEGUN: f64 = 0.5;

/// The row in which the evidence begins tells it to a second; of a rank that remembers the row's iterations, the first of them in
/// which it took more.
pub(super) fn of(timeline: &Timeline, found: &Found<'_>) -> HostTime {
    if found.component == Component::Pause {
        return found.track.since;
    }
    let since = found.track.onset();
    let Subject::Rank(slot) = found.subject else { return since };
    let list = timeline.ranks.at(*slot).iterations.list();
    let ms = |it: &Iteration| found.component.us(it) / 1e3;
    let at = list.partition_point(|it| it.start < since);
    let before = median(list.range(at.saturating_sub(BEFORE)..at).map(ms).collect());
    let Some(least_ms) = before.map(|before| before + BEGUN * found.track.more_ms) else { return since };
    let first = list.range(at..).take_while(|it| it.start <= found.track.until).find(|it| ms(it) >= least_ms);
    first.map_or(since, |it| it.start)
}
