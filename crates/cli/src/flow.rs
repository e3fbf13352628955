//! `mycroft flow`: what a capture of packets shows of each flow, in epochs of microseconds.
mod json;
mod operations;
mod read;
mod suspects;
mod svg;
mod text;

use crate::exit::EXIT_OK;
use crate::told::{json as as_json, print};
use crate::whole;
use anyhow::{Result, bail};
use mycroft_diagnose::flow::Rule;
use mycroft_flow::limits::{EPOCH_NS_MAX, EPOCH_NS_MIN, Grain};
use mycroft_flow::{Curve, WireFlow};
use std::path::PathBuf;

/// Which capture, and what of it is shown.
#[derive(clap::Args, Debug)]
#[command(group(clap::ArgGroup::new("cut").args(["operations", "suspects"]).multiple(true)))]
pub(crate) struct FlowArgs {
    /// The capture, pcap or pcapng, also a pipe; `-` reads standard input.
    #[arg(value_name = "FILE.pcap")]
    file: PathBuf,
    /// Length of an epoch, 1us to 10ms: what is shorter than one does not show.
    #[arg(long, value_name = "TIME", default_value = "32us", value_parser = grain)]
    epoch: Grain,
    /// Most flows that are shown, those with most bytes first.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,
    /// Also flows without payload: acknowledgements and congestion notifications.
    #[arg(long)]
    all: bool,
    /// Also the operations in each curve: what lies between two silences of --gap.
    #[arg(long)]
    operations: bool,
    /// Who of the senders is slow while it sends, begins late or stopped first, of all flows of the capture.
    #[arg(long)]
    suspects: bool,
    /// Shortest silence between two operations.
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = gap, requires = "cut")]
    gap: u64,
    /// Bytes that an operation sends at least, or those of several in turn: a silence before that ends none. Without it,
    /// volumes that recur say which silences were inside of one.
    #[arg(long, value_name = "BYTES,..", value_delimiter = ',', requires = "cut")]
    volume: Vec<u64>,
    /// An operation whose volume is to be expected, as KIND:WAYS:BYTES:RANKS[:QUEUE_PAIRS], of several in turn: kinds are NCCL's, ways ring,
    /// tree, double-tree or direct, BYTES those of the call's count, QUEUE_PAIRS those that share the way to a peer (channels).
    #[arg(long, value_name = "CALL,..", value_delimiter = ',', requires = "cut", conflicts_with = "volume",
          value_parser = operations::expected)]
    expect: Vec<u64>,
    /// Print JSON, with all flows that the table would have without --top.
    #[arg(long)]
    json: bool,
    /// Draw the rate of each flow that is shown into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Reads the capture and shows its flows; what came before damage is shown before the error.
pub(crate) fn flow(args: &FlowArgs) -> Result<u8> {
    let seen = read::read(&args.file, args.epoch)?;
    let mut flows: Vec<(&WireFlow, &Curve)> = seen.curves.flows().iter().collect();
    flows.retain(|(_, curve)| args.all || curve.exchange.payload_bytes > 0);
    flows.sort_by_key(|(key, curve)| (std::cmp::Reverse(curve.exchange.payload_bytes), **key));
    let shown = &flows[..flows.len().min(usize::try_from(args.top).unwrap_or(usize::MAX))];
    if let Some(path) = &args.svg {
        whole::write(path, &svg::draw(&seen, args.epoch, shown))?;
    }
    let rule = Rule { gap_ns: args.gap, volumes: [&args.volume[..], &args.expect].concat() };
    let told = args.suspects.then(|| suspects::of(&seen, args.epoch, &flows, &rule));
    if args.json {
        let rule = args.operations.then_some(&rule);
        print(&format!("{}\n", as_json(&json::of(&seen, args.epoch, &flows, rule, told.as_ref()))?))?;
    } else {
        let begin_ns = seen.span_ns.map_or(0, |span| span.0);
        let mut table = text::table(&seen, args.epoch, shown, flows.len());
        if args.operations {
            table.push_str(&operations::told(shown, args.epoch, &rule, begin_ns));
        }
        table.extend(told.map(|told| told.text(begin_ns)));
        print(&table)?;
    }
    match seen.fault {
        Some(fault) => bail!("{}: {fault}; what came before it is shown", args.file.display()),
        None => Ok(EXIT_OK),
    }
}

/// A length of time as people write it: a number and ns, us or ms.
fn nanos(text: &str) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let factor = match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

fn gap(text: &str) -> Result<u64, String> {
    nanos(text).ok_or_else(|| "give a time, such as 1ms".to_owned())
}

fn grain(text: &str) -> Result<Grain, String> {
    let grain = nanos(text).and_then(Grain::new);
    let (from, to) = (EPOCH_NS_MIN / 1_000, EPOCH_NS_MAX / 1_000_000);
    grain.ok_or_else(|| format!("give a time from {from}us to {to}ms, such as 32us"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit() {
        assert_eq!(nanos("32us"), Some(32_000));
        assert_eq!(nanos("5ms"), Some(5_000_000));
        assert_eq!((nanos("32"), nanos("us"), nanos("-1ms"), nanos("1h")), (None, None, None, None));
        assert_eq!(nanos("99999999999999999999s"), None);
        assert!(grain("11ms").is_err() && grain("500ns").is_err() && grain("1us").is_ok());
    }
}
