//! The times of a record that are of its host's clock.
use crate::record::{FlowTimes, OpMeta, Record};
use crate::time::HostTime;

impl Record {
    /// Changes every time of the host's clock in the record, unknown ones too; those of `ClockOffset` are the server's.
    pub fn each_time(&mut self, mut change: impl FnMut(&mut HostTime)) {
        let op = |op: &mut OpMeta, change: &mut dyn FnMut(&mut HostTime)| {
            [&mut op.enqueued_at, &mut op.started_at, &mut op.started_last_at].into_iter().for_each(change);
        };
        let flow = |times: &mut FlowTimes, change: &mut dyn FnMut(&mut HostTime)| {
            [&mut times.started_at, &mut times.first_ready_at, &mut times.last_progress_at]
                .into_iter()
                .for_each(change);
        };
        match self {
            Record::Process(r) => change(&mut r.attached_at),
            Record::ProcessExit(r) => change(&mut r.noticed_at),
            Record::CommInit(r) => change(&mut r.at),
            Record::CommEnd(r) => change(&mut r.at),
            Record::OpState(r) => {
                change(&mut r.sampled_at);
                op(&mut r.op, &mut change);
            }
            Record::OpDone(r) => {
                change(&mut r.ended_first_at);
                change(&mut r.ended_at);
                op(&mut r.op, &mut change);
            }
            Record::FlowState(r) => {
                change(&mut r.sampled_at);
                flow(&mut r.times, &mut change);
            }
            Record::FlowDone(r) => {
                change(&mut r.ended_at);
                flow(&mut r.times, &mut change);
            }
            Record::Sampled(r) => change(&mut r.at),
            Record::Gap(r) => change(&mut r.noticed_at),
            Record::NicState(r) => change(&mut r.at),
            Record::HostVitals(r) => change(&mut r.at),
            Record::StepMark(r) => change(&mut r.at),
            Record::ClockOffset(_) => {}
            Record::ProxyHeld(r) => {
                change(&mut r.at);
                change(&mut r.since);
            }
        }
    }
}
