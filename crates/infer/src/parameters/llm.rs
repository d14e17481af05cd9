//! Parameters of the kernels in `kernels/llm`.

use super::gpu_structs;

/// Most sequences of a batch.
pub(crate) const MAX_SEQUENCES: usize = 32;

const _: () =
    assert!(core::mem::offset_of!(SequenceTable, list) + 48 * MAX_SEQUENCES == size_of::<SequenceTable>());

gpu_structs! { TABLE:
    /// A product of a matrix with one vector.
    struct ProductParams, 176 bytes {
        /// Tiles of the matrix, and their end.
        0 => tiles: u64 as "const u8*";
        8 => tiles_end: u64 as "const u8*";
        16 => input: u64 as "const float*";
        24 => norm_weight: u64 as "const float*";
        32 => norm_bias: u64 as "const float*";
        /// One per row, or null.
        40 => bias: u64 as "const float*";
        /// One per row: AFTER_ADD adds it, AFTER_GATE activates it.
        48 => other: u64 as "const float*";
        56 => output: u64 as "float*";
        /// One per block of the grid: order-preserving bits of the largest sum, and the complement of its row.
        64 => best: u64 as "u64*";
        /// Memory that the next launches read, a multiple of 16 bytes.
        72 => ahead: u64 as "const u8*";
        80 => ahead_bytes: u64;
        88 => rows: u32;
        92 => columns: u32;
        96 => before: u32;
        100 => after: u32;
        104 => activation: u32;
        108 => packed_output: u32;
        /// Pairs of rows per batch, at most 32 and whole bands, and number of batches. A block of the grid takes whole
        /// batches. With `packed_output`, a batch makes 32 outputs.
        112 => batch_pairs: u32;
        116 => batches: u32;
        120 => epsilon: f32;
        /// Factor of the sums, to which the bias is added then; 1 with AFTER_PAIR.
        124 => scale: f32;
        /// A second place of the outputs, or null.
        128 => copy: u64 as "float*";
        /// Distance to the other half of the exchange, see `Exchange`; 0 between launches.
        136 => next: u64 as "long long";
        /// A vector that is normalised, multiplied with these weights and added to the input before the norm, or null.
        144 => branch: u64 as "const float*";
        152 => branch_weight: u64 as "const float*";
        /// Where the sum of input and branch goes. Not the input: all blocks read it.
        160 => joined: u64 as "float*";
        168 => unused: u64;
    }

    /// The attention of one token.
    struct AttentionParams, 160 bytes {
        /// Queries of all heads, then keys, then values of all key heads: head_size elements each.
        0 => qkv: u64 as "const float*";
        /// Weights of the norms of each query and key head, or null.
        8 => query_norm: u64 as "const float*";
        16 => key_norm: u64 as "const float*";
        /// Cosine and sine of each pair at the current position.
        24 => rotation: u64 as "const float2*";
        /// The layer's cache: key_heads x context x head_size halves or scaled integers.
        32 => keys: u64 as "void*";
        40 => values: u64 as "void*";
        /// Position of the token.
        48 => position: u64 as "const u32*";
        /// Largest score, sum of weights and weighted sum of each chunk: heads x chunks x (head_size + 2).
        56 => parts: u64 as "float*";
        /// One per block in x, 0 between launches.
        64 => tickets: u64 as "u32*";
        /// heads x head_size.
        72 => output: u64 as "float*";
        /// Memory that the next launches read, a multiple of 16 bytes.
        80 => ahead: u64 as "const u8*";
        88 => ahead_bytes: u64;
        96 => heads: u32;
        100 => key_heads: u32;
        104 => head_size: u32;
        108 => context: u32;
        112 => rotate: u32;
        /// Columns of a head that are rotated.
        116 => rotated: u32;
        120 => scale: f32;
        124 => epsilon: f32;
        /// Distance to the other half of the exchange, see `Exchange`; 0 between launches.
        128 => next: u64 as "long long";
        /// Scales of integers: key_heads x context x ceil(head_size / 32), each for a key and a value.
        136 => scales: u64 as "__half2*";
        /// A score of each head that has no value, or null.
        144 => sinks: u64 as "const float*";
        /// Newest positions that the token sees, at least 1.
        152 => window: u32;
        156 => unused: u32;
    }

    /// A product of a token whose layers are one launch.
    struct DecodeProduct, 192 bytes {
        0 => product: ProductParams;
        /// The number of its kind in DecodeParams.
        176 => kind: u32;
        /// Whether its vector is that of the product before.
        180 => shares: u32;
        /// The attention that comes before, from 1, or 0.
        184 => attention: u32;
        188 => unused: u32;
    }

    /// What some products of a token have in common, beside all sizes.
    struct DecodeKind, 12 bytes {
        /// One of them.
        0 => product: u32;
        /// The number of the format among those of the kernel.
        4 => format: u32;
        /// The block that takes the first batch.
        8 => first: u32;
    }

    /// All layers of a token in one launch.
    struct DecodeParams, 192 bytes {
        /// Those of the layers, then that of the logits.
        0 => products: u64 as "const DecodeProduct*";
        /// One per layer.
        8 => attentions: u64 as "const AttentionParams*";
        /// Blocks that have ended, 0 before and after the launch; and the half of the exchange that the launch uses,
        /// which the next one does not.
        16 => counter: u64 as "u32*";
        /// Two halves, each with the vectors of all phases. Addresses in parameters are those of the first.
        24 => exchange: u64 as "u8*";
        32 => half_bytes: u64;
        /// End of all matrices.
        40 => tiles_end: u64 as "const u8*";
        48 => layers: u32;
        /// Number of products.
        52 => count: u32;
        /// Grid of the attention: heads, and chunks of the context.
        56 => heads: u32;
        60 => chunks: u32;
        /// Bytes before the tiles in shared memory, a multiple of 128.
        64 => front_bytes: u32;
        /// Readings of absent words after which a thread gives up.
        68 => patience: u32;
        72 => kinds: [DecodeKind; 10];
    }

    /// The state of a sequence.
    struct SequenceState, 32 bytes {
        /// Position of the newest token.
        0 => position: u32;
        /// The newest token.
        4 => token: u32;
        /// Tokens of the context, including the newest.
        8 => count: u32;
        /// Tokens that were chosen since the settings were written.
        12 => produced: u32;
        /// Index of the next token in `pending`.
        16 => pending: u32;
        20 => unused: [u32; 3];
    }

    /// How a sequence chooses tokens.
    struct SamplingParams, 40 bytes {
        /// 0 chooses the most probable token.
        0 => temperature: f32;
        /// 1 switches it off.
        4 => top_p: f32;
        /// 0 switches it off.
        8 => min_p: f32;
        /// 1 switches it off.
        12 => penalty: f32;
        /// 0 switches it off.
        16 => top_k: u32;
        /// Newest tokens that the penalty concerns, at most 1024.
        20 => window: u32;
        24 => seed: u64;
        /// A bit per token, set for those that may be chosen; null allows all.
        32 => mask: u64 as "const u32*";
    }

    /// The choice of a token, and its way into the model.
    struct SampleParams, 128 bytes {
        0 => state: u64 as "SequenceState*";
        8 => settings: u64 as "const SamplingParams*";
        /// Tokens of the context.
        16 => history: u64 as "u32*";
        /// Tokens that the host feeds.
        24 => pending: u64 as "const u32*";
        /// Produced tokens, for the host: number (from 1) in the upper and token in the lower half.
        32 => token_ring: u64 as "volatile u64*";
        40 => logits: u64 as "float*";
        /// Maxima of blocks of logits, as `product_*` writes them.
        48 => best: u64 as "const u64*";
        /// Tiles of the embedding.
        56 => tiles: u64 as "const u8*";
        /// One row per position, added to the embedding, or null.
        64 => positions: u64 as "const float*";
        /// Rotation of each pair from one position to the next, in turns, and the factor of cosine and sine.
        72 => frequencies: u64 as "const double2*";
        80 => rotation: u64 as "float2*";
        /// The model's vector.
        88 => x: u64 as "float*";
        96 => vocabulary: u32;
        100 => width: u32;
        /// Format of the embedding, as GGUF files number them.
        104 => block_type: u32;
        /// Pairs of columns of all rotations.
        108 => pairs: u32;
        /// Blocks of logits.
        112 => blocks: u32;
        /// Tokens in `token_ring`.
        116 => ring_length: u32;
        /// Factor of the embedding.
        120 => factor: f32;
        124 => unused: u32;
    }

    /// Memory of one of the sequences that decode together.
    struct SequenceMemory, 48 bytes {
        /// Vectors of the sequence; kernels get the places in it.
        0 => vectors: u64 as "u8*";
        /// Caches of all layers.
        8 => keys: u64 as "u8*";
        16 => values: u64 as "u8*";
        /// Position of the newest token.
        24 => position: u64 as "const u32*";
        /// Positions of the caches.
        32 => context: u32;
        36 => unused: u32;
        /// Scales of all layers, if caches have integers.
        40 => scales: u64 as "__half2*";
    }

    /// Sequences that decode together.
    struct SequenceTable, 1552 bytes {
        /// Number of sequences.
        0 => count: u32;
        4 => unused: [u32; 3];
        16 => list: [SequenceMemory; 32];
    }

    /// A product of a matrix with one vector of each sequence.
    struct BatchProductParams, 192 bytes {
        /// As for one sequence, but `input`, `branch`, `joined`, `other`, `output` and `best` are places in the memory
        /// of a sequence. `before` and the branch concern `prepare_*` only.
        0 => product: ProductParams;
        176 => sequences: u64 as "const SequenceTable*";
        /// Sequences of a block, at most GROUP.
        184 => group: u32;
        188 => unused: u32;
    }

    /// A short convolution, which takes the place of the attention.
    struct ConvolveParams, 64 bytes {
        /// Rows of three parts of `width` elements each: factors of the input, factors of the output, the input.
        0 => parts: u64 as "const float*";
        /// Weights of each position, oldest first: 3 x width.
        8 => taps: u64 as "const float*";
        /// Inputs times factors of the newest positions, each at its position modulo `kept`: kept x width.
        16 => ring: u64 as "float*";
        /// A row of `width` elements for each of `parts`.
        24 => output: u64 as "float*";
        /// Position of the only row; null for rows from `start` on.
        32 => position: u64 as "const u32*";
        /// Null, or the sequences in whose memory parts, ring and output are.
        40 => sequences: u64 as "const SequenceTable*";
        48 => width: u32;
        52 => start: u32;
        /// Places of the ring.
        56 => kept: u32;
        60 => unused: u32;
    }

    /// An expert that a vector uses, and the factor of its result.
    struct Choice, 8 bytes {
        0 => expert: u32;
        4 => weight: f32;
    }

    /// The products of the experts that one vector uses, or one of each sequence.
    struct ExpertsParams, 232 bytes {
        /// The matrices of all experts, one after another; `rows` are those of one. For several sequences, `input`,
        /// `other` and `output` are places in the memory of a sequence; for rows, they are the first row's. Batches are
        /// not used.
        0 => product: ProductParams;
        /// The router's numbers, one per expert.
        176 => logits: u64 as "const float*";
        /// Those of each vector, the largest number first.
        184 => choices: u64 as "Choice*";
        /// Null for one vector, and for rows.
        192 => sequences: u64 as "const SequenceTable*";
        /// Bytes from an expert's matrix to the next.
        200 => expert_bytes: u64;
        /// Between the products, each expert that a vector uses has a vector: bytes from one to the next, and their
        /// form: HIDDEN_ROUNDED, HIDDEN_UNITS or HIDDEN_PLAIN.
        208 => hidden_bytes: u32;
        212 => form: u32;
        216 => experts: u32;
        /// Experts that a vector uses.
        220 => used: u32;
        /// Number of rows, and bytes from the input of the first products to that of the next row.
        224 => vectors: u32;
        228 => input_bytes: u32;
    }

    /// The attention of one token of each sequence. Grid (as for one, chunks, sequences).
    struct BatchAttentionParams, 176 bytes {
        /// As for one sequence, but `qkv`, `rotation`, `parts`, `tickets` and `output` are places in the memory of a
        /// sequence, and the cache's first byte is that of layer 0.
        0 => attention: AttentionParams;
        160 => sequences: u64 as "const SequenceTable*";
        168 => layer: u32;
        172 => unused: u32;
    }
}
