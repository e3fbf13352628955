//! What the plugin hears of the proxy's operations and steps.

use super::{ConnWork, Op};
use crate::comm::Comm;
use crate::env::STEPS;
use crate::profiler::{Ev, ProxyOpInfo, Start, kind, state};
use crate::transport::Dir;

/// Whether a ProxyOp starts when it is first worked on, not when it joins the list.
pub(super) fn starts_late(comm: &Comm) -> bool {
    comm.profiler.as_ref().is_some_and(|p| p.personality().op_starts_late)
}

/// ProxyOp start.
pub(super) fn op_start(comm: &Comm, op: &mut Op) {
    let Some(p) = &comm.profiler else { return };
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
    p.start(&Start { parent: op.task.0, rank: comm.rank as i32, ev: Ev::ProxyOp(info) }, &mut op.handle);
}

impl ConnWork<'_> {
    /// The plugin's unit: slices, or raw steps for v1.
    fn each_step(&self, op: &Op, raw: u64, mut f: impl FnMut(&crate::profiler::Profiler, u64, usize)) {
        let Some(p) = &self.comm.profiler else { return };
        if p.has_raw_steps() {
            for step in raw..raw + op.slice_steps {
                f(p, step, (step % STEPS) as usize);
            }
        } else {
            let step = raw / op.slice_steps;
            f(p, step, (step % STEPS) as usize);
        }
    }

    pub(super) fn step_start(&self, op: &mut Op, raw: u64) {
        if op.silent || op.mask & (kind::PROXY_STEP | kind::NET_PLUGIN) == 0 {
            return;
        }
        let (parent, rank) = (op.handle, self.comm.rank as i32);
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

    pub(super) fn step_record(&self, op: &Op, raw: u64, what: i32) {
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

    pub(super) fn step_stop(&self, op: &mut Op, raw: u64) {
        let mut steps = op.steps;
        self.each_step(op, raw, |p, _, slot| p.stop(&mut steps[slot]));
        op.steps = steps;
    }

    pub(super) fn op_record(&self, op: &Op, what: i32, raw_steps: u64) {
        if let Some(p) = &self.comm.profiler
            && p.has_op_states()
        {
            let steps = if p.has_raw_steps() { raw_steps } else { raw_steps / op.slice_steps };
            p.record_op(op.handle, what, steps, op.sum_bytes);
        }
    }
}
