//! Gives the cdylib the name NCCL's own library has, so that a program linked against `libnccl.so.2` accepts it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libnccl.so.2");
    println!("cargo:rerun-if-changed=build.rs");
}
