//! Lines in words.
use mycroft_record::Rank;
use mycroft_record::printed::Counts;

/// How far the ranks of a communicator have come.
pub(super) fn in_words(counts: &Counts) -> String {
    let camp = |camp: &(u64, u32, Vec<Rank>)| format!("{} of {} are at {}", camp.1, counts.size, camp.0);
    let camps: Vec<String> = counts.camps.iter().map(camp).collect();
    let least = counts.camps.iter().min_by_key(|camp| camp.0).map_or(0, |camp| camp.1);
    format!(
        "RAS: of {} of communicator {}, {}: the {least} that are behind are waited for; one look may show a moment of a job \
         that goes on",
        counts.op.text,
        counts.comm,
        camps.join(", ")
    )
}
