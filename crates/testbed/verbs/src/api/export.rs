//! The symbols and their versions. Programs ask for a version: NCCL calls dlvsym with `IBVERBS_1.1` for all but some.
//!
//! Rust cannot give a symbol a version, so each is a jump in assembly with `.symver`; `ibverbs.map` names the versions, and
//! `build.rs` says where that works.
use super::{device, memory, open, pairs, queues, text};

/// Exports functions under a name and version.
macro_rules! export {
    ($($version:literal { $($name:literal = $function:path;)* })*) => { $($(
        #[cfg(versioned)]
        core::arch::global_asm!(
            concat!(".pushsection .text.mycroft_", $name, ",\"ax\",@progbits"),
            concat!(".globl mycroft_", $name),
            concat!(".type mycroft_", $name, ",@function"),
            concat!("mycroft_", $name, ": jmp {function}"),
            concat!(".size mycroft_", $name, ", . - mycroft_", $name),
            concat!(".symver mycroft_", $name, ", ", $name, "@@", $version),
            ".popsection",
            function = sym $function,
        );
        #[cfg(not(versioned))]
        const _: *const () = $function as *const ();
    )*)* };
}

export! {
    "IBVERBS_1.1" {
        "ibv_get_device_list" = device::get_device_list;
        "ibv_free_device_list" = device::free_device_list;
        "ibv_get_device_name" = device::get_device_name;
        "ibv_get_device_guid" = device::get_device_guid;
        "ibv_open_device" = open::open_device;
        "ibv_close_device" = open::close_device;
        "ibv_query_device" = device::query_device;
        "ibv_query_port" = device::query_port;
        "ibv_query_gid" = device::query_gid;
        "ibv_query_pkey" = device::query_pkey;
        "ibv_get_async_event" = device::get_async_event;
        "ibv_ack_async_event" = device::ack_async_event;
        "ibv_fork_init" = device::fork_init;
        "ibv_alloc_pd" = memory::alloc_pd;
        "ibv_dealloc_pd" = memory::dealloc_pd;
        "ibv_reg_mr" = memory::reg_mr;
        "ibv_dereg_mr" = memory::dereg_mr;
        "ibv_create_comp_channel" = queues::create_comp_channel;
        "ibv_destroy_comp_channel" = queues::destroy_comp_channel;
        "ibv_create_cq" = queues::create_cq;
        "ibv_destroy_cq" = queues::destroy_cq;
        "ibv_get_cq_event" = queues::get_cq_event;
        "ibv_ack_cq_events" = queues::ack_cq_events;
        "ibv_create_qp" = pairs::create_qp;
        "ibv_modify_qp" = pairs::modify_qp;
        "ibv_query_qp" = pairs::query_qp;
        "ibv_destroy_qp" = pairs::destroy_qp;
        "ibv_event_type_str" = text::event_type_str;
        "ibv_wc_status_str" = text::wc_status_str;
    }
    "IBVERBS_1.8" {
        "ibv_reg_mr_iova2" = memory::reg_mr_iova2;
    }
    "IBVERBS_1.10" {
        "ibv_query_ece" = pairs::no_ece;
        "ibv_set_ece" = pairs::no_ece;
    }
    "IBVERBS_1.12" {
        "ibv_reg_dmabuf_mr" = memory::reg_dmabuf_mr;
    }
}
