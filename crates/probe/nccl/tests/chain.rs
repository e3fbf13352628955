//! Chain-loading: another plugin behind ours sees NCCL's calls with its own contexts and handles, and only what it asked
//! for, while our records are the same as without it.
mod driver;

use driver::{
    CollArgs, Ctx, Descr, Ev, GROUP, Plugin, ProxyArgs, drain, flows, full, in_own_process, open_segment, ops,
};
use std::ffi::{CStr, CString, c_int, c_void};
use std::path::PathBuf;

const INIT: u64 = 1;
const START: u64 = 2;
const STOP: u64 = 3;
const RECORD: u64 = 4;
const FINALIZE: u64 = 5;
/// Events of a group in v1 to v4, and of the API in v5.
const COLL_API: u64 = 512;

fn library(name: &str) -> PathBuf {
    let exe = std::env::current_exe().expect("a test knows its own path");
    let folder = exe.parent().and_then(|deps| deps.parent()).expect("a test lies in deps");
    let path = folder.join("examples").join(format!("lib{name}.so"));
    assert!(path.exists(), "{} is built with the tests", path.display());
    path
}

/// The other library from the outside; the same copy that the chain opened.
struct Other(*mut c_void);

impl Other {
    fn open(name: &str) -> Other {
        let path = CString::new(library(name).to_str().expect("text")).expect("no NUL");
        // SAFETY: a library we built.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
        assert!(!library.is_null());
        Other(library)
    }

    fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: a live library.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        assert!(!symbol.is_null());
        symbol
    }

    fn calls(&self) -> Vec<[u64; 6]> {
        // SAFETY: the signature of the example.
        let get: unsafe extern "C" fn(*mut [u64; 6], usize) -> usize =
            unsafe { std::mem::transmute(self.symbol(c"other_calls")) };
        let mut calls = vec![[0; 6]; 100_000];
        // SAFETY: room as told.
        let count = unsafe { get(calls.as_mut_ptr(), calls.len()) };
        calls.truncate(count);
        calls
    }

    fn set(&self, function: &CStr, value: c_int) {
        // SAFETY: the signature of the example.
        let set: extern "C" fn(c_int) = unsafe { std::mem::transmute(self.symbol(function)) };
        set(value);
    }
}

/// One operation with a group, as NCCL with API events would make it.
fn operation(plugin: &Plugin, context: Ctx) -> (Ev, Ev) {
    let group = plugin.start(context, &mut Descr::new(plugin.abi, GROUP, Ev(0), 0));
    let api =
        if plugin.abi >= 5 { plugin.start(context, &mut Descr::new(plugin.abi, COLL_API, Ev(0), 0)) } else { group };
    let coll = plugin.coll_with_parent(context, &CollArgs::all_reduce(7, 0, 0, 1), api, group);
    plugin.stop(coll);
    let flow = plugin.proxy_op(context, coll, 0, &ProxyArgs::own(0, 1, 2, true));
    plugin.record_null(flow, driver::OP_IN_PROGRESS);
    let kernel = plugin.kernel(context, coll, 0, 0);
    (0..2).for_each(|step| plugin.send_step(context, flow, step, 50, 1));
    plugin.stop(flow);
    plugin.stop(flow);
    plugin.kernel_stop(kernel, 0);
    (coll, flow)
}

fn chained(test: &str, other_name: &str, abi: u32) {
    let path = std::env::var_os("MYCROFT_CHAIN_PLUGIN").unwrap_or_else(|| library(other_name).into());
    let path = path.to_str().expect("text").to_owned();
    in_own_process(test, &[("MYCROFT_CHAIN_PLUGIN", &path)], |dir| {
        let other = Other::open(other_name);
        let plugin = Plugin::open(abi);
        let mask = Box::leak(Box::new(0));
        let context = plugin.init(7, c"chained", 2, 0, mask);
        assert_eq!(*mask, 94 | 2 | 8, "ours or theirs");
        operation(&plugin, context);
        plugin.finalize(context);
        plugin.finalize(context);
        check_calls(&other.calls(), abi, other_name);
        let records = drain(&mut open_segment(dir));
        assert_eq!((ops(&records).len(), flows(&records)[0].counters), (1, full(2)));
        assert_eq!((flows(&records)[0].bytes, flows(&records)[0].peer_wait_polls), (100, 2));
        assert!(ops(&records)[0].observed);
    });
}

fn check_calls(calls: &[[u64; 6]], abi: u32, other_name: &str) {
    let [init, rest @ ..] = calls else { panic!("nothing was passed on") };
    assert_eq!(init[..3], [INIT, 7, 0]);
    let context = init[5];
    let starts: Vec<_> = rest.iter().filter(|call| call[0] == START).collect();
    assert!(starts.iter().all(|call| call[1] == context), "its own context");
    let by_kind = |kind: u64| starts.iter().find(|call| call[2] == kind & 0xff).copied();
    let group = by_kind(GROUP).expect("the group, ancestor of what it asked for");
    let coll = by_kind(2).expect("the collective");
    let flow = by_kind(8).expect("the proxy operation");
    assert_eq!(flow[3], coll[5], "the parent is its own handle");
    if abi >= 5 && other_name == "other_v5" {
        let api = starts.iter().find(|call| call[2] == 0).expect("the API event; its bit is above the low byte");
        assert_eq!((coll[3], coll[4]), (api[5], group[5]));
        assert_eq!(starts.len(), 4, "no step and no kernel: it did not ask");
    } else {
        assert_eq!(coll[3], group[5], "in v4 the parent is the group");
        assert_eq!(starts.len(), 3);
    }
    let stops: Vec<u64> = rest.iter().filter(|call| call[0] == STOP).map(|call| call[1]).collect();
    assert_eq!(stops, [coll[5], flow[5]], "each once");
    let states: Vec<_> = rest.iter().filter(|call| call[0] == RECORD).map(|call| (call[1], call[2])).collect();
    assert_eq!(states, [(flow[5], driver::OP_IN_PROGRESS as u64)]);
    assert_eq!(rest.iter().filter(|call| call[0] == FINALIZE && call[1] == context).count(), 1);
}

#[test]
fn chain_v6_to_v5() {
    chained("chain_v6_to_v5", "other_v5", 6);
}

#[test]
fn chain_v7_to_v5() {
    chained("chain_v7_to_v5", "other_v5", 7);
}

#[test]
fn chain_v5_to_v5() {
    chained("chain_v5_to_v5", "other_v5", 5);
}

#[test]
fn chain_v6_to_v4() {
    chained("chain_v6_to_v4", "other_v4", 6);
}

#[test]
fn chain_v4_to_v4() {
    chained("chain_v4_to_v4", "other_v4", 4);
}

#[test]
fn the_other_switches_its_events_at_run_time() {
    let path = library("other_v5");
    let chain = [("MYCROFT_CHAIN_PLUGIN", path.to_str().expect("text"))];
    in_own_process("the_other_switches_its_events_at_run_time", &chain, |_| {
        let other = Other::open("other_v5");
        let plugin = Plugin::open(6);
        let mask = Box::leak(Box::new(0));
        let context = plugin.init(7, c"", 2, 0, mask);
        other.set(c"other_mask", 0);
        other.calls();
        operation(&plugin, context);
        assert!(other.calls().is_empty(), "it asked for nothing");
        assert_eq!(*mask, 94);
        other.set(c"other_mask", 16 | 32);
        operation(&plugin, context);
        assert_eq!(*mask, 94 | 32, "steps are ours too, proxy control is its own");
        assert_eq!(other.calls().iter().filter(|call| call[0] == START && call[2] == 16).count(), 2);
    });
}

#[test]
fn a_chained_plugin_that_refuses_is_left_out() {
    let path = library("other_v5");
    let chain = [("MYCROFT_CHAIN_PLUGIN", path.to_str().expect("text"))];
    in_own_process("a_chained_plugin_that_refuses_is_left_out", &chain, |dir| {
        let other = Other::open("other_v5");
        other.set(c"other_answer", 3);
        let plugin = Plugin::open(6);
        let mask = Box::leak(Box::new(0));
        let context = plugin.init(7, c"", 2, 0, mask);
        other.calls();
        operation(&plugin, context);
        plugin.finalize(context);
        assert!(other.calls().is_empty());
        assert_eq!(ops(&drain(&mut open_segment(dir))).len(), 1);
    });
}

#[test]
fn events_are_never_made_up() {
    let path = library("other_v5");
    let chain = [("MYCROFT_CHAIN_PLUGIN", path.to_str().expect("text"))];
    in_own_process("events_are_never_made_up", &chain, |dir| {
        let other = Other::open("other_v5");
        // NCCL speaks v4, the other v5 only.
        let plugin = Plugin::open(4);
        let mut mask = 0;
        let context = plugin.init(7, c"", 2, 0, &mut mask);
        operation(&plugin, context);
        assert!(other.calls().is_empty());
        assert_eq!((mask, ops(&drain(&mut open_segment(dir))).len()), (94, 1));
    });
}

#[test]
fn a_chain_that_cannot_be_is_refused() {
    for (i, path) in ["/nonexistent.so".to_owned(), driver::plugin_path().display().to_string()].iter().enumerate() {
        if std::env::var("MYCROFT_TEST_ROUND").is_ok_and(|round| round != i.to_string()) {
            continue;
        }
        let variables = [("MYCROFT_CHAIN_PLUGIN", path.as_str()), ("MYCROFT_TEST_ROUND", &i.to_string())];
        in_own_process("a_chain_that_cannot_be_is_refused", &variables, |dir| {
            let plugin = Plugin::open(6);
            let mut mask = 0;
            let context = plugin.init(7, c"", 2, 0, &mut mask);
            assert_eq!(mask, 94);
            operation(&plugin, context);
            assert_eq!(ops(&drain(&mut open_segment(dir))).len(), 1);
        });
    }
}

#[test]
fn nccls_version_is_found_and_decides_about_kernel_events() {
    in_own_process("nccls_version_is_found_and_decides_about_kernel_events", &[], |dir| {
        let libnccl = Other::open("other_v5");
        let plugin = Plugin::open(6);
        // SAFETY: an int in the library that is taken for libnccl.
        let mask = unsafe { &mut *libnccl.symbol(c"other_nccl_mask").cast::<c_int>() };
        plugin.init(7, c"", 2, 0, mask);
        assert_eq!(*mask, 30, "no kernel events with 2.31");
        let state = open_segment(dir).state().expect("readable");
        assert_eq!((state.nccl_version, state.kernel_events), (23_102, false));
    });
}
