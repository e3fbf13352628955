//! What a record is about: its time, its communicator, its operation.
use mycroft_record::{CommId, HostTime, OpId, Record};

/// The time a record is about.
pub fn time_of(record: &Record) -> HostTime {
    match record {
        Record::Process(r) => r.attached_at,
        Record::ProcessExit(r) => r.noticed_at,
        Record::CommInit(r) => r.at,
        Record::CommEnd(r) => r.at,
        Record::OpState(r) => r.sampled_at,
        Record::OpDone(r) => r.ended_at,
        Record::FlowState(r) => r.sampled_at,
        Record::FlowDone(r) => r.ended_at,
        Record::Sampled(r) => r.at,
        Record::Gap(r) => r.noticed_at,
        Record::NicState(r) => r.at,
        Record::HostVitals(r) => r.at,
        Record::StepMark(r) => r.at,
        Record::ClockOffset(r) => r.at,
        Record::ProxyHeld(r) => r.at,
    }
}

/// The communicator a record is about.
pub fn comm_of(record: &Record) -> Option<CommId> {
    op_of(record).map(|op| op.comm).or(match record {
        Record::CommInit(r) => Some(r.comm),
        Record::CommEnd(r) => Some(r.comm),
        _ => None,
    })
}

/// The operation a record is about.
pub fn op_of(record: &Record) -> Option<OpId> {
    match record {
        Record::OpState(r) => Some(r.op.id),
        Record::OpDone(r) => Some(r.op.id),
        Record::FlowState(r) => Some(r.flow.op),
        Record::FlowDone(r) => Some(r.flow.op),
        _ => None,
    }
}
