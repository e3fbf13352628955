//! Link flags: NCCL closes the plugin when its last communicator goes, while threads may still be inside; never unmap it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
