//! The compiled corpus: which compilers and chips there are, and the cubins that lie in the binary.
//!
//! A program that was copied to a board needs no files: the variants for the chips that the `silicon` suite
//! runs on are part of it. The others are read from the source tree by the tests.

use std::path::PathBuf;

/// A folder of `kernels/corpus`: one compiler, one chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Release of CUDA, as `12.6`.
    pub release: &'static str,
    /// Compute capability times ten, as `87`.
    pub sm: u32,
}

/// All variants that are committed.
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

    /// The cubin of a source file in the source tree.
    pub fn path(self, file: &str) -> PathBuf {
        test_support::workspace().join("kernels/corpus").join(self.name()).join(file).with_extension("cubin")
    }
}

/// The source files, without extension, with the cubins for an Orin and for a Hopper GPU.
macro_rules! files {
    ($($file:literal)*) => {
        /// Names of the source files in `kernels/corpus`, without extension.
        pub const FILES: &[&str] = &[$($file),*];

        /// The cubin of a source file for a GPU of compute capability `sm` / 10, made by NVRTC 12.6; `None`
        /// for other chips than those of the `silicon` suite.
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
    "algorithms" "async" "atomics" "bfloat" "bits" "convert" "double" "float" "flow" "grid" "half" "integer"
    "memory" "shared" "special" "tensor" "uniform" "warp" "wide"
}
