//! Losses as records: what a source has lost is told with its next records.
use crate::backlog::Lost;
use mycroft_record::{Batch, Gap, GapCause, HostTime, Record, Source};
use mycroft_wire::codec;

/// One batch per source that lost records, saying how many.
pub(super) fn gap_batches(lost: &Lost, cause: GapCause, now: HostTime) -> Vec<Batch> {
    let batch = |(source, &lost): (&Source, &u64)| {
        let gap = Record::Gap(Gap { noticed_at: now, lost, cause });
        let mut batch = Batch { source: source.clone(), collected_at: now, records: vec![gap] };
        codec::round_to_micros(&mut batch);
        batch
    };
    lost.iter().map(batch).collect()
}
