// Products of a matrix with the vectors of several sequences, for the decoding of language models in batches. The tiles
// of the matrix are read once for up to GROUP sequences. A sequence's sums have the same order as in `product.cu`, so
// they have the same bits.
//
// `prepare_*` brings the vectors into the form that `products_*` reads: a norm, and the rounding of the vector. Other
// vectors are rounded by the product before.
#include <cuda_fp16.h>

#include "product.cuh"

// Most sequences of a block.
#define GROUP 8
// Tiles of a warp in shared memory: with more, the wide vectors of as many sequences have no room there.
#define PLACES 2

template <class T>
static __device__ T* at(u8* memory, T* place)
{
    return (T*)(memory + (u64)place);
}

// ---- Before the products ----

// Grid (sequences), blocks of 512 threads.
template <class F>
static __device__ void prepare(const BatchProductParams& all)
{
    __shared__ float scratch[2 * WARPS];
    let_next_begin();
    if (blockIdx.x >= all.sequences->count)
        return;
    u8* memory = all.sequences->list[blockIdx.x].vectors;
    ProductParams p = all.product;
    p.input = at(memory, p.input);
    if (p.branch) {
        p.branch = at(memory, p.branch);
        p.joined = at(memory, p.joined);
    }
    Quads quads;
    quads.load_norm(p);
    wait_for_previous();
    quads.load_vector(p, Settled());
    before<F>(p, (u8*)at(memory, p.output), scratch, quads, Settled(), true);
}

// ---- The products ----

// The sums of a warp over its part of a band are at [band + warp]: bands and warps only grow along the tiles. Those of
// a pair are an odd number of elements from the next, so that the threads that add them up use different banks.
#define PAIR_STRIDE (GROUP + 1)
typedef float2 Segments[(MAX_PAIRS + 4 * WARPS) * PAIR_STRIDE];

// The place of a pair of a band of PAIRS, for sequence `column`.
template <u32 PAIRS>
static __device__ u32 place(u32 band, u32 warp, u32 pair, u32 column)
{
    return ((band + warp) * PAIRS + pair) * PAIR_STRIDE + column;
}

// What the threads of a block share.
struct Table {
    Segments segments[2];
    u64 bests[WARPS];
    u8* memory[GROUP];
};

template <u32 PAIRS>
static __device__ float2 sum_segments(const Segments& segments, u32 pair, u32 column, const Layout& l)
{
    u32 band = pair / PAIRS, warp = l.owner(band * l.steps), last = l.owner((band + 1) * l.steps - 1);
    float2 sum = segments[place<PAIRS>(band, warp, pair % PAIRS, column)];
    for (++warp; warp <= last; ++warp) {
        float2 part = segments[place<PAIRS>(band, warp, pair % PAIRS, column)];
        sum.x += part.x;
        sum.y += part.y;
    }
    return sum;
}

// A warp's tiles of a batch with the vectors of all sequences in `vectors`, `stride` bytes apart.
template <class F>
static __device__ void multiply(const ProductParams& p, const Layout& l, Stream<F>& stream, Ring<PLACES>& ring,
                                const u8* vectors, u32 stride, u32 columns, Segments& segments)
{
    u32 lane = stream.lane, warp = threadIdx.x / 32;
    const u32 tile_bytes = 8 * F::BYTES, across = 32 / F::PAIRS;
    u32 band = l.band, step = l.step;
    typename F::Vector v(lane);
    float a[GROUP], b[GROUP];
#pragma unroll
    for (int n = 0; n < GROUP; ++n)
        a[n] = b[n] = 0.0f;
#pragma unroll 1
    for (u32 left = l.count; left > 0; --left) {
        ring.wait();
        const u8* tile = ring.stages + ring.slot * tile_bytes;
        bool last = step + 1 == l.steps;
        Weights<F> weights;
        weights.load(tile, lane, last ? l.last_units : across);
        // The tile is in registers: its place is free.
        __syncwarp();
        stream.copy(p, l, ring, ring.slot);
        ring.advance();
#pragma unroll
        for (int n = 0; n < GROUP; ++n) {
            if (n == 0 || n < columns) {
                v.load(vectors + n * stride, step);
                weights.add(a[n], b[n], v);
            }
        }
        step = last ? 0 : step + 1;
        if (last || left == 1) {
#pragma unroll
            for (int n = 0; n < GROUP; ++n) {
                if (n < columns)
                    flush<F::PAIRS>(a[n], b[n], &segments[place<F::PAIRS>(band, warp, 0, n)], PAIR_STRIDE, lane);
                a[n] = b[n] = 0.0f;
            }
            ++band;
        }
    }
}

// Grid (any number of blocks, groups of sequences), blocks of 512 threads. Dynamic shared memory: a vector per sequence
// of a group, then PLACES tiles per warp.
template <class F>
static __device__ void products(const BatchProductParams& all)
{
    extern __shared__ uint4 dynamic[];
    __shared__ Table table;
    const ProductParams& p = all.product;
    let_next_begin();
    u32 first = blockIdx.y * all.group, count = all.sequences->count;
    if (first >= count)
        return;
    u32 columns = count - first < all.group ? count - first : all.group;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const u32 tile_bytes = 8 * F::BYTES;
    u8* vectors = (u8*)dynamic;
    u32 stride = vector_bytes<F>(p.columns);
    Layout l = Layout::of<F>(p, warp);
    Ring<PLACES> ring;
    ring.init(vectors + all.group * stride + warp * PLACES * tile_bytes, 0, gridDim.y == 1);
    Stream<F> stream(p, l, fixed_lane());
#pragma unroll 1
    for (u32 s = 0; s < PLACES; ++s)
        stream.copy(p, l, ring, s);
    wait_for_previous();
    if (threadIdx.x < columns)
        table.memory[threadIdx.x] = all.sequences->list[first + threadIdx.x].vectors;
    __syncthreads();
#pragma unroll 1
    for (u32 n = 0; n < columns; ++n) {
        const u8* from = (const u8*)at(table.memory[n], p.input);
        u32 to = (u32)__cvta_generic_to_shared(vectors + n * stride);
        for (u32 i = threadIdx.x * 16; i < stride; i += THREADS * 16)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + i), "l"(from + i) : "memory");
    }
    asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;" ::: "memory");
    __syncthreads();

    // ENDING threads end a sequence's part of a batch.
    u32 column = threadIdx.x / ENDING, thread = threadIdx.x % ENDING, parity = 0;
    bool ends = column < columns;
    u8* memory = table.memory[ends ? column : 0];
    ProductParams own = p;
    own.output = at(memory, p.output);
    own.other = at(memory, p.other);
    u64 best = 0;
    for (u32 batch = blockIdx.x; batch < p.batches; batch += gridDim.x) {
        Output output(own, batch, Settled(), ends ? thread : ENDING);
        multiply<F>(p, l, stream, ring, vectors, stride, columns, table.segments[parity]);
        __syncthreads();
        // Whole warps: `put_group` shuffles.
        if (ends) {
            u32 pair = p.after == AFTER_PAIR ? thread : thread / 2;
            float v = 0.0f;
            if (output.valid)
                v = output.value(own, sum_segments<F::PAIRS>(table.segments[parity], pair, column, l), thread);
            if (p.after == AFTER_LOGITS && output.valid) {
                u64 key = (u64)ordered(v) << 32 | ~output.at;
                best = key > best ? key : best;
            }
            if (!p.packed_output) {
                if (output.valid)
                    own.output[output.at] = v;
            } else if (thread < 32) {
                put_group(own, batch, v);
            }
        }
        parity ^= 1;
    }
    if (p.after != AFTER_LOGITS)
        return;
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) {
        u64 other = __shfl_xor_sync(ALL, best, offset);
        best = other > best ? other : best;
    }
    if (lane == 0)
        table.bests[warp] = best;
    __syncthreads();
    if (ends && thread == 0) {
        u64 other = table.bests[warp + 1];
        at(memory, p.best)[blockIdx.x] = best > other ? best : other;
    }
}

#define KERNEL(name, format, work)                                                                                    \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) name(const __grid_constant__ BatchProductParams p)       \
    {                                                                                                                 \
        work<format>(p);                                                                                              \
    }

// The forms of vectors: rounded, in units of 8 columns, as they are.
KERNEL(prepare_rounded, Q6K, prepare)
KERNEL(prepare_units, F16, prepare)
KERNEL(prepare_plain, F32, prepare)
#define PRODUCTS(name, format, number) KERNEL(products_##name, format, products)
PRODUCTS(f32, F32, 0)
PRODUCTS(f16, F16, 1)
PRODUCTS(bf16, BF16, 30)
QUANTISED(PRODUCTS)
