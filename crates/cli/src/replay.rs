//! `mycroft replay`: a recorded store, a recording, or what was exported of one, through the diagnosis again.
use crate::args::ReplayArgs;
use crate::exit::{EXIT_FOUND, EXIT_INTERRUPTED, EXIT_OK};
use crate::lines::Lines;
use crate::progress::Progress;
use crate::recorded::{deliveries, readable};
use crate::stop::Stop;
use crate::whole::WholeFile;
use anyhow::{Result, bail};
use mycroft_diagnose::render;
use mycroft_record::{Batch, HostTime, NANOS_PER_SEC};
use mycroft_serve::api::ReportJson;
use mycroft_serve::replay::{Played, Player, TAIL};
use mycroft_store::runs::{Happening, history};
use mycroft_store::{Delivery, StoreAt, is_store, recording};
use mycroft_wire::codec;
use serde_json::json;
use std::io::Write;
use std::path::Path;
use std::time::Duration;

/// Records in one frame of an exported file: with at most 256 bytes each, half of what a frame may hold.
const FRAME_RECORDS: usize = 32 << 10;
/// Ranks in the JSON of a report: as many as the server tells in one answer.
const RANKS_MAX: usize = 10_000;

/// Prints each job's report; exit 1 when any has a case.
pub(crate) fn replay(args: &ReplayArgs) -> Result<u8> {
    let stop = Stop::on_signals()?;
    let store = args.records_in.at(&args.store)?;
    let mut all = deliveries(&store)?;
    let wanted = args.job.clone();
    let mine = move |delivery: &Delivery| wanted.as_deref().is_none_or(|job| job == &*delivery.batch.source.job);
    let mut some = all.by_ref().filter(mine).peekable();
    if some.peek().is_none() {
        let job = args.job.as_deref().map_or(String::new(), |job| format!(" of job {job}"));
        bail!("{}: no records{job}", args.store.display());
    }
    if let Some(file) = &args.export {
        return export(some, file, &stop);
    }
    if args.records {
        return print_records(some);
    }
    let played = if is_store(&args.store) && !recording::is_recording(&args.store) {
        drop(some);
        let what = readable(history(store.clone())?);
        play(what, (args, &store), &stop)?
    } else {
        play(some.map(Happening::Delivered), (args, &store), &stop)?
    };
    let Some(player) = played else { return Ok(EXIT_INTERRUPTED) };
    let (mut reports, mut series) = (Vec::new(), Vec::new());
    for Played { report, series: of_job, .. } in player.finish(TAIL).into_values() {
        reports.push(report);
        series.extend(of_job);
    }
    let text = if args.series {
        format!("{}\n", json!({ "series": series }))
    } else if args.json {
        let reports: Vec<ReportJson> = reports.iter().map(|report| ReportJson::of(report, RANKS_MAX)).collect();
        format!("{}\n", json!({ "reports": reports }))
    } else {
        reports.iter().map(render).collect::<Vec<String>>().join("\n")
    };
    std::io::stdout().write_all(text.as_bytes())?;
    Ok(if reports.iter().any(|report| !report.cases.is_empty()) { EXIT_FOUND } else { EXIT_OK })
}

/// Lets a player live through what happened; `None` when interrupted.
fn play(
    happenings: impl Iterator<Item = Happening>,
    (args, store): (&ReplayArgs, &StoreAt),
    stop: &Stop,
) -> Result<Option<Player>> {
    let player = Player::new(Duration::from_millis(args.tick_ms));
    let mut player = if args.series { player.with_series() } else { player };
    let mut progress = Progress::start();
    let (mut first, mut batches) = (HostTime::NONE, 0_u64);
    for happening in happenings {
        if stop.asked() {
            return Ok(None);
        }
        player.happened(store, &happening, args.job.as_deref())?;
        let Happening::Delivered(delivery) = happening else { continue };
        first = first.some().unwrap_or(delivery.arrives_at);
        batches += 1;
        let seconds = delivery.arrives_at.since_ns(first) / NANOS_PER_SEC;
        progress.say(|| format!("{seconds} s of recorded time, {batches} batches"));
    }
    Ok(Some(player))
}

/// Writes the batches to one file that can be sent and replayed; it is there whole or not at all.
fn export(deliveries: impl Iterator<Item = Delivery>, path: &Path, stop: &Stop) -> Result<u8> {
    let mut file = WholeFile::create(path)?;
    let (mut frame, mut records, mut batches, mut bytes) = (Vec::new(), 0, 0, 0);
    let mut write = |frame: &mut Vec<Batch>| -> Result<()> {
        for frame in frame.chunks(codec::MAX_BATCHES) {
            let encoded = codec::encode(frame)?;
            file.write(&encoded)?;
            bytes += encoded.len();
        }
        frame.clear();
        Ok(())
    };
    for Delivery { batch, .. } in deliveries {
        if stop.asked() {
            return Ok(EXIT_INTERRUPTED);
        }
        // A batch that is larger than that came in one frame and goes in one.
        if records + batch.records.len() > FRAME_RECORDS {
            write(&mut frame)?;
            records = 0;
        }
        records += batch.records.len();
        batches += 1;
        frame.push(batch);
    }
    write(&mut frame)?;
    file.keep()?;
    eprintln!("mycroft: {batches} batches in {bytes} bytes: {}", path.display());
    Ok(EXIT_OK)
}

/// One JSON object a line (docs/formats/record.md, "As lines of JSON").
fn print_records(deliveries: impl Iterator<Item = Delivery>) -> Result<u8> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let mut lines = Lines::default();
    for Delivery { batch, .. } in deliveries {
        for record in &batch.records {
            lines.write(&batch, record, &mut out)?;
        }
    }
    out.flush()?;
    Ok(EXIT_OK)
}
