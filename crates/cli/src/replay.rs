//! `mycroft replay`: a recorded store through the diagnosis again.
use crate::args::ReplayArgs;
use crate::{EXIT_FOUND, EXIT_OK};
use anyhow::{Context, Result, bail};
use mycroft_diagnose::render;
use mycroft_record::Batch;
use mycroft_store::{Store, StoreConfig};
use std::io::Write;
use std::time::Duration;

/// Prints each job's report; exit 1 when any has a case.
pub(crate) fn replay(args: &ReplayArgs) -> Result<u8> {
    if !args.store.is_dir() {
        bail!("{}: not a directory; give the store that `mycroft serve --store` wrote", args.store.display());
    }
    let store = Store::open(&args.store, StoreConfig::default())?;
    let mut batches = Vec::new();
    for batch in store.read_all()? {
        match batch {
            Ok(batch) if args.job.as_deref().is_none_or(|job| job == &*batch.source.job) => batches.push(batch),
            Ok(_) => {}
            Err(error) => eprintln!("mycroft: {error}; going on behind it"),
        }
    }
    if batches.is_empty() {
        bail!(
            "{}: no records{}",
            args.store.display(),
            args.job.as_deref().map_or(String::new(), |j| format!(" of job {j}"))
        );
    }
    if args.records {
        return print_records(&batches);
    }
    let tick = Duration::from_millis(args.tick_ms.max(1));
    let reports = mycroft_serve::replay::replay(batches, tick);
    let text: Vec<String> = reports.values().map(render).collect();
    let text = text.join("\n");
    std::io::stdout().write_all(text.as_bytes()).context("cannot print")?;
    Ok(if reports.values().any(|report| !report.cases.is_empty()) { EXIT_FOUND } else { EXIT_OK })
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
