//! `mycroft export`: operations and flows of a recorded job in formats that other tools open.
mod columns;
mod pieces;
mod proto;
mod rows;
mod trace;

use crate::exit::{EXIT_INTERRUPTED, EXIT_OK};
use crate::recorded::deliveries;
use crate::records::RecordsInArgs;
use crate::stop::Stop;
use crate::whole::WholeFile;
use anyhow::{Context, Result, bail};
use mycroft_record::time::{day_of_date, rfc3339};
use mycroft_record::{HostTime, NANOS_PER_SEC};
use mycroft_serve::api::ReportJson;
use mycroft_serve::replay::{Player, TAIL};
use mycroft_store::StoreAt;
use pieces::{PIECES_MAX, Pieces};
use std::path::PathBuf;
use std::time::Duration;
use toml::value::{Datetime, Offset};

/// Recorded time between two rounds of diagnosis, for the track of cases.
const TICK: Duration = Duration::from_secs(1);

/// What is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Format {
    /// A trace for ui.perfetto.dev: a process for each rank with tracks of its communicators and channels, flows as arrows, cases.
    Perfetto,
    /// A line for each operation.
    Csv,
    /// The same as JSON, one object a line.
    Json,
    /// The same as one Parquet file, with times as timestamps.
    Parquet,
}

/// What to export.
#[derive(clap::Args, Debug)]
pub(crate) struct ExportArgs {
    /// Directory of the store, a recording of `mycroft sim run --out`, or a file that `mycroft replay --export` wrote.
    store: PathBuf,
    /// The job; may be left out where there is only one.
    #[arg(long)]
    job: Option<String>,
    /// Only what ended at this time or later: RFC 3339 in UTC (2026-01-31T12:00:00Z), or seconds before the last record (-60).
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    from: Option<String>,
    /// Only what began at this time or before.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    to: Option<String>,
    /// What to write.
    #[arg(long, value_enum)]
    format: Format,
    /// The file; it is there whole or not at all.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    #[command(flatten)]
    records_in: RecordsInArgs,
}

/// Writes the file. Times are those of each host's clock, as in the records.
pub(crate) fn export(args: &ExportArgs) -> Result<u8> {
    let stop = Stop::on_signals()?;
    let store = args.records_in.at(&args.store)?;
    let job = the_job(args, &store)?;
    let last = deliveries(&store)?
        .filter(|delivery| delivery.batch.source.job.as_ref() == job)
        .map(|delivery| delivery.batch.collected_at)
        .max()
        .unwrap_or(HostTime::NONE);
    let from = time(args.from.as_deref(), last, HostTime::NONE).context("--from")?;
    let to = time(args.to.as_deref(), last, HostTime(u64::MAX)).context("--to")?;
    let (mut pieces, mut player) = (Pieces::new(from, to), Player::new(TICK));
    for delivery in deliveries(&store)?.filter(|delivery| delivery.batch.source.job.as_ref() == job) {
        if stop.asked() {
            return Ok(EXIT_INTERRUPTED);
        }
        pieces.take(&delivery.batch);
        if pieces.is_full() {
            bail!("more than {PIECES_MAX} operations and flows: give a shorter time with --from and --to");
        }
        if args.format == Format::Perfetto {
            player.deliver(delivery.arrives_at, &delivery.batch);
        }
    }
    if pieces.ops.is_empty() && pieces.in_flight().next().is_none() {
        bail!(
            "{}: no operation of job {job} in that time; records go on until {}",
            args.store.display(),
            rfc3339(last)
        );
    }
    let mut file = WholeFile::create(&args.out)?;
    let written = match args.format {
        Format::Perfetto => {
            let cases = player.finish(TAIL).into_values().flat_map(|played| ReportJson::of(&played.report, 0).cases);
            trace::write(pieces, &cases.collect::<Vec<_>>(), |bytes| file.write(bytes))?
        }
        Format::Csv => rows::csv(&pieces, &job, |bytes| file.write(bytes))?,
        Format::Json => rows::json(&pieces, &job, |bytes| file.write(bytes))?,
        Format::Parquet => columns::parquet(&pieces, &job, |bytes| file.write(bytes))?,
    };
    file.keep()?;
    eprintln!("mycroft: {written}: {}", args.out.display());
    Ok(EXIT_OK)
}

/// The job that is meant.
fn the_job(args: &ExportArgs, store: &StoreAt) -> Result<String> {
    let mut jobs: Vec<String> = deliveries(store)?.map(|delivery| delivery.batch.source.job.to_string()).collect();
    jobs.sort_unstable();
    jobs.dedup();
    match (&args.job, jobs.as_slice()) {
        (_, []) => bail!("{}: no records", args.store.display()),
        (Some(job), all) if all.contains(job) => Ok(job.clone()),
        (None, [only]) => Ok(only.clone()),
        (Some(job), all) => bail!("{}: no records of job {job}; there are {}", args.store.display(), all.join(", ")),
        (None, all) => bail!("there are {} jobs: add --job, one of {}", all.len(), all.join(", ")),
    }
}

/// A time as it is told; `last`: of the newest record.
fn time(told: Option<&str>, last: HostTime, absent: HostTime) -> Result<HostTime> {
    let Some(text) = told else { return Ok(absent) };
    if let Some(seconds) = text.strip_prefix('-').and_then(|number| number.parse::<f64>().ok()) {
        return Ok(HostTime(last.0.saturating_sub((seconds * NANOS_PER_SEC as f64) as u64)));
    }
    utc(text).with_context(|| {
        format!("{text:?} is no time such as 2026-01-31T12:00:00Z, or -60: seconds before the last record")
    })
}

/// A time in UTC.
fn utc(text: &str) -> Option<HostTime> {
    let told = text.parse::<Datetime>().ok().filter(|told| told.offset == Some(Offset::Z))?;
    let (date, time) = (told.date?, told.time?);
    let days = day_of_date(date.year.into(), date.month.into(), date.day.into())?;
    let minutes = (days * 24 + u64::from(time.hour)) * 60 + u64::from(time.minute);
    let seconds = minutes * 60 + u64::from(time.second.unwrap_or(0));
    Some(HostTime(seconds * NANOS_PER_SEC + u64::from(time.nanosecond.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_absolute_or_before_the_last_record() {
        let last = HostTime(1_735_689_600_500_000_000);
        let told = |text| time(Some(text), last, HostTime::NONE);
        assert_eq!(told("2025-01-01T00:00:00Z").unwrap(), HostTime(1_735_689_600_000_000_000));
        assert_eq!(told("2025-01-01T00:00:00.5Z").unwrap(), last);
        assert_eq!(told("-0.5").unwrap(), HostTime(1_735_689_600_000_000_000));
        assert_eq!(time(None, last, HostTime(7)).unwrap(), HostTime(7));
        for wrong in ["", "yesterday", "2025-01-01", "2025-01-01T00:00:00", "2025-01-01T00:00:00+01:00", "60"] {
            assert!(told(wrong).is_err_and(|error| error.to_string().contains(wrong)), "{wrong}");
        }
    }
}
