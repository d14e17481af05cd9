// As `dense.cu`, on the tensor cores of SM 9.0, which read factors from shared memory: for halves, bfloat16 and floats
// rounded to TF32, and rows that begin at multiples of 16 bytes.
//
// A block computes a tile of 128 x 256. One thread copies both factors to shared memory, up to STAGES steps of 128
// bytes ahead; each of two warpgroups multiplies 64 rows. What lies outside of the factors is zeros. The copies round
// floats to TF32, to nearest.
//
// There is no product of TF32 with `b` (k x n) in shared memory. For it, the block computes the transpose of a tile of
// 256 x 128: a warpgroup has 64 columns of `b` as the first factor, in registers, and `a` is the second.
//
// only: sm_90a
//
// The maps say where the factors are. Their addresses are parameters too, by which the driver knows what a launch reads.
//
// Names: wide_ELEMENT_FORM, as in `dense.cu`. Grid (tiles, 1, batch); blocks of 288 threads, for the transpose of 384.
// Dynamic shared memory: STAGES * 48 KiB, and 1,024 bytes more to align it.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "dense.cuh"
#include "wgmma.cuh"

#undef STAGES
#define STAGES 4
// Rows of the factor of which a warpgroup has 64, and of the other one.
#define SHORT 128
#define LONG 256
#define SHORT_BYTES (SHORT * ROW)
#define STAGE (SHORT_BYTES + LONG * ROW)
// Threads that multiply. The other warp copies.
#define MULTIPLIERS 256

struct Barriers {
    // A stage is full, and free again.
    u64 full[STAGES], free[STAGES];
};

// The turns of the stages.
struct Turn {
    u32 stage, parity;

    __device__ void next()
    {
        if (++stage == STAGES)
            stage = 0, parity ^= 1;
    }
};

// How the tiles of a stage lie: the short one, then the long one. With ROWS, `b` is k x n.
template <class E, bool ROWS>
struct Layout {
    static const u32 COLUMNS = ROW / E::BYTES;
    // Whether the block computes the transpose, for which a warpgroup gives its registers to the others.
    static const bool EXCHANGED = ROWS && E::BYTES == 4;
    static const u32 THREADS = MULTIPLIERS + (EXCHANGED ? 128 : 32);
    static const u32 BM = EXCHANGED ? LONG : SHORT, BN = EXCHANGED ? SHORT : LONG;
    static const u32 OF_A = EXCHANGED ? SHORT_BYTES : 0, OF_B = EXCHANGED ? 0 : SHORT_BYTES;
    // Bytes of a part of `b`, if it is k x n.
    static const u32 PART = COLUMNS * ROW;
};

template <class L, bool ROWS>
static __device__ void copy_stages(const TensorMap& a, const TensorMap& b, u32 shared, Barriers& barriers, u32 row,
                                   u32 column, u32 steps)
{
    u32 full = shared_address(barriers.full), free = shared_address(barriers.free);
    Turn turn = {0, 1};
#pragma unroll 1
    for (u32 s = 0; s < steps; ++s, turn.next()) {
        barrier_wait(free + turn.stage * 8, turn.parity);
        u32 barrier = full + turn.stage * 8, to = shared + turn.stage * STAGE, at = s * L::COLUMNS;
        barrier_expect(barrier, STAGE);
        copy_part(to + L::OF_A, a, at, row, blockIdx.z, barrier);
        if (ROWS) {
#pragma unroll
            for (u32 part = 0; part < L::BN / L::COLUMNS; ++part)
                copy_part(to + L::OF_B + part * L::PART, b, column + part * L::COLUMNS, at, blockIdx.z, barrier);
        } else {
            copy_part(to + L::OF_B, b, at, column, blockIdx.z, barrier);
        }
    }
}

template <class E, bool ROWS>
static __device__ void multiply(float (&sum)[128], u32 shared, Barriers& barriers, u32 steps)
{
    u32 full = shared_address(barriers.full), free = shared_address(barriers.free);
    u32 half = threadIdx.x / 128, last = 0;
    Turn turn = {0, 0};
#pragma unroll 1
    for (u32 s = 0; s < steps; ++s, turn.next()) {
        barrier_wait(full + turn.stage * 8, turn.parity);
        u32 from = shared + turn.stage * STAGE;
        u64 a = descriptor(from + half * 64 * ROW, 0);
        u64 b = descriptor(from + SHORT_BYTES, ROWS ? Layout<E, ROWS>::PART : 0);
        wgmma_fence();
#pragma unroll
        for (u32 step = 0; step < 4; ++step)
            // 32 bytes of a row, or 16 rows.
            E::template product<ROWS>(sum, a + step * (32 >> 4), b + step * ((ROWS ? 16 * ROW : 32) >> 4));
        wgmma_commit();
        // The step before has ended.
        wgmma_wait<1>();
        if (s > 0 && threadIdx.x % 128 == 0)
            barrier_arrive(free + last * 8);
        last = turn.stage;
    }
    wgmma_wait<0>();
}

// The column of `b`, of the 128 of a tile, that is row `row` of the 16 of warp `warp`. Lanes that load fragments then
// use all banks.
static __device__ u32 column_of(u32 warp, u32 row)
{
    return warp / 2 * 32 + row / 4 % 2 * 16 + warp % 2 * 8 + row / 8 * 4 + row % 4;
}

// The fragments of four products from `b` (k x n).
static __device__ void load_fragments(u32 (&to)[4][4], u32 from)
{
    u32 lane = threadIdx.x % 32, column = column_of(threadIdx.x / 32, lane / 4);
    from += column / 32 * Layout<WideTF32, true>::PART + lane % 4 * ROW + column % 4 * 4;
    u32 piece = column % 32 / 4 ^ lane % 4;
#pragma unroll
    for (u32 step = 0; step < 4; ++step)
#pragma unroll
        for (u32 e = 0; e < 4; ++e)
            // Elements 1 and 3 are 4 columns further, elements 2 and 3 have rows 4 to 7 of the step.
            to[step][e] = load4(from + (step * 8 + e / 2 * 4) * ROW + ((piece ^ e % 2 ^ e / 2 * 4) << 4));
}

// The other warpgroup multiplies while this one loads.
static __device__ void multiply_exchanged(float (&sum)[128], u32 shared, Barriers& barriers, u32 steps)
{
    u32 full = shared_address(barriers.full), free = shared_address(barriers.free);
    Turn turn = {0, 0};
#pragma unroll 1
    for (u32 s = 0; s < steps; ++s, turn.next()) {
        barrier_wait(full + turn.stage * 8, turn.parity);
        u32 from = shared + turn.stage * STAGE, fragments[4][4];
        load_fragments(fragments, from);
        u64 a = descriptor(from + SHORT_BYTES, 0);
        wgmma_fence();
#pragma unroll
        for (u32 step = 0; step < 4; ++step)
            WideTF32::product(sum, fragments[step], a + step * (32 >> 4));
        wgmma_commit();
        wgmma_wait<0>();
        if (threadIdx.x % 128 == 0)
            barrier_arrive(free + turn.stage * 8);
    }
}

template <class E, bool ROWS>
static __device__ void product(const TensorMap& a, const TensorMap& b, u8* c, const float* bias, const DenseParams& p)
{
    typedef Layout<E, ROWS> L;
    extern __shared__ u8 memory[];
    __shared__ Barriers barriers;
    u32 shared = (shared_address(memory) + 1023) & ~1023u, steps = (p.k + L::COLUMNS - 1) / L::COLUMNS, tile_m, tile_n;
    place_of(blockIdx.x, (p.m + L::BM - 1) / L::BM, (p.n + L::BN - 1) / L::BN, tile_m, tile_n);
    if (threadIdx.x == 0) {
        for (u32 s = 0; s < STAGES; ++s) {
            barrier_init(shared_address(&barriers.full[s]), 1);
            barrier_init(shared_address(&barriers.free[s]), MULTIPLIERS / 128);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= MULTIPLIERS) {
        if (L::EXCHANGED)
            give_registers<24>();
        if (threadIdx.x == MULTIPLIERS)
            copy_stages<L, ROWS>(a, b, shared, barriers, tile_m * L::BM, tile_n * L::BN, steps);
        return;
    }
    if (L::EXCHANGED)
        take_registers<240>();
    float sum[128];
#pragma unroll
    for (int i = 0; i < 128; ++i)
        sum[i] = 0.0f;
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    // Rows of sums begin at different banks.
    const u32 pitch = L::EXCHANGED ? L::BN + 2 : L::BN + 8;
    if constexpr (L::EXCHANGED)
        multiply_exchanged(sum, shared, barriers, steps);
    else
        multiply<E, ROWS>(sum, shared, barriers, steps);

    // Both warpgroups have read the last stage.
    asm volatile("bar.sync 1, 256;" ::: "memory");
    if constexpr (L::EXCHANGED) {
        u32 first = lane % 4 * 2 * pitch + column_of(warp, lane / 4);
#pragma unroll
        for (int i = 0; i < 128; ++i)
            // Sums 0 and 1 are neighbours in a column, 2 and 3 those 4 columns further.
            store4(shared + (first + (i / 4 * 8 + i % 2) * pitch + i % 4 / 2 * 4) * 4, sum[i]);
    } else {
        u32 first = (warp * 16 + lane / 4) * pitch + lane % 4 * 2;
#pragma unroll
        for (int i = 0; i < 128; i += 4) {
            store8(shared + (first + i * 2) * 4, sum[i], sum[i + 1]);
            store8(shared + (first + 8 * pitch + i * 2) * 4, sum[i + 2], sum[i + 3]);
        }
    }
    asm volatile("bar.sync 1, 256;" ::: "memory");
    u8* to = c + blockIdx.z * p.c_batch;
    store_tile<MULTIPLIERS, L::BM, L::BN, pitch>(p, shared, tile_m * L::BM, tile_n * L::BN, to, bias);
}

#define KERNEL(name, element, rows)                                                                                    \
    extern "C" __global__ void __launch_bounds__((Layout<element, rows>::THREADS), 1)                                  \
        name(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, const u8*, const u8*, u8* c,    \
             const float* bias, const __grid_constant__ DenseParams p)                                                 \
    {                                                                                                                  \
        product<element, rows>(a, b, c, bias, p);                                                                      \
    }

KERNEL(wide_f16_rows, WideF16, true)
KERNEL(wide_f16_columns, WideF16, false)
KERNEL(wide_bf16_rows, WideBF16, true)
KERNEL(wide_bf16_columns, WideBF16, false)
KERNEL(wide_tf32_rows, WideTF32, true)
KERNEL(wide_tf32_columns, WideTF32, false)
