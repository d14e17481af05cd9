// The attention of one token: see `attention.cu`.
#pragma once
#include "common.cuh"

// Warps of a block.
#define ATTENTION_WARPS 16
#define ATTENTION_THREADS (ATTENTION_WARPS * 32)
#define MAX_HEAD 128
// Positions that a lane reads at a time.
#define UNROLL 2
// Fewest positions of a chunk.
#define MIN_CHUNK 256
// Stands for minus infinity: its differences are numbers.
#define LOWEST -1e30f

#define ROTATE_NOTHING 0
// Columns 2 i and 2 i + 1 form a pair.
#define ROTATE_NEIGHBOURS 1
// Columns i and i + rotated / 2 form a pair.
#define ROTATE_HALVES 2

struct Attention {
    // Queries of all heads, then keys, then values of all key heads: head_size elements each.
    const float* qkv;
    // Weights of the norms of each query and key head, or null.
    const float *query_norm, *key_norm;
    // Cosine and sine of each pair at the current position.
    const float2* rotation;
    // The layer's cache: key_heads x context x head_size.
    __half *keys, *values;
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
    u32 heads, key_heads, head_size, context;
    u32 rotate, rotated;
    float scale, epsilon;
};

// The columns of pair `pair`.
static __device__ void columns_of(const Attention& p, u32 pair, u32& first, u32& second)
{
    bool halves = p.rotate == ROTATE_HALVES && pair < p.rotated / 2;
    first = halves ? pair : 2 * pair;
    second = halves ? pair + p.rotated / 2 : 2 * pair + 1;
}

// One warp normalises and rotates a head; `store` gets each column. A lane has pairs `lane` and `lane + 32`.
template <class Store>
static __device__ void prepare(const Attention& p, const float* from, const float* norm, Store store)
{
    u32 lane = threadIdx.x % 32, pairs = p.head_size / 2;
    float a[2], b[2], sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        u32 pair = lane + 32 * i, first, second;
        columns_of(p, pair, first, second);
        a[i] = pair < pairs ? from[first] : 0.0f;
        b[i] = pair < pairs ? from[second] : 0.0f;
        sum += a[i] * a[i] + b[i] * b[i];
    }
    float factor = norm ? 1.0f / sqrtf(warp_sum(sum) / (float)p.head_size + p.epsilon) : 1.0f;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        u32 pair = lane + 32 * i, first, second;
        if (pair >= pairs)
            continue;
        columns_of(p, pair, first, second);
        float x = a[i] * factor, y = b[i] * factor;
        if (norm) {
            x *= norm[first];
            y *= norm[second];
        }
        if (p.rotate != ROTATE_NOTHING && pair < p.rotated / 2) {
            float2 turn = p.rotation[pair];
            float rotated = x * turn.x - y * turn.y;
            y = x * turn.y + y * turn.x;
            x = rotated;
        }
        store(first, x);
        store(second, y);
    }
}

// Eight halves.
struct Row {
    uint4 words;

    __device__ void load(const __half* from)
    {
        words = *(const uint4*)from;
    }

    __device__ void to(float (&v)[8]) const
    {
        u32 w[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float2 pair = __half22float2(*(const __half2*)&w[i]);
            v[2 * i] = pair.x, v[2 * i + 1] = pair.y;
        }
    }
};

// Running softmax of one head in a lane, over the positions that the lane's group has seen; `sum` has the lane's
// columns.
struct Running {
    float top, weight, sum[8];

    __device__ void clear()
    {
        top = LOWEST, weight = 0.0f;
#pragma unroll
        for (int i = 0; i < 8; ++i)
            sum[i] = 0.0f;
    }

    __device__ void scale(float new_top)
    {
        float factor = exp2f(top - new_top);
        top = new_top;
        weight *= factor;
#pragma unroll
        for (int i = 0; i < 8; ++i)
            sum[i] *= factor;
    }

    // Adds the state of the lane `offset` away.
    __device__ void merge(int offset)
    {
        float other = __shfl_xor_sync(ALL, top, offset);
        scale(fmaxf(top, other));
        weight += __shfl_xor_sync(ALL, weight, offset);
#pragma unroll
        for (int i = 0; i < 8; ++i)
            sum[i] += __shfl_xor_sync(ALL, sum[i], offset);
    }
};

// Shared memory of a block.
template <int HEADS>
struct Desk {
    float queries[HEADS][MAX_HEAD];
    float made[ATTENTION_WARPS][HEADS][MAX_HEAD + 2];
    // Of each warp, relative to the largest score.
    float factors[HEADS][ATTENTION_WARPS];
    float tops[HEADS], weights[HEADS];
    // Key and value of the token.
    __align__(16) __half own_key[MAX_HEAD], own_value[MAX_HEAD];
    u32 last;
};

// HEADS query heads that share a key head. LANES lanes, 8 columns each, take one position. Grid (key_heads *
// ceil(heads per key head / HEADS), chunks); blocks of 256 threads.
template <int HEADS, int LANES>
static __device__ void attend(const Attention& p, Desk<HEADS>& desk, u32 group, u32 at_chunk, u32 most_chunks)
{
    auto& queries = desk.queries;
    auto& made = desk.made;
    auto &own_key = desk.own_key, &own_value = desk.own_value;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 ratio = p.heads / p.key_heads, groups = (ratio + HEADS - 1) / HEADS;
    u32 key_head = group / groups, within = group % groups * HEADS;
    u32 first_head = key_head * ratio + within;
    u32 heads = ratio - within < HEADS ? ratio - within : HEADS;
    u32 position = *p.position, positions = position + 1;
    u32 chunk = (positions + most_chunks - 1) / most_chunks;
    chunk = chunk < MIN_CHUNK ? MIN_CHUNK : chunk;
    u32 chunks = (positions + chunk - 1) / chunk;
    if (at_chunk >= chunks)
        return;
    u32 start = at_chunk * chunk, end = start + chunk < positions ? start + chunk : positions;
    __half* keys = p.keys + (u64)key_head * p.context * p.head_size;
    __half* values = p.values + (u64)key_head * p.context * p.head_size;

    // The first rows of the cache are read while the queries are prepared. The token's own row comes from shared
    // memory.
    u32 column = lane % LANES * 8, place = warp * (32 / LANES) + lane / LANES;
    bool in_head = column < p.head_size;
    const u32 step = ATTENTION_WARPS * (32 / LANES);
    Row key[UNROLL], value[UNROLL];
    auto fetch = [&](u32 base) {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            u32 at = base + u * step + place;
            key[u].words = value[u].words = make_uint4(0, 0, 0, 0);
            if (at < end && at != position && in_head) {
                key[u].load(keys + (u64)at * p.head_size + column);
                value[u].load(values + (u64)at * p.head_size + column);
            }
        }
    };
    fetch(start);

    // log2(e): weights are powers of two.
    float scale = p.scale * 1.4426950408889634f;
    for (u32 h = warp; h < heads; h += ATTENTION_WARPS)
        prepare(p, p.qkv + (first_head + h) * p.head_size, p.query_norm,
                [&](u32 column, float x) { queries[h][column] = x * scale; });
    // The block of the last chunk appends; if several groups share the key head, all of them store the same.
    if (at_chunk == chunks - 1) {
        const float* own = p.qkv + (p.heads + key_head) * p.head_size;
        u64 at = (u64)position * p.head_size;
        if (warp == ATTENTION_WARPS - 1)
            prepare(p, own, p.key_norm,
                    [&](u32 column, float x) { keys[at + column] = own_key[column] = __float2half_rn(x); });
        if (warp == ATTENTION_WARPS - 2)
            for (u32 i = lane; i < p.head_size; i += 32)
                values[at + i] = own_value[i] = __float2half_rn(own[p.key_heads * p.head_size + i]);
    }
    __syncthreads();

    float query[HEADS][8];
    Running state[HEADS];
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
        state[h].clear();
#pragma unroll
        for (int i = 0; i < 8; ++i)
            query[h][i] = in_head && h < heads ? queries[h][column + i] : 0.0f;
    }
    for (u32 base = start; base < end; base += step * UNROLL) {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if (base + u * step + place == position && in_head) {
                key[u].words = *(const uint4*)&own_key[column];
                value[u].words = *(const uint4*)&own_value[column];
            }
        }
        float score[HEADS][UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            // The same for all threads.
            if (base + u * step >= end) {
#pragma unroll
                for (int h = 0; h < HEADS; ++h)
                    score[h][u] = LOWEST;
                continue;
            }
            float k[8];
            key[u].to(k);
#pragma unroll
            for (int h = 0; h < HEADS; ++h) {
                float s = 0.0f;
#pragma unroll
                for (int i = 0; i < 8; ++i)
                    s = fmaf(query[h][i], k[i], s);
#pragma unroll
                for (int offset = LANES / 2; offset > 0; offset >>= 1)
                    s += __shfl_xor_sync(ALL, s, offset);
                score[h][u] = base + u * step + place < end ? s : LOWEST;
            }
        }
#pragma unroll
        for (int h = 0; h < HEADS; ++h) {
            float top = state[h].top;
#pragma unroll
            for (int u = 0; u < UNROLL; ++u)
                top = fmaxf(top, score[h][u]);
            state[h].scale(top);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if (base + u * step >= end)
                continue;
            float v[8];
            value[u].to(v);
            bool valid = base + u * step + place < end;
#pragma unroll
            for (int h = 0; h < HEADS; ++h) {
                float weight = valid ? exp2f(score[h][u] - state[h].top) : 0.0f;
                state[h].weight += weight;
#pragma unroll
                for (int i = 0; i < 8; ++i)
                    state[h].sum[i] = fmaf(weight, v[i], state[h].sum[i]);
            }
        }
        fetch(base + step * UNROLL);
    }

    // The groups of a warp, then the warps.
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
#pragma unroll
        for (int offset = LANES; offset < 32; offset <<= 1)
            state[h].merge(offset);
        if (lane < LANES) {
            if (in_head)
#pragma unroll
                for (int i = 0; i < 8; ++i)
                    made[warp][h][column + i] = state[h].sum[i];
            if (lane == 0) {
                made[warp][h][MAX_HEAD] = state[h].top;
                made[warp][h][MAX_HEAD + 1] = state[h].weight;
            }
        }
    }
    __syncthreads();
    // A warp per head: lane w has warp w.
    if (warp < HEADS) {
        float own = lane < ATTENTION_WARPS ? made[lane][warp][MAX_HEAD] : LOWEST, top = own;
#pragma unroll
        for (int offset = 16; offset > 0; offset >>= 1)
            top = fmaxf(top, __shfl_xor_sync(ALL, top, offset));
        float factor = exp2f(own - top);
        float weight = warp_sum(lane < ATTENTION_WARPS ? factor * made[lane][warp][MAX_HEAD + 1] : 0.0f);
        if (lane < ATTENTION_WARPS)
            desk.factors[warp][lane] = factor;
        if (lane == 0)
            desk.tops[warp] = top, desk.weights[warp] = weight;
    }
    __syncthreads();
    u32 width = p.head_size + 2;
    for (u32 i = threadIdx.x; i < heads * p.head_size; i += ATTENTION_THREADS) {
        u32 h = i / p.head_size, of = i % p.head_size;
        float top = desk.tops[h], weight = desk.weights[h], sum = 0.0f;
#pragma unroll
        for (int w = 0; w < ATTENTION_WARPS; ++w)
            sum += desk.factors[h][w] * made[w][h][of];
        if (chunks == 1) {
            p.output[(first_head + h) * p.head_size + of] = sum / weight;
            continue;
        }
        float* part = p.parts + ((u64)(first_head + h) * most_chunks + at_chunk) * width;
        part[2 + of] = sum;
        if (of == 0)
            part[0] = top, part[1] = weight;
    }
    if (chunks == 1)
        return;

    // The last block combines.
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        desk.last = atomicAdd(&p.tickets[group], 1) == chunks - 1;
    __syncthreads();
    if (!desk.last)
        return;
    __threadfence();
    for (u32 i = threadIdx.x; i < heads * p.head_size; i += ATTENTION_THREADS) {
        u32 h = i / p.head_size, of = i % p.head_size;
        const float* part = p.parts + (u64)(first_head + h) * most_chunks * width;
        float top = LOWEST, weight = 0.0f, sum = 0.0f;
        for (u32 c = 0; c < chunks; ++c)
            top = fmaxf(top, __ldcg(&part[c * width]));
        for (u32 c = 0; c < chunks; ++c) {
            float factor = exp2f(__ldcg(&part[c * width]) - top);
            weight += factor * __ldcg(&part[c * width + 1]);
            sum += factor * __ldcg(&part[c * width + 2 + of]);
        }
        p.output[(first_head + h) * p.head_size + of] = sum / weight;
    }
    if (threadIdx.x == 0)
        p.tickets[group] = 0;
}

