//! The compiled corpus: its compilers and chips, and the embedded cubins.
//!
//! A binary copied to a board needs no files: it embeds the variants for the chips of the `silicon` suite.
//! Tests read the others from the source tree.

use std::path::PathBuf;

/// A folder of `kernels/corpus`: one compiler, one chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// CUDA release, for example `12.6`.
    pub release: &'static str,
    /// Compute capability times ten, for example `87`.
    pub sm: u32,
}

/// All committed variants.
pub const VARIANTS: [Variant; 7] = [
    Variant { release: "12.2", sm: 87 },
    Variant { release: "12.6", sm: 80 },
    Variant { release: "12.6", sm: 86 },
    Variant { release: "12.6", sm: 87 },
    Variant { release: "12.6", sm: 90 },
    Variant { release: "12.9", sm: 87 },
    Variant { release: "13.0", sm: 87 },
];

impl Variant {
    /// Name of the folder.
    pub fn name(self) -> String {
        format!("sm_{}-{}", self.sm, self.release)
    }

    /// Path of a source file's cubin in the source tree.
    pub fn path(self, file: &str) -> PathBuf {
        test_support::workspace().join("kernels/corpus").join(self.name()).join(file).with_extension("cubin")
    }
}

/// The source files, without extension, with the cubins for Orin and for Hopper.
macro_rules! files {
    ($($file:literal)*) => {
        /// Names of the source files in `kernels/corpus`, without extension.
        pub const FILES: &[&str] = &[$($file),*];

        /// The cubin of a source file for compute capability `sm` / 10, compiled by NVRTC 12.6; `None` for
        /// chips without the `silicon` suite.
        pub fn built_in(file: &str, sm: u32) -> Option<&'static [u8]> {
            match (file, sm) {
                $(
                    ($file, 87) => Some(include_bytes!(concat!(
                        env!("CARGO_MANIFEST_DIR"), "/../../kernels/corpus/sm_87-12.6/", $file, ".cubin"
                    ))),
                    ($file, 90) => Some(include_bytes!(concat!(
                        env!("CARGO_MANIFEST_DIR"), "/../../kernels/corpus/sm_90-12.6/", $file, ".cubin"
                    ))),
                )*
                _ => None,
            }
        }
    };
}

files! {
    "algorithms" "async" "atomics" "bfloat" "bits" "convert" "double" "float" "flow" "grid" "groups" "half" "integer"
    "memory" "shared" "special" "tensor" "uniform" "warp" "wide"
}
