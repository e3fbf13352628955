//! What collectives among ranks of one host take. Nothing shows their copies: they go over NVLink or PCIe, and NCCL tells of no step. But
//! all ranks of the communicator are on the host, and an operation is as long on the rank that began it last as it takes without
//! waiting: of an iteration the rank that spent least in them. That is what group profiling compares (FALCON, section 4.3).
use super::cells::{Cells, inside};
use crate::timeline::Timeline;
use mycroft_record::{CommId, HostTime};
use std::collections::BTreeMap;

/// The ranks of a communicator inside a host, and what each iteration took of the rank that spent least, milliseconds; NaN: no rank is known.
#[derive(Default)]
struct Group {
    slots: Vec<usize>,
    least_ms: Vec<f64>,
}

impl Group {
    /// What an iteration took, milliseconds; `None`: nobody knows, since of one rank nothing tells whether it waits.
    fn ms(&self) -> Option<f64> {
        let known: Vec<f64> = self.least_ms.iter().copied().filter(|ms| !ms.is_nan()).collect();
        (self.slots.len() > 1 && !known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }
}

/// Adds to each rank's cells what its communicator inside the host took, milliseconds per iteration.
pub(super) fn add(
    timeline: &Timeline,
    row: (HostTime, HostTime),
    each: &[(HostTime, f64)],
    cells: &mut [Option<Cells>],
) {
    let mut groups: BTreeMap<CommId, Group> = BTreeMap::new();
    for (slot, state) in timeline.ranks.by_slot().iter().enumerate().filter(|(slot, _)| cells[*slot].is_some()) {
        let mut comm = None;
        for (nth, it) in inside(state, row, each).filter(|(_, it)| it.local.us > 0.0) {
            let id = state.past.counter(it.local.counter).0;
            if *comm.get_or_insert(id) != id {
                continue;
            }
            let group = groups.entry(id).or_default();
            group.least_ms.resize(each.len(), f64::NAN);
            let ms = f64::from(it.local.us) * 1e3 / it.ns() as f64 * each[nth].1;
            group.least_ms[nth] = group.least_ms[nth].min(ms);
        }
        if let Some(group) = comm.and_then(|comm| groups.get_mut(&comm)) {
            group.slots.push(slot);
        }
    }
    for group in groups.values() {
        let Some(ms) = group.ms() else { continue };
        for slot in &group.slots {
            cells[*slot].iter_mut().for_each(|cells| cells.add_local(ms));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Component, Measure};
    use super::*;
    use mycroft_record::*;

    const MS: u64 = NANOS_PER_MS;
    const T0: u64 = 1_000 * NANOS_PER_SEC;
    const RANKS: u32 = 8;
    const PER_HOST: u32 = 4;

    /// An AllReduce without flows, begun and ended at these milliseconds.
    fn op((comm, seq): (u64, u64), comm_rank: u32, (began, ended): (u64, u64)) -> Record {
        let [started_at, ended_at] = [began, ended].map(|ms| HostTime(T0 + ms * MS));
        let op = OpMeta {
            id: OpId { comm: CommId(comm), class: OpClass::Collective, peer: CommRank(0), seq: OpSeq(seq) },
            kind: OpKind::AllReduce,
            nccl_seq: 0,
            comm_rank: CommRank(comm_rank),
            count: comm << 20,
            datatype: Datatype::Float32,
            root: u32::MAX,
            algorithm: Algorithm::Ring,
            protocol: Protocol::Simple,
            n_channels: 1,
            enqueued_at: started_at,
            started_at,
            started_last_at: HostTime::NONE,
        };
        Record::OpDone(OpDone { op, ended_first_at: ended_at, ended_at, flows: 0, observed: true })
    }

    /// What collectives inside hosts are measured to take, by slot: of iterations of 100 ms, in which each rank is 15 ms late for one in
    /// turn, and which take `local_ms` of a host once all its ranks are in them. `nodes`: hosts of their communicator, as NCCL says.
    fn measured(local_ms: [u64; 2], nodes: u32) -> Vec<Option<f64>> {
        let mut timeline = Timeline::default();
        for rank in 0..RANKS {
            let (host, me) = (rank / PER_HOST, rank % PER_HOST);
            let join = |comm, n_ranks, n_nodes, me| {
                let name = "".into();
                Record::CommInit(CommInit {
                    at: HostTime(T0),
                    comm: CommId(comm),
                    n_ranks,
                    n_nodes,
                    comm_rank: CommRank(me),
                    name,
                })
            };
            let mut records = vec![join(1 + u64::from(host), PER_HOST, nodes, me), join(9, RANKS, 2, rank)];
            for nth in 0..60u64 {
                let begin = nth * 100;
                let late = |rank: u32| if nth % u64::from(PER_HOST) == u64::from(rank) { 15 } else { 0 };
                let ended = begin + 40 + 15 + local_ms[host as usize];
                records.push(op((1 + u64::from(host), nth), me, (begin + 40 + late(me), ended)));
                records.push(op((9, nth), rank, (ended + 1, begin + 99)));
            }
            let at = HostTime(T0 + 6_500 * MS);
            let looked = Sampled { at, ops_in_flight: 0, flows_in_flight: 0, alive: true, stopped: false };
            records.push(Record::Sampled(looked));
            let process = ProcessKey { rank: Rank(rank), pid: rank, nonce: 1 };
            let source = Source { job: "job".into(), host: format!("host{host}").into(), process: Some(process) };
            timeline.observe(&Batch { source, collected_at: at, records }, 500_000);
        }
        timeline.settle();
        let (rows, _) = Measure::default().rows(&timeline, 500_000);
        let row = rows.last().expect("six seconds");
        row.ranks.iter().map(|cells| cells.as_ref()?.ms(Component::Local).map(f64::round)).collect()
    }

    /// What ranks wait for each other is not in it, nor what they wait for other hosts in operations that show no flow either.
    #[test]
    fn collectives_inside_a_host_take_what_the_last_to_begin_takes() {
        let of = |a: f64, b: f64| (0..RANKS).map(|rank| Some(if rank < PER_HOST { a } else { b })).collect::<Vec<_>>();
        assert_eq!(measured([5, 5], 1), of(5.0, 5.0));
        assert_eq!(measured([5, 20], 1), of(5.0, 20.0));
    }

    /// Who waits for another host may be in an operation of any length.
    #[test]
    fn nothing_is_known_where_communicators_may_be_of_several_hosts() {
        assert_eq!(measured([5, 20], 0), vec![None; RANKS as usize]);
        assert_eq!(measured([5, 20], 2), vec![None; RANKS as usize]);
    }
}
