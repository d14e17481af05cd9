// What the layers of a language model do between their products, for many tokens of a prompt at once: rows of the
// embedding, norms and rounding, rotation and the append to the cache, attention.
//
// Sums have a fixed order: equal prompts give equal bits.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "formats.cuh"
#include "sequences.cuh"

#include "../cache.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)
#define LOG2E 1.4426950408889634f

static __device__ float warp_sum(float v)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1)
        v += __shfl_xor_sync(ALL, v, offset);
    return v;
}

static __device__ float warp_max(float v)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1)
        v = fmaxf(v, __shfl_xor_sync(ALL, v, offset));
    return v;
}

// ---- The embedding ----

// One block per token: its row of the embedding, and the rotations at its position.
extern "C" __global__ void __launch_bounds__(THREADS) embed(const __grid_constant__ EmbedParams p)
{
    u32 token = p.tokens[blockIdx.x], position = p.start + blockIdx.x;
    float* x = p.x + (u64)blockIdx.x * p.width;
    const float* of_position = p.positions ? p.positions + (u64)position * p.width : 0;
    copy_row_of(p.block_type, p.tiles, p.width, token, p.factor, of_position, x);
    for (u32 i = threadIdx.x; i < p.pairs; i += THREADS) {
        double turns = p.frequencies[i].x * (double)position, magnitude = p.frequencies[i].y;
        float sine, cosine;
        sincospif(2.0f * (float)(turns - rint(turns)), &sine, &cosine);
        p.rotation[(u64)blockIdx.x * p.pairs + i] = make_float2(cosine * (float)magnitude, sine * (float)magnitude);
    }
    if (threadIdx.x == 0)
        p.history[position] = token;
}

// ---- Norms and rounding ----


// Sum over the block; `scratch` has WARPS elements.
static __device__ float block_sum(float v, float* scratch)
{
    v = warp_sum(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        scratch[threadIdx.x / 32] = v;
    __syncthreads();
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < WARPS; ++i)
        sum += scratch[i];
    return sum;
}

// Four elements of a thread that it keeps in registers, at most; longer rows are read again.
#define QUADS 8

static __device__ float block_max(float v, float* scratch)
{
    v = warp_max(v);
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        scratch[threadIdx.x / 32] = v;
    __syncthreads();
    float most = 0.0f;
#pragma unroll
    for (int i = 0; i < WARPS; ++i)
        most = fmaxf(most, scratch[i]);
    return most;
}

// A row, in quads of four elements.
struct Quads {
    const float4 *input, *weight, *bias;
    u32 count;
    float4 kept[QUADS];

    // Calls `f` with each of the thread's quads and its place; `read` gets those that are not kept.
    template <class Read, class Use>
    __device__ void each(Read read, Use f)
    {
#pragma unroll
        for (int i = 0; i < QUADS; ++i)
            if (threadIdx.x + i * THREADS < count)
                f(kept[i], threadIdx.x + i * THREADS);
#pragma unroll 1
        for (u32 at = threadIdx.x + QUADS * THREADS; at < count; at += THREADS) {
            float4 v = read(at);
            f(v, at);
        }
    }
};

static __device__ float4 normed(float4 v, float mean, float factor, float4 w, float4 b)
{
    return make_float4(fmaf((v.x - mean) * factor, w.x, b.x), fmaf((v.y - mean) * factor, w.y, b.y),
                       fmaf((v.z - mean) * factor, w.z, b.z), fmaf((v.w - mean) * factor, w.w, b.w));
}

// Adds a branch to a row: x + norm(branch) * weight. The sum goes to memory, too, and takes the place of the input.
static __device__ void join(const RoundParams& p, Quads& row, float* scratch)
{
    bool rows = !p.sequences.count;
    u64 first = rows ? (u64)blockIdx.x * p.columns : 0;
    const float4* branch = (const float4*)((rows ? p.branch : at(p.sequences, blockIdx.x, p.branch)) + first);
    float4* joined = (float4*)((rows ? p.joined : at(p.sequences, blockIdx.x, p.joined)) + first);
    const float4* weight = (const float4*)p.branch_weight;
    float sum = 0.0f;
#pragma unroll 4
    for (u32 at = threadIdx.x; at < row.count; at += THREADS) {
        float4 v = branch[at];
        sum += fmaf(v.x, v.x, v.y * v.y) + fmaf(v.z, v.z, v.w * v.w);
    }
    float factor = rsqrtf(block_sum(sum, scratch) / (float)p.columns + p.epsilon);
    row.each([&](u32 at) { return row.input[at]; }, [&](float4& v, u32 at) {
        v = normed(branch[at], 0.0f, factor, weight[at], v);
        joined[at] = v;
    });
    row.input = joined;
}

// One block per row, of a multiple of four elements. The largest element of a row of halves becomes 2^13 to 2^14, so that
// none is out of range and small ones keep their bits; the factor is a power of two.
extern "C" __global__ void __launch_bounds__(THREADS) round_rows(const __grid_constant__ RoundParams p)
{
    __shared__ float scratch[WARPS];
    let_next_begin();
    const float* input = p.input + (u64)blockIdx.x * p.columns;
    if (p.sequences.count) {
        if (blockIdx.x >= *p.sequences.count)
            return;
        input = at(p.sequences, blockIdx.x, p.input);
    }
    const float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    bool norm = p.norm != BEFORE_NOTHING;
    Quads row = {(const float4*)input, (const float4*)p.weight, (const float4*)p.bias, p.columns / 4};
    auto weight = [&](u32 at) { return row.weight[at]; };
    auto bias = [&](u32 at) { return row.bias ? row.bias[at] : zero; };
    float4 weights[QUADS], biases[QUADS];
#pragma unroll
    for (int i = 0; i < QUADS; ++i) {
        u32 at = threadIdx.x + i * THREADS;
        weights[i] = norm && at < row.count ? weight(at) : zero;
        biases[i] = norm && at < row.count ? bias(at) : zero;
    }
    wait_for_previous();
#pragma unroll
    for (int i = 0; i < QUADS; ++i) {
        u32 at = threadIdx.x + i * THREADS;
        row.kept[i] = at < row.count ? row.input[at] : zero;
    }
    if (p.branch)
        join(p, row, scratch);
    auto raw = [&](u32 at) { return row.input[at]; };
    float mean = 0.0f, factor = 1.0f;
    if (p.norm == BEFORE_LAYER_NORM) {
        float sum = 0.0f;
        row.each(raw, [&](const float4& v, u32) { sum += (v.x + v.y) + (v.z + v.w); });
        mean = block_sum(sum, scratch) / (float)p.columns;
    }
    if (norm) {
        float sum = 0.0f;
        row.each(raw, [&](const float4& v, u32) {
            float x = v.x - mean, y = v.y - mean, z = v.z - mean, w = v.w - mean;
            sum += fmaf(x, x, y * y) + fmaf(z, z, w * w);
        });
        factor = rsqrtf(block_sum(sum, scratch) / (float)p.columns + p.epsilon);
#pragma unroll
        for (int i = 0; i < QUADS; ++i)
            row.kept[i] = normed(row.kept[i], mean, factor, weights[i], biases[i]);
    }
    auto element = [&](u32 at) {
        return norm ? normed(row.input[at], mean, factor, weight(at), bias(at)) : row.input[at];
    };
    if (p.keep) {
        float4* output = (float4*)p.output + (u64)blockIdx.x * row.count;
        row.each(element, [&](const float4& v, u32 at) { output[at] = v; });
        if (threadIdx.x == 0)
            p.factors[blockIdx.x] = p.scale;
        return;
    }
    float most = 0.0f;
    row.each(element, [&](const float4& v, u32) {
        most = fmaxf(most, fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w))));
    });
    // Powers of two, by their exponents.
    u32 exponent = __float_as_uint(block_max(most, scratch)) >> 23;
    exponent = exponent < 14 ? 14 : exponent;
    float up = __uint_as_float((267 - exponent) << 23), down = __uint_as_float((exponent - 13) << 23);
    uint2* output = (uint2*)p.output + (u64)blockIdx.x * row.count;
    row.each(element, [&](const float4& v, u32 at) {
        __half2 low = __floats2half2_rn(v.x * up, v.y * up), high = __floats2half2_rn(v.z * up, v.w * up);
        output[at] = make_uint2(*(u32*)&low, *(u32*)&high);
    });
    if (threadIdx.x == 0)
        p.factors[blockIdx.x] = down * p.scale;
}

// ---- Rotation and the cache ----


// Most columns of a head, and pairs of a lane.
#define MAX_HEAD 256
#define MAX_PAIRS (MAX_HEAD / 64)

// One warp per token and head. Grid (tokens, all heads / 8).
extern "C" __global__ void __launch_bounds__(THREADS) turn(const __grid_constant__ RotateParams p)
{
    __shared__ float rows[WARPS][MAX_HEAD];
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y * WARPS + warp, token = blockIdx.x;
    u32 all = p.heads + 2 * p.key_heads, pairs = p.head_size / 2;
    if (head >= all)
        return;
    const float* from = p.qkv + ((u64)token * all + head) * p.head_size;
    bool is_query = head < p.heads, is_value = head >= p.heads + p.key_heads;
    u32 key_head = is_value ? head - p.heads - p.key_heads : head - p.heads;
    u64 place = (u64)key_head * p.context + p.start + token;
    __half* to = is_query ? p.queries + ((u64)token * p.heads + head) * p.head_size
                          : (__half*)(is_value ? p.values : p.keys) + place * p.head_size;
    const float* norm = is_query ? p.query_norm : is_value ? 0 : p.key_norm;
    bool halves = p.rotate == ROTATE_HALVES, rounds = p.scales && !is_query;
    float a[MAX_PAIRS], b[MAX_PAIRS], sum = 0.0f;
    u32 first[MAX_PAIRS], second[MAX_PAIRS];
#pragma unroll
    for (int i = 0; i < MAX_PAIRS; ++i) {
        u32 pair = lane + 32 * i;
        bool apart = halves && pair < p.rotated / 2;
        first[i] = apart ? pair : 2 * pair;
        second[i] = apart ? pair + p.rotated / 2 : 2 * pair + 1;
        a[i] = pair < pairs ? from[first[i]] : 0.0f;
        b[i] = pair < pairs ? from[second[i]] : 0.0f;
        sum += a[i] * a[i] + b[i] * b[i];
    }
    float factor = norm ? 1.0f / sqrtf(warp_sum(sum) / (float)p.head_size + p.epsilon) : 1.0f;
    // log2(e): weights of the attention are powers of two.
    float scale = is_query ? p.scale * LOG2E : 1.0f;
#pragma unroll
    for (int i = 0; i < MAX_PAIRS; ++i) {
        u32 pair = lane + 32 * i;
        if (pair >= pairs)
            continue;
        float x = a[i] * factor, y = b[i] * factor;
        if (norm) {
            x *= norm[first[i]];
            y *= norm[second[i]];
        }
        if (!is_value && p.rotate != ROTATE_NOTHING && pair < p.rotated / 2) {
            float2 turn = p.rotation[(u64)token * p.rotation_row + pair];
            float rotated = x * turn.x - y * turn.y;
            y = x * turn.y + y * turn.x;
            x = rotated;
        }
        if (rounds) {
            rows[warp][first[i]] = x;
            rows[warp][second[i]] = y;
            continue;
        }
        to[first[i]] = __float2half_rn(x * scale);
        to[second[i]] = __float2half_rn(y * scale);
    }
    if (!rounds)
        return;
    __syncwarp();
    signed char* integers = (signed char*)(is_value ? p.values : p.keys) + place * p.head_size;
    __half* scales = (__half*)(p.scales + place * ((p.head_size + SCALE_COLUMNS - 1) / SCALE_COLUMNS)) + is_value;
    round_row(rows[warp], p.head_size, [&](u32 column, signed char q) { integers[column] = q; },
              [&](u32 group, __half stored) { scales[2 * group] = stored; });
}

// ---- Attention ----

// Queries of a tile.
#define TILE 64
#define ATTEND_THREADS 128
// Stands for minus infinity: its differences are numbers.
#define LOWEST -1e30f

static __device__ u32 two_halves(float a, float b)
{
    __half2 pair = __floats2half2_rn(a, b);
    return *(u32*)&pair;
}

// A tile of 64 queries of a head; each warp has 16 of them. Keys and values come SPAN positions at a time, one tile
// ahead. HEAD is the size of a head, rounded up to 64, 128 or 256. With SCALED, the cache has scaled integers, which
// wait in shared memory in this form and become halves there. Grid (tiles, heads).
template <int HEAD, bool SCALED>
static __device__ void attend(const AttendParams& p)
{
    extern __shared__ __align__(128) u8 memory[];
    // With 256 columns, there are no registers for the queries and for 64 positions.
    const bool KEEPS_QUERIES = HEAD <= 128;
    const u32 SPAN = HEAD <= 128 ? 64 : 32, PITCH = HEAD * 2, PIECES = PITCH / 16;
    const u32 QUERY_BYTES = TILE * PITCH, BYTES = SPAN * PITCH, GROUPS = HEAD / SCALE_COLUMNS;
    u32 shared = shared_address(memory), lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // The longest sums first.
    u32 first = (gridDim.x - 1 - blockIdx.x) * TILE, head = blockIdx.y;
    u32 key_head = head / (p.heads / p.key_heads), positions = p.start + p.m;
    u32 end = p.start + first + TILE < positions ? p.start + first + TILE : positions, tiles = (end + SPAN - 1) / SPAN;
    // The first query sees the first position.
    u32 own = p.start + first + 1, first_tile = own > p.window ? (own - p.window) / SPAN : 0;
    u64 place = (u64)key_head * p.context;
    const u8* keys = (const u8*)p.keys + place * p.head_size * (SCALED ? 1 : 2);
    const u8* values = (const u8*)p.values + place * p.head_size * (SCALED ? 1 : 2);
    u32 groups = (p.head_size + SCALE_COLUMNS - 1) / SCALE_COLUMNS;
    const __half2* scales = p.scales + place * groups;

    // Rows and columns that do not exist are zeros.
    auto fetch = [&](u32 to, const __half* from, u32 rows, u32 line, u32 lines, u32 pitch) {
#pragma unroll
        for (u32 i = threadIdx.x; i < rows * PIECES; i += ATTEND_THREADS) {
            u32 row = i / PIECES, piece = i % PIECES;
            bool exists = line + row < lines && piece * 8 < p.head_size;
            const __half* at = from + (exists ? (u64)(line + row) * pitch + piece * 8 : 0);
            copy_part(to + row * PITCH + ((piece ^ (row % 8)) << 4), at, exists ? 16 : 0);
        }
    };
    // Integers of keys and values and their scales wait behind the tiles of halves.
    u32 waiting = QUERY_BYTES + 2 * BYTES;
    auto fetch_integers = [&](u32 line) {
#pragma unroll
        for (u32 i = threadIdx.x; i < SPAN * PIECES; i += ATTEND_THREADS) {
            u32 row = i / PIECES, piece = i % PIECES;
            bool exists = line + row < end && piece * 8 < p.head_size;
            u64 at = exists ? (u64)(line + row) * p.head_size + piece * 8 : 0;
            copy_eight(shared + waiting + i * 8, keys + at, exists ? 8 : 0);
            copy_eight(shared + waiting + BYTES / 2 + i * 8, values + at, exists ? 8 : 0);
        }
        for (u32 i = threadIdx.x; i < SPAN * GROUPS; i += ATTEND_THREADS) {
            u32 row = i / GROUPS, group = i % GROUPS;
            bool exists = line + row < end && group < groups;
            copy_four(shared + waiting + BYTES + i * 4, scales + (exists ? (line + row) * groups + group : 0),
                      exists ? 4 : 0);
        }
    };
    auto fetch_tile = [&](u32 tile) {
        if (SCALED) {
            fetch_integers(tile * SPAN);
            return;
        }
        u32 to = shared + QUERY_BYTES + tile % 2 * 2 * BYTES;
        fetch(to, (const __half*)keys, SPAN, tile * SPAN, end, p.head_size);
        fetch(to + BYTES, (const __half*)values, SPAN, tile * SPAN, end, p.head_size);
    };
    // Eight integers, times their scale, as halves.
    auto expand = [&](u32 to, const u8* from, __half scale) {
        float v[8];
        integers(((const u32*)from)[0], v);
        integers(((const u32*)from)[1], v + 4);
        u32 w[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            __half2 pair = __hmul2(__floats2half2_rn(v[2 * i], v[2 * i + 1]), __half2half2(scale));
            w[i] = *(u32*)&pair;
        }
        store16(to, make_uint4(w[0], w[1], w[2], w[3]));
    };
    auto expand_tile = [&] {
#pragma unroll
        for (u32 i = threadIdx.x; i < SPAN * PIECES; i += ATTEND_THREADS) {
            u32 row = i / PIECES, piece = i % PIECES, to = row * PITCH + ((piece ^ (row % 8)) << 4);
            const u8* from = memory + waiting;
            __half2 scale = ((const __half2*)(from + BYTES))[row * GROUPS + piece * 8 / SCALE_COLUMNS];
            expand(shared + QUERY_BYTES + to, from + i * 8, __low2half(scale));
            expand(shared + QUERY_BYTES + BYTES + to, from + BYTES / 2 + i * 8, __high2half(scale));
        }
    };
    fetch(shared, p.queries + head * p.head_size, TILE, first, p.m, p.heads * p.head_size);
    fetch_tile(first_tile);
    commit();
    wait<0>();
    __syncthreads();

    auto load_query = [&](u32 (&to)[4], u32 k) {
        u32 row = warp * 16 + lane % 16;
        load_matrices(to, shared + row * PITCH + (((k * 2 + lane / 16) ^ (row % 8)) << 4));
    };
    u32 query[KEEPS_QUERIES ? HEAD / 16 : 1][4];
#pragma unroll
    for (int k = 0; k < HEAD / 16 && KEEPS_QUERIES; ++k)
        load_query(query[k], k);
    // The head's sink is a score without a value; one of the four lanes of a query has its weight.
    float sink = p.sinks ? p.sinks[head] * LOG2E : LOWEST, seen = p.sinks && lane % 4 == 0 ? 1.0f : 0.0f;
    float sum[HEAD / 8][4], top[2] = {sink, sink}, weight[2] = {seen, seen};
#pragma unroll
    for (int i = 0; i < HEAD / 8; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e)
            sum[i][e] = 0.0f;

    for (u32 tile = first_tile; tile < tiles; ++tile) {
        if (SCALED) {
            expand_tile();
            __syncthreads();
        }
        if (tile + 1 < tiles)
            fetch_tile(tile + 1);
        commit();
        u32 of_keys = shared + QUERY_BYTES + (SCALED ? 0 : tile % 2 * 2 * BYTES), of_values = of_keys + BYTES;

        float score[SPAN / 8][4];
#pragma unroll
        for (int j = 0; j < SPAN / 8; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e)
                score[j][e] = 0.0f;
#pragma unroll
        for (int k = 0; k < HEAD / 16; ++k) {
            u32(&a)[4] = query[KEEPS_QUERIES ? k : 0];
            if (!KEEPS_QUERIES)
                load_query(a, k);
#pragma unroll
            for (int j = 0; j < SPAN / 16; ++j) {
                u32 b[4], row = j * 16 + lane / 16 * 8 + lane % 8;
                load_matrices(b, of_keys + row * PITCH + (((k * 2 + lane / 8 % 2) ^ (row % 8)) << 4));
                F16::mma(score[2 * j], a, b[0], b[1]);
                F16::mma(score[2 * j + 1], a, b[2], b[3]);
            }
        }

        // A query sees the positions up to its own that are in its window.
        u32 warp_first = p.start + first + warp * 16;
        if (tile * SPAN + SPAN > warp_first + 1 || tile * SPAN + p.window <= warp_first + 15) {
#pragma unroll
            for (int j = 0; j < SPAN / 8; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    u32 at = tile * SPAN + j * 8 + lane % 4 * 2 + e % 2, own = warp_first + lane / 4 + e / 2 * 8;
                    if (at > own || at + p.window <= own)
                        score[j][e] = LOWEST;
                }
        }
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            float most = top[half];
#pragma unroll
            for (int j = 0; j < SPAN / 8; ++j)
                most = fmaxf(most, fmaxf(score[j][2 * half], score[j][2 * half + 1]));
            most = fmaxf(most, __shfl_xor_sync(ALL, most, 1));
            most = fmaxf(most, __shfl_xor_sync(ALL, most, 2));
            float factor = exp2f(top[half] - most);
            top[half] = most;
            weight[half] *= factor;
#pragma unroll
            for (int i = 0; i < HEAD / 8; ++i)
                sum[i][2 * half] *= factor, sum[i][2 * half + 1] *= factor;
#pragma unroll
            for (int j = 0; j < SPAN / 8; ++j)
#pragma unroll
                for (int e = 2 * half; e < 2 * half + 2; ++e) {
                    score[j][e] = exp2f(score[j][e] - most);
                    weight[half] += score[j][e];
                }
        }
#pragma unroll
        for (int k = 0; k < SPAN / 16; ++k) {
            u32 a[4] = {two_halves(score[2 * k][0], score[2 * k][1]), two_halves(score[2 * k][2], score[2 * k][3]),
                        two_halves(score[2 * k + 1][0], score[2 * k + 1][1]),
                        two_halves(score[2 * k + 1][2], score[2 * k + 1][3])};
#pragma unroll
            for (int d = 0; d < HEAD / 16; ++d) {
                u32 b[4], row = k * 16 + lane % 16;
                load_turned(b, of_values + row * PITCH + (((d * 2 + lane / 16) ^ (row % 8)) << 4));
                F16::mma(sum[2 * d], a, b[0], b[1]);
                F16::mma(sum[2 * d + 1], a, b[2], b[3]);
            }
        }
        wait<0>();
        __syncthreads();
    }

#pragma unroll
    for (int half = 0; half < 2; ++half) {
        weight[half] += __shfl_xor_sync(ALL, weight[half], 1);
        weight[half] += __shfl_xor_sync(ALL, weight[half], 2);
        u32 row = first + warp * 16 + lane / 4 + half * 8;
        if (row >= p.m)
            continue;
        float* output = p.output + ((u64)row * p.heads + head) * p.head_size;
#pragma unroll
        for (int i = 0; i < HEAD / 8; ++i)
            if (i * 8 < p.head_size)
                *(float2*)(output + i * 8 + lane % 4 * 2) =
                    make_float2(sum[i][2 * half] / weight[half], sum[i][2 * half + 1] / weight[half]);
    }
}

#define ATTEND(name, head, scaled)                                                                                    \
    extern "C" __global__ void __launch_bounds__(ATTEND_THREADS) attend_##name(const __grid_constant__ AttendParams p) \
    {                                                                                                                 \
        attend<head, scaled>(p);                                                                                      \
    }

ATTEND(64, 64, false)
ATTEND(128, 128, false)
ATTEND(256, 256, false)
ATTEND(q8_0_64, 64, true)
ATTEND(q8_0_128, 128, true)
ATTEND(q8_0_256, 256, true)
