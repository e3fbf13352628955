//! Series as the store keeps them (`docs/formats/store.md`): pieces of time that are over, in bytes, and what is known besides.
use super::JobSeries;
use super::iterations::{ChangePoint, Iterations, Known, Summary};
use super::ladder::{Span, Wide};
use super::paths::{self, Ends, PathSeries};
use super::ranks::{self, RankSeries, VALUES};
use super::sums::Lost;
use mycroft_diagnose::Seat;
use mycroft_diagnose::change::Level;
use mycroft_record::{HostTime, JobName, NANOS_PER_SEC, Rank};
use mycroft_store::series::{PieceRow, SeriesRows, StoredPiece, StoredSeries};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What pieces and states are about.
const ITERATIONS: &str = "iterations";
const RANKS: &str = "ranks";
const PATHS: &str = "paths";

/// What is known of iterations besides pieces.
#[derive(Serialize, Deserialize)]
struct IterationsState {
    iterations: u64,
    /// Nanoseconds since the epoch.
    until: u64,
    /// Nanoseconds, milliseconds before and after.
    changes: Vec<(u64, f64, f64)>,
    /// Centre and spread, milliseconds, and how many values they are from.
    healthy: Option<(f64, f64, u32)>,
    lost: Lost,
}

/// Seats by their place in pieces.
#[derive(Serialize, Deserialize)]
struct RanksState {
    generation: u32,
    /// Rank, host, peers.
    seats: Vec<(u32, String, u32)>,
}

/// Paths by their place in pieces.
#[derive(Serialize, Deserialize)]
struct PathsState {
    /// From, to.
    paths: Vec<(String, String)>,
}

impl JobSeries {
    /// What is over and was not asked for yet; `None`: nothing. Asked once a second, a minute is written with what is known then.
    pub(crate) fn unsaved(&mut self, job: &JobName) -> Option<SeriesRows> {
        let generation = self.ranks.generation;
        let mut pieces: Vec<PieceRow> = self.iterations.take_unsaved().into_iter().map(summary).collect();
        pieces.extend(
            self.ranks.take_unsaved().into_iter().map(|wide| row(RANKS, &wide, ranks_body(generation, &wide.piece))),
        );
        pieces.extend(self.paths.take_unsaved().into_iter().map(|wide| row(PATHS, &wide, paths_body(&wide.piece))));
        if pieces.is_empty() {
            return None;
        }
        let known = self.iterations.known();
        let iterations = IterationsState {
            iterations: known.iterations,
            until: known.until.0,
            changes: known.changes.iter().map(|one| (one.at.0, one.before_ms, one.after_ms)).collect(),
            healthy: known.healthy.map(|level| (level.centre, level.sigma, level.n)),
            lost: self.sums.lost(),
        };
        let mut states = vec![(ITERATIONS, json(&iterations))];
        if let Some(seats) = self.ranks.take_changed() {
            let seat = |seat: &Seat| (seat.rank.0, seat.host.to_string(), seat.peers);
            states.push((RANKS, json(&RanksState { generation, seats: seats.iter().map(seat).collect() })));
        }
        if let Some(names) = self.paths.take_changed() {
            let path = |(from, to): &Ends| (from.to_string(), to.to_string());
            states.push((PATHS, json(&PathsState { paths: names.iter().map(path).collect() })));
        }
        Some(SeriesRows { job: job.to_string(), pieces, states })
    }

    /// Goes on with what was written; what cannot be read is left out.
    pub(crate) fn go_on(stored: &StoredSeries) -> JobSeries {
        let mut series = JobSeries::default();
        if let Some(state) = state::<IterationsState>(stored, ITERATIONS) {
            let change = |(at, before_ms, after_ms): &(u64, f64, f64)| ChangePoint {
                at: HostTime(*at),
                before_ms: *before_ms,
                after_ms: *after_ms,
            };
            let known = Known {
                iterations: state.iterations,
                until: HostTime(state.until),
                changes: state.changes.iter().map(change).collect(),
                healthy: state.healthy.map(|(centre, sigma, n)| Level { centre, sigma, n }),
            };
            series.iterations = Iterations::default();
            series
                .iterations
                .go_on(of(stored, ITERATIONS).filter_map(|piece| Some((width(piece), read_summary(piece)?))), &known);
            series.sums.go_on(state.lost);
        }
        if let Some(RanksState { generation, seats }) = state(stored, RANKS) {
            let seat =
                |(rank, host, peers): (u32, String, u32)| Seat { rank: Rank(rank), host: host.as_str().into(), peers };
            let piece = |one| Some((width(one), span(one), Arc::new(read_ranks(generation, &one.body)?)));
            let seats = seats.into_iter().map(seat).collect();
            series.ranks = RankSeries::go_on(generation, seats, of(stored, RANKS).filter_map(piece));
        }
        if let Some(PathsState { paths }) = state(stored, PATHS) {
            let names = paths.into_iter().map(|(from, to)| (from.as_str().into(), to.as_str().into())).collect();
            let piece = |one| Some((width(one), span(one), Arc::new(read_paths(&one.body)?)));
            series.paths = PathSeries::go_on(names, of(stored, PATHS).filter_map(piece));
        }
        series
    }
}

fn json(state: &impl Serialize) -> String {
    // Numbers, strings and lists only: serde_json has no way to fail on them.
    serde_json::to_string(state).unwrap_or_default()
}

fn state<'a, T: Deserialize<'a>>(stored: &'a StoredSeries, what: &str) -> Option<T> {
    let (_, json) = stored.states.iter().find(|(of, _)| of == what)?;
    serde_json::from_str(json).ok()
}

fn of<'a>(stored: &'a StoredSeries, what: &'a str) -> impl Iterator<Item = &'a StoredPiece> {
    stored.pieces.iter().filter(move |piece| piece.what == what && piece.iterations > 0)
}

fn width(piece: &StoredPiece) -> u64 {
    piece.width_s * NANOS_PER_SEC
}

fn span(piece: &StoredPiece) -> Span {
    Span { start: piece.start, end: piece.end, iterations: piece.iterations as u32, ms: piece.sum_ms }
}

fn row<P>(what: &'static str, wide: &Wide<P>, body: Vec<u8>) -> PieceRow {
    PieceRow {
        what,
        width_s: wide.width_ns / NANOS_PER_SEC,
        kept_ns: wide.kept_ns,
        start: wide.span.start,
        end: wide.span.end,
        iterations: wide.span.iterations.into(),
        sum_ms: wide.span.ms,
        body,
    }
}

/// Least, median and most: 32-bit floats, little endian.
fn summary((width_ns, kept_ns, summary): (u64, u64, Summary)) -> PieceRow {
    PieceRow {
        what: ITERATIONS,
        width_s: width_ns / NANOS_PER_SEC,
        kept_ns,
        start: summary.first,
        end: summary.last,
        iterations: summary.count.into(),
        sum_ms: summary.sum_ms,
        body: [summary.min_ms, summary.median_ms, summary.max_ms].iter().flat_map(|ms| ms.to_le_bytes()).collect(),
    }
}

fn read_summary(piece: &StoredPiece) -> Option<Summary> {
    let [min_ms, median_ms, max_ms] = floats(&piece.body)?;
    let count = piece.iterations as u32;
    Some(Summary { first: piece.start, last: piece.end, count, min_ms, median_ms, max_ms, sum_ms: piece.sum_ms })
}

fn floats<const N: usize>(bytes: &[u8]) -> Option<[f32; N]> {
    let mut values = bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]));
    let read: Vec<f32> = values.by_ref().take(N).collect();
    read.try_into().ok()
}

/// The generation of seats, then the shares of each seat as 16-bit numbers, little endian.
fn ranks_body(generation: u32, cells: &[ranks::Cell]) -> Vec<u8> {
    let shares = cells.iter().flatten().flat_map(|share| share.to_le_bytes());
    generation.to_le_bytes().into_iter().chain(shares).collect()
}

fn read_ranks(generation: u32, body: &[u8]) -> Option<Vec<ranks::Cell>> {
    let (head, shares) = body.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*head) != generation {
        return None;
    }
    let cell = |bytes: &[u8]| std::array::from_fn(|at| u16::from_le_bytes([bytes[2 * at], bytes[2 * at + 1]]));
    Some(shares.chunks_exact(2 * VALUES).map(cell).collect())
}

/// Of each path its place, and its sums: iterations, milliseconds, megabytes.
fn paths_body(cells: &BTreeMap<u32, paths::Cell>) -> Vec<u8> {
    let path = |(place, cell): (&u32, &paths::Cell)| {
        let sums = [cell.iterations, cell.sent_ms, cell.mb].map(f32::to_le_bytes);
        [place.to_le_bytes(), sums[0], sums[1], sums[2]].concat()
    };
    cells.iter().flat_map(path).collect()
}

fn read_paths(body: &[u8]) -> Option<BTreeMap<u32, paths::Cell>> {
    let path = |bytes: &[u8]| {
        let (place, sums) = bytes.split_first_chunk::<4>()?;
        let [iterations, sent_ms, mb] = floats(sums)?;
        Some((u32::from_le_bytes(*place), paths::Cell { iterations, sent_ms, mb }))
    };
    body.chunks_exact(16).map(path).collect()
}
