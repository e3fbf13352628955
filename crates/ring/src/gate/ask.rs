//! The requester's side of the gate over the words of one segment: what is written, and what is read back.
use super::plan::{Lane, View};
use super::task::{Kind, Progress, progress_of, written};
use super::words::{GATE_WORDS, LANE_WORDS, gate, gate_lane, task};
use super::{LaneKey, LaneKind, Left, lanes_in};
use crate::error::ReadError;
use crate::layout::WORD_BYTES;
use crate::narrow::{at, low};
use crate::raw::{halves, high};
use crate::source::{Source, WordSource};
use crate::sync::{Ordering, Word};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::fence;

/// Writes words into a segment; each whole, as [`Source`] reads them.
pub trait Sink: Source {
    /// Writes one word.
    ///
    /// # Errors
    /// The system refused.
    fn write(&self, at: u64, value: u64) -> Result<(), ReadError>;

    /// Orders everything written before against everything written after.
    fn release_fence(&self);
}

/// A file open for reading and writing: pread(2) and pwrite(2), which copy aligned words whole (`source`).
#[derive(Debug)]
pub struct GateFile(pub File);

impl Source for GateFile {
    fn read(&self, from: u64, into: &mut [u64]) -> Result<(), ReadError> {
        let mut bytes = [0u8; super::GATE_WORDS * WORD_BYTES];
        let from = from * WORD_BYTES as u64;
        let Some(buffer) = bytes.get_mut(..into.len() * WORD_BYTES) else {
            return Err(ReadError::Truncated { at: from, end: from });
        };
        self.0.read_exact_at(buffer, from).map_err(|source| ReadError::Io { at: from, source })?;
        for (to, word) in into.iter_mut().zip(buffer.as_chunks::<WORD_BYTES>().0) {
            *to = u64::from_ne_bytes(*word);
        }
        Ok(())
    }

    fn acquire_fence(&self) {
        fence(Ordering::Acquire);
    }
}

impl Sink for GateFile {
    fn write(&self, to: u64, value: u64) -> Result<(), ReadError> {
        let to = to * WORD_BYTES as u64;
        self.0.write_all_at(&value.to_ne_bytes(), to).map_err(|source| ReadError::Io { at: to, source })
    }

    fn release_fence(&self) {
        fence(Ordering::Release);
    }
}

impl<W: Word> Sink for WordSource<'_, W> {
    fn write(&self, to: u64, value: u64) -> Result<(), ReadError> {
        let word = usize::try_from(to).ok().and_then(|to| self.0.get(to));
        word.ok_or(ReadError::Truncated { at: to, end: to })?.store(value, Ordering::Relaxed);
        Ok(())
    }

    fn release_fence(&self) {
        W::fence(Ordering::Release);
    }
}

/// How long a request stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Until {
    /// CLOCK_MONOTONIC nanoseconds at which every rank goes on.
    pub deadline_ns: u64,
    /// Nanoseconds of silence after which every rank goes on.
    pub lease_ns: u64,
}

/// One segment's gate, as the requester has it.
#[derive(Debug)]
pub struct Asker<S> {
    sink: S,
    /// Where [`gate::GRANT`] is in it.
    base: u64,
    /// How many words from there on are the gate's.
    words: usize,
    /// The epoch of the request that stands, 0 for none.
    epoch: u32,
    /// Entries let through in it.
    granted: u32,
}

impl<S: Sink> Asker<S> {
    /// Of a segment whose gate begins at word `base` and has so many words.
    pub fn new(sink: S, base: u64, words: usize) -> Asker<S> {
        Asker { sink, base, words, epoch: 0, granted: 0 }
    }

    fn place(&self, word: usize) -> u64 {
        self.base + (word - gate::GRANT) as u64
    }

    /// Asks: from now on every entry waits. Says it is alive at `now_ns`.
    ///
    /// # Errors
    /// The segment cannot be read or written.
    pub fn ask(&mut self, until: Until, now_ns: u64) -> Result<(), ReadError> {
        let mut control = [0; gate::LANES - gate::GRANT];
        self.sink.read(self.base, &mut control)?;
        let word = |at: usize| high(control[at - gate::GRANT]);
        // An older ticket may still be on its way, so an epoch is never used again.
        let newest = low(control[gate::EPOCH - gate::GRANT]).max(word(gate::ARRIVED)).max(word(gate::LEFT));
        // After 2^32 requests, or where somebody wrote such a number, they begin anew.
        self.epoch = newest.checked_add(1).unwrap_or(1);
        self.granted = 0;
        self.sink.write(self.place(gate::GRANT), 0)?;
        self.sink.release_fence();
        self.sink.write(self.place(gate::EPOCH), u64::from(self.epoch))?;
        self.sink.write(self.place(gate::DEADLINE), until.deadline_ns)?;
        self.sink.write(self.place(gate::LEASE), until.lease_ns)?;
        self.sink.write(self.place(gate::PULSE), now_ns)?;
        self.sink.release_fence();
        self.sink.write(self.place(gate::GRANT), halves(0, self.epoch))
    }

    /// Says that the requester lives.
    ///
    /// # Errors
    /// The segment cannot be written.
    pub fn pulse(&self, now_ns: u64) -> Result<(), ReadError> {
        self.sink.write(self.place(gate::PULSE), now_ns)
    }

    /// Lets one more entry through.
    ///
    /// # Errors
    /// The segment cannot be written.
    pub fn grant(&mut self) -> Result<(), ReadError> {
        self.granted = self.granted.saturating_add(1);
        self.sink.write(self.place(gate::GRANT), halves(self.granted, self.epoch))
    }

    /// Everybody goes on.
    ///
    /// # Errors
    /// The segment cannot be written.
    pub fn release(&mut self) -> Result<(), ReadError> {
        self.epoch = 0;
        self.sink.write(self.place(gate::GRANT), 0)
    }

    /// Orders a task of the rank that waits; its number is larger than any that [`Asker::progress`] showed.
    ///
    /// # Errors
    /// The segment cannot be written.
    pub fn order(&self, number: u32, kind: Kind) -> Result<(), ReadError> {
        self.sink.write(self.place(task::NUMBER), 0)?;
        self.sink.release_fence();
        for (word, value) in written(kind, self.epoch) {
            self.sink.write(self.place(word), value)?;
        }
        self.sink.release_fence();
        self.sink.write(self.place(task::NUMBER), u64::from(number))
    }

    /// How far the rank is with its tasks.
    ///
    /// # Errors
    /// The segment cannot be read.
    pub fn progress(&self) -> Result<Progress, ReadError> {
        let mut words = [0; GATE_WORDS - (task::NUMBER - gate::GRANT)];
        self.sink.read(self.place(task::NUMBER), &mut words)?;
        let ended = progress_of(&words).ended.0;
        self.sink.acquire_fence();
        // The values of the task whose end was read, or of none.
        self.sink.read(self.place(task::NUMBER), &mut words)?;
        let progress = progress_of(&words);
        Ok(Progress {
            ended: if progress.ended.0 == ended { progress.ended } else { (0, progress.ended.1) },
            ..progress
        })
    }

    /// Number of the task that accepts a connection, or last did, and at which port.
    ///
    /// # Errors
    /// The segment cannot be read.
    pub fn port(&self) -> Result<(u32, u16), ReadError> {
        let mut word = [0];
        self.sink.read(self.place(task::PORT), &mut word)?;
        Ok((high(word[0]), u16::try_from(low(word[0])).unwrap_or(0)))
    }

    /// What the rank shows. Where an entry of it waits, its counts are those at which it waits.
    ///
    /// # Errors
    /// The segment cannot be read.
    pub fn view(&self) -> Result<View, ReadError> {
        let mut control = [0; gate::LANES - gate::GRANT];
        self.sink.read(self.base, &mut control)?;
        self.sink.acquire_fence();
        let word = |at: usize| control[at - gate::GRANT];
        let mut words = [0; super::GATE_WORDS - (gate::LANES - gate::GRANT)];
        let words = &mut words[..lanes_in(self.words) * LANE_WORDS];
        self.sink.read(self.place(gate::LANES), words)?;
        let arrived = word(gate::ARRIVED);
        let left = word(gate::LEFT);
        Ok(View {
            has_gate: word(gate::READY) == 1,
            waiting: self.epoch != 0 && high(arrived) == self.epoch && low(arrived) > self.granted,
            entries: if self.epoch != 0 && high(arrived) == self.epoch { low(arrived) } else { 0 },
            left: (self.epoch != 0 && high(left) == self.epoch).then(|| Left::from_code(low(left))),
            untracked: word(gate::UNTRACKED),
            lanes: words.as_chunks::<LANE_WORDS>().0.iter().filter_map(lane_of).collect(),
        })
    }
}

fn lane_of(words: &[u64; LANE_WORDS]) -> Option<Lane> {
    let comm = words[gate_lane::COMM];
    let kind = LaneKind::from_code(words[gate_lane::KIND]).filter(|_| comm != 0)?;
    let who = words[gate_lane::WHO];
    let key = LaneKey { comm, kind, own: low(who), other: high(who) };
    Some(Lane { key, count: words[gate_lane::COUNT] })
}

/// Bytes of a segment's file that hold what the requester writes.
pub(crate) fn asked_bytes() -> (i64, i64) {
    let bytes = |words: usize| i64::try_from(words * WORD_BYTES).unwrap_or(i64::MAX);
    (bytes(gate::GRANT), bytes(gate::READY - gate::GRANT))
}

/// The gate of an open segment file.
pub fn of_file(file: File) -> Asker<GateFile> {
    Asker::new(GateFile(file), gate::GRANT as u64, at(super::GATE_WORDS as u64))
}
