//! Gives the shared library its name for programs that link with it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // The number is `TEGRA_HCQ_ABI`, as a test compares.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtegra_hcq.so.1");
}
