//! `py-spy dump --json`: a list with one dict per thread.
use crate::budget::NODE_BYTES;
use crate::builder::Builder;
use crate::fault::Fault;
use crate::field::Field;
use crate::text_stacks::main_first;
use crate::value::Value;
use mycroft_record::dump::{Activity, Frame, Local, ProcessStacks, StackFrame, StackTool, ThreadStack};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The stacks of a file, by process; `None` if it is no list of threads.
pub(crate) fn finish(builder: &mut Builder<'_>, root: Value) -> Result<Option<Vec<ProcessStacks>>, Fault> {
    let Some(list) = builder.pool.list(root)? else { return Ok(None) };
    let mut processes: BTreeMap<Option<u64>, ProcessStacks> = BTreeMap::new();
    for index in (0..builder.pool.len(list)).rev() {
        let item = builder.pool.item(list, index);
        let Some(pairs) = builder.pool.dict(item)? else { return Ok(None) };
        let Some((Owner { pid, parent_pid, command }, thread)) = thread(builder, pairs)? else { return Ok(None) };
        if !processes.contains_key(&pid) {
            // In the map, whose nodes may be half full, and in the list that is made of it.
            builder.pool.budget.charge(3 * size_of::<ProcessStacks>() + NODE_BYTES)?;
        }
        let process = processes.entry(pid).or_default();
        process.pid = pid;
        process.parent_pid = process.parent_pid.or(parent_pid);
        if process.command.is_empty() {
            process.command = command;
        }
        process.tool = StackTool::PySpy;
        builder.pool.budget.push(&mut process.threads, thread)?;
    }
    if processes.is_empty() {
        return Ok(None);
    }
    let mut processes: Vec<_> = processes.into_values().collect();
    for process in &mut processes {
        main_first(&mut process.threads);
    }
    Ok(Some(processes))
}

/// The process of a thread.
#[derive(Default)]
struct Owner {
    pid: Option<u64>,
    parent_pid: Option<u64>,
    command: Arc<str>,
}

/// `process_info`, which a dump of a single process leaves empty.
fn owner(builder: &mut Builder<'_>, info: Value, owner: &mut Owner) -> Result<(), Fault> {
    let Some(pairs) = builder.pool.dict(info)? else { return Ok(()) };
    for index in (0..builder.pool.len(pairs)).step_by(2) {
        let (key, value) = (builder.pool.item(pairs, index), builder.pool.item(pairs, index + 1));
        match builder.pool.field(key) {
            Some(Field::CommandLine) => owner.command = builder.text_of(value)?,
            Some(Field::Parent) => {
                let Some(parent) = builder.pool.dict(value)? else { continue };
                for index in (0..builder.pool.len(parent)).step_by(2) {
                    let (key, value) = (builder.pool.item(parent, index), builder.pool.item(parent, index + 1));
                    if builder.pool.field(key) == Some(Field::Pid) {
                        owner.parent_pid = unsigned(builder, value);
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn thread(builder: &mut Builder<'_>, pairs: u32) -> Result<Option<(Owner, ThreadStack)>, Fault> {
    let mut thread = ThreadStack::default();
    let (mut process, mut frames) = (Owner::default(), None);
    for index in (0..builder.pool.len(pairs)).step_by(2) {
        let (key, value) = (builder.pool.item(pairs, index), builder.pool.item(pairs, index + 1));
        match builder.pool.field(key) {
            Some(Field::Pid) => process.pid = unsigned(builder, value),
            Some(Field::ProcessInfo) => owner(builder, value, &mut process)?,
            Some(Field::ThreadId) => thread.thread_id = unsigned(builder, value),
            Some(Field::OsThreadId) => thread.os_thread_id = unsigned(builder, value),
            Some(Field::ThreadName) => thread.name = builder.text_of(value)?,
            Some(Field::Active) => {
                thread.activity = match value {
                    Value::Bool(true) => Activity::Active,
                    Value::Bool(false) => Activity::Idle,
                    _ => Activity::Unknown,
                }
            }
            Some(Field::OwnsGil) => {
                thread.owns_gil = match value {
                    Value::Bool(yes) => Some(yes),
                    _ => None,
                }
            }
            Some(Field::Frames) => frames = builder.pool.list(value)?,
            _ => {}
        }
    }
    let Some(frames) = frames else { return Ok(None) };
    builder.pool.budget.charge_list::<StackFrame>(builder.pool.len(frames))?;
    thread.frames.reserve_exact(builder.pool.len(frames));
    for index in 0..builder.pool.len(frames) {
        let item = builder.pool.item(frames, index);
        let Some(frame) = frame(builder, item)? else { return Ok(None) };
        thread.frames.push(frame);
    }
    Ok(Some((process, thread)))
}

/// Thread ids use all 64 bits on some systems; larger than `i64` they come as floating point and are of no use.
fn unsigned(builder: &Builder<'_>, value: Value) -> Option<u64> {
    builder.pool.as_int(value).and_then(|number| u64::try_from(number).ok())
}

fn frame(builder: &mut Builder<'_>, item: Value) -> Result<Option<StackFrame>, Fault> {
    if let Value::Frame(number) = item {
        return Ok(Some(StackFrame { frame: builder.frames[number as usize].clone(), ..StackFrame::default() }));
    }
    let Some(pairs) = builder.pool.dict(item)? else { return Ok(None) };
    let mut out = StackFrame::default();
    let mut frame = Frame::default();
    for index in (0..builder.pool.len(pairs)).step_by(2) {
        let (key, value) = (builder.pool.item(pairs, index), builder.pool.item(pairs, index + 1));
        match builder.pool.field(key) {
            Some(Field::Name) => frame.name = builder.text_of(value)?,
            Some(Field::Filename) => frame.file = builder.text_of(value)?,
            Some(Field::Line) => {
                frame.line = builder.pool.as_int(value).and_then(|line| u32::try_from(line).ok()).unwrap_or(0);
            }
            Some(Field::Module) => out.module = builder.text_of(value)?,
            Some(Field::Locals) => {
                if let Some(list) = builder.pool.list(value)? {
                    out.locals = locals(builder, list)?;
                }
            }
            _ => {}
        }
    }
    // A native frame names its shared library; a Python frame has none.
    out.native = !out.module.is_empty();
    out.frame = frame;
    Ok(Some(out))
}

fn locals(builder: &mut Builder<'_>, list: u32) -> Result<Vec<Local>, Fault> {
    builder.pool.budget.charge_list::<Local>(builder.pool.len(list))?;
    let mut locals = Vec::with_capacity(builder.pool.len(list));
    for index in 0..builder.pool.len(list) {
        let item = builder.pool.item(list, index);
        let Some(pairs) = builder.pool.dict(item)? else { continue };
        let mut local = Local::default();
        for index in (0..builder.pool.len(pairs)).step_by(2) {
            let (key, value) = (builder.pool.item(pairs, index), builder.pool.item(pairs, index + 1));
            match builder.pool.field(key) {
                Some(Field::Name) => local.name = builder.text_of(value)?,
                Some(Field::Repr) => local.repr = builder.text_of(value)?,
                Some(Field::Arg) => local.argument = value == Value::Bool(true),
                _ => {}
            }
        }
        locals.push(local);
    }
    Ok(locals)
}
