//! Which step marks servers have kept.
use mycroft_record::{JobName, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// By job and rank.
pub(crate) type Kept = BTreeMap<(JobName, u32), BTreeSet<u64>>;

/// What is in the folders of stores.
pub(crate) fn kept(stores: &[PathBuf]) -> Kept {
    let mut out = Kept::new();
    for store in stores {
        for delivery in mycroft_store::read_only(store).expect("a store") {
            let batch = delivery.expect("read").batch;
            let Some(process) = batch.source.process else { continue };
            let marks = batch.records.iter().filter_map(|record| match record {
                Record::StepMark(mark) => Some(mark.step),
                _ => None,
            });
            out.entry((batch.source.job.clone(), process.rank.0)).or_default().extend(marks);
        }
    }
    out
}
