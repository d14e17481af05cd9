//! What the project's own programs share: the folder and the crates of the workspace.

pub mod workspace;

/// Packages whose commands `cargo xtask` has as well, with these commands.
pub const FORWARDED: [(&str, &[&str]); 2] = [
    (
        "orin-dev",
        &[
            "bench",
            "check-headers",
            "compare-board",
            "coverage",
            "dist",
            "install-library",
            "kernels",
            "silicon",
            "test-device",
            "vendor-tools",
            "wheel",
        ],
    ),
    ("orin-tool", &["decode", "dmesg", "doctor", "info"]),
];

/// Commands of `orin` that are not forwarded, because their programs and files are not the workspace's.
pub const ORIN_ONLY: [&str; 10] =
    ["bring-up", "check", "compile", "cuda", "llm", "profile-kernel", "record", "run", "serve", "timeline"];
