//! Plays a trace into the plugin: the calls in their order, with descriptors laid out as the version's headers have them.
//!
//! A trace was written by a plugin that asked for every event. NCCL calls only for what the plugin asked: events outside
//! the tracer's mask are left out, and so are their states and stops; calls of the API and their groups come in any case.
use crate::driver::{COLL, Ctx, Descr, Ev, KERNEL_CH, P2P, PROXY_OP, PROXY_STEP, Plugin};
use crate::trace::{COLL_API, Call, GROUP_API, P2P_API, Trace, What};
use std::collections::BTreeMap;
use std::ffi::{CString, c_int};

/// The first version with 8-byte event types, and communicators that come with `init`.
const ABI_COMM_IN_INIT: u32 = 4;

/// A library that the plugin takes for NCCL of this version (as `ncclGetVersion` gives it): where NCCL's mask lies in it.
///
/// # Errors
/// The library was not built.
pub fn nccl_of(version: c_int) -> Result<&'static mut c_int, String> {
    let exe = std::env::current_exe().map_err(|e| e.to_string())?;
    let path = exe.with_file_name("libother_v5.so");
    let name = CString::new(path.display().to_string()).map_err(|e| e.to_string())?;
    // SAFETY: opening a library we built.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        return Err(format!("{} cannot be opened: build the example other_v5", path.display()));
    }
    // SAFETY: a live library, its own symbols and their types; it is never closed.
    unsafe {
        let set = libc::dlsym(library, c"other_version".as_ptr());
        let mask = libc::dlsym(library, c"other_nccl_mask".as_ptr());
        assert!(!set.is_null() && !mask.is_null(), "the symbols of {}", path.display());
        std::mem::transmute::<*mut std::ffi::c_void, extern "C" fn(c_int)>(set)(version);
        Ok(&mut *mask.cast::<c_int>())
    }
}

/// The plugin's side of a trace while it is played.
pub struct Play<'a> {
    plugin: &'a Plugin,
    contexts: BTreeMap<u64, Ctx>,
    handles: BTreeMap<u64, Ev>,
    mask: &'a mut c_int,
}

impl<'a> Play<'a> {
    /// A play that has not begun. `mask` lies in the library that the plugin takes for NCCL.
    pub fn new(plugin: &'a Plugin, mask: &'a mut c_int) -> Play<'a> {
        Play { plugin, contexts: BTreeMap::new(), handles: BTreeMap::new(), mask }
    }

    /// What the tracer asked for at its last `init`.
    pub fn mask(&self) -> u64 {
        *self.mask as u64
    }

    /// Makes every call of the trace up to `finalize`, which [`Play::finish`] makes.
    pub fn run(&mut self, trace: &Trace) {
        trace.calls.iter().for_each(|call| self.call(call));
    }

    /// Frees the communicators, as NCCL does at the end.
    pub fn finish(self) {
        self.contexts.values().for_each(|context| self.plugin.finalize(*context));
    }

    fn call(&mut self, call: &Call) {
        match call.what {
            What::Init => self.init(call),
            What::Start => self.start(call),
            What::State => self.state(call),
            What::Stop => {
                if let Some(event) = self.handles.get(&call.number("handle")) {
                    self.plugin.stop(*event);
                }
            }
            What::Finalize => {}
        }
    }

    fn init(&mut self, call: &Call) {
        let name = CString::new(call.text("comm")).unwrap_or_default();
        let (ranks, rank) = (call.number("ranks") as c_int, call.number("rank") as c_int);
        let context = self.plugin.init(call.hash(), &name, ranks, rank, self.mask);
        self.contexts.insert(call.number("context"), context);
    }

    fn start(&mut self, call: &Call) {
        let kind = call.number("type");
        // NCCL tells of calls and their groups for the sake of the operations below them.
        let is_call = [GROUP_API, COLL_API, P2P_API].contains(&kind);
        if kind & self.mask() == 0 && !(is_call && self.mask() & (COLL | P2P) != 0) {
            return;
        }
        let Some(context) = self.contexts.get(&call.number("context")) else { return };
        let parent = self.handles.get(&call.number("parent")).copied().unwrap_or(Ev(0));
        let mut descr = Descr::new(self.plugin.abi, kind, parent, call.number("rank") as c_int);
        match kind {
            COLL => self.coll(&mut descr, call),
            P2P => self.p2p(&mut descr, call),
            PROXY_OP => proxy_op(&mut descr, call),
            GROUP_API => {
                descr.put(24, call.number("graph") as u8);
                descr.put(28, call.number("depth") as c_int);
            }
            COLL_API => {
                descr.put(24, call.static_text("func"));
                descr.put(32, call.number("count"));
                descr.put(40, call.static_text("datatype"));
                descr.put(48, call.number("root") as c_int);
                descr.put(56, call.number("stream"));
                descr.put(64, call.number("graph") as u8);
            }
            P2P_API => {
                descr.put(24, call.static_text("func"));
                descr.put(32, call.number("count"));
                descr.put(40, call.static_text("datatype"));
                descr.put(48, call.number("stream"));
                descr.put(56, call.number("graph") as u8);
            }
            PROXY_STEP => descr.put(24, call.number("step") as c_int),
            KERNEL_CH => {
                descr.put(24, call.number("channel") as u8);
                if self.plugin.abi >= ABI_COMM_IN_INIT {
                    descr.put(32, call.number("timer"));
                }
            }
            other => panic!("the tracer asked for events of type {other}, which this driver cannot make"),
        }
        let event = self.plugin.start(*context, &mut descr);
        self.handles.insert(call.number("handle"), event);
    }

    fn coll(&self, d: &mut Descr, call: &Call) {
        let text = |name| call.static_text(name);
        if self.plugin.abi < ABI_COMM_IN_INIT {
            d.put(24, text("comm"));
            d.put(32, call.hash());
            d.put(40, call.number("seq"));
        } else {
            d.put(24, call.number("seq"));
        }
        match self.plugin.abi {
            1 => {
                d.put(48, call.number("func") as u8);
                d.put(72, call.number("count"));
                d.put(80, call.number("root") as c_int);
                d.put(84, call.number("datatype") as u8);
                d.put(104, call.number("max_channels") as u8);
                d.put(106, call.number("algo") as u8);
                d.put(107, call.number("proto") as u8);
            }
            abi @ (2 | 3) => {
                d.put(48, text("func"));
                d.put(72, call.number("count"));
                d.put(80, call.number("root") as c_int);
                d.put(88, text("datatype"));
                let channels = if abi == 2 { 104 } else { 96 };
                d.put(channels, call.number("max_channels") as u8);
                d.put(channels + 8, text("algo"));
                d.put(channels + 16, text("proto"));
            }
            abi => {
                d.put(32, text("func"));
                d.put(56, call.number("count"));
                d.put(64, call.number("root") as c_int);
                d.put(72, text("datatype"));
                d.put(80, call.number("channels") as u8);
                d.put(88, text("algo"));
                d.put(96, text("proto"));
                if abi > ABI_COMM_IN_INIT {
                    d.put(104, 0u64);
                }
            }
        }
    }

    fn p2p(&self, d: &mut Descr, call: &Call) {
        let text = |name| call.static_text(name);
        if self.plugin.abi < ABI_COMM_IN_INIT {
            d.put(24, text("comm"));
            d.put(32, call.hash());
            if self.plugin.abi == 1 {
                d.put(40, call.number("func") as u8);
                d.put(56, call.number("datatype") as u8);
            } else {
                d.put(40, text("func"));
                d.put(56, text("datatype"));
            }
            d.put(64, call.number("count"));
            d.put(72, call.number("peer") as c_int);
            return;
        }
        d.put(24, text("func"));
        d.put(40, text("datatype"));
        d.put(48, call.number("count"));
        d.put(56, call.number("peer") as c_int);
        d.put(60, call.number("channels") as u8);
        if self.plugin.abi > ABI_COMM_IN_INIT {
            d.put(64, 0u64);
        }
    }

    fn state(&self, call: &Call) {
        let Some(&event) = self.handles.get(&call.number("handle")) else { return };
        let state = call.number("state") as c_int;
        if self.plugin.abi < ABI_COMM_IN_INIT {
            match call.has("steps") {
                true => self.plugin.record_op(event, state, call.number("trans"), call.number("steps") as c_int),
                false => self.plugin.record_null(event, state),
            }
        } else if call.has("trans") || call.has("timer") {
            self.plugin.record(event, state, call.number("trans") | call.number("timer"));
        } else {
            self.plugin.record_null(event, state);
        }
    }
}

fn proxy_op(d: &mut Descr, call: &Call) {
    // A foreign process's operation (PXN) bears another id; no process has the one after ours in this test.
    let own = std::process::id() as i32;
    d.put(24, if call.number("own_pid") == 1 { own } else { own + 1 });
    d.put(28, call.number("channel") as u8);
    d.put(32, call.number("peer") as c_int);
    d.put(36, call.number("steps") as c_int);
    d.put(40, call.number("chunk") as c_int);
    d.put(44, c_int::from(call.number("send") == 1));
}
