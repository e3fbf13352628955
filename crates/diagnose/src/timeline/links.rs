//! Links: what the wire between two ranks cost, from both ends of each flow; and the hosts' NIC counters.
use mycroft_record::{
    ChannelId, CommId, CommRank, Direction, FlowDone, HostName, HostTime, NicState, OpClass, OpId, OpSeq, Rank,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::iterations::wall_us;

/// Flow halves that wait for their other end: 32 Ki x 120 B = 4 MiB; at 10,000 ranks about one second of completions.
const HALVES_KEPT: usize = 32 * 1024;
/// Samples kept of each link: 1,024 x 24 B = 24 KiB.
const SAMPLES_KEPT: usize = 1024;
/// Links kept (directed rank pairs): 64 Ki.
const LINKS_KEPT: usize = 64 * 1024;
/// Pauses kept.
const PAUSES_KEPT: usize = 4096;
/// NIC samples kept per interface: 600 x 40 B; a minute at ten a second.
const NIC_KEPT: usize = 600;

/// Operation of a link: communicator, collective or not, order number, channel, sender, receiver.
type JoinKey = (CommId, bool, OpSeq, ChannelId, CommRank, CommRank);

#[derive(Clone, Copy, Debug)]
struct Half {
    rank: Rank,
    done: FlowDone,
}

/// What the wire cost one flow.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct LinkSample {
    pub at: HostTime,
    pub wire_us: f64,
    pub bytes: u64,
}

/// A flow in which one step waited very long, from both ends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Pause {
    pub at: HostTime,
    pub from: Rank,
    pub to: Rank,
    pub op: OpId,
    pub channel: ChannelId,
    pub send_max_us: [u32; 3],
    pub recv_max_us: [u32; 3],
    /// When the sender's proxy began with the flow, and when the receiver's did.
    pub send_started_at: HostTime,
    pub recv_started_at: HostTime,
    pub send_first_ready_at: HostTime,
    pub recv_first_ready_at: HostTime,
}

/// Links and interfaces of a job.
#[derive(Debug, Default)]
pub(crate) struct Links {
    halves: BTreeMap<JoinKey, Half>,
    halves_order: VecDeque<JoinKey>,
    pub(crate) samples: BTreeMap<(Rank, Rank), VecDeque<LinkSample>>,
    pub(crate) pauses: VecDeque<Pause>,
    pub(crate) nics: BTreeMap<(HostName, Arc<str>), VecDeque<NicState>>,
}

impl Links {
    pub(crate) fn on_flow(&mut self, rank: Rank, me: CommRank, done: &FlowDone, pause_us: u32) {
        let flow = done.flow;
        let (from, to) = match flow.direction {
            Direction::Send => (me, flow.peer),
            Direction::Recv => (flow.peer, me),
        };
        let key = (flow.op.comm, flow.op.class == OpClass::Collective, flow.op.seq, flow.channel, from, to);
        let half = Half { rank, done: *done };
        match self.halves.get(&key) {
            Some(other) if other.done.flow.direction != flow.direction => {
                let other = *other;
                self.halves.remove(&key);
                let (send, recv) = if flow.direction == Direction::Send { (half, other) } else { (other, half) };
                self.join(send, recv, pause_us);
            }
            _ => {
                if self.halves.insert(key, half).is_none() {
                    self.halves_order.push_back(key);
                }
                if self.halves_order.len() > HALVES_KEPT
                    && let Some(oldest) = self.halves_order.pop_front()
                {
                    self.halves.remove(&oldest);
                }
            }
        }
    }

    /// Data that is ready waits in the sender's stages 1 and 2; a receiver that is ready waits in its stage 0. Only while
    /// both wait is it the wire: the smaller of the two needs no comparison of clocks.
    fn join(&mut self, send: Half, recv: Half, pause_us: u32) {
        let (s, r) = (&send.done.times, &recv.done.times);
        let steps = send.done.counters.total_chunks;
        let blocked = f64::from(s.stage_us[1]) + f64::from(s.stage_us[2]);
        let wire_us = wall_us(blocked.min(f64::from(r.stage_us[0])), steps);
        let key = (send.rank, recv.rank);
        if self.samples.contains_key(&key) || self.samples.len() < LINKS_KEPT {
            let samples = self.samples.entry(key).or_default();
            samples.push_back(LinkSample { at: send.done.ended_at, wire_us, bytes: send.done.bytes });
            if samples.len() > SAMPLES_KEPT {
                samples.pop_front();
            }
        }
        let longest = s.stage_max_us.iter().chain(r.stage_max_us.iter()).max().copied().unwrap_or(0);
        if longest >= pause_us {
            self.pauses.push_back(Pause {
                at: send.done.ended_at,
                from: send.rank,
                to: recv.rank,
                op: send.done.flow.op,
                channel: send.done.flow.channel,
                send_max_us: s.stage_max_us,
                recv_max_us: r.stage_max_us,
                send_started_at: s.started_at,
                recv_started_at: r.started_at,
                send_first_ready_at: s.first_ready_at,
                recv_first_ready_at: r.first_ready_at,
            });
            if self.pauses.len() > PAUSES_KEPT {
                self.pauses.pop_front();
            }
        }
    }

    pub(crate) fn on_nic(&mut self, host: &HostName, nic: &NicState) {
        let seen = self.nics.entry((host.clone(), nic.nic.clone())).or_default();
        if seen.back().is_some_and(|last| last.at > nic.at) {
            return;
        }
        seen.push_back(nic.clone());
        if seen.len() > NIC_KEPT {
            seen.pop_front();
        }
    }
}
