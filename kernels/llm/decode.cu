// All layers of a language model for one token, and its logits, in one launch.
//
// One block per SM runs all phases: the products and attentions that `product.cu` and `attention.cu` run as launches. A
// phase reads the words of its vector until all of them are there (see `Exchange`): nothing else orders the blocks.
// Weights depend on nothing: each warp copies its tiles to shared memory ahead of their use, across phases, so the
// memory is busy while vectors are prepared. All sums have the order that they have in the launches: the results have
// the same bits. Products that read the same vector follow each other: it is prepared once.
//
// Blocks of 512 threads, at most as many as are resident together. Dynamic shared memory: `front_bytes` for a vector or
// the state of an attention, then the tiles of each warp, then the parameters of all phases.
#include <cuda_fp16.h>

#if __CUDA_ARCH__ >= 900
#define BULK
#endif
// Bulk copies are faster between places that are aligned alike.
#define PLACE_ALIGNMENT 128
#include "product.cuh"

// Registers are scarce here.
#define EARLY_HEADS 0
#include "attention.cuh"

// The most bytes of the state of an attention. A block has one head: with several ways to share heads, the kernel has
// so many instructions that each phase waits for them.
#define DESK_BYTES(lanes) ((lanes) <= 16 ? 9728 : 19200)

// Most tiles that a warp has in shared memory.
#define MAX_PLACES 6

static_assert(sizeof(Desk<1, 16>) <= DESK_BYTES(16) && sizeof(Desk<1, 32>) <= DESK_BYTES(32), "the front holds them");
static_assert(ATTENTION_THREADS == THREADS, "blocks of both");

#define KINDS (sizeof(DecodeParams::kinds) / sizeof(DecodeKind))

// What a warp needs for its copies. It waits here during an attention, whose registers it would push to local memory
// for the products as well.
struct Parked {
    const u8* at;
    u32 product, batch, left, step, steps, last_bytes, tile_bytes, slot, parity, owed, next, turn;
    // The product that the block computes, and the parity of its sums.
    u32 current, sums;
};

// What the threads of a block share.
template <u32 KEPT>
struct Shared {
    Bench bench;
    // Barriers of the tiles.
    u64 landed[WARPS][MAX_PLACES];
    Bands bands[KINDS];
    Portion portions[KINDS][WARPS];
    // The block's first batch, and the number of batches.
    u32 starts[KINDS], batches[KINDS];
    Parked parked[WARPS];
    // See `fill`.
    float4 kept[KEPT];
};

// A word of a vector that is not there yet: a number that no sum has, because arithmetic makes another NaN.
#define ABSENT 0xffffffffu

// Passes vectors between the blocks of a launch. Each phase has memory of its own for its output, whose words are
// absent until they are written; a block reads a word until it is there. So a word crosses the L2 cache once, and no
// block waits for a phase to end. What a phase writes, it makes absent in the other half, `next` bytes away, for the
// next launch; the launch before is over and needs it no more.
struct Exchange {
    static const bool WAITS = true;
    u32 patience;

    __device__ float load(const float* at) const
    {
        float v;
        asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(v) : "l"(at));
        return v;
    }

    __device__ float4 load(const float4* at) const
    {
        float4 v;
        asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(at));
        return v;
    }

    // A block that is not resident never writes: gives up after a time.
    template <class T>
    __device__ void complete(T& v, const T* at) const
    {
        for (u32 looks = 0; lacks(v); v = load(at))
            if (++looks > patience)
                asm volatile("trap;");
    }

    // The same for all lanes of a warp, of which those with `wanted` read. It calls `meanwhile` between two looks.
    template <class T, class Work>
    __device__ void complete(T& v, const T* at, bool wanted, Work meanwhile) const
    {
        for (u32 looks = 0; __any_sync(ALL, wanted && lacks(v));) {
            meanwhile();
            if (wanted && lacks(v))
                v = load(at);
            if (++looks > patience)
                asm volatile("trap;");
        }
    }

    __device__ void store(float* at, float v, long long next) const
    {
        asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(at), "f"(v) : "memory");
        if (next)
            clear(at, next);
    }

    // Makes a word absent for the next launch.
    __device__ void clear(float* at, long long next) const
    {
        asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"((u64)at + next), "r"(ABSENT) : "memory");
    }

private:
    static __device__ bool lacks(float v) { return __float_as_uint(v) == ABSENT; }

    static __device__ bool lacks(float4 v) { return lacks(v.x) || lacks(v.y) || lacks(v.z) || lacks(v.w); }

};

// Moves a place in the first half of the exchange by `half` bytes. Other places stay.
template <class T>
static __device__ bool move(const DecodeParams& d, u64 half, T*& at)
{
    bool inside = (u64)at - (u64)d.exchange < d.half_bytes;
    at = (T*)((u64)at + (inside ? half : 0));
    return inside;
}

// The tiles of a warp over all products: as `Stream` for each.
template <class F>
struct Chain {
    const DecodeProduct* products;
    u32 product, batch, lane;
    Range<F> range;
    // With paced copies: free places, the next of them, and the parity of its turn.
    u32 owed, next, turn;

    template <class S>
    __device__ void enter(const DecodeParams& d, const S& s, u32 warp)
    {
        u32 kind = products[product].kind;
        const u8* tiles = products[product].product.tiles;
        range.enter(tiles, s.bands[kind], s.portions[kind][warp], batch, batch < s.batches[kind]);
    }

    // Goes to the next batch or product that has tiles for the warp.
    template <class S>
    __device__ void advance(const DecodeParams& d, const S& s, u32 warp)
    {
        while (range.left == 0 && product < d.count) {
            batch += gridDim.x;
            if (batch >= s.batches[products[product].kind]) {
                if (++product == d.count)
                    return;
                batch = s.starts[products[product].kind];
            }
            enter(d, s, warp);
        }
    }

    // Starts the copy of the next tile to place `to`.
    template <class S, class R>
    __device__ void copy(const DecodeParams& d, const S& s, u32 warp, const R& ring, u32 to)
    {
        if (range.left > 0) {
            range.copy(ring, to, d.tiles_end, lane);
            if (range.left == 0)
                advance(d, s, warp);
        }
        ring.commit();
    }

#ifdef BULK
    // Starts copies to the free places while fewer than PACE are on their way. All lanes decide the same.
    template <u32 PACE, u32 PLACES, class S>
    __device__ void pump(const DecodeParams& d, const S& s, u32 warp, const Ring<PLACES>& ring)
    {
#pragma unroll 1
        while (owed > 0) {
            u32 back = next < PACE ? next + PLACES - PACE : next - PACE;
            if (PLACES - owed >= PACE && !__all_sync(ALL, ring.landed(back, next < PACE ? turn ^ 1 : turn)))
                return;
            copy(d, s, warp, ring, next);
            --owed;
            if (++next == PLACES)
                next = 0, turn ^= 1;
        }
    }
#endif
};

template <class F, u32 PLACES>
static __device__ void park(Parked& to, const Chain<F>& chain, const Ring<PLACES>& ring)
{
    if (chain.lane == 0) {
        const Range<F>& r = chain.range;
        to.at = r.at, to.left = r.left, to.step = r.step, to.steps = r.steps, to.last_bytes = r.last_bytes;
        to.tile_bytes = r.tile_bytes;
        to.product = chain.product, to.batch = chain.batch;
        to.slot = ring.slot;
#ifdef BULK
        to.parity = ring.parity;
        if (PLACES > STAGES)
            to.owed = chain.owed, to.next = chain.next, to.turn = chain.turn;
#endif
    }
    __syncwarp();
}

template <class F, u32 PLACES>
static __device__ void unpark(const Parked& from, Chain<F>& chain, Ring<PLACES>& ring)
{
    Range<F>& r = chain.range;
    r.at = from.at, r.left = from.left, r.step = from.step, r.steps = from.steps, r.last_bytes = from.last_bytes;
    r.tile_bytes = from.tile_bytes;
    chain.product = from.product, chain.batch = from.batch;
    ring.slot = from.slot;
#ifdef BULK
    ring.parity = from.parity;
    if (PLACES > STAGES)
        chain.owed = from.owed, chain.next = from.next, chain.turn = from.turn;
#endif
}

// Copies parameters to shared memory.
template <class T>
static __device__ void fetch(T* to, const T* from, u32 count)
{
    for (u32 i = threadIdx.x; i < count * sizeof(T) / 16; i += THREADS)
        ((uint4*)to)[i] = ((const uint4*)from)[i];
}

// The last block to end prepares the counter for the next launch: all have read it.
static __device__ void end(const DecodeParams& d)
{
    if (threadIdx.x == 0 && atomicAdd(d.counter, 1) == gridDim.x - 1) {
        d.counter[0] = 0;
        d.counter[1] ^= 1;
    }
}

// Vectors that are rare: wide ones with a norm, and those of other norms.
template <class F>
static __device__ __noinline__ void fill_rare(const ProductParams& p, u8* memory, float* scratch, u32 patience)
{
    Exchange link = {patience};
    Quads quads;
    quads.load_norm(p);
    quads.load_vector(p, link);
    before<F>(p, memory, scratch, quads, link, false);
}

static __device__ float4 times(float4 a, float4 b)
{
    return make_float4(a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w);
}

// The factor of an RMS norm, from the sums of squares of all warps.
static __device__ float norm_factor(const float* sums, float each, float epsilon)
{
    return rsqrtf(fmaf(sum_of_warps(sums), each, epsilon));
}

// Fills the shared memory with a product's vector, for all warps. Returns the factor of its elements, which the norm
// has once all of them are there: the block waits only once. With BRANCHES, `kept` has the sum of input and branches.
// With a PACE, `pump` is called until the vector is there.
template <class F, bool BRANCHES, bool PACED, class Pump>
static __device__ float fill(const ProductParams& p, u8* memory, float* scratch, float4* kept, const Exchange& link,
                             Pump pump)
{
    // Quads of a thread that are read together.
    const u32 TOGETHER = 4, WIDE = 3 * THREADS * 4;
    const u32 first = threadIdx.x * 4, warp = threadIdx.x / 32;
    u32 columns = p.columns, how = p.before;
    if (F::ROUNDS && how == BEFORE_RMS_NORM && columns <= THREADS * 4) {
        float epsilon = p.epsilon, each = __fdividef(1.0f, (float)columns);
        float4 w = quad(p.norm_weight, first, columns);
        const float* input = BRANCHES && p.branch ? p.branch : p.input;
        float4 x = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (PACED) {
            if (first < columns)
                x = link.load((const float4*)(input + first));
            link.complete(x, (const float4*)(input + first), first < columns, pump);
        } else {
            x = vector_quad(input, first, columns, link);
        }
        if (BRANCHES && p.branch) {
            float sum = warp_sum(squares(x, 0.0f));
            if (threadIdx.x % 32 == 0)
                scratch[WARPS + warp] = sum;
            __syncthreads();
            float factor = norm_factor(scratch + WARPS, each, epsilon);
            x = joined(kept[threadIdx.x], x, factor, quad(p.branch_weight, first, columns));
            if (p.joined && blockIdx.x == 0 && first < columns)
                *(float4*)(p.joined + first) = x;
        }
        if (BRANCHES)
            kept[threadIdx.x] = x;
        float sum = warp_sum(squares(x, 0.0f));
        if (threadIdx.x % 32 == 0)
            scratch[warp] = sum;
        if (warp * 128 < columns)
            put<true, F::UNIT>(memory, first, times(x, w), first < columns);
        __syncthreads();
        return norm_factor(scratch, each, epsilon);
    }
    if (how == BEFORE_NOTHING) {
#pragma unroll 1
        for (u32 base = 0; base + warp * 128 < columns; base += TOGETHER * THREADS * 4) {
            float4 x[TOGETHER];
            // While all threads look at a wide vector, the words of others have to wait. One looks first.
            if (columns > WIDE) {
                const float* probe = p.input + base + warp * 128;
                float v = threadIdx.x % 32 == 0 ? link.load(probe) : 0.0f;
                link.complete(v, probe, threadIdx.x % 32 == 0, pump);
            }
#pragma unroll
            for (u32 i = 0; i < TOGETHER; ++i) {
                u32 at = base + i * THREADS * 4 + first;
                x[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                if (at < columns)
                    x[i] = link.load((const float4*)(p.input + at));
            }
#pragma unroll
            for (u32 i = 0; i < TOGETHER; ++i) {
                u32 at = base + i * THREADS * 4 + first;
                if (at - first + warp * 128 >= columns)
                    break;
                if (at < columns)
                    link.complete(x[i], (const float4*)(p.input + at));
                put<F::ROUNDS, F::UNIT>(memory, at, x[i], at < columns);
            }
        }
    } else {
        fill_rare<F>(p, memory, scratch, link.patience);
    }
    __syncthreads();
    return 1.0f;
}

// LANES: see `attend`. With a PACE, a warp has at most as many tiles on their way: where the memory takes longest, a
// burst of copies delays the words that blocks wait for. It takes more instructions, and is for more places than
// STAGES.
template <class F, int LANES, u32 PLACES, u32 PACE>
static __device__ void decode(const DecodeParams& d)
{
    static_assert(PLACES <= MAX_PLACES && PACE <= PLACES, "each place has a barrier");
    extern __shared__ __align__(PLACE_ALIGNMENT) uint4 dynamic[];
    // Models with heads of so many columns normalise results.
    const bool BRANCHES = LANES > 16;
    __shared__ Shared<BRANCHES ? THREADS : 1> s;
    u8* memory = (u8*)dynamic;
    u32 warp = threadIdx.x / 32;
    const u32 tile_bytes = place_bytes(8 * F::BYTES);
    let_next_begin();
    Ring<PLACES> ring;
    ring.init(memory + d.front_bytes + warp * PLACES * tile_bytes, s.landed[warp], true);
    DecodeProduct* products = (DecodeProduct*)(memory + d.front_bytes + WARPS * PLACES * tile_bytes);
    AttentionParams* attentions = (AttentionParams*)(products + d.count);
    fetch(products, d.products, d.count);
    fetch(attentions, d.attentions, d.layers);
    Exchange link = {d.patience};
    static_assert(KINDS * WARPS <= THREADS, "a thread for each layout");
    if (threadIdx.x < KINDS * WARPS) {
        u32 kind = threadIdx.x / WARPS;
        const DecodeKind& of = d.kinds[kind];
        const ProductParams& p = d.products[of.product].product;
        Layout l = Layout::of<F>(p, threadIdx.x % WARPS, of.format);
        s.portions[kind][threadIdx.x % WARPS] = l;
        s.bands[kind] = l;
        s.starts[kind] = blockIdx.x + (blockIdx.x < of.first ? gridDim.x : 0) - of.first;
        s.batches[kind] = p.batches;
    }
    __syncthreads();

    Chain<F> chain;
    chain.lane = fixed_lane();
    chain.products = products;
    chain.product = 0;
    chain.batch = s.starts[products[0].kind];
    chain.enter(d, s, warp);
    chain.advance(d, s, warp);
    chain.owed = PLACES, chain.next = chain.turn = 0;
    auto pump = [&] {
#ifdef BULK
        if constexpr (PACE > 0)
            chain.template pump<PACE>(d, s, warp, ring);
#endif
    };
    auto refill = [&](u32 to) {
        if (PACE > 0)
            ++chain.owed;
        else
            chain.copy(d, s, warp, ring, to);
        pump();
    };
    pump();
#pragma unroll 1
    for (u32 i = 0; i < PLACES && PACE == 0; ++i)
        chain.copy(d, s, warp, ring, i);

    wait_for_previous();
    u64 half = (d.counter[1] & 1) * d.half_bytes;
    long long next = half ? -(long long)d.half_bytes : (long long)d.half_bytes;
    // All vectors move to the half of this launch.
    for (u32 i = threadIdx.x; i < d.count; i += THREADS) {
        ProductParams& p = products[i].product;
        move(d, half, p.input);
        move(d, half, p.branch);
        move(d, half, p.other);
        p.next = move(d, half, p.output) ? next : 0;
    }
    for (u32 i = threadIdx.x; i < d.layers; i += THREADS) {
        move(d, half, attentions[i].qkv);
        move(d, half, attentions[i].parts);
        attentions[i].next = move(d, half, attentions[i].output) ? next : 0;
    }
    __syncthreads();

    u32 parity = 0;
    bool ready = false;
    float factor = 1.0f;
#pragma unroll 1
    for (u32 product = 0; product < d.count; ++product) {
        u32 number = products[product].attention;
        ready = ready && products[product].shares;
        if (number > 0) {
            park(s.parked[warp], chain, ring);
            s.parked[warp].current = product, s.parked[warp].sums = parity;
            const AttentionParams& attention = attentions[number - 1];
            Desk<1, LANES>& desk = *(Desk<1, LANES>*)memory;
#pragma unroll 1
            for (u32 block = blockIdx.x; block < d.heads * d.chunks; block += gridDim.x) {
                attend_group<Halves, 1, LANES>(attention, desk, block % d.heads, block / d.heads, d.chunks, link);
                __syncthreads();
            }
            product = s.parked[warp].current, parity = s.parked[warp].sums, ready = false;
            unpark(s.parked[warp], chain, ring);
            ring.place(memory + d.front_bytes + warp * PLACES * tile_bytes, s.landed[warp]);
        }
        const ProductParams& p = products[product].product;
        u32 kind = products[product].kind, start = s.starts[kind];
        auto bring = [&] {
            if (!ready) {
                pump();
                factor = fill<F, BRANCHES, (PACE > 0)>(p, memory, s.bench.scratch, s.kept, link, pump);
            }
            ready = true;
            return factor;
        };
        if (start >= p.batches) {
            // All blocks keep the sum, which begins with the first vector.
            if (BRANCHES && p.before == BEFORE_RMS_NORM)
                bring();
            continue;
        }
        consume<F>(p, s.bands[kind], s.portions[kind][warp], start, parity, memory, s.bench, ring, chain.lane, link,
                   bring, refill, pump);
    }
    end(d);
}

#define KERNEL(name, format, lanes, places, pace)                                                                     \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) decode_##name##_##lanes(const __grid_constant__ DecodeParams d) \
    {                                                                                                                 \
        decode<format, lanes, places, pace>(d);                                                                       \
    }

// What files have that are named so, and files whose rows are too short for the blocks of some of these formats.
typedef Mixed<Q4K, Q6K> Q4_K_M;
typedef Mixed<Q5K, Q6K> Q5_K_M;
typedef Mixed<Q5_0, Q8_0, Q4K, Q6K> Q4_K_M_SHORT;
typedef Mixed<Q5_1, Q8_0, Q5K, Q6K> Q5_K_M_SHORT;

#define KERNELS(lanes)                                                                                                \
    KERNEL(f16, F16, lanes, STAGES, 0)                                                                                \
    KERNEL(q4_k, Q4K, lanes, STAGES, 0)                                                                               \
    KERNEL(q6_k, Q6K, lanes, STAGES, 0)                                                                               \
    KERNEL(q4_k_m, Q4_K_M, lanes, STAGES, 0)                                                                          \
    KERNEL(q5_k_m, Q5_K_M, lanes, STAGES, 0)                                                                          \
    SHORT_KERNELS(lanes)

#define SHORT_KERNELS(lanes)                                                                                          \
    KERNEL(q8_0, Q8_0, lanes, STAGES, 0)                                                                              \
    KERNEL(q4_k_m_short, Q4_K_M_SHORT, lanes, STAGES, 0)                                                              \
    KERNEL(q5_k_m_short, Q5_K_M_SHORT, lanes, STAGES, 0)

// Heads of at most 64, 128 and 256 columns.
KERNELS(8)
KERNELS(16)
SHORT_KERNELS(32)

// Faster on Hopper GPUs than the kernels above, with the numbers that measured best: see `docs/llm.md`.
#ifdef BULK
KERNEL(paced_q8_0, Q8_0, 8, 5, 2)
KERNEL(paced_q6_k, Q6K, 8, 6, 2)
KERNEL(paced_q8_0, Q8_0, 16, 5, 2)
KERNEL(paced_q6_k, Q6K, 16, 6, 2)
#endif
