// Products of a matrix with one vector, for the decoding of language models. One kernel per block format; each does
// what comes before the product (a norm, the rounding of the vector) and after it (bias, residual, activation,
// maximum).
//
// The warps of a block share the tiles of a batch equally, and each copies its tiles to shared memory several tiles
// ahead of their use, beginning before the vector is ready. All sums have a fixed order.
//
// Blocks of 512 threads, any grid. Dynamic shared memory: the vector (`vector_bytes`), then STAGES tiles per warp.
#include <cuda_fp16.h>

// The vectors of wide models leave no room for the sums of more batches on an Orin.
#define ROUND 1
#include "product.cuh"

// Tiles of a warp that are copied before the vector is ready.
#define EARLY 2

// Starts the copy of a rounded vector.
static __device__ void copy_vector(const ProductParams& p, u8* memory)
{
    u32 to = (u32)__cvta_generic_to_shared(memory), bytes = rounded_bytes(p.columns);
#pragma unroll 1
    for (u32 at = threadIdx.x * 16; at < bytes; at += THREADS * 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                     ::"r"(to + at), "l"((const u8*)p.input + at) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <class F>
static __device__ void product(const ProductParams& p)
{
    extern __shared__ uint4 dynamic[];
    __shared__ Bench bench;
    u8* memory = (u8*)dynamic;
    u32 warp = threadIdx.x / 32;
    const u32 tile_bytes = 8 * F::BYTES;
    Quads quads;
    // Before the tiles: the memory answers in order. A launch that begins early has no vector yet.
    if (!BEGINS_EARLY && p.before != BEFORE_PACKED)
        quads.load_vector(p, Settled());
    quads.load_norm(p);
    Layout l = Layout::of<F>(p, warp);
    Ring<STAGES> ring;
    // No barriers: the lanes copy, which is as fast here.
    ring.init(memory + vector_bytes<F>(p.columns) + warp * STAGES * tile_bytes, 0, true);

    Stream<F> stream(p, l, fixed_lane());
    if (BEGINS_EARLY) {
        let_next_begin();
#pragma unroll 1
        for (u32 s = 0; s < EARLY; ++s)
            stream.copy(p, l, ring, s);
        wait_for_previous();
        if (p.before != BEFORE_PACKED)
            quads.load_vector(p, Settled());
    }
    // A rounded vector comes first, then as many tiles as the memory delivers while another vector is prepared: with
    // more, warps would wait for room in the queue of copies.
    if (p.before == BEFORE_PACKED)
        copy_vector(p, memory);
#pragma unroll 1
    for (u32 s = 0; !BEGINS_EARLY && s < EARLY; ++s)
        stream.copy(p, l, ring, s);
    auto fill = [&] {
        if (p.before == BEFORE_PACKED)
            asm volatile("cp.async.wait_group %0;" ::"n"(BEGINS_EARLY ? 0 : EARLY) : "memory");
        else
            before<F>(p, memory, bench.scratch, quads, Settled(), blockIdx.x == 0);
#pragma unroll 1
        for (u32 s = EARLY; s < STAGES; ++s)
            stream.copy(p, l, ring, s);
        __syncthreads();
        return 1.0f;
    };
    u32 parity = 0;
    consume<F>(p, l, l, blockIdx.x, parity, memory, bench, ring, stream.lane, Settled(), fill,
               [&](u32 to) { stream.copy(p, l, ring, to); }, [] {});
    fetch_ahead(p.ahead, p.ahead_bytes, blockIdx.x, gridDim.x);
}

#define KERNEL(name, format, number)                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, 1) product_##name(const __grid_constant__ ProductParams p)  \
    {                                                                                                                 \
        product<format>(p);                                                                                           \
    }

KERNEL(f32, F32, 0)
KERNEL(f16, F16, 1)
KERNEL(bf16, BF16, 30)
QUANTISED(KERNEL)
