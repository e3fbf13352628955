//! The flows of a capture as a table.
use super::intake::{Left, Seen};
use mycroft_flow::limits::Grain;
use mycroft_flow::{Curve, Ports, Skipped, WireFlow};
use mycroft_record::HostTime;
use mycroft_record::time::rfc3339;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

/// Headings, and whether a column's numbers stand at its right.
const HEADINGS: [(&str, bool); 10] = [
    ("flow", false),
    ("bytes", true),
    ("packets", true),
    ("first", true),
    ("last", true),
    ("epochs", true),
    ("gaps", true),
    ("longest", true),
    ("again", true),
    ("rate", true),
];

/// The table, what it says, and what is not in it.
pub(super) fn table(
    seen: &Seen,
    grain: Grain,
    shown: &[(&WireFlow, &Curve)],
    flows: usize,
    names: &[String],
) -> String {
    let mut text = head(seen, grain, flows);
    if !shown.is_empty() {
        let mut rows = vec![HEADINGS.map(|(heading, _)| heading.to_owned())];
        rows.extend(shown.iter().zip(names).map(|((_, curve), name)| row(seen, grain, name, curve)));
        text.push_str(&aligned(&rows));
        text.push_str("epochs: those with bytes; gaps: stretches of empty ones between them; again: packets not ahead of those before;\n");
        text.push_str("rate: bytes over epochs that are not empty\n");
    }
    for (key, curve) in shown {
        notes(&mut text, key, curve);
    }
    for (left, packets) in &seen.left {
        let _ = writeln!(text, "packets not counted: {packets}, {}", why(*left));
    }
    text
}

fn head(seen: &Seen, grain: Grain, flows: usize) -> String {
    let Some((from, to)) = seen.span_ns else { return format!("{} packets\n", seen.packets) };
    format!(
        "{} packets in {} from {}, {flows} {}, epochs of {}\n",
        seen.packets,
        time(to - from),
        rfc3339(HostTime(from)),
        if flows == 1 { "flow" } else { "flows" },
        time(grain.epoch_ns()),
    )
}

fn row(seen: &Seen, grain: Grain, name: &str, curve: &Curve) -> [String; 10] {
    let begin = seen.span_ns.map_or(0, |(from, _)| from);
    let exchange = &curve.exchange;
    [
        name.to_owned(),
        bytes(exchange.payload_bytes),
        exchange.packets.to_string(),
        time(exchange.first_ns - begin),
        time(exchange.last_ns - begin),
        curve.active_epochs.to_string(),
        curve.gaps.to_string(),
        if curve.gaps == 0 { "-".to_owned() } else { time(curve.longest_gap_epochs * grain.epoch_ns()) },
        exchange.again_packets.to_string(),
        curve.actual_rate(grain).map_or_else(|| "-".to_owned(), rate),
    ]
}

/// What is rare enough to have no column.
fn notes(text: &mut String, key: &WireFlow, curve: &Curve) {
    let counters = &curve.counters;
    let missing = match key.ports {
        Ports::QueuePair(_) => "packets' numbers passed over (lost, or not captured)",
        Ports::Tcp { .. } => "bytes passed over (lost, or not captured)",
    };
    let told = [
        (curve.exchange.missing, missing),
        (curve.exchange.naks, "negative acknowledgements"),
        (curve.exchange.not_ready, "receiver not ready"),
        (curve.exchange.congestion, "congestion notifications"),
        (counters.late_bytes, "bytes too late for their epoch"),
        (counters.beyond_bytes + counters.refused_bytes, "bytes without room in memory or window"),
        (counters.overflow_bytes, "bytes more than an epoch holds"),
        (curve.unkept_epochs, "epochs in the sums and in no curve"),
    ];
    for (count, what) in told.into_iter().filter(|(count, _)| *count > 0) {
        let _ = writeln!(text, "{}: {what}: {count}", name(key));
    }
}

fn why(left: Left) -> &'static str {
    match left {
        Left::Skipped(Skipped::Truncated) => "fewer bytes kept than their headers have",
        Left::Skipped(Skipped::NotIp) => "not IP",
        Left::Skipped(Skipped::Fragment) => "later pieces of others",
        Left::Skipped(Skipped::OtherTraffic) => "neither RoCEv2 nor TCP",
        Left::Skipped(Skipped::Malformed) => "headers that contradict each other",
        Left::Link => "of a link that is not read",
        Left::Flows => "beyond the most flows at a time",
        Left::Untimed => "without a time",
        Left::Dropped => "lost by whoever captured",
    }
}

/// A flow's name: `10.0.0.1 -> 10.0.0.2 qp 0x000012`, `[fd00::1]:7 -> [fd00::2]:80 tcp`.
pub(super) fn name(key: &WireFlow) -> String {
    let WireFlow { source, destination, ports } = key;
    let at = |address: IpAddr, port| SocketAddr::new(address, port);
    match *ports {
        Ports::QueuePair(queue_pair) => format!("{source} -> {destination} qp {queue_pair:#08x}"),
        Ports::Tcp { source: from, destination: to } => {
            format!("{} -> {} tcp", at(*source, from), at(*destination, to))
        }
    }
}

/// A length of time.
pub(super) fn time(ns: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
    let ns = ns as f64;
    match ns {
        ..1e3 => format!("{ns:.0} ns"),
        ..1e6 => format!("{:.0} us", ns / 1e3),
        ..1e9 => format!("{:.3} ms", ns / 1e6),
        _ => format!("{:.6} s", ns / 1e9),
    }
}

/// A volume.
pub(super) fn bytes(bytes: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "four digits are shown")]
    let many = bytes as f64;
    match many {
        ..1e4 => format!("{bytes} B"),
        ..1e7 => format!("{:.1} KB", many / 1e3),
        ..1e10 => format!("{:.1} MB", many / 1e6),
        _ => format!("{:.1} GB", many / 1e9),
    }
}

/// A rate, in bits as ports are sold.
pub(super) fn rate(bytes_per_sec: f64) -> String {
    let bits = bytes_per_sec * 8.0;
    if bits < 1e9 { format!("{:.1} Mb/s", bits / 1e6) } else { format!("{:.2} Gb/s", bits / 1e9) }
}

/// Rows of cells as columns.
fn aligned(rows: &[[String; 10]]) -> String {
    let mut text = String::new();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 10] = std::array::from_fn(width);
    for row in rows {
        let cells = row.iter().zip(HEADINGS).zip(widths);
        let cells = cells.map(
            |((cell, (_, is_right)), width)| {
                if is_right { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            },
        );
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  ").trim_end());
    }
    text
}
