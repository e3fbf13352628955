//! What the plugin hears of the proxy's operations and steps.

use super::op::Op;
use crate::env::STEPS;
use crate::profiler::{Ev, Profiler, ProxyOpInfo, Start, kind, state};
use crate::transport::Dir;

/// Who tells: the plugin of a communicator, and this rank in it.
#[derive(Clone, Copy)]
pub(super) struct Teller<'a> {
    pub(super) profiler: Option<&'a Profiler>,
    pub(super) rank: usize,
}

/// ProxyOp start.
fn op_start(p: &Profiler, rank: usize, op: &mut Op) {
    if op.silent || op.mask & (kind::PROXY_OP | kind::PROXY_STEP | kind::NET_PLUGIN) == 0 {
        return;
    }
    let unit = if p.has_raw_steps() { 1 } else { op.slice_steps };
    let info = ProxyOpInfo {
        pid: std::process::id() as i32,
        channel: op.key.channel as u8,
        peer: op.key.peer as i32,
        n_steps: op.nsteps.div_ceil(unit) as i32,
        chunk_size: i32::try_from(op.chunk_bytes * unit).unwrap_or(i32::MAX),
        is_send: op.key.dir == Dir::Send,
    };
    p.start(&Start { parent: op.task.0, rank: rank as i32, ev: Ev::ProxyOp(info) }, &mut op.handle);
}

impl Teller<'_> {
    /// An operation joins the list (`begins` false), or is worked on for the first time: its event starts at one of both.
    pub(super) fn op_start(self, op: &mut Op, begins: bool) {
        if let Some(p) = self.profiler
            && p.personality().op_starts_late == begins
        {
            op_start(p, self.rank, op);
        }
    }

    /// The plugin's unit: slices, or raw steps for v1.
    fn each_step(self, op: &Op, raw: u64, mut f: impl FnMut(&Profiler, u64, usize)) {
        let Some(p) = self.profiler else { return };
        if p.has_raw_steps() {
            for step in raw..raw + op.slice_steps {
                f(p, step, (step % STEPS) as usize);
            }
        } else {
            let step = raw / op.slice_steps;
            f(p, step, (step % STEPS) as usize);
        }
    }

    pub(super) fn step_start(self, op: &mut Op, raw: u64) {
        if op.silent || op.mask & (kind::PROXY_STEP | kind::NET_PLUGIN) == 0 {
            return;
        }
        let (parent, rank) = (op.handle, self.rank as i32);
        let mut steps = op.steps;
        self.each_step(op, raw, |p, step, slot| {
            if p.has_op_states() && !parent.is_some() {
                return;
            }
            let ev = Ev::ProxyStep { step: step as i32 };
            p.start(&Start { parent: parent.0, rank, ev }, &mut steps[slot]);
        });
        op.steps = steps;
    }

    pub(super) fn step_record(self, op: &Op, raw: u64, what: i32) {
        if !op.handle.is_some() {
            return;
        }
        self.each_step(op, raw, |p, _, slot| {
            if what == state::STEP_SEND_PEER_WAIT && p.has_op_states() {
                return;
            }
            p.record_step(op.steps[slot], what, op.step_bytes);
        });
    }

    pub(super) fn step_stop(self, op: &mut Op, raw: u64) {
        let mut steps = op.steps;
        self.each_step(op, raw, |p, _, slot| p.stop(&mut steps[slot]));
        op.steps = steps;
    }

    pub(super) fn op_record(self, op: &Op, what: i32, raw_steps: u64) {
        if let Some(p) = self.profiler
            && p.has_op_states()
        {
            let steps = if p.has_raw_steps() { raw_steps } else { raw_steps / op.slice_steps };
            p.record_op(op.handle, what, steps, op.sum_bytes);
        }
    }
}
