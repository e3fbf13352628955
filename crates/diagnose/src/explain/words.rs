//! What a cause is told with.
use super::found::{Found, Told};
use crate::evidence::{Evidence, Subject, Track};
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
    let now_ms = evidence.grown_ms(found.track.since).0;
    let (rule, what) = match found.component {
        Component::Computation | Component::Rest | Component::Later | Component::Iteration => {
            ("peers.computation", "computes")
        }
        Component::Issue => ("peers.issue", "issues operations late, while its device idles,"),
        Component::Copy => ("peers.copy", "copies into and out of the transport's slots"),
        Component::Through => {
            ("peers.through", "hands data on inside its host, from where it comes in to where it goes out,")
        }
        Component::Local => {
            ("peers.local", "runs collectives among its own ranks, from when the last of them has begun,")
        }
        Component::Proxy | Component::Handover => ("peers.proxy", "keeps data that is ready"),
        Component::Pause => ("peers.pause", "has a proxy thread that sleeps"),
        Component::Wire => ("peers.wire", "has the same bytes on the way"),
        Component::Sending => {
            ("peers.sending", "has what it sends on the way, beside as much of others on the same way,")
        }
        Component::Waiting => ("peers.waiting", "has threads that are ready to run and wait for a processor"),
    };
    let mean = found.track.mean();
    let share = match found.component {
        Component::Waiting => format!("for {:.0} % of the time, longer than those of other hosts", 100.0 * mean),
        Component::Pause => {
            format!("for {:.0} % of the time, while nothing goes on that it sends or receives", 100.0 * mean)
        }
        _ if found.track.by_past => format!("{:.0} ms an iteration longer than before", mean * now_ms),
        _ => format!("{:.0} ms an iteration longer than all but the slowest of its peers", mean * now_ms),
    };
    let rows = found.track.rows;
    let text = format!("{who} {what} {share}, in {rows} looks of about a second");
    vec![Told { rule, text, at: found.track.until }, cost(evidence, found.track)]
}

/// What iterations take since something began.
pub(super) fn cost(evidence: &Evidence, track: &Track) -> Told {
    let text = match evidence.grown_ms(track.since) {
        (now_ms, Some(more_ms)) => {
            let percent = 100.0 * more_ms / (now_ms - more_ms).max(1e-9);
            format!("iterations take {now_ms:.0} ms, {more_ms:.0} ms ({percent:.0} %) more than before")
        }
        (now_ms, None) => format!("iterations take {now_ms:.0} ms; it has been so since the first ones that were seen"),
    };
    Told { rule: "evidence.cost", text, at: track.until }
}
