// The attention of one token: see `attention.cu`.
#pragma once
#include "common.cuh"
#include "../cache.cuh"
#include "parameters.cuh"

// Warps of a block, below 32. A source may define another number, at least HEADS + 2.
#ifndef ATTENTION_WARPS
#define ATTENTION_WARPS 16
#endif
#define ATTENTION_THREADS (ATTENTION_WARPS * 32)
// Columns of a head that a lane takes.
#define LANE_COLUMNS 8
// Fewest positions of a chunk.
#define MIN_CHUNK 256
// Most heads of a block that are read before the first rows of the cache: with more, there are too few registers.
#ifndef EARLY_HEADS
#define EARLY_HEADS 1
#endif
// Stands for minus infinity: its differences are numbers.
#define LOWEST -1e30f
#define LOG2E 1.4426950408889634f

// The columns of pair `pair`.
static __device__ void columns_of(const AttentionParams& p, u32 pair, u32& first, u32& second)
{
    bool halves = p.rotate == ROTATE_HALVES && pair < p.rotated / 2;
    first = halves ? pair : 2 * pair;
    second = halves ? pair + p.rotated / 2 : 2 * pair + 1;
}

// A head of queries or keys in a warp: a lane has pairs `lane`, `lane + 32` and so on.
template <int COLUMNS>
struct Head {
    static const int PAIRS = COLUMNS / 64;
    float a[PAIRS], b[PAIRS];
    float2 turn[PAIRS];

    template <class Link>
    __device__ void load(const AttentionParams& p, const float* from, const Link& link)
    {
        u32 lane = threadIdx.x % 32, pairs = p.head_size / 2;
#pragma unroll
        for (int i = 0; i < PAIRS; ++i) {
            u32 pair = lane + 32 * i, first, second;
            columns_of(p, pair, first, second);
            bool turns = p.rotate != ROTATE_NOTHING && pair < p.rotated / 2;
            turn[i] = turns ? p.rotation[pair] : make_float2(1.0f, 0.0f);
            a[i] = pair < pairs ? link.load(from + first) : 0.0f;
            b[i] = pair < pairs ? link.load(from + second) : 0.0f;
        }
#pragma unroll
        for (int i = 0; i < PAIRS; ++i) {
            u32 first, second;
            columns_of(p, lane + 32 * i, first, second);
            link.complete(a[i], from + first);
            link.complete(b[i], from + second);
        }
    }

    // Normalises and rotates; `store` gets each column.
    template <class Store>
    __device__ void finish(const AttentionParams& p, const float* norm, Store store) const
    {
        u32 lane = threadIdx.x % 32, pairs = p.head_size / 2;
        float factor = 1.0f;
        if (norm) {
            float sum = 0.0f;
#pragma unroll
            for (int i = 0; i < PAIRS; ++i)
                sum += fmaf(a[i], a[i], b[i] * b[i]);
            factor = 1.0f / sqrtf(warp_sum(sum) / (float)p.head_size + p.epsilon);
        }
#pragma unroll
        for (int i = 0; i < PAIRS; ++i) {
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
                float rotated = fmaf(x, turn[i].x, -(y * turn[i].y));
                y = fmaf(x, turn[i].y, y * turn[i].x);
                x = rotated;
            }
            store(first, x);
            store(second, y);
        }
    }
};

// A cache of halves: key_heads x context x head_size keys, and as many values.
struct Halves {
    typedef __half Element;
    static const bool SCALED = false;
    // Columns of the key and of the value of a position, in a lane.
    struct Row {
        uint4 key, value;
    };
    __half *keys, *values;
    u32 head_size;

    __device__ Halves(const AttentionParams& p, u32 key_head) : head_size(p.head_size)
    {
        u64 first = (u64)key_head * p.context * p.head_size;
        keys = (__half*)p.keys + first;
        values = (__half*)p.values + first;
    }

    __device__ void clear(Row& row) const { row.key = row.value = make_uint4(0, 0, 0, 0); }

    __device__ void load(Row& row, u32 position, u32 column) const
    {
        u32 offset = position * head_size + column;
        row.key = *(const uint4*)(keys + offset);
        row.value = *(const uint4*)(values + offset);
    }

    // The token's own row.
    template <class D>
    __device__ void load_own(Row& row, const D& desk, u32 column) const
    {
        row.key = *(const uint4*)&desk.own_key[column];
        row.value = *(const uint4*)&desk.own_value[column];
    }

    static __device__ void key(const Row& row, float (&v)[LANE_COLUMNS]) { floats(row.key, v); }
    static __device__ void value(const Row& row, float (&v)[LANE_COLUMNS]) { floats(row.value, v); }
    static __device__ float key_scale(const Row&) { return 1.0f; }
    static __device__ float value_scale(const Row&) { return 1.0f; }

    // Keeps a column of the token's own key or value in shared memory and, if `appends`, in the cache.
    template <class D>
    __device__ void keep(D& desk, bool is_key, u32 position, u32 column, float x, bool appends) const
    {
        __half half = __float2half_rn(x);
        (is_key ? desk.own_key : desk.own_value)[column] = half;
        if (appends)
            (is_key ? keys : values)[(u64)position * head_size + column] = half;
    }

    // Called after all columns.
    template <class D>
    __device__ void finish(D&, bool, u32, bool) const
    {
    }

private:
    static __device__ void floats(const uint4& words, float (&v)[LANE_COLUMNS])
    {
        u32 w[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float2 pair = __half22float2(*(const __half2*)&w[i]);
            v[2 * i] = pair.x, v[2 * i + 1] = pair.y;
        }
    }
};

// A cache of scaled integers, see `cache.cuh`: keys and values as above, and key_heads x context x ceil(head_size / 32)
// pairs of scales.
struct Integers {
    typedef signed char Element;
    static const bool SCALED = true;
    struct Row {
        uint2 key, value;
        __half2 scales;
    };
    signed char *keys, *values;
    __half2* scales;
    u32 head_size, groups;

    __device__ Integers(const AttentionParams& p, u32 key_head) : head_size(p.head_size)
    {
        groups = (head_size + SCALE_COLUMNS - 1) / SCALE_COLUMNS;
        u64 first = (u64)key_head * p.context;
        keys = (signed char*)p.keys + first * head_size;
        values = (signed char*)p.values + first * head_size;
        scales = p.scales + first * groups;
    }

    __device__ void clear(Row& row) const
    {
        row.key = row.value = make_uint2(0, 0);
        row.scales = __half2half2(__ushort_as_half(0));
    }

    __device__ void load(Row& row, u32 position, u32 column) const
    {
        u32 offset = position * head_size + column;
        row.key = *(const uint2*)(keys + offset);
        row.value = *(const uint2*)(values + offset);
        row.scales = scales[position * groups + column / SCALE_COLUMNS];
    }

    template <class D>
    __device__ void load_own(Row& row, const D& desk, u32 column) const
    {
        row.key = *(const uint2*)((const signed char*)desk.own_key + column);
        row.value = *(const uint2*)((const signed char*)desk.own_value + column);
        u32 group = column / SCALE_COLUMNS;
        row.scales = __halves2half2(desk.own_scales[0][group], desk.own_scales[1][group]);
    }

    static __device__ void key(const Row& row, float (&v)[LANE_COLUMNS]) { floats(row.key, v); }
    static __device__ void value(const Row& row, float (&v)[LANE_COLUMNS]) { floats(row.value, v); }
    static __device__ float key_scale(const Row& row) { return __low2float(row.scales); }
    static __device__ float value_scale(const Row& row) { return __high2float(row.scales); }

    // The warp's place for its state is free until all rows are read.
    template <class D>
    __device__ void keep(D& desk, bool, u32, u32 column, float x, bool) const
    {
        desk.made[threadIdx.x / 32][0][column] = x;
    }

    template <class D>
    __device__ void finish(D& desk, bool is_key, u32 position, bool appends) const
    {
        __syncwarp();
        signed char* own = (signed char*)(is_key ? desk.own_key : desk.own_value);
        signed char* cached = (is_key ? keys : values) + (u64)position * head_size;
        __half* cached_scales = (__half*)(scales + (u64)position * groups) + !is_key;
        auto integer = [&](u32 column, signed char q) {
            own[column] = q;
            if (appends)
                cached[column] = q;
        };
        auto scale = [&](u32 group, __half stored) {
            desk.own_scales[!is_key][group] = stored;
            if (appends)
                cached_scales[2 * group] = stored;
        };
        round_row(desk.made[threadIdx.x / 32][0], head_size, integer, scale);
    }

private:
    static __device__ void floats(const uint2& words, float (&v)[LANE_COLUMNS])
    {
        integers(words.x, v);
        integers(words.y, v + 4);
    }
};

// Running softmax of one head in a lane, over the positions that the lane's group has seen; `sum` has the lane's
// columns.
struct Running {
    float top, weight, sum[LANE_COLUMNS];

    __device__ void clear()
    {
        top = LOWEST, weight = 0.0f;
#pragma unroll
        for (int i = 0; i < LANE_COLUMNS; ++i)
            sum[i] = 0.0f;
    }

    __device__ void scale(float new_top)
    {
        float factor = exp2f(top - new_top);
        top = new_top;
        weight *= factor;
#pragma unroll
        for (int i = 0; i < LANE_COLUMNS; ++i)
            sum[i] *= factor;
    }

    // Adds the state of the lane `offset` away.
    __device__ void merge(int offset)
    {
        float other = __shfl_xor_sync(ALL, top, offset);
        scale(fmaxf(top, other));
        weight += __shfl_xor_sync(ALL, weight, offset);
#pragma unroll
        for (int i = 0; i < LANE_COLUMNS; ++i)
            sum[i] += __shfl_xor_sync(ALL, sum[i], offset);
    }
};

// Shared memory of a block.
template <int HEADS, int LANES>
struct Desk {
    // Most columns of a head.
    static const int COLUMNS = LANES * LANE_COLUMNS;
    float queries[HEADS][COLUMNS];
    float made[ATTENTION_WARPS][HEADS][COLUMNS + 2];
    // Of each warp, relative to the largest score.
    float factors[HEADS][ATTENTION_WARPS];
    float tops[HEADS], weights[HEADS];
    // Key and value of the token, as in the cache, and the scales of both.
    __align__(16) __half own_key[COLUMNS], own_value[COLUMNS];
    __half own_scales[2][COLUMNS / SCALE_COLUMNS];
    u32 last;
};

// The work of a block: query heads that share a key head, over a chunk of the positions.
struct Share {
    u32 key_head, first_head, heads;
    u32 start, end, chunk, chunks, most_chunks;
    // The token's position, and whether the block appends its key and value to the cache.
    u32 position;
    bool appends;
};

// At most HEADS query heads. LANES lanes, 8 columns each, take one position; a lane reads UNROLL positions at a time.
// Blocks of ATTENTION_THREADS.
template <class Cache, int HEADS, int LANES, class Link>
static __device__ void attend(const AttentionParams& p, Desk<HEADS, LANES>& desk, const Share& share, const Link& link)
{
    const int UNROLL = Cache::SCALED && HEADS < 4 ? 4 : 2, COLUMNS = Desk<HEADS, LANES>::COLUMNS;
    auto& queries = desk.queries;
    auto& made = desk.made;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u32 key_head = share.key_head, first_head = share.first_head, heads = share.heads;
    u32 position = share.position, start = share.start, end = share.end, chunks = share.chunks;
    const Cache cache(p, key_head);

    // Some warps prepare a head each: query heads, the token's key, its value. What they need may be read
    // before the first rows of the cache. The token's own row comes from shared memory.
    static_assert(HEADS <= ATTENTION_WARPS - 2, "a warp prepares one head");
    bool appended = share.chunk == chunks - 1, prepares_query = warp < heads;
    bool prepares_key = appended && warp == ATTENTION_WARPS - 1;
    bool prepares_value = appended && warp == ATTENTION_WARPS - 2;
    const float* own = p.qkv + (p.heads + key_head) * p.head_size;
    const float *query_from = p.qkv + (first_head + warp) * p.head_size, *value_from = own + p.key_heads * p.head_size;
    const bool EARLY_HEAD = HEADS <= EARLY_HEADS;
    Head<COLUMNS> head;
    float own_values[COLUMNS / 32];
    if (EARLY_HEAD && (prepares_query || prepares_key))
        head.load(p, prepares_query ? query_from : own, link);
    auto load_values = [&] {
#pragma unroll
        for (u32 i = 0; i < COLUMNS / 32; ++i)
            own_values[i] = i * 32 + lane < p.head_size ? link.load(value_from + i * 32 + lane) : 0.0f;
#pragma unroll
        for (u32 i = 0; i < COLUMNS / 32; ++i)
            link.complete(own_values[i], value_from + i * 32 + lane);
    };
    if (EARLY_HEAD && prepares_value)
        load_values();
    u32 column = lane % LANES * LANE_COLUMNS, place = warp * (32 / LANES) + lane / LANES;
    bool in_head = column < p.head_size;
    const u32 step = ATTENTION_WARPS * (32 / LANES);
    typename Cache::Row rows[UNROLL];
    auto fetch = [&](u32 base) {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            u32 at = base + u * step + place;
            cache.clear(rows[u]);
            if (at < end && at != position && in_head)
                cache.load(rows[u], at, column);
        }
    };
    fetch(start);

    // log2(e): weights are powers of two.
    float scale = p.scale * LOG2E;
    if (prepares_query || prepares_key) {
        if (!EARLY_HEAD)
            head.load(p, prepares_query ? query_from : own, link);
        head.finish(p, prepares_query ? p.query_norm : p.key_norm, [&](u32 column, float x) {
            if (prepares_query)
                queries[warp][column] = x * scale;
            else
                cache.keep(desk, true, position, column, x, share.appends);
        });
        if (prepares_key)
            cache.finish(desk, true, position, share.appends);
    }
    if (prepares_value) {
        if (!EARLY_HEAD)
            load_values();
#pragma unroll
        for (u32 i = 0; i < COLUMNS / 32; ++i) {
            u32 column = i * 32 + lane;
            if (column < p.head_size)
                cache.keep(desk, false, position, column, own_values[i], share.appends);
        }
        cache.finish(desk, false, position, share.appends);
    }
    __syncthreads();

    float query[HEADS][LANE_COLUMNS];
    Running state[HEADS];
#pragma unroll
    for (int h = 0; h < HEADS; ++h) {
        state[h].clear();
#pragma unroll
        for (int i = 0; i < LANE_COLUMNS; ++i)
            query[h][i] = in_head && h < heads ? queries[h][column + i] : 0.0f;
    }
    for (u32 base = start; base < end; base += step * UNROLL) {
#pragma unroll
        for (int u = 0; u < UNROLL; ++u) {
            if (base + u * step + place == position && in_head)
                cache.load_own(rows[u], desk, column);
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
            float k[LANE_COLUMNS];
            cache.key(rows[u], k);
#pragma unroll
            for (int h = 0; h < HEADS; ++h) {
                float s = 0.0f;
#pragma unroll
                for (int i = 0; i < LANE_COLUMNS; ++i)
                    s = fmaf(query[h][i], k[i], s);
                if (Cache::SCALED)
                    s *= cache.key_scale(rows[u]);
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
            float v[LANE_COLUMNS];
            cache.value(rows[u], v);
            bool valid = base + u * step + place < end;
#pragma unroll
            for (int h = 0; h < HEADS; ++h) {
                float weight = valid ? exp2f(score[h][u] - state[h].top) : 0.0f;
                state[h].weight += weight;
                if (Cache::SCALED)
                    weight *= cache.value_scale(rows[u]);
#pragma unroll
                for (int i = 0; i < LANE_COLUMNS; ++i)
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
                for (int i = 0; i < LANE_COLUMNS; ++i)
                    made[warp][h][column + i] = state[h].sum[i];
            if (lane == 0) {
                made[warp][h][COLUMNS] = state[h].top;
                made[warp][h][COLUMNS + 1] = state[h].weight;
            }
        }
    }
    __syncthreads();
    // A warp per head: lane w has warp w. In the first chunk, the lane after them has the head's sink, a score without a
    // value.
    static_assert(ATTENTION_WARPS < 32, "a lane has the sink");
    if (warp < HEADS) {
        bool sinks = p.sinks && share.chunk == 0 && warp < heads && lane == ATTENTION_WARPS;
        float own = lane < ATTENTION_WARPS ? made[lane][warp][COLUMNS] : LOWEST;
        own = sinks ? p.sinks[first_head + warp] * LOG2E : own;
        float top = own;
#pragma unroll
        for (int offset = 16; offset > 0; offset >>= 1)
            top = fmaxf(top, __shfl_xor_sync(ALL, top, offset));
        float factor = exp2f(own - top);
        float weight = lane < ATTENTION_WARPS ? factor * made[lane][warp][COLUMNS + 1] : sinks ? factor : 0.0f;
        weight = warp_sum(weight);
        if (lane < ATTENTION_WARPS)
            desk.factors[warp][lane] = factor;
        if (lane == 0)
            desk.tops[warp] = top, desk.weights[warp] = weight;
    }
    __syncthreads();
    u32 width = p.head_size + 2;
    for (u32 i = threadIdx.x; i < heads * p.head_size; i += ATTENTION_THREADS) {
        u32 h = divide(i, p.head_size), of = i - h * p.head_size;
        float top = desk.tops[h], weight = desk.weights[h], sum = 0.0f;
#pragma unroll
        for (int w = 0; w < ATTENTION_WARPS; ++w)
            sum = fmaf(desk.factors[h][w], made[w][h][of], sum);
        if (chunks == 1) {
            link.store(p.output + (first_head + h) * p.head_size + of, sum / weight, p.next);
            continue;
        }
        float* part = p.parts + ((u64)(first_head + h) * share.most_chunks + share.chunk) * width;
        link.store(part + 2 + of, sum, 0);
        if (of == 0) {
            link.store(part, top, 0);
            link.store(part + 1, weight, 0);
        }
    }
}

// Combines the chunks of `heads` heads.
template <class Link>
static __device__ void combine(const AttentionParams& p, u32 first_head, u32 heads, u32 chunks, u32 most_chunks,
                               const Link& link)
{
    u32 width = p.head_size + 2;
    for (u32 i = threadIdx.x; i < heads * p.head_size; i += ATTENTION_THREADS) {
        u32 h = divide(i, p.head_size), of = i - h * p.head_size;
        const float* part = p.parts + (u64)(first_head + h) * most_chunks * width;
        float top = LOWEST, weight = 0.0f, sum = 0.0f;
        for (u32 c = 0; c < chunks; ++c)
            top = fmaxf(top, __ldcg(&part[c * width]));
        for (u32 c = 0; c < chunks; ++c) {
            float factor = exp2f(__ldcg(&part[c * width]) - top);
            weight += factor * __ldcg(&part[c * width + 1]);
            sum += factor * __ldcg(&part[c * width + 2 + of]);
        }
        link.store(p.output + (first_head + h) * p.head_size + of, sum / weight, p.next);
    }
}

// Combines the chunks of a head in their order, at most ATTENTION_WARPS, once all parts are there.
template <int LANES, class Link>
static __device__ void gather(const AttentionParams& p, Desk<1, LANES>& desk, u32 head, u32 chunks, u32 most_chunks,
                              const Link& link)
{
    u32 width = p.head_size + 2, of = threadIdx.x;
    const float* from = p.parts + (u64)head * most_chunks * width;
    float* parts = desk.made[0][0];
    __syncthreads();
#pragma unroll 1
    for (u32 i = threadIdx.x; i < chunks * width; i += ATTENTION_THREADS) {
        float v = link.load(from + i);
        link.complete(v, from + i);
        parts[i] = v;
    }
    __syncthreads();
    if (of >= p.head_size)
        return;
    float top = LOWEST, weight = 0.0f, sum = 0.0f;
#pragma unroll 1
    for (u32 c = 0; c < chunks; ++c)
        top = fmaxf(top, parts[c * width]);
#pragma unroll 1
    for (u32 c = 0; c < chunks; ++c) {
        float factor = exp2f(parts[c * width] - top);
        weight = fmaf(factor, parts[c * width + 1], weight);
        sum = fmaf(factor, parts[c * width + 2 + of], sum);
    }
    link.store(p.output + head * p.head_size + of, sum / weight, p.next);
}

// Block `at` of `most_chunks` that have group `group`: one of the key_heads * ceil(heads per key head / HEADS) groups
// of at most HEADS heads. If the context has fewer chunks than there are blocks, the blocks of a chunk share its heads,
// unless SHARES says otherwise: with 256 columns, the code for both takes more registers than there are.
template <class Cache, int HEADS, int LANES, bool SHARES = LANES <= 16, class Link>
static __device__ void attend_group(const AttentionParams& p, Desk<HEADS, LANES>& desk, u32 group, u32 at,
                                    u32 most_chunks, const Link& link)
{
    // Quotients of small numbers: integer divisions would take a good part of a short attention.
    u32 ratio = divide(p.heads, p.key_heads), groups = (ratio + HEADS - 1) / HEADS;
    Share share;
    share.key_head = divide(group, groups);
    u32 within = (group - share.key_head * groups) * HEADS;
    u32 first_head = share.key_head * ratio + within, heads = ratio - within < HEADS ? ratio - within : HEADS;
    share.position = *p.position;
    // The chunks divide the positions that the token sees.
    u32 positions = share.position + 1, seen = positions < p.window ? positions : p.window;
    u32 chunk = divide(seen + most_chunks - 1, most_chunks);
    chunk = chunk < MIN_CHUNK ? MIN_CHUNK : chunk;
    u32 chunks = divide(seen + chunk - 1, chunk), sharers = divide(most_chunks, chunks);
    sharers = !SHARES ? 1 : sharers < heads ? sharers : heads;
    // A later launch may have parts that this one lacks.
    if constexpr (Link::WAITS) {
        u32 width = p.head_size + 2;
        if (threadIdx.x < width)
            link.clear(p.parts + ((u64)first_head * most_chunks + at) * width + threadIdx.x, p.next);
    }
    if (at >= chunks * sharers)
        return;
    share.chunks = chunks;
    share.most_chunks = most_chunks;
    u32 first = divide(at, chunks);
    share.chunk = at - first * chunks;
    share.start = positions - seen + share.chunk * chunk;
    share.end = share.start + chunk < positions ? share.start + chunk : positions;
    bool appends = share.chunk == chunks - 1 && within == 0;
    if (HEADS == 1 || !SHARES || sharers == 1) {
        share.first_head = first_head;
        share.heads = heads;
        share.appends = appends;
        attend<Cache, HEADS, LANES>(p, desk, share, link);
    } else {
        share.heads = 1;
#pragma unroll 1
        for (u32 h = first; h < heads; h += sharers) {
            share.first_head = first_head + h;
            share.appends = appends && h == 0;
            attend<Cache, 1, LANES>(p, (Desk<1, LANES>&)desk, share, link);
            __syncthreads();
        }
    }
    if (chunks == 1)
        return;
    if constexpr (Link::WAITS) {
        if (share.chunk == 0)
            gather(p, desk, first_head, chunks, most_chunks, link);
        return;
    }

    // The last block combines.
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0)
        desk.last = atomicAdd(&p.tickets[group], 1) == chunks * sharers - 1;
    __syncthreads();
    if (!desk.last)
        return;
    __threadfence();
    combine(p, first_head, heads, chunks, most_chunks, link);
    if (threadIdx.x == 0)
        p.tickets[group] = 0;
}
