//! `mycroft flow`: what packets of a capture or an interface show of each flow, in epochs of microseconds.
mod communicators;
mod intake;
mod json;
mod lengths;
mod live;
mod operations;
mod ranks;
mod read;
mod suspects;
mod svg;
mod text;
mod top;

use crate::exit::EXIT_OK;
use crate::told::{json as as_json, print};
use crate::whole;
use anyhow::{Result, bail};
use intake::Seen;
use live::Live;
use mycroft_diagnose::flow::Rule;
use mycroft_flow::limits::Grain;
use mycroft_flow::{Curve, WireFlow};
use ranks::Ranks;
use std::path::PathBuf;

/// Which capture, and what of it is shown.
#[derive(clap::Args, Debug)]
#[command(group(clap::ArgGroup::new("cut").args(["operations", "suspects", "communicators"]).multiple(true)))]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct FlowArgs {
    #[command(subcommand)]
    command: Option<FlowCommand>,
    /// The capture, pcap or pcapng, also a pipe; `-` reads standard input.
    #[arg(value_name = "FILE.pcap", required_unless_present = "interface")]
    file: Option<PathBuf>,
    #[command(flatten)]
    tap: live::TapArgs,
    /// End after so many seconds, and show the flows.
    #[arg(long, value_name = "N", requires = "interface", value_parser = clap::value_parser!(u32).range(1..))]
    seconds: Option<u32>,
    /// Length of an epoch, 1us to 10ms: what is shorter than one does not show.
    #[arg(long, value_name = "TIME", default_value = "32us", value_parser = lengths::grain)]
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
    /// Who of the senders is slow while it sends, held up by its host, begins late or stopped first, of all flows of the capture.
    #[arg(long)]
    suspects: bool,
    /// What the communicators among the flows are for: data, tensor, pipeline, expert or context parallel, by who sends to whom. Each rank
    /// must have a NIC of its own; what stays inside a host shows no flow.
    #[arg(long)]
    communicators: bool,
    /// Shortest silence between two operations.
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = lengths::gap, requires = "cut")]
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
    /// Folders of segments, or lists in them, that say between which ranks flows go (repeat it for several hosts): written by processes of the
    /// job that LD_PRELOAD libmycroft_preload.so.
    #[arg(long, value_name = "PATH")]
    queue_pairs: Vec<PathBuf>,
    /// Print JSON, with all flows that the table would have without --top.
    #[arg(long)]
    json: bool,
    /// Draw the rate of each flow that is shown into this file.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

#[derive(clap::Subcommand, Debug)]
enum FlowCommand {
    /// Rates of each flow now, each second, in the terminal: of an interface, or of a capture in its own time.
    ///
    /// q or Ctrl-C leaves. Lines of text, a block each second, where standard output is no terminal.
    #[command(
        after_help = "Examples:\n  mycroft flow top --interface eth0\n  mycroft flow top capture.pcap --speed 10"
    )]
    Top(top::TopArgs),
}

/// Reads the capture, or measures the interface, and shows its flows; what came before damage is shown before the error.
pub(crate) fn flow(args: &FlowArgs) -> Result<u8> {
    if let Some(FlowCommand::Top(args)) = &args.command {
        return top::top(args);
    }
    // What is wrong with them is said before a capture is waited for.
    let listed = Ranks::read(&args.queue_pairs)?;
    match (&args.tap.interface, &args.file) {
        (Some(name), _) => {
            let (seen, live) = live::measure(&args.tap, name, args.seconds, args.epoch)?;
            // Connections that were made meanwhile.
            show(args, &seen, Some(&live), &Ranks::read(&args.queue_pairs)?)
        }
        (None, Some(file)) => show(args, &read::read(file, args.epoch)?, None, &listed),
        (None, None) => bail!("give a capture, or --interface"),
    }
}

fn show(args: &FlowArgs, seen: &Seen, live: Option<&Live>, ranks: &Ranks) -> Result<u8> {
    let mut flows: Vec<(&WireFlow, &Curve)> = seen.curves.flows().iter().collect();
    flows.retain(|(_, curve)| args.all || curve.exchange.payload_bytes > 0);
    flows.sort_by_key(|(key, curve)| (std::cmp::Reverse(curve.exchange.payload_bytes), **key));
    let shown = &flows[..flows.len().min(usize::try_from(args.top).unwrap_or(usize::MAX))];
    if let Some(path) = &args.svg {
        whole::write(path, &svg::draw(seen, args.epoch, shown, ranks))?;
    }
    let rule = Rule { gap_ns: args.gap, volumes: [&args.volume[..], &args.expect].concat() };
    let told = args.suspects.then(|| suspects::of(seen, args.epoch, &flows, &rule, ranks));
    let found = args.communicators.then(|| communicators::of(args.epoch, &flows, args.gap));
    if args.json {
        let also = json::Also {
            rule: args.operations.then_some(&rule),
            suspects: told.as_ref(),
            communicators: found.as_ref(),
        };
        print(&format!("{}\n", as_json(&json::of(seen, live, args.epoch, &flows, ranks, &also))?))?;
    } else {
        let begin_ns = seen.span_ns.map_or(0, |span| span.0);
        let names: Vec<String> = shown.iter().map(|(key, curve)| ranks.name(key, curve)).collect();
        let mut table = text::table(seen, args.epoch, shown, flows.len(), &names);
        if args.operations {
            table.push_str(&operations::told(shown, ranks, args.epoch, &rule, begin_ns));
        }
        table.extend(found.map(|found| found.text()));
        table.extend(told.map(|told| told.text(begin_ns)));
        table.extend(live.map(|live| live.text(begin_ns)));
        print(&table)?;
    }
    match (seen.fault, &args.file) {
        (Some(fault), Some(file)) => bail!("{}: {fault}; what came before it is shown", file.display()),
        _ => Ok(EXIT_OK),
    }
}
