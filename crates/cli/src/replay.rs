//! `mycroft replay`: a recorded store, or what was exported of one, through the diagnosis again.
use crate::args::ReplayArgs;
use crate::{EXIT_FOUND, EXIT_OK};
use anyhow::{Context, Result, bail};
use mycroft_diagnose::render;
use mycroft_record::Batch;
use mycroft_store::{Store, StoreConfig, codec};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Records in one frame of an exported file: with at most 256 bytes each, half of what a frame may hold.
const FRAME_RECORDS: usize = 32 << 10;

/// Prints each job's report; exit 1 when any has a case.
pub(crate) fn replay(args: &ReplayArgs) -> Result<u8> {
    let mut batches = if args.store.is_file() { read_frames(&args.store)? } else { read_store(&args.store)? };
    batches.retain(|batch| args.job.as_deref().is_none_or(|job| job == &*batch.source.job));
    if batches.is_empty() {
        let job = args.job.as_deref().map_or(String::new(), |job| format!(" of job {job}"));
        bail!("{}: no records{job}", args.store.display());
    }
    if let Some(file) = &args.export {
        return export(&batches, file);
    }
    if args.records {
        return print_records(&batches);
    }
    let tick = Duration::from_millis(args.tick_ms);
    let reports = mycroft_serve::replay::replay(batches, tick);
    let text: Vec<String> = reports.values().map(render).collect();
    let text = text.join("\n");
    std::io::stdout().write_all(text.as_bytes()).context("cannot print")?;
    Ok(if reports.values().any(|report| !report.cases.is_empty()) { EXIT_FOUND } else { EXIT_OK })
}

/// Everything in a store; damaged parts are named and left out.
fn read_store(dir: &Path) -> Result<Vec<Batch>> {
    let entries = std::fs::read_dir(dir).with_context(|| {
        format!("{}: cannot be read; give the store that `mycroft serve --store` wrote", dir.display())
    })?;
    // Opening a store makes one: not in a directory that holds none.
    if !entries.flatten().any(|entry| entry.file_name() == "meta.sqlite") {
        bail!("{}: no store; give the directory that `mycroft serve --store` wrote", dir.display());
    }
    let mut batches = Vec::new();
    for batch in Store::open(dir, StoreConfig::default())?.read_all()? {
        match batch {
            Ok(batch) => batches.push(batch),
            Err(error) => eprintln!("mycroft: {error}; going on behind it"),
        }
    }
    Ok(batches)
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

/// Writes the batches to one file that can be sent and replayed.
fn export(batches: &[Batch], file: &Path) -> Result<u8> {
    let mut out = Vec::new();
    let mut rest = batches;
    while !rest.is_empty() {
        let mut records = 0;
        let fit = rest.iter().take(codec::MAX_BATCHES).take_while(|batch| {
            records += batch.records.len();
            records <= FRAME_RECORDS
        });
        // A batch that is larger than that came in one frame and goes in one.
        let (frame, behind) = rest.split_at(fit.count().max(1));
        out.extend(codec::encode(frame)?);
        rest = behind;
    }
    std::fs::write(file, &out).with_context(|| format!("cannot write {}", file.display()))?;
    eprintln!("mycroft: {} batches in {} bytes: {}", batches.len(), out.len(), file.display());
    Ok(EXIT_OK)
}

/// One line per record: when it was collected, by whom, what it says.
fn print_records(batches: &[Batch]) -> Result<u8> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for batch in batches {
        let source = &batch.source;
        let rank = source.process.map_or("-".to_owned(), |process| process.rank.to_string());
        for record in &batch.records {
            writeln!(out, "{} {} {} {rank} {record:?}", batch.collected_at, source.job, source.host)
                .context("cannot print")?;
        }
    }
    out.flush().context("cannot print")?;
    Ok(EXIT_OK)
}
