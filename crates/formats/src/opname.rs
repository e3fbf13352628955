//! `profiling_name`, taken apart: `<library>:<operation>[ <peers>]`.
use mycroft_record::OpKind;

/// The parts of a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) lib: &'a str,
    pub(crate) op: &'a str,
    pub(crate) kind: OpKind,
    pub(crate) src: Option<u32>,
    pub(crate) dst: Option<u32>,
}

/// Takes a name apart. The library may hold colons itself; peers are `src->dst` for a send and `dst<-src` for a receive,
/// with `?` for any source.
pub(crate) fn parts(text: &str) -> Parts<'_> {
    let (lib, rest) = text.rsplit_once(':').unwrap_or(("", text));
    let (op, peers) = rest.split_once(' ').unwrap_or((rest, ""));
    let (mut src, mut dst) = (None, None);
    if let Some((from, to)) = peers.split_once("->") {
        (src, dst) = (from.trim().parse().ok(), to.trim().parse().ok());
    } else if let Some((to, from)) = peers.split_once("<-") {
        (src, dst) = (from.trim().parse().ok(), to.trim().parse().ok());
    }
    Parts { lib, op, kind: kind(op), src, dst }
}

/// The operation in our words. A barrier, a split, a window and a coalesced group have none.
fn kind(op: &str) -> OpKind {
    match op {
        "all_reduce" | "allreduce_coalesced" => OpKind::AllReduce,
        "all_gather"
        | "all_gather_single"
        | "all_gather_v"
        | "_all_gather_base"
        | "all_gather_into_tensor_coalesced"
        | "allgather_coalesced"
        | "ALLGATHER_coalesced" => OpKind::AllGather,
        "reduce_scatter"
        | "reduce_scatter_single"
        | "reduce_scatter_v"
        | "_reduce_scatter_base"
        | "reduce_scatter_tensor_coalesced"
        | "REDUCE_SCATTER_coalesced" => OpKind::ReduceScatter,
        "broadcast" | "_broadcast_oop" => OpKind::Broadcast,
        "reduce" | "_reduce_oop" => OpKind::Reduce,
        "all_to_all" | "all_to_all_single" | "all_to_all_v_single" => OpKind::AllToAll,
        "gather" => OpKind::Gather,
        "scatter" => OpKind::Scatter,
        "send" => OpKind::Send,
        "recv" => OpKind::Recv,
        _ => OpKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_apart() {
        let all_reduce = Parts { lib: "nccl", op: "all_reduce", kind: OpKind::AllReduce, src: None, dst: None };
        assert_eq!(parts("nccl:all_reduce"), all_reduce);
        assert_eq!(parts("all_reduce"), Parts { lib: "", ..all_reduce });
        assert_eq!(parts("my:lib:all_reduce"), Parts { lib: "my:lib", ..all_reduce });
        let send = Parts { lib: "nccl2", op: "send", kind: OpKind::Send, src: Some(0), dst: Some(1) };
        assert_eq!(parts("nccl2:send 0->1"), send);
        let recv = Parts { op: "recv", kind: OpKind::Recv, src: Some(7), dst: Some(12), ..send };
        assert_eq!(parts("nccl2:recv 12<-7"), recv);
        assert_eq!(parts("nccl2:recv 12<-?"), Parts { src: None, ..recv });
        let unknown = Parts { lib: "x", op: "brand_new", kind: OpKind::Unknown, src: None, dst: None };
        assert_eq!(parts("x:brand_new -> <- "), unknown);
    }
}
