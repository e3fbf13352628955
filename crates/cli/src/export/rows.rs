//! A line for each operation: CSV, and JSON objects with the same fields.
use super::pieces::{Pieces, Whose};
use anyhow::Result;
use mycroft_record::{HostTime, OpClass, OpMeta, Rank, Source};
use serde::Serialize;

/// An operation of one rank. Times are nanoseconds since the epoch of its host's clock; empty or null: not known, of an end: it is in
/// flight.
#[derive(Serialize)]
pub(super) struct Row<'a> {
    pub(super) job: &'a str,
    pub(super) host: &'a str,
    pub(super) rank: Option<u32>,
    pub(super) pid: Option<u32>,
    pub(super) communicator: String,
    pub(super) communicator_name: &'a str,
    pub(super) class: &'static str,
    pub(super) peer: Option<u32>,
    pub(super) seq: u64,
    pub(super) kind: &'static str,
    pub(super) bytes: u64,
    pub(super) datatype: &'static str,
    pub(super) algorithm: &'static str,
    pub(super) protocol: &'static str,
    pub(super) channels: u8,
    pub(super) flows: u16,
    pub(super) enqueued_ns: Option<u64>,
    pub(super) started_ns: Option<u64>,
    pub(super) ended_ns: Option<u64>,
    pub(super) observed: bool,
}

impl<'a> Row<'a> {
    /// `ended`: when, its flows, whether that was seen; of one in flight nothing.
    fn of(
        pieces: &'a Pieces,
        job: &'a str,
        (source, op): (&'a Source, &OpMeta),
        ended: Option<(HostTime, u16, bool)>,
    ) -> Row<'a> {
        let ns = |time: HostTime| time.some().map(|time| time.0);
        let (ended_at, flows, observed) = ended.unwrap_or((HostTime::NONE, 0, false));
        Row {
            job,
            host: &source.host,
            rank: source.process.map(|process| process.rank).filter(|rank| *rank != Rank::UNKNOWN).map(|rank| rank.0),
            pid: source.process.map(|process| process.pid),
            communicator: op.id.comm.to_string(),
            communicator_name: pieces.names.get(&op.id.comm).map_or("", String::as_str),
            class: op.id.class.as_str(),
            peer: (op.id.class != OpClass::Collective).then_some(op.id.peer.0),
            seq: op.id.seq.0,
            kind: op.kind.as_str(),
            bytes: op.bytes(),
            datatype: op.datatype.as_str(),
            algorithm: op.algorithm.as_str(),
            protocol: op.protocol.as_str(),
            channels: op.n_channels,
            flows,
            enqueued_ns: ns(op.enqueued_at),
            started_ns: ns(op.started_at),
            ended_ns: ns(ended_at),
            observed,
        }
    }
}

/// All of them: ended operations first.
pub(super) fn rows<'a>(pieces: &'a Pieces, job: &'a str) -> impl Iterator<Item = Row<'a>> {
    let source = |whose: Whose| &pieces.whose[whose as usize];
    let ended = pieces.ops.iter().map(move |(whose, done)| {
        Row::of(pieces, job, (source(*whose), &done.op), Some((done.ended_at, done.flows, done.observed)))
    });
    ended.chain(pieces.in_flight().map(move |(whose, op, _)| Row::of(pieces, job, (source(whose), op), None)))
}

/// Writes CSV with a head, RFC 4180; gives what was written.
pub(super) fn csv(pieces: &Pieces, job: &str, write: impl FnMut(&[u8]) -> Result<()>) -> Result<String> {
    let mut out = csv::Writer::from_writer(Through(write));
    let mut count = 0;
    for row in rows(pieces, job) {
        out.serialize(row)?;
        count += 1;
    }
    out.flush()?;
    Ok(format!("{count} operations"))
}

/// Writes an object a line; gives what was written.
pub(super) fn json(pieces: &Pieces, job: &str, mut write: impl FnMut(&[u8]) -> Result<()>) -> Result<String> {
    let mut count = 0;
    for row in rows(pieces, job) {
        count += 1;
        let mut line = serde_json::to_vec(&row)?;
        line.push(b'\n');
        write(&line)?;
    }
    Ok(format!("{count} operations"))
}

/// A function as a writer.
pub(super) struct Through<F>(pub(super) F);

impl<F: FnMut(&[u8]) -> Result<()>> std::io::Write for Through<F> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        (self.0)(bytes).map(|()| bytes.len()).map_err(std::io::Error::other)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
