// The step from token to token, for the decoding of language models: the choice of the next token from the logits, and
// its way into the model (row of the embedding, angles of the rotation). One block of 1024 threads; no host between
// tokens.
//
// The random number of a token depends on the seed and on the number of tokens produced before. All sums have a fixed
// order: equal logits, settings and seeds give equal tokens.
#include <cuda_fp16.h>

#include "../weights.cuh"
#include "parameters.cuh"

#define THREADS 1024
#define WARPS (THREADS / 32)
// Most candidates that top-k, top-p and min-p choose from.
#define MAX_CANDIDATES 1024
// Room for candidates before they are sorted.
#define LIST 2048
#define DIGIT_BITS 11
#define BINS (1 << DIGIT_BITS)

// ---- The embedding ----

// Appends a token to the context and prepares the model's input.
static __device__ void append(const SampleParams& p, u32 token, u32 position)
{
    const float* of_position = p.positions ? p.positions + (u64)position * p.width : 0;
    copy_row_of(p.block_type, p.tiles, p.width, token, p.factor, of_position, p.x);
    for (u32 i = threadIdx.x; i < p.pairs; i += THREADS) {
        double turns = p.frequencies[i].x * (double)position, magnitude = p.frequencies[i].y;
        float angle = 2.0f * (float)(turns - rint(turns));
        float sine, cosine;
        sincospif(angle, &sine, &cosine);
        p.rotation[i] = make_float2(cosine * (float)magnitude, sine * (float)magnitude);
    }
    if (threadIdx.x == 0) {
        p.history[position] = token;
        p.state->token = token;
        p.state->position = position;
        p.state->count = position + 1;
    }
}

// Appends the next pending token.
extern "C" __global__ void __launch_bounds__(THREADS) take(const __grid_constant__ SampleParams p)
{
    let_next_begin();
    wait_for_previous();
    u32 at = p.state->pending, position = p.state->count;
    u32 token = p.pending[at];
    __syncthreads();
    if (threadIdx.x == 0)
        p.state->pending = at + 1;
    append(p, token, position);
}

// ---- Sums and maxima over the block ----

struct Shared {
    union {
        u32 bins[BINS];
        float sums[WARPS];
    };
    u64 list[LIST];
    u64 tops[WARPS];
    float scan[WARPS];
    u32 counts[WARPS];
    u32 found, above, listed, chosen;
};

static __device__ u64 block_max(Shared& s, u64 v)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) {
        u64 other = __shfl_xor_sync(ALL, v, offset);
        v = other > v ? other : v;
    }
    __syncthreads();
    if (threadIdx.x % 32 == 0)
        s.tops[threadIdx.x / 32] = v;
    __syncthreads();
    v = s.tops[threadIdx.x % 32];
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) {
        u64 other = __shfl_xor_sync(ALL, v, offset);
        v = other > v ? other : v;
    }
    return v;
}

template <class T>
static __device__ T warp_scan(T v)
{
#pragma unroll
    for (int offset = 1; offset < 32; offset <<= 1) {
        T other = __shfl_up_sync(ALL, v, offset);
        if (threadIdx.x % 32 >= offset)
            v += other;
    }
    return v;
}

// Sum over the threads up to and including this one; `all` becomes the sum over all.
template <class T>
static __device__ T block_scan(T* scratch, T v, T& all)
{
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    v = warp_scan(v);
    __syncthreads();
    if (lane == 31)
        scratch[warp] = v;
    __syncthreads();
    T sums = warp_scan(scratch[lane]);
    all = __shfl_sync(ALL, sums, 31);
    T before = __shfl_sync(ALL, sums, warp > 0 ? warp - 1 : 0);
    return warp > 0 ? before + v : v;
}

// ---- The choice ----

// Whether a mask allows a token; null allows all.
static __device__ bool allows(const u32* mask, u32 token)
{
    return !mask || mask[token / 32] >> token % 32 & 1;
}

// A key per token: larger logits first, lower tokens first among equal ones. Those that the mask does not allow come
// last: `is_allowed` is false for their keys.
static __device__ u64 key_of(const SampleParams& p, const u32* mask, u32 token)
{
    return (u64)(allows(mask, token) ? ordered(p.logits[token]) : 0) << 32 | ~token;
}

static __device__ bool is_allowed(u64 key)
{
    return key >> 32 != 0;
}

static __device__ u32 token_of(u64 key)
{
    return ~(u32)key;
}

static __device__ float logit_of(u64 key)
{
    return from_ordered((u32)(key >> 32));
}

// A number in [0, 1) for the n-th token.
static __device__ float random(u64 seed, u32 n)
{
    u64 z = seed + ((u64)n + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    return (float)(u32)(z >> 40) * 0x1p-24f;
}

// Lowers the logits of the newest tokens. Returns what a thread has to put back: token + 1 (0 for none) and logit.
static __device__ u32 penalise(const SampleParams& p, const SamplingParams& settings, u32 count, u32* window, float& before)
{
    u32 length = settings.window < count ? settings.window : count;
    if (length > THREADS)
        length = THREADS;
    u32 token = 0, thread = threadIdx.x;
    if (thread < length)
        window[thread] = token = p.history[count - 1 - thread];
    __syncthreads();
    bool first = thread < length;
    for (u32 i = 0; first && i < thread; ++i)
        first = window[i] != token;
    if (first) {
        before = p.logits[token];
        p.logits[token] = before > 0.0f ? before / settings.penalty : before * settings.penalty;
    }
    __syncthreads();
    return first ? token + 1 : 0;
}

// The key of a token in 55 bits, five digits.
static __device__ u64 digits_of(u64 key)
{
    return key >> 32 << 23 | (key & 0x7fffff);
}

// Finds a bound such that at least `wanted` tokens have digits that are not below it, and at most LIST. Needs `wanted`
// <= vocabulary.
static __device__ u64 bound(const SampleParams& p, const u32* mask, Shared& s, u32 wanted)
{
    u64 prefix = 0;
    u32 above = 0;
    for (int shift = 4 * DIGIT_BITS;; shift -= DIGIT_BITS) {
        for (u32 i = threadIdx.x; i < BINS; i += THREADS)
            s.bins[i] = 0;
        __syncthreads();
        for (u32 i = threadIdx.x; i < p.vocabulary; i += THREADS) {
            u64 digits = digits_of(key_of(p, mask, i));
            // The digits above have to be equal; in the first pass, there are none.
            if (digits >> (shift + DIGIT_BITS) == prefix)
                atomicAdd(&s.bins[digits >> shift & (BINS - 1)], 1);
        }
        __syncthreads();
        // Thread t has the bins 2 t and 2 t + 1 from the top.
        u32 a = s.bins[BINS - 1 - 2 * threadIdx.x], b = s.bins[BINS - 2 - 2 * threadIdx.x], all;
        u32 upto = above + block_scan(s.counts, a + b, all);
        u32 before = upto - a - b;
        if (before < wanted && before + a >= wanted)
            s.found = BINS - 1 - 2 * threadIdx.x, s.above = before, s.listed = before + a;
        else if (before + a < wanted && upto >= wanted)
            s.found = BINS - 2 - 2 * threadIdx.x, s.above = before + a, s.listed = upto;
        __syncthreads();
        prefix = prefix << DIGIT_BITS | s.found;
        above = s.above;
        // Keys differ, so the last digit ends the search.
        if (s.listed <= LIST || shift == 0)
            return prefix << shift;
        __syncthreads();
    }
}

// Sorts the first `length` keys of the list, a power of two, in descending order.
static __device__ void sort(u64* list, u32 length)
{
    for (u32 size = 2; size <= length; size <<= 1) {
        for (u32 stride = size / 2; stride > 0; stride >>= 1) {
            __syncthreads();
            u32 i = 2 * threadIdx.x - (threadIdx.x & (stride - 1)), j = i + stride;
            if (j < length) {
                u64 a = list[i], b = list[j];
                bool descending = (i & size) == 0;
                if (descending ? a < b : a > b) {
                    list[i] = b;
                    list[j] = a;
                }
            }
        }
    }
    __syncthreads();
}

// Chooses among the most probable tokens.
static __device__ u32 choose_among(const SampleParams& p, const SamplingParams& settings, Shared& s, float top, float random)
{
    u32 wanted = settings.top_k == 0 || settings.top_k > MAX_CANDIDATES ? MAX_CANDIDATES : settings.top_k;
    wanted = wanted < p.vocabulary ? wanted : p.vocabulary;
    u64 least = bound(p, settings.mask, s, wanted);
    __syncthreads();
    if (threadIdx.x == 0)
        s.listed = 0;
    __syncthreads();
    float mass = 0.0f;
    for (u32 i = threadIdx.x; i < p.vocabulary; i += THREADS) {
        u64 key = key_of(p, settings.mask, i);
        if (is_allowed(key))
            mass += expf(logit_of(key) - top);
        if (digits_of(key) >= least)
            s.list[atomicAdd(&s.listed, 1)] = key;
    }
    __syncthreads();
    u32 listed = s.listed, length = 2;
    while (length < listed)
        length <<= 1;
    for (u32 i = listed + threadIdx.x; i < length; i += THREADS)
        s.list[i] = 0;
    sort(s.list, length);

    // A thread per candidate, in descending order.
    u32 i = threadIdx.x;
    bool taken = i < wanted && is_allowed(s.list[i]);
    float logit = taken ? logit_of(s.list[i]) : 0.0f, all, among;
    float share = taken ? expf(logit - top) : 0.0f;
    float upto = block_scan(s.scan, share, among);
    block_scan(s.scan, mass, all);
    float total = settings.top_k == 0 ? all : among;
    bool kept = taken && (i == 0 || (upto - share < settings.top_p * total && share >= settings.min_p));
    float chance = kept ? expf((logit - top) / settings.temperature) : 0.0f;
    upto = block_scan(s.scan, chance, all);
    // Chances do not increase: the kept candidates are the first ones.
    u32 below = __syncthreads_count(kept && upto <= random * all);
    u32 last = __syncthreads_count(kept);
    return token_of(s.list[below < last ? below : last - 1]);
}

// Chooses among all tokens that the mask allows. `best` is the most probable one.
static __device__ u32 choose_of_all(const SampleParams& p, const SamplingParams& settings, Shared& s, u64 best, float random)
{
    float top = logit_of(best);
    u32 share = (p.vocabulary + THREADS - 1) / THREADS;
    u32 start = threadIdx.x * share, end = start + share < p.vocabulary ? start + share : p.vocabulary;
    float sum = 0.0f, all;
    for (u32 i = start; i < end; ++i)
        if (allows(settings.mask, i))
            sum += expf((p.logits[i] - top) / settings.temperature);
    float upto = block_scan(s.scan, sum, all);
    float aim = random * all, before = upto - sum;
    // The first thread whose sum passes the aim; rounding may leave none.
    u32 thread = __syncthreads_count(upto <= aim);
    if (thread >= THREADS)
        thread = (p.vocabulary - 1) / share;
    if (threadIdx.x == thread) {
        u32 chosen = token_of(best);
        float at = before;
        for (u32 i = start; i < end; ++i) {
            if (!allows(settings.mask, i))
                continue;
            at += expf((p.logits[i] - top) / settings.temperature);
            chosen = i;
            if (at > aim)
                break;
        }
        s.chosen = chosen;
    }
    __syncthreads();
    return s.chosen;
}

// Chooses the token of a position from the logits.
static __device__ u32 choose(const SampleParams& p, u32 position)
{
    __shared__ Shared s;
    SamplingParams settings = *p.settings;
    u32 produced = p.state->produced;
    bool penalised = settings.penalty != 1.0f && settings.window > 0;
    float before;
    u32 changed = penalised ? penalise(p, settings, position, s.bins, before) : 0;
    u64 best = 0;
    if (penalised || settings.mask) {
        for (u32 i = threadIdx.x; i < p.vocabulary; i += THREADS) {
            u64 key = key_of(p, settings.mask, i);
            best = key > best ? key : best;
        }
    } else {
        for (u32 i = threadIdx.x; i < p.blocks; i += THREADS)
            best = p.best[i] > best ? p.best[i] : best;
    }
    best = block_max(s, best);
    u32 token = token_of(best);
    if (settings.temperature > 0.0f) {
        float number = random(settings.seed, produced);
        bool cut = settings.top_k > 0 || settings.top_p < 1.0f || settings.min_p > 0.0f;
        token = cut ? choose_among(p, settings, s, logit_of(best), number)
                    : choose_of_all(p, settings, s, best, number);
    }
    // The logits belong to the host as well. A NaN may have won; the row has to exist.
    __syncthreads();
    if (changed)
        p.logits[changed - 1] = before;
    token = token < p.vocabulary ? token : 0;
    if (threadIdx.x == 0) {
        p.state->produced = produced + 1;
        p.token_ring[produced % p.ring_length] = (u64)(produced + 1) << 32 | token;
    }
    return token;
}

extern "C" __global__ void __launch_bounds__(THREADS) sample(const __grid_constant__ SampleParams p)
{
    let_next_begin();
    wait_for_previous();
    u32 position = p.state->count;
    append(p, choose(p, position), position);
}

// The same for several sequences, a block each.
extern "C" __global__ void __launch_bounds__(THREADS) samples(const SampleParams* steps, const u32* count)
{
    let_next_begin();
    wait_for_previous();
    if (blockIdx.x >= *count)
        return;
    SampleParams p = steps[blockIdx.x];
    u32 position = p.state->count, token = choose(p, position);
    append(steps[blockIdx.x], token, position);
}

// The largest of a share of a sequence's logits to `best`, and 0 to what has no block. Grid (blocks, sequences).
extern "C" __global__ void __launch_bounds__(THREADS) maxima(const SampleParams* steps, const u32* count)
{
    __shared__ Shared s;
    let_next_begin();
    wait_for_previous();
    if (blockIdx.y >= *count)
        return;
    const SampleParams& p = steps[blockIdx.y];
    u64 best = 0;
#pragma unroll 4
    for (u32 i = blockIdx.x * THREADS + threadIdx.x; i < p.vocabulary; i += gridDim.x * THREADS) {
        u64 key = key_of(p, nullptr, i);
        best = key > best ? key : best;
    }
    best = block_max(s, best);
    for (u32 i = threadIdx.x * gridDim.x + blockIdx.x; i < p.blocks; i += THREADS * gridDim.x)
        ((u64*)p.best)[i] = threadIdx.x == 0 ? best : 0;
}
