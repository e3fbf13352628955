//! What a reader should know of how far the lines go.
use super::fold::Folded;
use super::told::Told;
use crate::fact::these;
use crate::report::Caveat;
use mycroft_record::Rank;
use mycroft_record::dump::Bundle;
use mycroft_record::printed::{Kind, LogFile, LogLine, Says};

/// A watchdog looks at its operations once a second or more often; one that is late by more than half of its limit did not
/// run.
const LATE_SHARE: u64 = 2;

/// Adds the caveats.
pub(super) fn list(told: &mut Told, bundle: &Bundle, folded: &Folded) {
    let mut out = left_out(bundle);
    if folded.apart {
        let text = "the lines of this torch do not tell the group of an operation, and the numbers differ: nothing says \
                    whether they belong together; the rank with the lowest number is a lead and no more";
        out.push(Caveat::new("no-group", text));
    } else if !told.partial.is_empty() {
        let names: Vec<&str> = told.partial.iter().map(|name| &**name).collect();
        let text = format!("the lines do not tell all members of group {}", names.join(", "));
        out.push(Caveat::new("members-unknown", text));
    }
    out.extend(lifecycle(bundle));
    out.extend(watchdogs(bundle, folded));
    if !folded.groups.is_empty() {
        out.extend(of_world(told));
    }
    told.caveats = out;
}

fn left_out(bundle: &Bundle) -> Vec<Caveat> {
    let mut out = Vec::new();
    let nonsense: u64 = bundle.logs.iter().map(|log| log.nonsense).sum();
    if nonsense > 0 {
        let lines = if nonsense == 1 { "line says".to_owned() } else { "lines say".to_owned() };
        out.push(Caveat::new(
            "log-nonsense",
            format!("{nonsense} {lines} that more was completed than issued: left out"),
        ));
    }
    let beyond: u64 = bundle.logs.iter().map(|log| log.beyond).sum();
    if beyond > 0 {
        out.push(Caveat::new("log-beyond", format!("{beyond} lines that tell something are beyond what is kept")));
    }
    out
}

fn events(bundle: &Bundle) -> impl Iterator<Item = (&LogFile, &LogLine)> {
    bundle.logs.iter().flat_map(|log| log.lines.iter().map(move |line| (log, line)))
}

/// Ends of processes as launchers and schedulers tell them.
fn lifecycle(bundle: &Bundle) -> Vec<Caveat> {
    let ended = events(bundle).filter_map(|(log, line)| match &line.says {
        Says::Event(Kind::Ended | Kind::Cancelled, text) => Some((log, line, text)),
        _ => None,
    });
    let caveat = |(log, line, text): (&LogFile, &LogLine, &std::sync::Arc<str>)| {
        Caveat::new("lifecycle", format!("{text} ({}:{}): who ended first, not why", log.source, line.number))
    };
    ended.take(2).map(caveat).collect()
}

fn watchdogs(bundle: &Bundle, folded: &Folded) -> Vec<Caveat> {
    let mut out = Vec::new();
    let over = folded.groups.values().flat_map(|group| group.stands.values()).filter_map(|stand| stand.over);
    if let Some((over, limit)) = over.filter(|(over, limit)| *limit > 0 && *over * LATE_SHARE > *limit).max() {
        let text = format!(
            "a watchdog spoke {} s after its limit of {} s: it did not run itself meanwhile (a stopped process, the \
             interpreter's lock, a call into the driver)",
            over / 1000,
            limit / 1000
        );
        out.push(Caveat::new("late-watchdog", text));
    }
    let stuck = events(bundle).find(|(_, line)| matches!(line.says, Says::Event(Kind::Watchdog, _)));
    if let Some((log, line)) = stuck {
        let text = format!(
            "it was the heartbeat monitor that ended the process ({}:{}), not the group's limit: the watchdog did not get \
             on, for the interpreter's lock or a long call; a legal wait looks the same",
            log.source, line.number
        );
        out.push(Caveat::new("heartbeat", text).switch("TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC=7200"));
    }
    out
}

fn of_world(told: &Told) -> Vec<Caveat> {
    let mut out = Vec::new();
    if !told.world.is_sure {
        let size = told.world.size;
        let text = format!("nothing tells how many ranks there are: {size} or more, by the highest that is named");
        out.push(Caveat::new("world-size", text));
    }
    let unknown: Vec<Rank> = told.unknown.iter().copied().collect();
    if !unknown.is_empty() && told.agree.is_none() {
        let text = format!(
            "no line of {} tells where they stand: they may be what is waited for, or their lines are not here",
            these(&unknown)
        );
        out.push(Caveat::new("no-line", text).about(&unknown).switch("TORCH_FR_BUFFER_SIZE=20000"));
    }
    out
}
