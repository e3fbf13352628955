//! Sizes and offsets as a C compiler gives them for rdma-core 44 on x86-64 (`sizeof(struct ibv_...)`, `offsetof`).
use super::*;
use std::mem::offset_of;

const _: () = {
    assert!(size_of::<Device>() == 664 && size_of::<ContextOps>() == 256);
    assert!(size_of::<Context>() == 328 && offset_of!(Context, async_fd) == 268);
    assert!(offset_of!(ContextOps, poll_cq) == 88 && offset_of!(ContextOps, req_notify_cq) == 96);
    assert!(offset_of!(ContextOps, post_srq_recv) == 160 && offset_of!(ContextOps, post_send) == 200);
    assert!(offset_of!(ContextOps, post_recv) == 208);
    assert!(size_of::<DeviceAttr>() == 232 && offset_of!(DeviceAttr, max_qp) == 108);
    assert!(offset_of!(DeviceAttr, max_srq_sge) == 220 && offset_of!(DeviceAttr, phys_port_cnt) == 227);
    assert!(size_of::<PortAttr>() == 52 && offset_of!(PortAttr, link_layer) == 46);
    assert!(size_of::<Wc>() == 48 && offset_of!(Wc, imm_data) == 24 && offset_of!(Wc, wc_flags) == 36);
    assert!(size_of::<Pd>() == 16 && size_of::<Mr>() == 48 && offset_of!(Mr, rkey) == 40);
    assert!(size_of::<AhAttr>() == 32 && offset_of!(AhAttr, is_global) == 29);
    assert!(size_of::<QpInitAttr>() == 64 && offset_of!(QpInitAttr, qp_type) == 52);
    assert!(size_of::<QpAttr>() == 144 && offset_of!(QpAttr, ah_attr) == 56);
    assert!(offset_of!(QpAttr, timeout) == 130 && offset_of!(QpAttr, rate_limit) == 136);
    assert!(size_of::<SendWr>() == 128 && offset_of!(SendWr, imm_data) == 36);
    assert!(offset_of!(SendWr, remote_addr) == 40 && offset_of!(SendWr, rkey) == 48);
    assert!(size_of::<RecvWr>() == 32 && size_of::<Sge>() == 16);
    assert!(size_of::<Qp>() == 160 && offset_of!(Qp, qp_num) == 52 && offset_of!(Qp, events_completed) == 152);
    assert!(size_of::<Cq>() == 128 && offset_of!(Cq, cqe) == 28 && offset_of!(Cq, async_events_completed) == 124);
    assert!(size_of::<CompChannel>() == 16 && size_of::<AsyncEvent>() == 16);
};
