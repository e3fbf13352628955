//! Kinds of operations that a NCCL tells of by their calls only (Broadcast in 2.29 and 2.30): each is recorded once, as
//! issued and not observed, and all collectives have the numbers of their calls.
mod driver;

use driver::{CollArgs, Ctx, Descr, Ev, Plugin, drain, in_own_process, open_segment, ops};
use mycroft_record::OpKind;
use std::ffi::{CStr, CString, c_int, c_void};
use std::path::Path;

const GROUP_API: u64 = 256;
const COLL_API: u64 = 512;
const CAPTURED: bool = true;

/// What the plugin takes for NCCL 2.30.7, and the place of its mask.
fn nccl_2_30(folder: &Path) -> &'static mut c_int {
    let path = folder.join("libother_v5.so");
    let name = CString::new(path.to_str().expect("text")).expect("no NUL");
    // SAFETY: a library we built, its symbols and their types; it is never closed.
    unsafe {
        let library = libc::dlopen(name.as_ptr(), libc::RTLD_NOW);
        assert!(!library.is_null(), "{} is built with the tests", path.display());
        let version = libc::dlsym(library, c"other_version".as_ptr());
        std::mem::transmute::<*mut c_void, extern "C" fn(c_int)>(version)(23_007);
        &mut *libc::dlsym(library, c"other_nccl_mask".as_ptr()).cast::<c_int>()
    }
}

fn start() -> (Plugin, Ctx) {
    let exe = std::env::current_exe().expect("a test knows its own path");
    let examples = exe.parent().and_then(Path::parent).expect("a test lies in deps").join("examples");
    let plugin = Plugin::open(6);
    let context = plugin.init(7, c"", 2, 0, nccl_2_30(&examples));
    (plugin, context)
}

fn group(plugin: &Plugin, context: Ctx) -> Ev {
    plugin.start(context, &mut Descr::new(6, GROUP_API, Ev(0), 0))
}

fn call(plugin: &Plugin, context: Ctx, group: Ev, func: &'static CStr, captured: bool) -> Ev {
    let mut descr = Descr::new(6, COLL_API, group, 0);
    descr.put(24, func.as_ptr());
    descr.put(32, 1000usize);
    descr.put(40, c"ncclFloat32".as_ptr());
    descr.put(48, 1 as c_int);
    descr.put(64, captured);
    let call = plugin.start(context, &mut descr);
    plugin.stop(call);
    call
}

/// The operation of a call, from its event to the end of its kernel.
fn operation(plugin: &Plugin, context: Ctx, call: Ev, func: &'static CStr) {
    let args = CollArgs { func, ..CollArgs::all_reduce(7, 0, 0, 1) };
    let coll = plugin.coll_with_parent(context, &args, call, Ev(0));
    plugin.stop(coll);
    let kernel = plugin.kernel(context, coll, 0, 0);
    plugin.kernel_stop(kernel, 0);
}

fn told(dir: &Path) -> Vec<(OpKind, u64, bool)> {
    let mut told: Vec<_> = ops(&drain(&mut open_segment(dir)))
        .iter()
        .map(|done| (done.op.kind, done.op.id.seq.0, done.observed))
        .collect();
    told.sort_by_key(|op| op.1);
    told
}

#[test]
fn operations_have_the_numbers_of_their_calls() {
    in_own_process("operations_have_the_numbers_of_their_calls", &[], |dir| {
        let (plugin, context) = start();
        let all = group(&plugin, context);
        let large = call(&plugin, context, all, c"AllReduce", false);
        call(&plugin, context, all, c"Broadcast", false);
        let small = call(&plugin, context, all, c"AllGather", false);
        // NCCL orders what it launches by size.
        operation(&plugin, context, small, c"AllGather");
        operation(&plugin, context, large, c"AllReduce");
        plugin.stop(all);
        plugin.stop(all);
        let expected = [(OpKind::AllReduce, 0, true), (OpKind::Broadcast, 1, false), (OpKind::AllGather, 2, true)];
        assert_eq!(told(dir), expected);
    });
}

/// A communicator that does not block launches on another thread, after the group's end.
#[test]
fn an_operation_that_comes_after_its_group_is_not_recorded_twice() {
    in_own_process("an_operation_that_comes_after_its_group_is_not_recorded_twice", &[], |dir| {
        let (plugin, context) = start();
        let late: Vec<Ev> = (0..2)
            .map(|_| {
                let one = group(&plugin, context);
                let late = call(&plugin, context, one, c"Broadcast", false);
                plugin.stop(one);
                late
            })
            .collect();
        late.iter().for_each(|late| operation(&plugin, context, *late, c"Broadcast"));
        // Now it is known that they come.
        let one = group(&plugin, context);
        let seen = call(&plugin, context, one, c"Broadcast", false);
        plugin.stop(one);
        operation(&plugin, context, seen, c"Broadcast");
        let expected = [(OpKind::Broadcast, 0, false), (OpKind::Broadcast, 1, false), (OpKind::Broadcast, 2, true)];
        assert_eq!(told(dir), expected);
    });
}

#[test]
fn what_is_captured_in_a_graph_is_not_issued() {
    in_own_process("what_is_captured_in_a_graph_is_not_issued", &[], |dir| {
        let (plugin, context) = start();
        let all = group(&plugin, context);
        call(&plugin, context, all, c"Broadcast", CAPTURED);
        let reduce = call(&plugin, context, all, c"AllReduce", CAPTURED);
        plugin.stop(all);
        assert_eq!(told(dir), []);
        // The graph runs twice.
        (0..2).for_each(|_| operation(&plugin, context, reduce, c"AllReduce"));
        assert_eq!(told(dir), [(OpKind::AllReduce, 0, true), (OpKind::AllReduce, 1, true)]);
    });
}
