//! Parameters of the kernels in `kernels/gemm`.

use super::gpu_structs;

gpu_structs! { TABLE:
    /// Vectors that are not rows of a matrix, but each at the same place in the memory of its sequence.
    struct SequenceView, 24 bytes {
        /// Number of sequences; null if vectors are rows of a matrix.
        0 => count: u64 as "const u32*";
        /// Address of the pointer to the first sequence's memory.
        8 => first: u64 as "const u8*";
        /// Bytes from one pointer to the next.
        16 => stride: u64;
    }

    /// A product of matrices.
    struct DenseParams, 64 bytes {
        /// Distance between matrices of a batch, in bytes.
        0 => a_batch: u64;
        8 => b_batch: u64;
        16 => c_batch: u64;
        24 => m: u32;
        28 => n: u32;
        32 => k: u32;
        /// Distance between rows, in elements.
        36 => a_row: u32;
        40 => b_row: u32;
        44 => c_row: u32;
        /// Type of `c`; whether `c` is added.
        48 => output: u32;
        52 => accumulate: u32;
        56 => scale: f32;
        /// Bits 0, 1 and 2: `a`, `b` and `c` is an array of pointers to the matrices of a batch.
        60 => arrays: u32;
    }

    /// A product of `m` vectors with packed weights.
    struct PackedParams, 28 bytes {
        0 => m: u32;
        4 => rows: u32;
        8 => columns: u32;
        /// Distance between vectors, in elements.
        12 => input_row: u32;
        16 => output_row: u32;
        20 => after: u32;
        24 => activation: u32;
    }

    /// The same for at most 32 vectors, whose columns several blocks may share.
    struct FewParams, 88 bytes {
        0 => product: PackedParams;
        /// Parts of the columns, and the steps of each but the last, which may have fewer.
        28 => parts: u32;
        32 => steps: u32;
        /// Warps that share the columns of 16 rows: 1, 2, 4, 8 or 16.
        36 => split: u32;
        /// Rounds of a block.
        40 => rounds: u32;
        44 => unused: u32;
        /// The sums of each block, and the number of blocks that have stored theirs, 0 before and after the launch.
        /// Null with one part.
        48 => sums: u64 as "float*";
        56 => tickets: u64 as "u32*";
        /// Where gates and outputs are.
        64 => sequences: SequenceView;
    }

    /// The embedding of the tokens of a prompt.
    struct EmbedParams, 80 bytes {
        0 => tiles: u64 as "const u8*";
        8 => tokens: u64 as "const u32*";
        /// One row per position, added to the embedding, or null.
        16 => positions: u64 as "const float*";
        /// Rotation of each pair from one position to the next, in turns, and the factor of cosine and sine.
        24 => frequencies: u64 as "const double2*";
        /// m x width.
        32 => x: u64 as "float*";
        /// m x pairs.
        40 => rotation: u64 as "float2*";
        /// Tokens of the context.
        48 => history: u64 as "u32*";
        56 => start: u32;
        60 => width: u32;
        64 => pairs: u32;
        /// Format of the embedding, as GGUF files number them.
        68 => block_type: u32;
        /// Factor of the embedding.
        72 => factor: f32;
        76 => unused: u32;
    }

    /// The rounding of rows of floats for a product.
    struct RoundParams, 112 bytes {
        /// m x columns floats.
        0 => input: u64 as "const float*";
        8 => weight: u64 as "const float*";
        16 => bias: u64 as "const float*";
        /// m x columns halves, or floats with `keep`.
        24 => output: u64 as "void*";
        /// One per row: the row is the rounded row times its factor.
        32 => factors: u64 as "float*";
        40 => columns: u32;
        /// The norm before the rounding: BEFORE_RMS_NORM, BEFORE_LAYER_NORM or BEFORE_NOTHING.
        44 => norm: u32;
        48 => keep: u32;
        52 => epsilon: f32;
        /// Where `input`, `branch` and `joined` are.
        56 => sequences: SequenceView;
        /// Rows that are normalised, multiplied with these weights and added to the input before the norm, or null.
        80 => branch: u64 as "const float*";
        88 => branch_weight: u64 as "const float*";
        /// Where the sums of input and branch go; may be `input`.
        96 => joined: u64 as "float*";
        /// Factor of the rounded rows.
        104 => scale: f32;
        108 => unused: u32;
    }

    /// The rotation of queries and keys, and the append of keys and values to the cache.
    struct RotateParams, 104 bytes {
        /// m rows: queries of all heads, then keys, then values of all key heads.
        0 => qkv: u64 as "const float*";
        8 => query_norm: u64 as "const float*";
        16 => key_norm: u64 as "const float*";
        /// m rows, `rotation_row` apart: cosine and sine of each pair.
        24 => rotation: u64 as "const float2*";
        /// m x heads x head_size halves, times `scale`.
        32 => queries: u64 as "__half*";
        /// The layer's cache: key_heads x context x head_size halves or scaled integers.
        40 => keys: u64 as "void*";
        48 => values: u64 as "void*";
        56 => start: u32;
        60 => heads: u32;
        64 => key_heads: u32;
        68 => head_size: u32;
        72 => context: u32;
        76 => rotate: u32;
        80 => rotated: u32;
        84 => scale: f32;
        88 => epsilon: f32;
        92 => rotation_row: u32;
        /// Scales of integers: key_heads x context x ceil(head_size / 32), each for a key and a value; null for halves.
        96 => scales: u64 as "__half2*";
    }

    /// The attention of the tokens of a prompt.
    struct AttendParams, 80 bytes {
        /// m x heads x head_size halves, times the scale and log2(e).
        0 => queries: u64 as "const __half*";
        8 => keys: u64 as "const void*";
        16 => values: u64 as "const void*";
        /// m x heads x head_size.
        24 => output: u64 as "float*";
        32 => m: u32;
        36 => start: u32;
        40 => heads: u32;
        44 => key_heads: u32;
        48 => head_size: u32;
        52 => context: u32;
        56 => scales: u64 as "const __half2*";
        /// A score of each head that has no value, or null.
        64 => sinks: u64 as "const float*";
        /// Newest positions that a token sees, 1 to 2^30.
        72 => window: u32;
        76 => unused: u32;
    }
}
