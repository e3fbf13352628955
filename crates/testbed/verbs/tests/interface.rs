//! What the library says of itself, the versions of its symbols, and waiting for completions and events.

mod common;

use common::*;
use mycroft_testbed_verbs::abi::*;
use std::ptr::null_mut;

#[test]
fn symbols_have_the_versions_that_programs_ask_for() {
    let library = std::ptr::with_exposed_provenance_mut(verbs().library);
    for (name, version, there) in [
        ("ibv_open_device\0", "IBVERBS_1.1\0", true),
        ("ibv_open_device\0", "IBVERBS_1.0\0", false),
        ("ibv_reg_mr_iova2\0", "IBVERBS_1.8\0", true),
        ("ibv_reg_mr_iova2\0", "IBVERBS_1.1\0", false),
        ("ibv_reg_dmabuf_mr\0", "IBVERBS_1.12\0", true),
    ] {
        assert_eq!(!versioned(library, name, version).is_null(), there, "{name} {version}");
    }
}

/// What NCCL's `net_ib` reads before it uses a device.
#[test]
fn a_device_is_one_that_nccl_takes() {
    let v = verbs();
    let nic = Nic::open();
    // SAFETY: live objects, and places for the answers.
    unsafe {
        assert_eq!((v.fork_init)(), 0);
        assert!(text((v.get_device_name)((*nic.context).device)).starts_with("mycroft"));
        let mut device: DeviceAttr = std::mem::zeroed();
        assert_eq!((v.query_device)(nic.context, &mut device), 0);
        assert_eq!(device.phys_port_cnt, 1);
        assert!(device.max_qp >= 1000 && device.sys_image_guid != [0; 8]);
        let mut port = PortAttr::default();
        assert_eq!((v.query_port)(nic.context, 1, &mut port), 0);
        // Active, Ethernet, 10 Gb/s in one lane; a table of one entry, so that NCCL reads no file of sysfs.
        assert_eq!((port.state, port.link_layer, port.active_width, port.active_speed), (4, 2, 1, 4));
        assert_eq!((port.gid_tbl_len, port.active_mtu), (1, 5));
        assert_eq!((v.query_port)(nic.context, 2, &mut port), libc::EINVAL);
        let gid = std::net::Ipv6Addr::from(nic.gid().raw);
        assert_eq!(gid.to_ipv4_mapped().unwrap().to_string(), nic.address);
        let mut key = 0;
        assert_eq!(((v.query_pkey)(nic.context, 1, 0, &mut key), key), (0, 0xffff));
        assert_ne!((v.query_gid)(nic.context, 1, 1, &mut nic.gid()), 0);
        let qp = nic.pair();
        assert_eq!((v.query_ece)(qp, null_mut()), libc::EOPNOTSUPP);
        assert_eq!((v.set_ece)(qp, null_mut()), libc::EOPNOTSUPP);
        assert!((v.reg_dmabuf_mr)(nic.pd, 0, 0, 0, -1, 0).is_null());
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EOPNOTSUPP));
        destroy(qp);
        nic.close();
    }
}

#[test]
fn a_channel_wakes_who_waits_for_completions() {
    let v = verbs();
    let (a, b) = (Nic::open(), Nic::open());
    // SAFETY: live objects, and places for the answers.
    unsafe {
        let channel = (v.create_comp_channel)(b.context);
        let mut context = 7u32;
        let mine = (&raw mut context).cast();
        let cq = (v.create_cq)(b.context, 16, mine, channel, 0);
        let b = Nic { cq, ..b };
        let (from, to) = connect(&a, &b, USUAL);
        assert_eq!(((*b.context).ops.req_notify_cq.unwrap())(cq, 0), 0);
        let target = b.buffer(vec![0; 8]);
        let source = a.buffer(pattern(8, 1));
        assert_eq!(post_receive(to, 1, None), 0);
        assert_eq!(post(from, &mut write(1, &mut source.sge(), &target)), 0);
        let (mut which, mut whose) = (null_mut(), null_mut());
        assert_eq!((v.get_cq_event)(channel, &mut which, &mut whose), 0);
        assert_eq!((which, whose), (cq, mine));
        (v.ack_cq_events)(cq, 1);
        assert_eq!(b.poll(1)[0].wr_id, 1);
        destroy(from);
        destroy(to);
        assert_eq!((v.destroy_cq)(cq), 0);
        assert_eq!((v.destroy_comp_channel)(channel), 0);
    }
}

/// A registration may name its memory by other addresses than the process's.
#[test]
fn memory_under_another_name() {
    let v = verbs();
    let (a, b) = (Nic::open(), Nic::open());
    let (from, to) = connect(&a, &b, USUAL);
    let mut bytes = vec![0u8; 100];
    let access = ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE;
    // SAFETY: the bytes live as long as the registration.
    let mr = unsafe { (v.reg_mr_iova2)(b.pd, bytes.as_mut_ptr().cast(), 100, 1 << 40, access) };
    let source = a.buffer(pattern(10, 5));
    let mut sge = source.sge();
    let mut wr = write(1, &mut sge, &source);
    // SAFETY: a live registration.
    (wr.remote_addr, wr.rkey) = ((1 << 40) + 90, unsafe { (*mr).rkey });
    assert_eq!(post_receive(to, 1, None), 0);
    assert_eq!(post(from, &mut wr), 0);
    assert_eq!((b.poll(1)[0].status, a.poll(1)[0].status), (0, 0));
    assert_eq!(bytes[90..], source.bytes);
    // SAFETY: the registration, given back once.
    assert_eq!(unsafe { (v.dereg_mr)(mr) }, 0);
}
