//! What `mycroft flow top` knows of each flow: rates of the last second and since the flow began, in rows that stay where they are.
use super::super::intake::{Intake, Left};
use super::super::text::{name, rate, time};
use mycroft_flow::limits::{CHUNK_EPOCHS, Grain};
use mycroft_flow::{Curve, Curves, WireFlow};
use mycroft_record::HostTime;
use mycroft_record::time::rfc3339;
use std::collections::BTreeMap;

/// Nanoseconds between two frames.
pub(super) const TICK_NS: u64 = 1_000_000_000;
/// How far behind now curves are collected, nanoseconds: the kernel hands packets over within 10 ms, and files have some out of order.
const LAG_NS: u64 = 50_000_000;
/// After so long without a packet a flow is forgotten, nanoseconds.
const FORGET_NS: u64 = 60 * TICK_NS;
/// Shortest time that a rate is made of, nanoseconds: the last piece of a capture may be a packet.
const SPAN_NS_MIN: u64 = TICK_NS / 10;
/// A row moves when its rate has changed by a step: a tenth.
const STEP: f64 = 1.1;

/// Headings. The flow comes last: what a narrow terminal cuts off is the end of its name.
const HEADINGS: [&str; 9] = ["now", "mean", "busy", "again", "missing", "gaps", "longest", "last", "flow"];
/// Widths of the columns before the flow: those of their longest usual values.
const WIDTHS: [usize; 8] = [11, 11, 6, 9, 9, 9, 11, 11];

/// A flow between two ticks.
#[derive(Default)]
struct Row {
    payload_bytes: u64,
    active_epochs: u64,
    /// Bytes per second of the last tick.
    rate: f64,
    /// Share of the last tick's epochs that had bytes.
    busy: Option<f64>,
    /// Where it stands among the others: its rate in steps when it last moved.
    level: i64,
}

/// All flows.
pub(super) struct Board {
    source: String,
    grain: Grain,
    intake: Intake,
    rows: BTreeMap<WireFlow, Row>,
    /// Keys in the order in which they are shown.
    order: Vec<WireFlow>,
    begin_ns: u64,
    now_ns: u64,
    /// Until when curves are collected, nanoseconds.
    collected_ns: u64,
    lost: (u64, usize),
}

impl Board {
    pub(super) fn new(source: &str, grain: Grain) -> Board {
        Board {
            source: source.to_owned(),
            grain,
            intake: Intake::new(grain, Curves::with_points(0)),
            rows: BTreeMap::new(),
            order: Vec::new(),
            begin_ns: 0,
            now_ns: 0,
            collected_ns: 0,
            lost: (0, 0),
        }
    }

    /// Where packets go.
    pub(super) fn intake(&mut self) -> &mut Intake {
        &mut self.intake
    }

    /// The first tick begins.
    pub(super) fn begin(&mut self, at_ns: Option<u64>) {
        if let Some(at_ns) = at_ns {
            (self.begin_ns, self.now_ns) = (at_ns, at_ns);
            self.collected_ns = self.collected(at_ns);
        }
    }

    /// Nothing was to be shown for a while: the next tick begins later.
    pub(super) fn skip_to(&mut self, at_ns: u64) {
        if self.now_ns < at_ns {
            self.poll(at_ns);
        }
    }

    /// Packets that whoever captured lost, and in how many gaps.
    pub(super) fn lost(&mut self, packets: u64, gaps: usize) {
        self.lost = (packets, gaps);
    }

    /// Ends a tick at a time in nanoseconds.
    pub(super) fn tick(&mut self, now_ns: u64) {
        if self.begin_ns == 0 {
            self.begin(Some(now_ns.saturating_sub(TICK_NS)));
        }
        self.poll(now_ns.max(self.now_ns));
    }

    /// Collects what is far enough behind, in whole chunks, and counts.
    fn poll(&mut self, now_ns: u64) {
        let until_ns = now_ns.saturating_sub(LAG_NS);
        self.intake.poll(until_ns);
        self.count(now_ns, self.collected(until_ns));
    }

    /// Ends the last tick with the last packet.
    pub(super) fn end(&mut self) {
        self.intake.collect();
        if let Some((_, last_ns)) = self.intake.seen.span_ns {
            self.count(last_ns.max(self.now_ns), last_ns);
        }
    }

    /// Until when a poll collects: whole chunks.
    fn collected(&self, until_ns: u64) -> u64 {
        let chunk_ns = self.grain.epoch_ns() * CHUNK_EPOCHS as u64;
        until_ns / chunk_ns * chunk_ns
    }

    #[allow(clippy::cast_precision_loss, reason = "a rate needs no 53 bits")]
    fn count(&mut self, now_ns: u64, collected_ns: u64) {
        let collected_ns = collected_ns.max(self.collected_ns);
        let covered = (collected_ns - self.collected_ns) / self.grain.epoch_ns();
        let span_ns = (now_ns - self.now_ns).max(SPAN_NS_MIN);
        self.intake.seen.curves.forget(now_ns.saturating_sub(FORGET_NS));
        let flows = self.intake.seen.curves.flows();
        self.rows.retain(|key, _| flows.contains_key(key));
        for (key, curve) in flows.iter().filter(|(_, curve)| curve.exchange.payload_bytes > 0) {
            let row = self.rows.entry(*key).or_default();
            let bytes = curve.exchange.payload_bytes.saturating_sub(row.payload_bytes);
            let active = curve.active_epochs.saturating_sub(row.active_epochs);
            row.rate = bytes as f64 * 1e9 / span_ns as f64;
            row.busy = (covered > 0).then(|| (active as f64 / covered as f64).min(1.0));
            let steps = if row.rate > 1.0 { row.rate.ln() / STEP.ln() } else { 0.0 };
            if (steps - row.level as f64).abs() >= 1.0 {
                row.level = steps.round() as i64;
            }
            (row.payload_bytes, row.active_epochs) = (curve.exchange.payload_bytes, curve.active_epochs);
        }
        (self.now_ns, self.collected_ns) = (now_ns, collected_ns);
        self.order = self.rows.keys().copied().collect();
        let level = |key: &WireFlow| self.rows.get(key).map_or(0, |row| row.level);
        self.order.sort_by_key(|key| (std::cmp::Reverse(level(key)), *key));
    }

    /// What is shown: so many flows at most.
    pub(super) fn lines(&self, flows_max: usize) -> Vec<String> {
        let mut lines = vec![self.head(), columns(&HEADINGS.map(str::to_owned))];
        let curves = self.intake.seen.curves.flows();
        let shown = self.order.iter().take(flows_max);
        lines.extend(shown.filter_map(|key| Some(self.row(key, self.rows.get(key)?, curves.get(key)?))));
        if let Some(more) = self.order.len().checked_sub(flows_max).filter(|more| *more > 0) {
            lines.push(format!("and {more} more"));
        }
        lines
    }

    fn head(&self) -> String {
        let seen = &self.intake.seen;
        let sum: f64 = self.rows.values().map(|row| row.rate).sum();
        let flows = match self.rows.len() {
            1 => "1 flow".to_owned(),
            flows => format!("{flows} flows"),
        };
        let mut head = format!(
            "{}  {}  {flows}  {}  {} packets",
            self.source,
            rfc3339(HostTime(self.now_ns)),
            rate(sum),
            seen.packets
        );
        match self.lost {
            (0, _) => {}
            (lost, 0) => head.push_str(&format!("  {lost} lost")),
            (lost, gaps) => head.push_str(&format!("  {lost} lost in {gaps} gaps")),
        }
        let untimed = seen.left.get(&Left::Untimed).copied().unwrap_or(0);
        let others = seen.left.values().sum::<u64>() - untimed + self.intake.unplaced_packets();
        for (count, what) in [(untimed, "without a time"), (others, "not counted")] {
            if count > 0 {
                head.push_str(&format!("  {count} {what}"));
            }
        }
        head
    }

    #[allow(clippy::cast_precision_loss, reason = "a rate needs no 53 bits")]
    fn row(&self, key: &WireFlow, row: &Row, curve: &Curve) -> String {
        let exchange = &curve.exchange;
        let lived_ns = self.now_ns.saturating_sub(exchange.first_ns).max(SPAN_NS_MIN);
        let ago_ns = self.now_ns.saturating_sub(exchange.last_ns);
        columns(&[
            rate(row.rate),
            rate(exchange.payload_bytes as f64 * 1e9 / lived_ns as f64),
            row.busy.map_or_else(|| "-".to_owned(), |busy| format!("{:.1}%", busy * 100.0)),
            exchange.again_packets.to_string(),
            exchange.missing.to_string(),
            curve.gaps.to_string(),
            if curve.gaps == 0 { "-".to_owned() } else { time(curve.longest_gap_epochs * self.grain.epoch_ns()) },
            if ago_ns < TICK_NS { "now".to_owned() } else { format!("{} s ago", ago_ns / TICK_NS) },
            name(key),
        ])
    }
}

/// Cells as columns: numbers at their right, the flow at its left.
fn columns(cells: &[String; 9]) -> String {
    let mut line = String::new();
    for (cell, width) in cells.iter().zip(WIDTHS) {
        line.push_str(&format!("{cell:>width$} "));
    }
    line.push(' ');
    line.push_str(&cells[8]);
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use mycroft_formats::CapturedPacket;

    /// An RDMA write of 1,000 bytes to a queue pair, cut behind its headers.
    fn packet(queue_pair: u8, psn: u8) -> Vec<u8> {
        let mut bytes = vec![0xee; 12];
        bytes.extend([8, 0, 0x45, 0, 4, 36, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        bytes.extend([0xc0, 0, 0x12, 0xb7, 4, 16, 0, 0, 7, 0, 0xff, 0xff]);
        bytes.extend([0, 0, 0, queue_pair, 0, 0, 0, psn]);
        bytes
    }

    fn send(board: &mut Board, time_ns: u64, queue_pair: u8, psn: u8, times: u32) {
        let bytes = packet(queue_pair, psn);
        for _ in 0..times {
            board.intake().take(&CapturedPacket { time_ns, link: 1, wire_bytes: 1074, bytes: &bytes });
        }
    }

    fn first_flows(board: &Board) -> Vec<String> {
        board.lines(9).iter().skip(2).map(|line| line[line.len() - 2..].to_owned()).collect()
    }

    #[test]
    fn rows_move_when_rates_change_and_stay_when_they_waver() {
        let mut board = Board::new("lo", Grain::default());
        let second = |number: u64| number * TICK_NS + TICK_NS / 2;
        board.begin(Some(TICK_NS));
        for (tick, (one, two), order) in [
            (1, (100, 50), ["01", "02"]),
            (2, (100, 100), ["01", "02"]),
            (3, (100, 107), ["01", "02"]),
            (4, (50, 100), ["02", "01"]),
            (5, (99, 101), ["01", "02"]),
        ] {
            send(&mut board, second(tick), 1, 0, one);
            send(&mut board, second(tick), 2, 0, two);
            board.tick((tick + 1) * TICK_NS);
            assert_eq!(first_flows(&board), order, "tick {tick}: {:#?}", board.lines(9));
        }
    }

    #[test]
    fn a_second_is_a_rate_a_share_and_an_age() {
        let mut board = Board::new("lo", Grain::default());
        board.begin(Some(TICK_NS));
        for number in 0..250 {
            send(&mut board, TICK_NS + number * 2_000_000, 1, number as u8, 1);
        }
        board.tick(2 * TICK_NS);
        let lines = board.lines(9);
        assert!(lines[0].starts_with("lo  1970-01-01T00:00:02"), "{lines:#?}");
        assert!(lines[0].ends_with("  1 flow  2.0 Mb/s  250 packets"), "{lines:#?}");
        let cells: Vec<&str> = lines[2].split_whitespace().collect();
        // 250 epochs of those collected: from 983 to 950 ms later in whole chunks of 16.384 ms.
        assert_eq!(cells[..4], ["2.0", "Mb/s", "2.0", "Mb/s"], "{lines:#?}");
        let busy: f64 = cells[4].trim_end_matches('%').parse().expect("a share");
        assert!((0.8..0.9).contains(&busy), "{lines:#?}");
        board.tick(5 * TICK_NS);
        let later = board.lines(9);
        assert!(later[2].trim_start().starts_with("0.0 Mb/s") && later[2].contains("3 s ago"), "{later:#?}");
        board.tick(70 * TICK_NS);
        assert_eq!(board.lines(9).len(), 2, "forgotten: {:#?}", board.lines(9));
    }

    #[test]
    fn what_has_no_room_is_said() {
        let mut board = Board::new("lo", Grain::default());
        board.begin(Some(TICK_NS));
        (0..5).for_each(|queue_pair| send(&mut board, TICK_NS + 1, queue_pair, 0, 1));
        board.lost(7, 2);
        board.tick(2 * TICK_NS);
        let lines = board.lines(3);
        assert_eq!((lines.len(), lines[5].as_str()), (6, "and 2 more"), "{lines:#?}");
        assert!(lines[0].ends_with("5 packets  7 lost in 2 gaps"), "{lines:#?}");
    }
}
