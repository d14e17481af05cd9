// Written by `UPDATE_HEADER=1 cargo test -p orin-infer headers` from
// crates/infer/src/parameters/llm.rs: edit that file.
#pragma once
#include "common.cuh"

// NVRTC has no offsetof.
#define AT(type, field, offset) \
    static_assert(__INTADDR__(&((type*)0)->field) == offset, "offset of " #field " in " #type)

// How a vector becomes the input of a product.
#define BEFORE_RMS_NORM 0
#define BEFORE_LAYER_NORM 1
#define BEFORE_NOTHING 2
// The product before has rounded it (`packed_output`).
#define BEFORE_PACKED 3

// What a product does with the sum of a row.
#define AFTER_STORE 0
// output[r] = other[r] + row r
#define AFTER_ADD 1
// output[r] = activation(row 2r) * row (2r + 1)
#define AFTER_PAIR 2
// output[r] = activation(row r)
#define AFTER_ACTIVATE 3
// output[r] = activation(other[r]) * row r
#define AFTER_GATE 4
// output[r] = row r, and the largest sum of each block to `best`. Only for products of one vector.
#define AFTER_LOGITS 5

// The activation of a feed-forward network.
#define ACTIVATION_SILU 0
#define ACTIVATION_GELU 1
// With limits of gate and up. Only of experts.
#define ACTIVATION_CLAMPED_SILU 2

// The form of a product's vector: rounded, in units of 8 columns, as it is.
#define HIDDEN_ROUNDED 0
#define HIDDEN_UNITS 1
#define HIDDEN_PLAIN 2

// Which columns of a head are rotated together.
#define ROTATE_NOTHING 0
// 2 i and 2 i + 1.
#define ROTATE_NEIGHBOURS 1
// i and i + half of the rotated columns.
#define ROTATE_HALVES 2

// A product of a matrix with one vector.
struct ProductParams {
    // Tiles of the matrix, and their end.
    const u8* tiles;
    const u8* tiles_end;
    const float* input;
    const float* norm_weight;
    const float* norm_bias;
    // One per row, or null.
    const float* bias;
    // One per row: AFTER_ADD adds it, AFTER_GATE activates it.
    const float* other;
    float* output;
    // One per block of the grid: order-preserving bits of the largest sum, and the complement of its row.
    u64* best;
    // Memory that the next launches read, a multiple of 16 bytes.
    const u8* ahead;
    u64 ahead_bytes;
    u32 rows;
    u32 columns;
    u32 before;
    u32 after;
    u32 activation;
    u32 packed_output;
    // Pairs of rows per batch, at most 32 and whole bands, and number of batches. A block of the grid takes whole
    // batches. With `packed_output`, a batch makes 32 outputs.
    u32 batch_pairs;
    u32 batches;
    float epsilon;
    // Factor of the sums, to which the bias is added then; 1 with AFTER_PAIR.
    float scale;
    // A second place of the outputs, or null.
    float* copy;
    // Distance to the other half of the exchange, see `Exchange`; 0 between launches.
    long long next;
    // A vector that is normalised, multiplied with these weights and added to the input before the norm, or null.
    const float* branch;
    const float* branch_weight;
    // Where the sum of input and branch goes. Not the input: all blocks read it.
    float* joined;
    u64 unused;
};
AT(ProductParams, tiles, 0);
AT(ProductParams, tiles_end, 8);
AT(ProductParams, input, 16);
AT(ProductParams, norm_weight, 24);
AT(ProductParams, norm_bias, 32);
AT(ProductParams, bias, 40);
AT(ProductParams, other, 48);
AT(ProductParams, output, 56);
AT(ProductParams, best, 64);
AT(ProductParams, ahead, 72);
AT(ProductParams, ahead_bytes, 80);
AT(ProductParams, rows, 88);
AT(ProductParams, columns, 92);
AT(ProductParams, before, 96);
AT(ProductParams, after, 100);
AT(ProductParams, activation, 104);
AT(ProductParams, packed_output, 108);
AT(ProductParams, batch_pairs, 112);
AT(ProductParams, batches, 116);
AT(ProductParams, epsilon, 120);
AT(ProductParams, scale, 124);
AT(ProductParams, copy, 128);
AT(ProductParams, next, 136);
AT(ProductParams, branch, 144);
AT(ProductParams, branch_weight, 152);
AT(ProductParams, joined, 160);
AT(ProductParams, unused, 168);
static_assert(sizeof(ProductParams) == 176, "size of ProductParams");

// The attention of one token.
struct AttentionParams {
    // Queries of all heads, then keys, then values of all key heads: head_size elements each.
    const float* qkv;
    // Weights of the norms of each query and key head, or null.
    const float* query_norm;
    const float* key_norm;
    // Cosine and sine of each pair at the current position.
    const float2* rotation;
    // The layer's cache: key_heads x context x head_size halves or scaled integers.
    void* keys;
    void* values;
    // Position of the token.
    const u32* position;
    // Largest score, sum of weights and weighted sum of each chunk: heads x chunks x (head_size + 2).
    float* parts;
    // One per block in x, 0 between launches.
    u32* tickets;
    // heads x head_size.
    float* output;
    // Memory that the next launches read, a multiple of 16 bytes.
    const u8* ahead;
    u64 ahead_bytes;
    u32 heads;
    u32 key_heads;
    u32 head_size;
    u32 context;
    u32 rotate;
    // Columns of a head that are rotated.
    u32 rotated;
    float scale;
    float epsilon;
    // Distance to the other half of the exchange, see `Exchange`; 0 between launches.
    long long next;
    // Scales of integers: key_heads x context x ceil(head_size / 32), each for a key and a value.
    __half2* scales;
    // A score of each head that has no value, or null.
    const float* sinks;
    // Newest positions that the token sees, at least 1.
    u32 window;
    u32 unused;
};
AT(AttentionParams, qkv, 0);
AT(AttentionParams, query_norm, 8);
AT(AttentionParams, key_norm, 16);
AT(AttentionParams, rotation, 24);
AT(AttentionParams, keys, 32);
AT(AttentionParams, values, 40);
AT(AttentionParams, position, 48);
AT(AttentionParams, parts, 56);
AT(AttentionParams, tickets, 64);
AT(AttentionParams, output, 72);
AT(AttentionParams, ahead, 80);
AT(AttentionParams, ahead_bytes, 88);
AT(AttentionParams, heads, 96);
AT(AttentionParams, key_heads, 100);
AT(AttentionParams, head_size, 104);
AT(AttentionParams, context, 108);
AT(AttentionParams, rotate, 112);
AT(AttentionParams, rotated, 116);
AT(AttentionParams, scale, 120);
AT(AttentionParams, epsilon, 124);
AT(AttentionParams, next, 128);
AT(AttentionParams, scales, 136);
AT(AttentionParams, sinks, 144);
AT(AttentionParams, window, 152);
AT(AttentionParams, unused, 156);
static_assert(sizeof(AttentionParams) == 160, "size of AttentionParams");

// A product of a token whose layers are one launch.
struct DecodeProduct {
    ProductParams product;
    // The number of its kind in DecodeParams.
    u32 kind;
    // Whether its vector is that of the product before.
    u32 shares;
    // The attention that comes before, from 1, or 0.
    u32 attention;
    u32 unused;
};
AT(DecodeProduct, product, 0);
AT(DecodeProduct, kind, 176);
AT(DecodeProduct, shares, 180);
AT(DecodeProduct, attention, 184);
AT(DecodeProduct, unused, 188);
static_assert(sizeof(DecodeProduct) == 192, "size of DecodeProduct");

// What some products of a token have in common, beside all sizes.
struct DecodeKind {
    // One of them.
    u32 product;
    // The number of the format among those of the kernel.
    u32 format;
    // The block that takes the first batch.
    u32 first;
};
AT(DecodeKind, product, 0);
AT(DecodeKind, format, 4);
AT(DecodeKind, first, 8);
static_assert(sizeof(DecodeKind) == 12, "size of DecodeKind");

// All layers of a token in one launch.
struct DecodeParams {
    // Those of the layers, then that of the logits.
    const DecodeProduct* products;
    // One per layer.
    const AttentionParams* attentions;
    // Blocks that have ended, 0 before and after the launch; and the half of the exchange that the launch uses,
    // which the next one does not.
    u32* counter;
    // Two halves, each with the vectors of all phases. Addresses in parameters are those of the first.
    u8* exchange;
    u64 half_bytes;
    // End of all matrices.
    const u8* tiles_end;
    u32 layers;
    // Number of products.
    u32 count;
    // Grid of the attention: heads, and chunks of the context.
    u32 heads;
    u32 chunks;
    // Bytes before the tiles in shared memory, a multiple of 128.
    u32 front_bytes;
    // Readings of absent words after which a thread gives up.
    u32 patience;
    DecodeKind kinds[10];
};
AT(DecodeParams, products, 0);
AT(DecodeParams, attentions, 8);
AT(DecodeParams, counter, 16);
AT(DecodeParams, exchange, 24);
AT(DecodeParams, half_bytes, 32);
AT(DecodeParams, tiles_end, 40);
AT(DecodeParams, layers, 48);
AT(DecodeParams, count, 52);
AT(DecodeParams, heads, 56);
AT(DecodeParams, chunks, 60);
AT(DecodeParams, front_bytes, 64);
AT(DecodeParams, patience, 68);
AT(DecodeParams, kinds, 72);
static_assert(sizeof(DecodeParams) == 192, "size of DecodeParams");

// The state of a sequence.
struct SequenceState {
    // Position of the newest token.
    u32 position;
    // The newest token.
    u32 token;
    // Tokens of the context, including the newest.
    u32 count;
    // Tokens that were chosen since the settings were written.
    u32 produced;
    // Index of the next token in `pending`.
    u32 pending;
    u32 unused[3];
};
AT(SequenceState, position, 0);
AT(SequenceState, token, 4);
AT(SequenceState, count, 8);
AT(SequenceState, produced, 12);
AT(SequenceState, pending, 16);
AT(SequenceState, unused, 20);
static_assert(sizeof(SequenceState) == 32, "size of SequenceState");

// How a sequence chooses tokens.
struct SamplingParams {
    // 0 chooses the most probable token.
    float temperature;
    // 1 switches it off.
    float top_p;
    // 0 switches it off.
    float min_p;
    // 1 switches it off.
    float penalty;
    // 0 switches it off.
    u32 top_k;
    // Newest tokens that the penalty concerns, at most 1024.
    u32 window;
    u64 seed;
    // A bit per token, set for those that may be chosen; null allows all.
    const u32* mask;
};
AT(SamplingParams, temperature, 0);
AT(SamplingParams, top_p, 4);
AT(SamplingParams, min_p, 8);
AT(SamplingParams, penalty, 12);
AT(SamplingParams, top_k, 16);
AT(SamplingParams, window, 20);
AT(SamplingParams, seed, 24);
AT(SamplingParams, mask, 32);
static_assert(sizeof(SamplingParams) == 40, "size of SamplingParams");

// The choice of a token, and its way into the model.
struct SampleParams {
    SequenceState* state;
    const SamplingParams* settings;
    // Tokens of the context.
    u32* history;
    // Tokens that the host feeds.
    const u32* pending;
    // Produced tokens, for the host: number (from 1) in the upper and token in the lower half.
    volatile u64* token_ring;
    float* logits;
    // Maxima of blocks of logits, as `product_*` writes them.
    const u64* best;
    // Tiles of the embedding.
    const u8* tiles;
    // One row per position, added to the embedding, or null.
    const float* positions;
    // Rotation of each pair from one position to the next, in turns, and the factor of cosine and sine.
    const double2* frequencies;
    float2* rotation;
    // The model's vector.
    float* x;
    u32 vocabulary;
    u32 width;
    // Format of the embedding, as GGUF files number them.
    u32 block_type;
    // Pairs of columns of all rotations.
    u32 pairs;
    // Blocks of logits.
    u32 blocks;
    // Tokens in `token_ring`.
    u32 ring_length;
    // Factor of the embedding.
    float factor;
    u32 unused;
};
AT(SampleParams, state, 0);
AT(SampleParams, settings, 8);
AT(SampleParams, history, 16);
AT(SampleParams, pending, 24);
AT(SampleParams, token_ring, 32);
AT(SampleParams, logits, 40);
AT(SampleParams, best, 48);
AT(SampleParams, tiles, 56);
AT(SampleParams, positions, 64);
AT(SampleParams, frequencies, 72);
AT(SampleParams, rotation, 80);
AT(SampleParams, x, 88);
AT(SampleParams, vocabulary, 96);
AT(SampleParams, width, 100);
AT(SampleParams, block_type, 104);
AT(SampleParams, pairs, 108);
AT(SampleParams, blocks, 112);
AT(SampleParams, ring_length, 116);
AT(SampleParams, factor, 120);
AT(SampleParams, unused, 124);
static_assert(sizeof(SampleParams) == 128, "size of SampleParams");

// Memory of one of the sequences that decode together.
struct SequenceMemory {
    // Vectors of the sequence; kernels get the places in it.
    u8* vectors;
    // Caches of all layers.
    u8* keys;
    u8* values;
    // Position of the newest token.
    const u32* position;
    // Positions of the caches.
    u32 context;
    u32 unused;
    // Scales of all layers, if caches have integers.
    __half2* scales;
};
AT(SequenceMemory, vectors, 0);
AT(SequenceMemory, keys, 8);
AT(SequenceMemory, values, 16);
AT(SequenceMemory, position, 24);
AT(SequenceMemory, context, 32);
AT(SequenceMemory, unused, 36);
AT(SequenceMemory, scales, 40);
static_assert(sizeof(SequenceMemory) == 48, "size of SequenceMemory");

// Sequences that decode together.
struct SequenceTable {
    // Number of sequences.
    u32 count;
    u32 unused[3];
    SequenceMemory list[32];
};
AT(SequenceTable, count, 0);
AT(SequenceTable, unused, 4);
AT(SequenceTable, list, 16);
static_assert(sizeof(SequenceTable) == 1552, "size of SequenceTable");

// A product of a matrix with one vector of each sequence.
struct BatchProductParams {
    // As for one sequence, but `input`, `branch`, `joined`, `other`, `output` and `best` are places in the memory
    // of a sequence. `before` and the branch concern `prepare_*` only.
    ProductParams product;
    const SequenceTable* sequences;
    // Sequences of a block, at most GROUP.
    u32 group;
    u32 unused;
};
AT(BatchProductParams, product, 0);
AT(BatchProductParams, sequences, 176);
AT(BatchProductParams, group, 184);
AT(BatchProductParams, unused, 188);
static_assert(sizeof(BatchProductParams) == 192, "size of BatchProductParams");

// A short convolution, which takes the place of the attention.
struct ConvolveParams {
    // Rows of three parts of `width` elements each: factors of the input, factors of the output, the input.
    const float* parts;
    // Weights of each position, oldest first: 3 x width.
    const float* taps;
    // Inputs times factors of the newest positions, each at its position modulo `kept`: kept x width.
    float* ring;
    // A row of `width` elements for each of `parts`.
    float* output;
    // Position of the only row; null for rows from `start` on.
    const u32* position;
    // Null, or the sequences in whose memory parts, ring and output are.
    const SequenceTable* sequences;
    u32 width;
    u32 start;
    // Places of the ring.
    u32 kept;
    u32 unused;
};
AT(ConvolveParams, parts, 0);
AT(ConvolveParams, taps, 8);
AT(ConvolveParams, ring, 16);
AT(ConvolveParams, output, 24);
AT(ConvolveParams, position, 32);
AT(ConvolveParams, sequences, 40);
AT(ConvolveParams, width, 48);
AT(ConvolveParams, start, 52);
AT(ConvolveParams, kept, 56);
AT(ConvolveParams, unused, 60);
static_assert(sizeof(ConvolveParams) == 64, "size of ConvolveParams");

// An expert that a vector uses, and the factor of its result.
struct Choice {
    u32 expert;
    float weight;
};
AT(Choice, expert, 0);
AT(Choice, weight, 4);
static_assert(sizeof(Choice) == 8, "size of Choice");

// The products of the experts that one vector uses, or one of each sequence.
struct ExpertsParams {
    // The matrices of all experts, one after another; `rows` are those of one. For several sequences, `input`,
    // `other` and `output` are places in the memory of a sequence; for rows, they are the first row's. Batches are
    // not used.
    ProductParams product;
    // The router's numbers, one per expert.
    const float* logits;
    // Those of each vector, the largest number first.
    Choice* choices;
    // Null for one vector, and for rows.
    const SequenceTable* sequences;
    // Bytes from an expert's matrix to the next.
    u64 expert_bytes;
    // Between the products, each expert that a vector uses has a vector: bytes from one to the next, and their
    // form: HIDDEN_ROUNDED, HIDDEN_UNITS or HIDDEN_PLAIN.
    u32 hidden_bytes;
    u32 form;
    u32 experts;
    // Experts that a vector uses.
    u32 used;
    // Number of rows, and bytes from the input of the first products to that of the next row.
    u32 vectors;
    u32 input_bytes;
};
AT(ExpertsParams, product, 0);
AT(ExpertsParams, logits, 176);
AT(ExpertsParams, choices, 184);
AT(ExpertsParams, sequences, 192);
AT(ExpertsParams, expert_bytes, 200);
AT(ExpertsParams, hidden_bytes, 208);
AT(ExpertsParams, form, 212);
AT(ExpertsParams, experts, 216);
AT(ExpertsParams, used, 220);
AT(ExpertsParams, vectors, 224);
AT(ExpertsParams, input_bytes, 228);
static_assert(sizeof(ExpertsParams) == 232, "size of ExpertsParams");

// The attention of one token of each sequence. Grid (as for one, chunks, sequences).
struct BatchAttentionParams {
    // As for one sequence, but `qkv`, `rotation`, `parts`, `tickets` and `output` are places in the memory of a
    // sequence, and the cache's first byte is that of layer 0.
    AttentionParams attention;
    const SequenceTable* sequences;
    u32 layer;
    u32 unused;
};
AT(BatchAttentionParams, attention, 0);
AT(BatchAttentionParams, sequences, 160);
AT(BatchAttentionParams, layer, 168);
AT(BatchAttentionParams, unused, 172);
static_assert(sizeof(BatchAttentionParams) == 176, "size of BatchAttentionParams");

#undef AT
