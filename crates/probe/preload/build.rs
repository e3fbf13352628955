//! Link flags: the library is never unmapped, since threads may be inside; and the examples are linked to a library of
//! NCCL's name, as a framework is, so that what they call can be interposed.
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the examples call.
const CALLED: [&str; 11] = [
    "ncclGetUniqueId",
    "ncclCommInitRank",
    "ncclCommSplit",
    "ncclCommDestroy",
    "ncclAllReduce",
    "ncclBcast",
    "ncclSend",
    "ncclRecv",
    "ncclGroupStart",
    "ncclGroupEnd",
    "ncclCommGetAsyncError",
];

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    if let Err(problem) = stub(&out) {
        println!("cargo:warning=no library to link the examples to: {problem}");
        return;
    }
    println!("cargo:rustc-link-arg-examples=-L{}", out.display());
    println!("cargo:rustc-link-arg-examples=-Wl,--push-state,--no-as-needed,-lnccl,--pop-state");
}

/// A `libnccl.so` to link to: names only. What runs is whatever `libnccl.so.2` the loader finds.
fn stub(out: &Path) -> Result<(), String> {
    let source = out.join("nccl.c");
    let text: String = CALLED.iter().map(|name| format!("int {name}(void) {{ return 5; }}\n")).collect();
    std::fs::write(&source, text).map_err(|e| e.to_string())?;
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let mut command = Command::new(&compiler);
    command.args(["-shared", "-fPIC", "-Wl,-soname,libnccl.so.2", "-o"]).arg(out.join("libnccl.so")).arg(&source);
    let status = command.status().map_err(|e| format!("{compiler}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("{compiler}: {status}")) }
}
