//! The committed header is the one that cbindgen generates, and C and C++ compilers accept it without a warning.

use std::path::Path;
use std::process::Command;

/// Folder of the package.
fn package() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn generated() -> String {
    let config = cbindgen::Config::from_file(package().join("cbindgen.toml")).expect("cbindgen.toml");
    let bindings = cbindgen::Builder::new().with_crate(package()).with_config(config).generate();
    let mut header = Vec::new();
    bindings.expect("the sources parse").write(&mut header);
    // Rust's heading for what the caller of an unsafe function promises.
    String::from_utf8(header).expect("a header is text").replace("# Safety", "Preconditions:")
}

#[test]
fn the_committed_header_is_up_to_date() {
    let path = package().join("include/tegra_hcq.h");
    let header = generated();
    if std::env::var_os("UPDATE_HEADER").is_some() {
        std::fs::write(&path, &header).expect("writing the header");
    }
    let committed = std::fs::read_to_string(&path).expect("include/tegra_hcq.h");
    assert!(
        committed == header,
        "include/tegra_hcq.h differs from the sources: UPDATE_HEADER=1 cargo test -p tegra-hcq-capi header"
    );
}

/// Compiles a source that includes the header, with all warnings as errors.
fn compile(compiler: &str, language: &str, standard: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let source = folder.path().join("header");
    // Included twice: the guards work.
    let text = r#"
        #include "tegra_hcq.h"
        #include "tegra_hcq.h"
        tegra_hcq_arg argument(const tegra_hcq_buffer *b);
        tegra_hcq_status close(tegra_hcq_device *d);
        tegra_hcq_arg argument(const tegra_hcq_buffer *b) {
            (void)tegra_hcq_arg_f32(1.0f);
            return tegra_hcq_arg_buffer(b, 4);
        }
        tegra_hcq_status close(tegra_hcq_device *d) { return tegra_hcq_device_close(d); }
    "#;
    std::fs::write(&source, text).expect("the source");
    let output = Command::new(compiler)
        .args(["-x", language, &format!("-std={standard}"), "-Wall", "-Wextra", "-Wpedantic", "-Wconversion"])
        .args(["-Wstrict-prototypes", "-Werror", "-fsyntax-only", "-I"])
        .arg(package().join("include"))
        .arg(&source)
        .output();
    let output = output.unwrap_or_else(|error| panic!("{compiler}: {error}"));
    assert!(
        output.status.success(),
        "{compiler} -std={standard}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn compilers_of_c_and_cpp_accept_the_header_without_a_warning() {
    compile("cc", "c", "c11");
    compile("cc", "c++", "c++17");
}
