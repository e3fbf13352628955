//! Gives the cdylib the name of the library that it stands in for, and the versions of its symbols (`src/api/export.rs`).
//!
//! rustc hands the linker a list of exports of its own. lld, which is Rust's linker here, takes a second script beside it;
//! GNU ld does not. So symbols have versions, and are there at all, only where lld is the default.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=ibverbs.map");
    println!("cargo:rustc-check-cfg=cfg(versioned)");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libibverbs.so.1");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    if variable("TARGET") == "x86_64-unknown-linux-gnu" {
        println!("cargo:rustc-cfg=versioned");
        let script = format!("{}/ibverbs.map", variable("CARGO_MANIFEST_DIR"));
        println!("cargo:rustc-cdylib-link-arg=-Wl,--version-script={script}");
    }
}
