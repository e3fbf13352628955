//! What was recorded: a store, a recording, or what was exported of one.
use anyhow::{Context, Result, bail};
use mycroft_record::Batch;
use mycroft_store::{Delivery, StoreAt, StoreError, is_store, read_only, recording};
use mycroft_wire::codec;
use std::path::Path;

/// What is replayed, in order; parts that cannot be read are named on standard error and left out.
pub(crate) type Deliveries = Box<dyn Iterator<Item = Delivery>>;

/// Those that can be read; the others are named on standard error.
pub(crate) fn readable<T>(all: impl Iterator<Item = Result<T, StoreError>>) -> impl Iterator<Item = T> {
    all.filter_map(|one| one.inspect_err(|error| eprintln!("mycroft: {error}; going on behind it")).ok())
}

/// The deliveries of a store's or a recording's folder, or of an exported file.
pub(crate) fn deliveries(store: &StoreAt) -> Result<Deliveries> {
    let path = store.dir.as_path();
    if path.is_file() {
        let mut batches = read_frames(path)?;
        mycroft_record::batch::sort_as_collected(&mut batches);
        return Ok(Box::new(batches.into_iter().map(|batch| Delivery { arrives_at: batch.collected_at, batch })));
    }
    const GIVE: &str = "give the store that `mycroft serve --store` wrote, or the folder of `mycroft sim run --out`";
    std::fs::read_dir(path).with_context(|| format!("{}: cannot be read; {GIVE}", path.display()))?;
    let found = if recording::is_recording(path) {
        recording::read(path)?
    } else if is_store(path) {
        read_only(store.clone())?
    } else {
        bail!("{}: no store; {GIVE}", path.display());
    };
    Ok(Box::new(readable(found)))
}

/// The frames of a file that `--export` wrote (docs/formats/wire.md, "The frame"), one behind the other.
fn read_frames(path: &Path) -> Result<Vec<Batch>> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut batches = Vec::new();
    let mut rest = bytes.as_slice();
    while !rest.is_empty() {
        let at = bytes.len() - rest.len();
        let place = || format!("{}: byte {at}", path.display());
        let frame_bytes = codec::header(rest).with_context(place)?.frame_bytes;
        let (frame, behind) = rest.split_at(frame_bytes.min(rest.len()));
        batches.extend(codec::decode(frame).with_context(place)?.batches);
        rest = behind;
    }
    Ok(batches)
}
