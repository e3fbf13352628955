//! Thread stacks as text: `py-spy dump` and Python's `faulthandler`, alone or in the sections of a periodic file of
//! `torch.distributed.debug`.
use crate::budget::{Budget, NODE_BYTES};
use crate::fault::Fault;
use crate::text::valid;
use mycroft_record::dump::{Activity, Frame, Local, ProcessStacks, StackFrame, StackTool, ThreadStack};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Longest line that is looked at; native names of templates reach a few thousand characters.
const LINE_BYTES_MAX: usize = 64 << 10;

/// How `faulthandler` begins a thread.
const FAULTHANDLER_MARK: &str = "(most recent call first):";

/// Whether this text is stacks of either tool.
pub(crate) fn is_stacks(bytes: &[u8]) -> bool {
    Lines::of(bytes).any(|(_, line)| {
        let candidate = [&b"Process "[..], b"Thread ", b"Current thread "].iter().any(|word| line.starts_with(word));
        candidate && {
            let line = valid(line);
            process_header(&line).is_some() || faulthandler_header(&line).is_some()
        }
    })
}

/// Lines with their offsets, without what is past [`LINE_BYTES_MAX`].
struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Lines<'a> {
    fn of(bytes: &'a [u8]) -> Lines<'a> {
        Lines { bytes, at: 0 }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = (usize, &'a [u8]);

    fn next(&mut self) -> Option<(usize, &'a [u8])> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let start = self.at;
        let rest = &self.bytes[start..];
        let len = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
        self.at = start + len + 1;
        Some((start, rest[..len.min(LINE_BYTES_MAX)].trim_ascii_end()))
    }
}

/// Texts that repeat are kept once.
#[derive(Default)]
struct Texts {
    known: BTreeSet<Arc<str>>,
}

impl Texts {
    fn of(&mut self, budget: &mut Budget, text: &str) -> Result<Arc<str>, Fault> {
        if let Some(known) = self.known.get(text) {
            return Ok(known.clone());
        }
        budget.charge(text.len() + NODE_BYTES)?;
        let text: Arc<str> = text.into();
        self.known.insert(text.clone());
        Ok(text)
    }
}

/// Reads the stacks of a text; empty where there are none. With a fault, what stands before it.
/// `start` is where the text begins in its file, whose memory `budget` holds.
pub(crate) fn read(bytes: &[u8], start: usize, budget: &mut Budget) -> (Vec<ProcessStacks>, Option<Fault>) {
    let mut reader = Reader {
        budget,
        texts: Texts::default(),
        processes: Vec::new(),
        threads: Vec::new(),
        frames: Vec::new(),
        locals: Vec::new(),
        in_arguments: false,
    };
    let mut fault = None;
    for (at, line) in Lines::of(bytes) {
        reader.budget.at = start + at;
        if let Err(found) = reader.line(&valid(line)) {
            fault = Some(found);
            break;
        }
    }
    let ended = reader.end_process();
    reader.end();
    (reader.processes, fault.or(ended.err()))
}

/// Puts the main thread first and keeps the order of the others.
pub(crate) fn main_first(threads: &mut [ThreadStack]) {
    if let Some(at) = threads.iter().position(|thread| &*thread.name == "MainThread") {
        threads[..=at].rotate_right(1);
    }
}

/// What is read so far. A line belongs to the frame, thread and process above it; each is put away in exactly the memory
/// it needs when the next begins.
struct Reader<'b> {
    budget: &'b mut Budget,
    texts: Texts,
    processes: Vec<ProcessStacks>,
    threads: Vec<ThreadStack>,
    frames: Vec<StackFrame>,
    locals: Vec<Local>,
    in_arguments: bool,
}

impl Reader<'_> {
    fn line(&mut self, line: &str) -> Result<(), Fault> {
        if let Some((pid, command)) = process_header(line) {
            let command = self.texts.of(self.budget, command)?;
            let process = ProcessStacks { pid: Some(pid), command, tool: StackTool::PySpy, ..ProcessStacks::default() };
            return self.process(process);
        }
        if let Some((thread_id, name)) = faulthandler_header(line) {
            let name = self.texts.of(self.budget, name)?;
            if self.processes.last().is_none_or(|process| process.tool != StackTool::Faulthandler) {
                self.process(ProcessStacks { tool: StackTool::Faulthandler, ..ProcessStacks::default() })?;
            }
            return self.thread(ThreadStack { thread_id, name, ..ThreadStack::default() });
        }
        match self.processes.last().map(|process| process.tool) {
            None => Ok(()),
            Some(StackTool::PySpy) => self.pyspy_line(line),
            Some(StackTool::Faulthandler) => self.faulthandler_line(line),
        }
    }

    fn process(&mut self, process: ProcessStacks) -> Result<(), Fault> {
        self.end_process()?;
        self.budget.push(&mut self.processes, process)
    }

    fn thread(&mut self, thread: ThreadStack) -> Result<(), Fault> {
        self.end_thread()?;
        self.budget.push(&mut self.threads, thread)
    }

    fn frame(&mut self, frame: StackFrame) -> Result<(), Fault> {
        self.end_frame()?;
        if self.threads.is_empty() { Ok(()) } else { self.budget.push(&mut self.frames, frame) }
    }

    fn end_frame(&mut self) -> Result<(), Fault> {
        let locals = self.budget.exact(&mut self.locals)?;
        if let Some(frame) = self.frames.last_mut() {
            frame.locals = locals;
        }
        Ok(())
    }

    fn end_thread(&mut self) -> Result<(), Fault> {
        self.end_frame()?;
        let frames = self.budget.exact(&mut self.frames)?;
        if let Some(thread) = self.threads.last_mut() {
            thread.frames = frames;
        }
        Ok(())
    }

    fn end_process(&mut self) -> Result<(), Fault> {
        self.end_thread()?;
        let mut threads = self.budget.exact(&mut self.threads)?;
        let Some(process) = self.processes.last_mut() else { return Ok(()) };
        match process.tool {
            // The newest thread comes first, so the main thread last.
            StackTool::Faulthandler => threads.reverse(),
            StackTool::PySpy => main_first(&mut threads),
        }
        process.threads = threads;
        Ok(())
    }

    /// Gives back what is not part of the result.
    fn end(&mut self) {
        let scratch = self.threads.capacity() * size_of::<ThreadStack>()
            + self.frames.capacity() * size_of::<StackFrame>()
            + self.locals.capacity() * size_of::<Local>();
        self.budget.release(scratch);
    }

    fn pyspy_line(&mut self, line: &str) -> Result<(), Fault> {
        if let Some(rest) = line.strip_prefix("Parent Process ") {
            if let Some(process) = self.processes.last_mut() {
                process.parent_pid = rest.split(':').next().and_then(|pid| pid.parse().ok());
            }
            return Ok(());
        }
        if let Some(rest) = line.strip_prefix("Thread ") {
            let Some(thread) = self.pyspy_thread(rest)? else { return Ok(()) };
            return self.thread(thread);
        }
        let indent = line.len() - line.trim_start_matches(' ').len();
        match (indent, line.trim_start_matches(' ')) {
            (4, text) => match self.pyspy_frame(text)? {
                Some(frame) => self.frame(frame),
                None => Ok(()),
            },
            (8, kind @ ("Arguments:" | "Locals:")) => {
                self.in_arguments = kind == "Arguments:";
                Ok(())
            }
            (12, text) => self.local(text),
            _ => Ok(()),
        }
    }

    /// `2196 (idle): "MainThread"`; the id is the kernel's, or the pthread id in hexadecimal where that is not known.
    fn pyspy_thread(&mut self, rest: &str) -> Result<Option<ThreadStack>, Fault> {
        let Some((id, rest)) = rest.split_once(" (") else { return Ok(None) };
        let Some((status, rest)) = rest.split_once(')') else { return Ok(None) };
        let name = rest.strip_prefix(": \"").and_then(|name| name.strip_suffix('"')).unwrap_or_default();
        Ok(Some(ThreadStack {
            thread_id: hex(id),
            os_thread_id: id.parse().ok(),
            name: self.texts.of(self.budget, name)?,
            activity: match status.split('+').next() {
                Some("active") => Activity::Active,
                Some("idle") => Activity::Idle,
                _ => Activity::Unknown,
            },
            owns_gil: Some(status.ends_with("+gil")),
            frames: Vec::new(),
        }))
    }

    /// `name (file.py:12)`, native: `name (libx.so)` or `name (file.cpp:12)`.
    fn pyspy_frame(&mut self, text: &str) -> Result<Option<StackFrame>, Fault> {
        let Some((name, place)) = text.rsplit_once(" (") else { return Ok(None) };
        let Some(place) = place.strip_suffix(')') else { return Ok(None) };
        let (file, line) = match place.rsplit_once(':') {
            Some((file, line)) if line.bytes().all(|byte| byte.is_ascii_digit()) => (file, line.parse().unwrap_or(0)),
            _ => (place, 0),
        };
        let native = line == 0 || is_native_source(file);
        let name = self.texts.of(self.budget, name)?;
        let file = self.texts.of(self.budget, file)?;
        let module = if line == 0 { file.clone() } else { Arc::default() };
        Ok(Some(StackFrame { frame: Frame { name, file, line }, module, native, locals: Vec::new() }))
    }

    /// `name: repr`.
    fn local(&mut self, text: &str) -> Result<(), Fault> {
        let Some((name, repr)) = text.split_once(": ") else { return Ok(()) };
        if self.frames.is_empty() {
            return Ok(());
        }
        let name = self.texts.of(self.budget, name)?;
        let repr = self.texts.of(self.budget, repr)?;
        let argument = self.in_arguments;
        self.budget.push(&mut self.locals, Local { name, repr, argument })
    }

    fn faulthandler_line(&mut self, line: &str) -> Result<(), Fault> {
        let Some(text) = line.strip_prefix("  ") else { return Ok(()) };
        if let Some(rest) = text.strip_prefix("File \"") {
            let Some((file, rest)) = rest.rsplit_once("\", line ") else { return Ok(()) };
            let (number, name) = rest.split_once(" in ").unwrap_or((rest, ""));
            let frame = Frame {
                name: self.texts.of(self.budget, name)?,
                file: self.texts.of(self.budget, file)?,
                line: number.parse().unwrap_or(0),
            };
            return self.frame(StackFrame { frame, ..StackFrame::default() });
        }
        // Python 3.14 adds the C stack of the current thread.
        if let Some(rest) = text.strip_prefix("Binary file \"") {
            let Some((file, rest)) = rest.split_once("\", at ") else { return Ok(()) };
            let name = rest.split(['+', ' ']).next().unwrap_or_default();
            let module = self.texts.of(self.budget, file)?;
            let frame = Frame { name: self.texts.of(self.budget, name)?, file: module.clone(), line: 0 };
            return self.frame(StackFrame { frame, module, native: true, locals: Vec::new() });
        }
        Ok(())
    }
}

/// `Process 2196: python train.py`.
fn process_header(line: &str) -> Option<(u64, &str)> {
    let (pid, command) = line.strip_prefix("Process ")?.split_once(':')?;
    Some((pid.parse().ok()?, command.trim_start()))
}

/// `Thread 0x00007faa (most recent call first):`, with the name in brackets from Python 3.14.
fn faulthandler_header(line: &str) -> Option<(Option<u64>, &str)> {
    let rest = line.strip_prefix("Current thread ").or_else(|| line.strip_prefix("Thread "))?;
    let (id, rest) = rest.split_once(' ')?;
    let name = rest.strip_suffix(FAULTHANDLER_MARK)?.trim();
    Some((Some(hex(id)?), name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or_default()))
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x")?, 16).ok()
}

fn is_native_source(file: &str) -> bool {
    const ENDINGS: &[&str] = &["c", "cc", "cpp", "cu", "cuh", "cxx", "h", "hpp", "rs", "so"];
    file.contains(".so.") || file.rsplit_once('.').is_some_and(|(_, ending)| ENDINGS.contains(&ending))
}

/// One section of a periodic file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Section<'a> {
    /// The rank it tells.
    pub(crate) rank: u32,
    /// Offset of its content.
    pub(crate) at: usize,
    /// Its content.
    pub(crate) bytes: &'a [u8],
}

/// The sections `=== Rank <i>: <url> ===` of a periodic file.
pub(crate) struct Sections<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Sections<'a> {
    /// All of a file.
    pub(crate) fn of(bytes: &'a [u8]) -> Sections<'a> {
        Sections { bytes, at: 0 }
    }

    /// The line at `at`, where it ends, and the rank of the section that it begins.
    fn line(&self, at: usize) -> (usize, Option<u32>) {
        let rest = &self.bytes[at..];
        let len = rest.iter().position(|&byte| byte == b'\n').map_or(rest.len(), |len| len + 1);
        (at + len, section_rank(rest[..len].trim_ascii()))
    }
}

impl<'a> Iterator for Sections<'a> {
    type Item = Section<'a>;

    fn next(&mut self) -> Option<Section<'a>> {
        let mut header = None;
        while self.at < self.bytes.len() {
            let (next, rank) = self.line(self.at);
            match (header, rank) {
                (Some(_), Some(_)) => break,
                (None, Some(rank)) => header = Some((rank, next)),
                _ => {}
            }
            self.at = next;
        }
        let (rank, at) = header?;
        Some(Section { rank, at, bytes: &self.bytes[at..self.at] })
    }
}

fn section_rank(line: &[u8]) -> Option<u32> {
    let rest = line.strip_prefix(b"=== Rank ")?;
    line.strip_suffix(b" ===")?;
    let colon = rest.iter().position(|&byte| byte == b':')?;
    std::str::from_utf8(&rest[..colon]).ok()?.parse().ok()
}
