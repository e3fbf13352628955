//! Devices: which there are, and what they say of themselves.
use super::{errno_of, fail};
use crate::abi;
use crate::cq::lock;
use crate::device::{Device, PAIRS_MAX};
use crate::fault::Faults;
use crate::settings::{DEVICES_MAX, MTUS, Settings, warn};
use std::ffi::{CStr, c_char, c_int};
use std::net::Ipv4Addr;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex};

/// A context that is open.
#[repr(C)]
pub(super) struct OwnedContext {
    pub(super) ibv: abi::Context,
    pub(super) device: Arc<Device>,
}

/// A device of the list. They are never freed: programs keep them as long as they like.
struct Listed(Ipv4Addr, *mut abi::Device);

// SAFETY: the structure is written once, before it is listed.
unsafe impl Send for Listed {}

static LISTED: Mutex<Vec<Listed>> = Mutex::new(Vec::new());

/// The device of an open context.
///
/// # Safety
/// `context` is null or one that `open_device` gave and that is still open.
pub(super) unsafe fn device_of<'a>(context: *mut abi::Context) -> Option<&'a Arc<Device>> {
    // SAFETY: the caller's promise; every context is the first field of an OwnedContext.
    unsafe { context.cast::<OwnedContext>().as_ref() }.map(|owned| &owned.device)
}

fn copy_text(text: &str, to: &mut [c_char]) {
    let last = to.len() - 1;
    to.iter_mut().take(last).zip(text.bytes()).for_each(|(to, from)| *to = from as c_char);
}

fn describe(index: usize) -> *mut abi::Device {
    let mut device = abi::Device {
        ops: [0; 2],
        node_type: 1,
        transport_type: 0,
        name: [0; 64],
        dev_name: [0; 64],
        dev_path: [0; 256],
        ibdev_path: [0; 256],
    };
    copy_text(&format!("mycroft{index}"), &mut device.name);
    copy_text(&format!("uverbs{index}"), &mut device.dev_name);
    Box::into_raw(Box::new(device))
}

/// `ibv_get_device_list`.
pub(super) unsafe extern "C" fn get_device_list(count: *mut c_int) -> *mut *mut abi::Device {
    let addresses = Settings::read().addresses;
    let mut listed = lock(&LISTED);
    let mut list: Vec<*mut abi::Device> = Vec::with_capacity(addresses.len() + 1);
    for address in addresses {
        let known = listed.iter().find(|known| known.0 == address).map(|known| known.1);
        let device = known.unwrap_or_else(|| {
            let made = describe(listed.len());
            listed.push(Listed(address, made));
            made
        });
        list.push(device);
    }
    // SAFETY: null or a place for a number.
    if let Some(count) = unsafe { count.as_mut() } {
        *count = list.len() as c_int;
    }
    list.resize(DEVICES_MAX + 1, null_mut());
    Box::into_raw(list.into_boxed_slice()).cast()
}

/// `ibv_free_device_list`.
pub(super) unsafe extern "C" fn free_device_list(list: *mut *mut abi::Device) {
    if !list.is_null() {
        // SAFETY: `get_device_list` made it of this length.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, DEVICES_MAX + 1)) });
    }
}

/// `ibv_get_device_name`.
pub(super) unsafe extern "C" fn get_device_name(device: *mut abi::Device) -> *const c_char {
    // SAFETY: null or a device of the list.
    unsafe { device.as_ref() }.map_or(std::ptr::null(), |device| device.name.as_ptr())
}

pub(super) fn address_of(device: *mut abi::Device) -> Option<Ipv4Addr> {
    lock(&LISTED).iter().find(|listed| listed.1 == device).map(|listed| listed.0)
}

fn guid(address: Ipv4Addr) -> [u8; 8] {
    let [a, b, c, d] = address.octets();
    // "02": an address that is administered here.
    [2, 0, 0, 0, a, b, c, d]
}

/// `ibv_get_device_guid`.
pub(super) unsafe extern "C" fn get_device_guid(device: *mut abi::Device) -> u64 {
    u64::from_ne_bytes(address_of(device).map_or([0; 8], guid))
}

/// Work requests of a queue at most.
pub(super) const WORK_MAX: u32 = 1 << 14;
/// Pieces of a work request at most.
pub(super) const PIECES_MAX: u32 = 16;
/// Completions of a queue at most.
pub(super) const COMPLETIONS_MAX: u32 = 1 << 20;
/// Bytes of a message at most: half of the packet numbers at 256 bytes a packet would be 2 GiB.
pub(super) const MESSAGE_BYTES_MAX: u32 = 1 << 30;

/// `ibv_query_device`.
pub(super) unsafe extern "C" fn query_device(context: *mut abi::Context, attr: *mut abi::DeviceAttr) -> c_int {
    // SAFETY: the program gives an open context.
    let Some(device) = (unsafe { device_of(context) }) else { return libc::EINVAL };
    // SAFETY: all-zero bytes are a valid value.
    let mut out: abi::DeviceAttr = unsafe { std::mem::zeroed() };
    copy_text(env!("CARGO_PKG_VERSION"), &mut out.fw_ver);
    (out.node_guid, out.sys_image_guid) = (guid(device.address), guid(device.address));
    (out.max_mr_size, out.page_size_cap) = (u64::MAX, 0xffff_f000);
    (out.max_qp, out.max_qp_wr, out.max_sge) = (PAIRS_MAX as c_int, WORK_MAX as c_int, PIECES_MAX as c_int);
    (out.max_cq, out.max_cqe, out.max_mr) = (PAIRS_MAX as c_int, COMPLETIONS_MAX as c_int, c_int::MAX);
    (out.max_pd, out.max_pkeys, out.phys_port_cnt) = (PAIRS_MAX as c_int, 1, 1);
    // SAFETY: the program gives a place for it.
    unsafe { attr.write(out) };
    0
}

/// The code of a size of packets.
pub(super) fn mtu_code(bytes: u32) -> u32 {
    MTUS.iter().position(|mtu| *mtu == bytes).map_or(1, |at| at as u32 + 1)
}

/// `ibv_query_port`. The rate that it names, 10 Gb/s, is about what one core sends.
pub(super) unsafe extern "C" fn query_port(context: *mut abi::Context, port: u8, attr: *mut abi::PortAttr) -> c_int {
    // SAFETY: the program gives an open context.
    let Some(device) = (unsafe { device_of(context) }).filter(|_| port == 1) else { return libc::EINVAL };
    let out = abi::PortAttr {
        // IBV_PORT_ACTIVE
        state: 4,
        max_mtu: 5,
        active_mtu: mtu_code(device.mtu_bytes),
        gid_tbl_len: 1,
        max_msg_sz: MESSAGE_BYTES_MAX,
        pkey_tbl_len: 1,
        // One lane of 10 Gb/s.
        active_width: 1,
        active_speed: 4,
        // "Link up", and IBV_LINK_LAYER_ETHERNET.
        phys_state: 5,
        link_layer: 2,
        ..abi::PortAttr::default()
    };
    // SAFETY: the program gives a place for it.
    unsafe { attr.write(out) };
    0
}

/// `ibv_query_gid`: one entry, the address mapped into IPv6.
pub(super) unsafe extern "C" fn query_gid(
    context: *mut abi::Context,
    port: u8,
    index: c_int,
    gid: *mut abi::Gid,
) -> c_int {
    // SAFETY: the program gives an open context.
    let device = unsafe { device_of(context) };
    let Some(device) = device.filter(|_| port == 1 && index == 0) else {
        fail::<()>(libc::EINVAL);
        return -1;
    };
    // SAFETY: the program gives a place for it.
    unsafe { gid.write(abi::Gid { raw: device.address.to_ipv6_mapped().octets() }) };
    0
}

/// `ibv_query_pkey`: one entry, the default partition.
pub(super) unsafe extern "C" fn query_pkey(_: *mut abi::Context, port: u8, index: c_int, pkey: *mut u16) -> c_int {
    if port != 1 || index != 0 {
        fail::<()>(libc::EINVAL);
        return -1;
    }
    // SAFETY: the program gives a place for it. (The value is the same in both byte orders.)
    unsafe { pkey.write(0xffff) };
    0
}

/// `ibv_get_async_event`.
pub(super) unsafe extern "C" fn get_async_event(context: *mut abi::Context, event: *mut abi::AsyncEvent) -> c_int {
    // SAFETY: the program gives an open context.
    let Some(device) = (unsafe { device_of(context) }) else { return -1 };
    match device.events.take() {
        Ok((event_type, handle)) => {
            let element = std::ptr::with_exposed_provenance_mut(handle);
            // SAFETY: the program gives a place for it.
            unsafe { event.write(abi::AsyncEvent { element, event_type }) };
            0
        }
        Err(e) => {
            fail::<()>(errno_of(&e));
            -1
        }
    }
}

/// `ibv_ack_async_event`. Nothing waits for it here: destroying a queue pair forgets its events.
pub(super) unsafe extern "C" fn ack_async_event(_: *mut abi::AsyncEvent) {}

/// `ibv_fork_init`: memory is read and written by the process, so forks need no care.
pub(super) unsafe extern "C" fn fork_init() -> c_int {
    0
}

/// Changes the faults of an open device to what `text` says, as `MYCROFT_VERBS_FAULTS` does. 0, or `EINVAL`.
///
/// # Safety
/// `context` is one that `ibv_open_device` gave and that is open; `text` is a NUL-terminated string.
#[unsafe(no_mangle)]
#[allow(unreachable_pub, reason = "C callers reach it by its name")]
pub unsafe extern "C" fn mycroft_verbs_set_faults(context: *mut abi::Context, text: *const c_char) -> c_int {
    // SAFETY: the caller's promises.
    let (device, text) = unsafe { (device_of(context), CStr::from_ptr(text)) };
    match (device, Faults::parse(&text.to_string_lossy())) {
        (Some(device), Ok(faults)) => {
            device.set_faults(faults);
            0
        }
        (_, Err(why)) => {
            warn(&format!("faults are as before: {why}"));
            libc::EINVAL
        }
        (None, _) => libc::EINVAL,
    }
}
