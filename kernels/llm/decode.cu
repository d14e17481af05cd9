// All layers of a language model for one token, and its logits, in one launch, for models whose matrices have one
// format.
//
// One block per SM runs all phases: the products and attentions that `product.cu` and `attention.cu` run as launches.
// Between two phases the blocks wait for each other at a counter. Weights depend on nothing: each warp copies its tiles
// to shared memory ahead of their use, across phases, so the memory is busy while blocks wait and vectors are prepared.
// All sums have the order that they have in the launches: the results have the same bits.
//
// Blocks of 512 threads, at most as many as are resident together. Dynamic shared memory: `front_bytes` for a vector or
// the state of an attention, then STAGES tiles per warp, then 8 bytes per product.
#include <cuda_fp16.h>

// More fill the queues of the memory, and what the blocks wait for comes later; an SM of an Orin has no room for more.
#if __CUDA_ARCH__ >= 900
#define STAGES 4
#define BULK
#else
#define STAGES 3
#endif
#include "product.cuh"

// Registers are scarce here.
#define EARLY_HEADS 0
#include "attention.cuh"

// Kinds of products, each with its sizes: queries, keys and values; attention's output; first and last product of the
// feed-forward network; logits.
#define KINDS 5
#define LOGITS 4

// Query heads of a block of the attention, and the most bytes of its state.
#define HEADS 4
#define DESK_BYTES 36864

static_assert(sizeof(Desk<HEADS>) <= DESK_BYTES && ATTENTION_THREADS == THREADS, "the front holds an attention");

struct Decode {
    // Those of each layer in the order of KINDS, then that of the logits.
    const Product* products;
    // One per layer.
    const Attention* attentions;
    // 0 before and after the launch.
    u32* counter;
    // End of all matrices.
    const u8* tiles_end;
    u32 layers;
    // Number of products, 4 * layers or one more with the logits.
    u32 count;
    // Grid of the attention.
    u32 groups, chunks;
    // Bytes before the tiles in shared memory, a multiple of 16.
    u32 front_bytes;
    // Blocks of the grid.
    u32 blocks;
    // Looks at the counter after which a block gives up.
    u32 patience;
    u32 unused;
};

static __device__ u32 kind_of(const Decode& d, u32 product)
{
    return product == 4 * d.layers ? LOGITS : product % 4;
}

// What a warp needs for its copies. It waits here during an attention, whose registers it would push to local memory
// for the products as well.
struct Parked {
    const u8* at;
    u32 product, batch, left, step, steps, last_bytes, slot, parity;
};

// What the threads of a block share.
struct Shared {
    Bench bench;
    // Barriers of the tiles.
    u64 landed[WARPS][STAGES];
    Layout layouts[KINDS][WARPS];
    u32 batches[KINDS];
    Parked parked[WARPS];
    // Parameters of the current phase.
    Product product;
    Attention attention;
};

// The tiles of a warp over all products: as `Stream` for each.
template <class F>
struct Chain {
    const u8* const* tiles;
    u32 product, batch, lane;
    Range<F> range;

    __device__ void enter(const Decode& d, const Shared& s, u32 warp)
    {
        u32 kind = kind_of(d, product);
        range.enter(tiles[product], s.layouts[kind][warp], batch, batch < s.batches[kind]);
    }

    // Goes to the next batch or product that has tiles for the warp.
    __device__ void advance(const Decode& d, const Shared& s, u32 warp)
    {
        while (range.left == 0 && product < d.count) {
            batch += gridDim.x;
            if (batch >= s.batches[kind_of(d, product)]) {
                batch = blockIdx.x;
                if (++product == d.count)
                    return;
            }
            enter(d, s, warp);
        }
    }

    // Starts the copy of the next tile to place `to`.
    __device__ void copy(const Decode& d, const Shared& s, u32 warp, const Ring& ring, u32 to)
    {
        if (range.left > 0) {
            range.copy(ring, to, d.tiles_end, lane);
            if (range.left == 0)
                advance(d, s, warp);
        }
        ring.commit();
    }
};

template <class F>
static __device__ void park(Parked& to, const Chain<F>& chain, const Ring& ring)
{
    if (chain.lane == 0) {
        const Range<F>& r = chain.range;
        to.at = r.at, to.left = r.left, to.step = r.step, to.steps = r.steps, to.last_bytes = r.last_bytes;
        to.product = chain.product, to.batch = chain.batch;
        to.slot = ring.slot;
#ifdef BULK
        to.parity = ring.parity;
#endif
    }
    __syncwarp();
}

template <class F>
static __device__ void unpark(const Parked& from, Chain<F>& chain, Ring& ring)
{
    Range<F>& r = chain.range;
    r.at = from.at, r.left = from.left, r.step = from.step, r.steps = from.steps, r.last_bytes = from.last_bytes;
    chain.product = from.product, chain.batch = from.batch;
    ring.slot = from.slot;
#ifdef BULK
    ring.parity = from.parity;
#endif
}

// Copies parameters to shared memory with one warp.
template <class T>
static __device__ void fetch(T* to, const T* from)
{
    if (threadIdx.x < sizeof(T) / 4)
        ((u32*)to)[threadIdx.x] = ((const u32*)from)[threadIdx.x];
}

// Ends a phase: what this block wrote becomes visible to blocks that pass the next `wait`.
static __device__ void arrive(u32* counter)
{
    __syncthreads();
    if (threadIdx.x == 0)
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}

// Waits until all blocks have ended `phases` phases. A block that is not resident never ends one: gives up after a time.
static __device__ void wait(const Decode& d, u32 phases)
{
    if (threadIdx.x == 0) {
        u32 target = phases * d.blocks, looks = 0, now;
        while (true) {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(d.counter) : "memory");
            if (now >= target)
                break;
            if (++looks > d.patience)
                asm volatile("trap;");
        }
    }
    __syncthreads();
}

// Ends the last phase. The last block to arrive prepares the counter for the next launch: none waits any more.
static __device__ void end(const Decode& d, u32 phases)
{
    if (threadIdx.x == 0 && atomicAdd(d.counter, 1) == (phases + 1) * d.blocks - 1)
        *d.counter = 0;
}

static __device__ void load_packed(const Product& p, u8* memory)
{
    for (u32 at = threadIdx.x * 16; at < rounded_bytes(p.columns); at += THREADS * 16)
        *(uint4*)(memory + at) = *(const uint4*)((const u8*)p.input + at);
}

template <class F>
static __device__ void decode(const Decode& d)
{
    extern __shared__ uint4 dynamic[];
    __shared__ Shared s;
    u8* memory = (u8*)dynamic;
    u32 warp = threadIdx.x / 32;
    const u32 tile_bytes = 8 * F::BYTES;
    Ring ring;
    ring.init(memory + d.front_bytes + warp * STAGES * tile_bytes, s.landed[warp], true);
    const u8** tiles = (const u8**)(memory + d.front_bytes + WARPS * STAGES * tile_bytes);
    for (u32 i = threadIdx.x; i < d.count; i += THREADS)
        tiles[i] = d.products[i].tiles;
    if (threadIdx.x < KINDS * WARPS) {
        u32 kind = threadIdx.x / WARPS;
        // Without logits, those of the last kind are not used.
        const Product& p = d.products[kind == LOGITS ? d.count - 1 : kind];
        s.layouts[kind][threadIdx.x % WARPS] = Layout::of<F>(p, threadIdx.x % WARPS);
        s.batches[kind] = p.batches;
    }
    __syncthreads();

    Chain<F> chain;
    chain.lane = fixed_lane();
    chain.tiles = tiles;
    chain.product = 0;
    chain.batch = blockIdx.x;
    chain.enter(d, s, warp);
    chain.advance(d, s, warp);
#pragma unroll 1
    for (u32 i = 0; i < STAGES; ++i)
        chain.copy(d, s, warp, ring, i);

    u32 phases = 0;
#pragma unroll 1
    for (u32 product = 0; product < d.count; ++product) {
        u32 kind = kind_of(d, product);
        if (kind == 1) {
            park(s.parked[warp], chain, ring);
            fetch(&s.attention, d.attentions + product / 4);
            wait(d, phases);
            Desk<HEADS>& desk = *(Desk<HEADS>*)memory;
#pragma unroll 1
            for (u32 block = blockIdx.x; block < d.groups * d.chunks; block += gridDim.x) {
                if (s.attention.head_size <= 64)
                    attend_group<HEADS, 8>(s.attention, desk, block % d.groups, block / d.groups, d.chunks);
                else
                    attend_group<HEADS, 16>(s.attention, desk, block % d.groups, block / d.groups, d.chunks);
                __syncthreads();
            }
            arrive(d.counter);
            ++phases;
            unpark(s.parked[warp], chain, ring);
            ring.place(memory + d.front_bytes + warp * STAGES * tile_bytes, s.landed[warp]);
        }
        fetch(&s.product, d.products + product);
        Quads quads;
        quads.load_norm(d.products[product]);
        wait(d, phases);
        if (blockIdx.x < s.product.batches) {
            if (s.product.before == BEFORE_PACKED) {
                load_packed(s.product, memory);
            } else {
                quads.load_vector(s.product);
                before<F>(s.product, memory, s.bench.scratch, quads);
            }
            __syncthreads();
            consume<F>(s.product, s.layouts[kind][warp], memory, s.bench, ring, chain.lane,
                       [&](u32 to) { chain.copy(d, s, warp, ring, to); });
        }
        if (product + 1 == d.count)
            end(d, phases);
        else
            arrive(d.counter);
        ++phases;
    }
}

#define KERNEL(name, format)                                                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) name(const __grid_constant__ Decode d)                   \
    {                                                                                                                 \
        decode<format>(d);                                                                                            \
    }

KERNEL(decode_f16, F16)
KERNEL(decode_q4_k, Q4K)
KERNEL(decode_q8_0, Q8_0)
KERNEL(decode_q6_k, Q6K)
