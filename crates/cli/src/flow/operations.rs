//! Operations in the curves of flows, as text.
use super::ranks::Ranks;
use super::text::{bytes, rate, time};
use mycroft_diagnose::flow::{Asked, GAP_BOUNDS_NS, Gaps, Kind, Operation, Point, Rule, Shape, kinds, rejoin, segment};
use mycroft_flow::limits::Grain;
use mycroft_flow::{Curve, WireFlow};
use mycroft_record::OpKind;
use std::fmt::Write;

/// Most operations of a flow that are shown; JSON has all.
const SHOWN: usize = 40;

/// The volume of a call as it is typed: `AllReduce:ring:67108864:8:2`.
pub(super) fn expected(text: &str) -> Result<u64, String> {
    let volume = || {
        let mut words = text.split(':');
        let kind = OpKind::from_text(words.next()?);
        let shape = match words.next()? {
            "ring" => Shape::Ring,
            "tree" => Shape::Tree,
            "double-tree" => Shape::DoubleTree,
            "direct" => Shape::Direct,
            _ => return None,
        };
        let (bytes, ranks) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let queue_pairs = words.next().map_or(Some(1), |word| word.parse().ok())?;
        Asked { kind, shape, bytes, ranks }.volume(queue_pairs).filter(|_| words.next().is_none())
    };
    volume().ok_or_else(|| "give a call such as AllReduce:ring:67108864:8:2, whose ways do that kind".to_owned())
}

/// The operations of a flow; none where not all of its curve was kept.
pub(super) fn of(curve: &Curve, grain: Grain, rule: &Rule) -> Option<Vec<Operation>> {
    if curve.unkept_epochs > 0 {
        return None;
    }
    let points = curve.epochs().map(|epoch| Point {
        epoch: epoch.number,
        bytes: epoch.bytes,
        again_bytes: epoch.again_bytes,
        resumes: epoch.resumes,
    });
    let operations = segment(points, grain.epoch_ns(), rule);
    Some(if rule.volumes.is_empty() { rejoin(operations) } else { operations })
}

/// All operations of the flows that are shown.
pub(super) fn told(flows: &[(&WireFlow, &Curve)], ranks: &Ranks, grain: Grain, rule: &Rule, begin_ns: u64) -> String {
    let mut text = String::new();
    for (key, curve) in flows {
        match of(curve, grain, rule) {
            None => {
                let _ = writeln!(
                    text,
                    "\n{}: no operations: its curve is longer than what is kept",
                    ranks.name(key, curve)
                );
            }
            Some(operations) => flow(&mut text, &ranks.name(key, curve), &operations, begin_ns),
        }
    }
    text
}

fn flow(text: &mut String, name: &str, operations: &[Operation], begin_ns: u64) {
    let kinds = kinds(operations);
    let counted = |count, one: &str| if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") };
    let of_kinds = counted(kinds.len(), "kind");
    let _ = writeln!(text, "\n{name}: {} of {of_kinds}", counted(operations.len(), "operation"));
    for (kind, letter) in kinds.iter().zip('A'..='Z') {
        let _ = writeln!(text, "  {letter}: {}", kind_line(kind));
    }
    for (number, operation) in operations.iter().enumerate().take(SHOWN) {
        let place = kinds.iter().position(|kind| kind.members.binary_search(&number).is_ok());
        let letter = place.and_then(|place| ('A'..='Z').nth(place)).unwrap_or('-');
        let _ = writeln!(text, "  {letter} {}", line(operation, begin_ns));
    }
    if operations.len() > SHOWN {
        let _ = writeln!(text, "  and {} more", operations.len() - SHOWN);
    }
}

fn kind_line(kind: &Kind) -> String {
    let every = kind.period_ns.map(|period| format!(", each {} after the one before", time(period)));
    format!("{} times {}{}", kind.members.len(), bytes(kind.bytes), every.unwrap_or_default())
}

fn line(operation: &Operation, begin_ns: u64) -> String {
    #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
    let actual_rate = (operation.bytes + operation.again_bytes) as f64 * 1e9 / operation.actual_ns.max(1) as f64;
    let start = operation.start_ns.saturating_sub(begin_ns);
    let mut line = format!(
        "at {:>12}: {:>10} in {:>10}, {:>10} of it sending, {:>11}{}",
        time(start),
        bytes(operation.bytes),
        time(operation.duration_ns()),
        time(operation.actual_ns),
        rate(actual_rate),
        gaps(&operation.gaps),
    );
    if operation.again_bytes > 0 {
        let _ = write!(line, "; {} sent again", bytes(operation.again_bytes));
    }
    if operation.pieces > 1 {
        let _ = write!(line, "; in {} pieces", operation.pieces);
    }
    if !operation.is_complete {
        line.push_str("; less than expected");
    }
    line
}

/// A histogram in words: `; gaps: 3 up to 50 us, 1 up to 200 us`.
fn gaps(gaps: &Gaps) -> String {
    let bounds = GAP_BOUNDS_NS.iter().map(|bound| format!("up to {}", whole(*bound)));
    let longer = std::iter::once(format!("longer, at most {}", time(gaps.longest_ns)));
    let counts = gaps.counts.iter().zip(bounds.chain(longer)).filter(|(count, _)| **count > 0);
    let said: Vec<String> = counts.map(|(count, bound)| format!("{count} {bound}")).collect();
    if said.is_empty() { String::new() } else { format!("; gaps: {}", said.join(", ")) }
}

/// A bound, all of which are whole microseconds or milliseconds.
fn whole(ns: u64) -> String {
    if ns < 1_000_000 { format!("{} us", ns / 1_000) } else { format!("{} ms", ns / 1_000_000) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_becomes_the_volume_of_a_queue_pair() {
        assert_eq!(expected("AllReduce:ring:800:4"), Ok(1140));
        assert_eq!(expected("AllReduce:ring:800:4:2"), Ok(570));
        assert_eq!(expected("Send:direct:20:2"), Ok(19));
        for wrong in
            ["", "AllReduce", "AllReduce:ring:800", "AllGather:tree:8:4", "Nothing:ring:8:4", "Send:direct:8:2:1:1"]
        {
            assert!(expected(wrong).is_err(), "{wrong}");
        }
    }
}
