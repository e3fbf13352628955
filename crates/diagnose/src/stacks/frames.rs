//! Whose code is a frame: the user's, or a library's on the way from it.
use mycroft_record::dump::Frame;

/// Directories of PyTorch, which lie between the user's call and the recorder.
const TORCH: &[&str] = &["/torch/", "torch/"];
/// Start of a path of the interpreter's own library, before the version number.
const STDLIB: &str = "/lib/python3";
/// Where installed packages lie; part of the standard library's path, but not of the library.
const PACKAGES: &[&str] = &["/site-packages/", "/dist-packages/"];
/// Files and folders of the standard library as py-spy's short names show them, without a directory to tell them by.
const STDLIB_SHORT: &[&str] = &[
    "asyncio/",
    "collections/",
    "concurrent/",
    "connection.py",
    "contextlib.py",
    "functools.py",
    "importlib/",
    "json/",
    "logging/",
    "multiprocessing/",
    "pickle.py",
    "queue.py",
    "runpy.py",
    "selectors.py",
    "site.py",
    "socket.py",
    "socketserver.py",
    "ssl.py",
    "subprocess.py",
    "tempfile.py",
    "threading.py",
    "traceback.py",
    "urllib/",
    "weakref.py",
];

fn in_package(file: &str) -> bool {
    PACKAGES.iter().any(|part| file.contains(part))
}

/// A file of PyTorch.
pub(super) fn is_torch(file: &str) -> bool {
    file.contains(TORCH[0]) || file.starts_with(TORCH[1])
}

/// Neither PyTorch's nor the interpreter's own: the program, or a package it uses.
pub(super) fn is_program(frame: &Frame) -> bool {
    let file = &*frame.file;
    let stdlib = (file.contains(STDLIB) && !in_package(file)) || file.starts_with("<frozen");
    let short = !file.starts_with('/') && STDLIB_SHORT.iter().any(|name| file.starts_with(name));
    !file.is_empty() && !is_torch(file) && !stdlib && !short && !file.ends_with(".so")
}

/// The user's own code: the program outside installed packages.
pub(super) fn is_own(frame: &Frame) -> bool {
    is_program(frame) && !in_package(&frame.file)
}

/// The innermost frame of the user's own code, else of any package but PyTorch.
pub(super) fn own<'a>(frames: impl Iterator<Item = &'a Frame> + Clone) -> Option<&'a Frame> {
    frames.clone().find(|frame| is_own(frame)).or_else(|| frames.clone().find(|frame| is_program(frame)))
}

/// The last two parts of a path: hosts install the same program in different places.
pub(super) fn tail(file: &str) -> &str {
    let mut cuts = file.rmatch_indices('/').map(|(at, _)| at + 1);
    let _ = cuts.next();
    cuts.next().map_or(file, |at| &file[at..])
}

/// The same line of the same file. Tools name a function with or without its class.
pub(super) fn same_place(one: &Frame, other: &Frame) -> bool {
    let short = |file: &str| file.rsplit('/').next().unwrap_or_default().to_owned();
    one.line == other.line && short(&one.file) == short(&other.file)
}

/// `load_batch (train.py:41)`.
pub(super) fn text(frame: &Frame) -> String {
    let file = frame.file.rsplit('/').next().unwrap_or(&frame.file);
    if frame.line == 0 { format!("{} ({file})", frame.name) } else { format!("{} ({file}:{})", frame.name, frame.line) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(file: &str) -> Frame {
        Frame { name: "f".into(), file: file.into(), line: 1 }
    }

    #[test]
    fn the_users_code_is_told_from_libraries() {
        for file in ["/home/me/train.py", "scenario.py", "/opt/training/fr_samples/scenario.py", "src/data/loader.py"] {
            assert!(is_own(&frame(file)), "{file}");
        }
        for file in [
            "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py",
            "torch/utils/data/dataloader.py",
            "/usr/lib/python3.11/threading.py",
            "selectors.py",
            "multiprocessing/connection.py",
            "<frozen runpy>",
            "",
        ] {
            assert!(!is_program(&frame(file)), "{file}");
        }
        let package = frame("/v/lib/python3.11/site-packages/megatron/core/p2p.py");
        assert!(is_program(&package) && !is_own(&package));
        assert_eq!(tail("/a/b/c/d.py"), "c/d.py");
        assert_eq!(tail("d.py"), "d.py");
        assert_eq!(tail("c/d.py"), "c/d.py");
    }
}
