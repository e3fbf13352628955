//! From a segment's words and ticks to the vocabulary. The ring's own conversion keeps the promises about counters; here
//! each tick gets its place on the host's scale, whose rate may have changed since (see `clock`).
use crate::clock::HostClock;
use mycroft_record::{CommInit, FlowState, FlowTimes, HostTime, OpMeta, OpState, ProcessInfo, Record};
use mycroft_ring::raw::{RawOpMeta, RawRecord};
use mycroft_ring::{CommSnapshot, FlowSnapshot, OpSnapshot, SegmentHeader, SegmentState, convert};

/// Characters of a name that are passed on: the segment's 128 bytes at most.
const NAME_CHARS_MAX: usize = 128;

/// The scale of one segment at one sample.
#[derive(Clone, Copy)]
pub(crate) struct Scale<'a> {
    /// The scale of the segment's clock.
    pub(crate) clock: &'a HostClock,
    /// The time of the sample, which bounds what a hostile segment can claim.
    pub(crate) now: HostTime,
}

impl Scale<'_> {
    /// Host time of a tick, `NONE` for 0.
    pub(crate) fn time(&self, ticks: u64) -> HostTime {
        self.clock.host_time(ticks, self.now)
    }

    pub(crate) fn process(&self, header: &SegmentHeader, state: &SegmentState) -> ProcessInfo {
        ProcessInfo {
            attached_at: self.time(header.attached_ticks),
            ..convert::process_info(header, state, self.clock.latest())
        }
    }

    pub(crate) fn op_state(&self, raw: &OpSnapshot) -> OpState {
        let mut state = convert::op_state(raw, self.clock.latest(), self.now);
        self.place_op(&mut state.op, &raw.op);
        state
    }

    pub(crate) fn flow_state(&self, raw: &FlowSnapshot) -> FlowState {
        let mut state = convert::flow_state(raw, self.clock.latest(), self.now);
        self.place_flow(&mut state.times, raw.started_ticks, raw.first_ready_ticks, raw.last_progress_ticks);
        state
    }

    /// A communicator of the table.
    pub(crate) fn comm_init(&self, raw: &CommSnapshot) -> CommInit {
        let comm = convert::comm_init_of(raw, self.clock.latest());
        self.sane_comm(comm, raw.begin_ticks)
    }

    pub(crate) fn record(&self, raw: &RawRecord) -> Record {
        let mut record = convert::record(raw, self.clock.latest());
        match (&mut record, raw) {
            (Record::OpDone(done), RawRecord::OpDone(r)) => {
                self.place_op(&mut done.op, &r.op);
                done.ended_first_at = self.time(r.ended_first_ticks);
                done.ended_at = self.time(r.ended_ticks);
            }
            (Record::FlowDone(done), RawRecord::FlowDone(r)) => {
                self.place_flow(&mut done.times, r.started_ticks, r.first_ready_ticks, r.last_progress_ticks);
                done.ended_at = self.time(r.ended_ticks);
            }
            (Record::CommInit(comm), RawRecord::CommBegin(r)) => *comm = self.sane_comm(comm.clone(), r.at_ticks),
            (Record::CommEnd(end), RawRecord::CommEnd(r)) => end.at = self.time(r.at_ticks),
            (Record::StepMark(mark), RawRecord::StepMark(r)) => mark.at = self.time(r.at_ticks),
            // The ring turns each kind into its own.
            _ => {}
        }
        record
    }

    fn sane_comm(&self, mut comm: CommInit, at_ticks: u64) -> CommInit {
        comm.at = self.time(at_ticks);
        comm.name = sane_text(&comm.name).into();
        comm
    }

    /// A time that the conversion left out stays out.
    fn place_op(&self, op: &mut OpMeta, raw: &RawOpMeta) {
        op.enqueued_at = self.time(raw.enqueued_ticks);
        op.started_at = self.time(raw.started_ticks);
        if op.started_last_at.is_some() {
            op.started_last_at = self.time(raw.started_last_ticks);
        }
    }

    fn place_flow(&self, times: &mut FlowTimes, started: u64, first_ready: u64, last_progress: u64) {
        times.started_at = self.time(started);
        times.first_ready_at = self.time(first_ready);
        times.last_progress_at = self.time(last_progress);
    }
}

/// Text from a segment as we pass it on: bounded, and without control characters that could steer a terminal.
pub(crate) fn sane_text(text: &str) -> String {
    text.chars().take(NAME_CHARS_MAX).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_hostile_segment_is_tamed() {
        assert_eq!(sane_text("job-7"), "job-7");
        assert_eq!(sane_text("a\u{1b}[2Jb\nc\u{0}"), "a?[2Jb?c?");
        assert_eq!(sane_text(&"\u{e9}".repeat(1000)).chars().count(), NAME_CHARS_MAX);
    }
}
