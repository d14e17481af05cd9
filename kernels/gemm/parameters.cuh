// Written by `UPDATE_HEADER=1 cargo test -p orin-infer headers` from
// crates/infer/src/parameters/gemm.rs: edit that file.
#pragma once
#include "mma.cuh"

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

// Vectors that are not rows of a matrix, but each at the same place in the memory of its sequence.
struct SequenceView {
    // Number of sequences; null if vectors are rows of a matrix.
    const u32* count;
    // Address of the pointer to the first sequence's memory.
    const u8* first;
    // Bytes from one pointer to the next.
    u64 stride;
};
AT(SequenceView, count, 0);
AT(SequenceView, first, 8);
AT(SequenceView, stride, 16);
static_assert(sizeof(SequenceView) == 24, "size of SequenceView");

// A product of matrices.
struct DenseParams {
    // Distance between matrices of a batch, in bytes.
    u64 a_batch;
    u64 b_batch;
    u64 c_batch;
    u32 m;
    u32 n;
    u32 k;
    // Distance between rows, in elements.
    u32 a_row;
    u32 b_row;
    u32 c_row;
    // Type of `c`; whether `c` is added.
    u32 output;
    u32 accumulate;
    float scale;
    // Bits 0, 1 and 2: `a`, `b` and `c` is an array of pointers to the matrices of a batch.
    u32 arrays;
};
AT(DenseParams, a_batch, 0);
AT(DenseParams, b_batch, 8);
AT(DenseParams, c_batch, 16);
AT(DenseParams, m, 24);
AT(DenseParams, n, 28);
AT(DenseParams, k, 32);
AT(DenseParams, a_row, 36);
AT(DenseParams, b_row, 40);
AT(DenseParams, c_row, 44);
AT(DenseParams, output, 48);
AT(DenseParams, accumulate, 52);
AT(DenseParams, scale, 56);
AT(DenseParams, arrays, 60);
static_assert(sizeof(DenseParams) == 64, "size of DenseParams");

// A product of `m` vectors with packed weights.
struct PackedParams {
    u32 m;
    u32 rows;
    u32 columns;
    // Distance between vectors, in elements.
    u32 input_row;
    u32 output_row;
    u32 after;
    u32 activation;
};
AT(PackedParams, m, 0);
AT(PackedParams, rows, 4);
AT(PackedParams, columns, 8);
AT(PackedParams, input_row, 12);
AT(PackedParams, output_row, 16);
AT(PackedParams, after, 20);
AT(PackedParams, activation, 24);
static_assert(sizeof(PackedParams) == 28, "size of PackedParams");

// The same for at most 32 vectors, whose columns several blocks may share.
struct FewParams {
    PackedParams product;
    // Parts of the columns, and the steps of each but the last, which may have fewer.
    u32 parts;
    u32 steps;
    // Warps that share the columns of 16 rows: 1, 2, 4, 8 or 16.
    u32 split;
    // Rounds of a block.
    u32 rounds;
    u32 unused;
    // The sums of each block, and the number of blocks that have stored theirs, 0 before and after the launch.
    // Null with one part.
    float* sums;
    u32* tickets;
    // Where gates and outputs are.
    SequenceView sequences;
};
AT(FewParams, product, 0);
AT(FewParams, parts, 28);
AT(FewParams, steps, 32);
AT(FewParams, split, 36);
AT(FewParams, rounds, 40);
AT(FewParams, unused, 44);
AT(FewParams, sums, 48);
AT(FewParams, tickets, 56);
AT(FewParams, sequences, 64);
static_assert(sizeof(FewParams) == 88, "size of FewParams");

// The embedding of the tokens of a prompt.
struct EmbedParams {
    const u8* tiles;
    const u32* tokens;
    // One row per position, added to the embedding, or null.
    const float* positions;
    // Rotation of each pair from one position to the next, in turns, and the factor of cosine and sine.
    const double2* frequencies;
    // m x width.
    float* x;
    // m x pairs.
    float2* rotation;
    // Tokens of the context.
    u32* history;
    u32 start;
    u32 width;
    u32 pairs;
    // Format of the embedding, as GGUF files number them.
    u32 block_type;
    // Factor of the embedding.
    float factor;
    u32 unused;
};
AT(EmbedParams, tiles, 0);
AT(EmbedParams, tokens, 8);
AT(EmbedParams, positions, 16);
AT(EmbedParams, frequencies, 24);
AT(EmbedParams, x, 32);
AT(EmbedParams, rotation, 40);
AT(EmbedParams, history, 48);
AT(EmbedParams, start, 56);
AT(EmbedParams, width, 60);
AT(EmbedParams, pairs, 64);
AT(EmbedParams, block_type, 68);
AT(EmbedParams, factor, 72);
AT(EmbedParams, unused, 76);
static_assert(sizeof(EmbedParams) == 80, "size of EmbedParams");

// The rounding of rows of floats for a product.
struct RoundParams {
    // m x columns floats.
    const float* input;
    const float* weight;
    const float* bias;
    // m x columns halves, or floats with `keep`.
    void* output;
    // One per row: the row is the rounded row times its factor.
    float* factors;
    u32 columns;
    // The norm before the rounding: BEFORE_RMS_NORM, BEFORE_LAYER_NORM or BEFORE_NOTHING.
    u32 norm;
    u32 keep;
    float epsilon;
    // Where `input`, `branch` and `joined` are.
    SequenceView sequences;
    // Rows that are normalised, multiplied with these weights and added to the input before the norm, or null.
    const float* branch;
    const float* branch_weight;
    // Where the sums of input and branch go; may be `input`.
    float* joined;
    // Factor of the rounded rows.
    float scale;
    u32 unused;
};
AT(RoundParams, input, 0);
AT(RoundParams, weight, 8);
AT(RoundParams, bias, 16);
AT(RoundParams, output, 24);
AT(RoundParams, factors, 32);
AT(RoundParams, columns, 40);
AT(RoundParams, norm, 44);
AT(RoundParams, keep, 48);
AT(RoundParams, epsilon, 52);
AT(RoundParams, sequences, 56);
AT(RoundParams, branch, 80);
AT(RoundParams, branch_weight, 88);
AT(RoundParams, joined, 96);
AT(RoundParams, scale, 104);
AT(RoundParams, unused, 108);
static_assert(sizeof(RoundParams) == 112, "size of RoundParams");

// The rotation of queries and keys, and the append of keys and values to the cache.
struct RotateParams {
    // m rows: queries of all heads, then keys, then values of all key heads.
    const float* qkv;
    const float* query_norm;
    const float* key_norm;
    // m rows, `rotation_row` apart: cosine and sine of each pair.
    const float2* rotation;
    // m x heads x head_size halves, times `scale`.
    __half* queries;
    // The layer's cache: key_heads x context x head_size halves or scaled integers.
    void* keys;
    void* values;
    u32 start;
    u32 heads;
    u32 key_heads;
    u32 head_size;
    u32 context;
    u32 rotate;
    u32 rotated;
    float scale;
    float epsilon;
    u32 rotation_row;
    // Scales of integers: key_heads x context x ceil(head_size / 32), each for a key and a value; null for halves.
    __half2* scales;
};
AT(RotateParams, qkv, 0);
AT(RotateParams, query_norm, 8);
AT(RotateParams, key_norm, 16);
AT(RotateParams, rotation, 24);
AT(RotateParams, queries, 32);
AT(RotateParams, keys, 40);
AT(RotateParams, values, 48);
AT(RotateParams, start, 56);
AT(RotateParams, heads, 60);
AT(RotateParams, key_heads, 64);
AT(RotateParams, head_size, 68);
AT(RotateParams, context, 72);
AT(RotateParams, rotate, 76);
AT(RotateParams, rotated, 80);
AT(RotateParams, scale, 84);
AT(RotateParams, epsilon, 88);
AT(RotateParams, rotation_row, 92);
AT(RotateParams, scales, 96);
static_assert(sizeof(RotateParams) == 104, "size of RotateParams");

// The attention of the tokens of a prompt.
struct AttendParams {
    // m x heads x head_size halves, times the scale and log2(e).
    const __half* queries;
    const void* keys;
    const void* values;
    // m x heads x head_size.
    float* output;
    u32 m;
    u32 start;
    u32 heads;
    u32 key_heads;
    u32 head_size;
    u32 context;
    const __half2* scales;
    // A score of each head that has no value, or null.
    const float* sinks;
    // Newest positions that a token sees, 1 to 2^30.
    u32 window;
    u32 unused;
};
AT(AttendParams, queries, 0);
AT(AttendParams, keys, 8);
AT(AttendParams, values, 16);
AT(AttendParams, output, 24);
AT(AttendParams, m, 32);
AT(AttendParams, start, 36);
AT(AttendParams, heads, 40);
AT(AttendParams, key_heads, 44);
AT(AttendParams, head_size, 48);
AT(AttendParams, context, 52);
AT(AttendParams, scales, 56);
AT(AttendParams, sinks, 64);
AT(AttendParams, window, 72);
AT(AttendParams, unused, 76);
static_assert(sizeof(AttendParams) == 80, "size of AttendParams");

#undef AT
