//! From a segment's words and ticks to the vocabulary: the ring's conversion, with each tick placed on the host's scale,
//! whose rate may have changed since the segment was calibrated (see `clock`), and with names tamed.
use crate::clock::HostClock;
use mycroft_record::{CommInit, FlowState, HostName, HostTime, OpState, ProcessInfo, Record, Source};
use mycroft_ring::raw::RawRecord;
use mycroft_ring::{CommSnapshot, FlowSnapshot, OpSnapshot, SegmentHeader, SegmentState, convert};

/// Characters of a name that are passed on: the segment's 128 bytes at most.
const NAME_CHARS_MAX: usize = 128;

/// Job name of a process that was not told one; the probe's own default.
const JOB_DEFAULT: &str = "default";

/// Whose records these are. `host` is what the agent was told, which goes before what the segment says.
pub(crate) fn source(header: &SegmentHeader, host: Option<&HostName>) -> Source {
    let or = |text: &str, default: &str| if text.is_empty() { default.to_owned() } else { sane_text(text) };
    let host = match host {
        Some(host) => host.clone(),
        None => or(&header.host, "unknown").into(),
    };
    Source { job: or(&header.job, JOB_DEFAULT).into(), host, process: Some(convert::process_key(header)) }
}

/// The scale of one segment at one sample.
#[derive(Clone, Copy)]
pub(crate) struct Scale<'a> {
    /// The scale of the segment's clock.
    pub(crate) clock: &'a HostClock,
    /// The time of the sample, which bounds what a hostile segment can claim.
    pub(crate) now: HostTime,
}

impl convert::Placement for Scale<'_> {
    fn host_time(&self, ticks: u64) -> HostTime {
        self.clock.host_time(ticks, self.now)
    }

    fn ticks_to_us(&self, ticks: u64) -> u32 {
        self.clock.latest().ticks_to_us(ticks)
    }
}

impl Scale<'_> {
    /// Host time of a tick, `NONE` for 0.
    pub(crate) fn time(&self, ticks: u64) -> HostTime {
        convert::Placement::host_time(self, ticks)
    }

    pub(crate) fn process(&self, header: &SegmentHeader, state: &SegmentState) -> ProcessInfo {
        convert::process_info(header, state, self)
    }

    pub(crate) fn op_state(&self, raw: &OpSnapshot) -> OpState {
        convert::op_state(raw, self, self.now)
    }

    pub(crate) fn flow_state(&self, raw: &FlowSnapshot) -> FlowState {
        convert::flow_state(raw, self, self.now)
    }

    /// A communicator of the table.
    pub(crate) fn comm_init(&self, raw: &CommSnapshot) -> CommInit {
        tamed(convert::comm_init_of(raw, self))
    }

    pub(crate) fn record(&self, raw: &RawRecord) -> Record {
        match convert::record(raw, self) {
            Record::CommInit(comm) => Record::CommInit(tamed(comm)),
            record => record,
        }
    }
}

fn tamed(comm: CommInit) -> CommInit {
    CommInit { name: sane_text(&comm.name).into(), ..comm }
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
