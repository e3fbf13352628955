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

/// Ranks for people: `0-3,8`.
pub(crate) fn ranks_text(ranks: &[Rank]) -> String {
    ranks_within(ranks, usize::MAX)
}

/// The same, the first `ranges_max` ranges of them: `0-3,8 and 24 more`.
pub(crate) fn ranks_within(ranks: &[Rank], ranges_max: usize) -> String {
    let ranges: Vec<&[Rank]> = ranks.chunk_by(|a, b| a.0 + 1 == b.0).collect();
    let (shown, rest) = ranges.split_at(ranges.len().min(ranges_max));
    let range = |range: &&[Rank]| match range {
        [first, .., last] if range.len() > 2 => format!("{first}-{last}"),
        few => few.iter().map(Rank::to_string).collect::<Vec<_>>().join(","),
    };
    let mut text = shown.iter().map(range).collect::<Vec<_>>().join(",");
    if !rest.is_empty() {
        text += &format!(" and {} more", rest.iter().map(|range| range.len()).sum::<usize>());
    }
    text
}
