//! What the cluster's agents see: the records of its ranks and interfaces, in batches.
use super::{Cluster, Fault, FlowRun, MS, Prng, RankRun, T0};
use mycroft_record::*;

impl Cluster {
    /// From the job's time to what a host's clock shows after [`T0`], nanoseconds: clocks differ by up to 4 ms.
    fn offset(&self, host: u32) -> u64 {
        self.plan.begins + Prng::new(self.plan.seed ^ 0xabc ^ u64::from(host) << 8).below(4 * MS)
    }

    /// All batches in the order of their collection.
    pub fn batches(mut self) -> Vec<Batch> {
        self.simulate();
        for (rank, at) in &self.plan.kills {
            self.runs[*rank as usize].dead_at.get_or_insert(*at);
        }
        let mut out = Vec::new();
        for rank in 0..self.plan.world() {
            out.extend(self.rank_batches(rank));
        }
        if self.plan.nic_states {
            for host in 0..self.plan.hosts {
                out.extend(self.nic_batches(host));
            }
        }
        mycroft_record::batch::sort_as_collected(&mut out);
        out
    }

    fn source(&self, rank: u32) -> Source {
        let host = self.plan.host_of(rank);
        Source {
            job: "job".into(),
            host: format!("host{host}").into(),
            process: Some(ProcessKey { rank: Rank(rank), pid: 1000 + rank, nonce: 7 + self.plan.life }),
        }
    }

    fn nic_batches(&self, host: u32) -> Vec<Batch> {
        let mut bytes = 1_000_000u64;
        let mut out = Vec::new();
        let mut t = 0;
        while t < self.plan.until {
            let active = self.active(t);
            let foreign =
                matches!(self.plan.fault, Fault::BackgroundTraffic(a, b) if active && (a == host || b == host));
            bytes += if foreign { 20_000_000 } else { 400_000 };
            let up = !(matches!(self.plan.fault, Fault::NicDown(h) if h == host) && active);
            let at = HostTime(T0 + t + self.offset(host));
            let nic = NicState {
                at,
                nic: "eth0".into(),
                up,
                link_changes: u64::from(!up),
                speed_bytes_per_sec: 1_000_000_000,
                tx_bytes: bytes,
                rx_bytes: bytes,
                errors: 0,
            };
            let source = Source { process: None, ..self.source(host * self.plan.ranks_per_host) };
            out.push(Batch { source, collected_at: at, records: vec![Record::NicState(nic)] });
            t += 500 * MS;
        }
        out
    }

    fn rank_batches(&self, rank: u32) -> Vec<Batch> {
        let host = self.plan.host_of(rank);
        let shift = |t: u64| HostTime(T0 + t + self.offset(host));
        let run = &self.runs[rank as usize];
        let source = self.source(rank);
        let mut batches = Vec::new();
        let mut first = vec![Record::Process(ProcessInfo {
            attached_at: shift(1),
            world_size: self.plan.world(),
            local_rank: rank % self.plan.ranks_per_host,
            gpu: 0,
            profiler_abi: 4,
            nccl_version: 22703,
            kernel_events: true,
        })];
        for group in self.groups.iter().filter(|g| g.ranks.contains(&rank)) {
            first.push(Record::CommInit(CommInit {
                at: shift(100 * MS),
                comm: group.id,
                n_ranks: group.ranks.len() as u32,
                n_nodes: 0,
                comm_rank: CommRank(group.ranks.iter().position(|r| *r == rank).unwrap() as u32),
                name: group.name.clone(),
            }));
        }
        batches.push(Batch { source: source.clone(), collected_at: shift(200 * MS), records: first });
        let mut t = 300 * MS + Prng::new(u64::from(host)).below(90 * MS);
        let mut from = 0;
        while t < self.plan.until {
            if self.plan.mute_host == Some(host) && t > self.plan.fault_at {
                break;
            }
            let records = self.window(rank, run, from, t);
            batches.push(Batch { source: source.clone(), collected_at: shift(t), records });
            if run.dead_at.is_some_and(|at| at < t) {
                break;
            }
            from = t;
            t += 100 * MS;
        }
        batches
    }

    fn window(&self, rank: u32, run: &RankRun, from: u64, to: u64) -> Vec<Record> {
        let host = self.plan.host_of(rank);
        let shift = |t: u64| HostTime(T0 + t + self.offset(host));
        let mut records = Vec::new();
        let mut in_flight = 0;
        let looked_at = to;
        let to = run.dead_at.map_or(to, |at| at.min(to));
        let began = run.ops.partition_point(|op| op.end.is_some_and(|end| end <= from));
        for op in &run.ops[began..] {
            let mut meta = op.meta;
            let enqueued = meta.enqueued_at.0;
            if enqueued > to {
                break;
            }
            meta.enqueued_at = shift(enqueued);
            if let Some(start) = op.start.filter(|start| *start <= to) {
                meta.started_at = shift(start);
                meta.started_last_at = shift(start);
            }
            match op.end.filter(|end| *end <= to) {
                Some(end) => {
                    for flow in &op.flows {
                        records.push(Record::FlowDone(flow_done(&meta, flow, shift(op.start.unwrap()), shift(end))));
                    }
                    let flows = op.flows.len() as u16;
                    let (ended_first_at, ended_at) = (shift(end), shift(end));
                    records.push(Record::OpDone(OpDone { op: meta, ended_first_at, ended_at, flows, observed: true }));
                }
                None => {
                    in_flight += 1;
                    let started = op.start.is_some_and(|start| start <= to);
                    records.push(Record::OpState(OpState {
                        sampled_at: shift(to),
                        op: meta,
                        kernels_started: u8::from(started),
                        kernels_stopped: 0,
                        flows_started: 0,
                        flows_done: 0,
                    }));
                    if started && op.end.is_none() {
                        for flow in &op.flows {
                            let done = flow_done(&meta, flow, shift(op.start.unwrap()), HostTime::NONE);
                            records.push(Record::FlowState(FlowState {
                                sampled_at: shift(to),
                                flow: done.flow,
                                counters: flow.counters,
                                bytes: 1000,
                                times: done.times,
                                peer_wait_polls: 0,
                                proxied_for_pid: 0,
                            }));
                        }
                    }
                }
            }
        }
        let to = looked_at;
        let dead = run.dead_at.is_some_and(|at| at < to);
        let stopped = matches!(self.plan.fault, Fault::Frozen(r) if r == rank) && to >= self.plan.fault_at;
        records.push(Record::Sampled(Sampled {
            at: shift(to),
            ops_in_flight: in_flight,
            flows_in_flight: 0,
            alive: !dead,
            stopped,
        }));
        if dead {
            records.push(Record::ProcessExit(ProcessExit {
                noticed_at: shift(to),
                clean: false,
                status: self.plan.status,
            }));
        }
        records
    }
}

fn flow_done(meta: &OpMeta, flow: &FlowRun, started_at: HostTime, ended_at: HostTime) -> FlowDone {
    let last = if ended_at.is_some() { ended_at } else { started_at + 2 * MS };
    FlowDone {
        flow: FlowKey { op: meta.id, channel: ChannelId(0), peer: CommRank(flow.peer), direction: flow.direction },
        counters: flow.counters,
        bytes: 1 << 16,
        times: FlowTimes {
            started_at,
            first_ready_at: started_at,
            last_progress_at: last,
            stage_us: flow.stage,
            stage_max_us: flow.max,
        },
        ended_at,
        peer_wait_polls: 0,
        proxied_for_pid: 0,
    }
}
