//! Phrases that facts are told in.
use mycroft_record::{FlowCounters, ProxyHeld, Rank};

/// How far a flow has come.
pub(super) fn chunks(c: &FlowCounters) -> String {
    format!("posted {} ready {} transmitted {} done {} of {}", c.posted, c.ready, c.transmitted, c.done, c.total_chunks)
}

/// Of all threads of a rank, or of its progress threads.
pub(super) fn stopped(rank: Rank, proxies: Option<&ProxyHeld>) -> String {
    let Some(held) = proxies else { return format!("every thread of rank {rank} is stopped") };
    let doing = match u8::try_from(held.state).map(char::from) {
        Ok('D') => "it waits for a device or a disk",
        Ok('S') => "it sleeps, in a lock perhaps",
        Ok('T' | 't') => "a signal or a debugger stopped it",
        _ => "the kernel does not say why",
    };
    format!(
        "the progress thread of rank {rank} does not run although it has data to move, and no processor is short: {doing}"
    )
}
