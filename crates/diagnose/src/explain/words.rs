//! What a cause is told with.
use super::found::{Found, Told};
use crate::evidence::{Evidence, Subject};
use crate::measure::Component;
use crate::timeline::Timeline;

/// What stands out, beside whom, and what iterations take.
pub(super) fn because(timeline: &Timeline, evidence: &Evidence, found: &Found<'_>) -> Vec<Told> {
    let who = match found.subject {
        Subject::Rank(slot) => format!("rank {}", timeline.ranks.at(*slot).rank),
        Subject::Host(host) => host.to_string(),
        Subject::Way(from, to) => format!("{from} -> {to}"),
        Subject::Job => "the job".to_owned(),
    };
    let (now_ms, more_ms) = evidence.grown_ms(found.track.since);
    let (rule, what) = match found.component {
        Component::Computation | Component::Rest | Component::Iteration => ("peers.computation", "computes"),
        Component::Issue => ("peers.issue", "issues operations late, while its device idles,"),
        Component::Copy => ("peers.copy", "copies into and out of the transport's slots"),
        Component::Proxy | Component::Handover => ("peers.proxy", "keeps data that is ready"),
        Component::Wire => ("peers.wire", "has the same bytes on the way"),
    };
    let mean = found.track.mean();
    let share = if found.component == Component::Wire {
        format!("{:.1} times as long as other ways do", 1.0 + mean)
    } else {
        format!("{:.0} ms an iteration longer than all but the slowest of its peers", mean * now_ms)
    };
    let rows = found.track.rows;
    let told = |rule, text| Told { rule, text, at: found.track.until };
    let stands_out = told(rule, format!("{who} {what} {share}, in {rows} looks of about a second"));
    let text = match more_ms {
        Some(more_ms) => {
            let percent = 100.0 * more_ms / (now_ms - more_ms).max(1e-9);
            format!("iterations take {now_ms:.0} ms, {more_ms:.0} ms ({percent:.0} %) more than before")
        }
        None => format!("iterations take {now_ms:.0} ms; it has been so since the first ones that were seen"),
    };
    vec![stands_out, told("evidence.cost", text)]
}
