// As `dense.cu`, on the tensor cores of SM 9.0, which read both factors from shared memory: for halves and bfloat16, and
// rows that begin at multiples of 16 bytes.
//
// A block computes a tile of 128 x 256. One thread copies both factors to shared memory, up to STAGES steps of 64
// columns ahead; each of two warpgroups multiplies 64 rows. What lies outside of the factors is zeros.
//
// only: sm_90a
//
// The maps say where the factors are. Their addresses are parameters too, by which the driver knows what a launch reads.
//
// Names: wide_ELEMENT_FORM, as in `dense.cu`. Grid (tiles, 1, batch); blocks of 288 threads. Dynamic shared memory:
// STAGES * 48 KiB, and 1,024 bytes more to align it.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "dense.cuh"
#include "wgmma.cuh"

#undef STAGES
#define STAGES 4
#define BM 128
#define BN 256
// Columns of a step, and its bytes.
#define BK 64
#define A_BYTES (BM * ROW)
#define STAGE (A_BYTES + BN * ROW)
// Threads that multiply. The other warp copies.
#define MULTIPLIERS 256

struct Barriers {
    // A stage is full, and free again.
    u64 full[STAGES], free[STAGES];
};

template <bool ROWS>
static __device__ void copy_stages(const TensorMap& a, const TensorMap& b, u32 shared, Barriers& barriers, u32 row,
                                   u32 column, u32 steps)
{
    u32 full = shared_address(barriers.full), free = shared_address(barriers.free), stage = 0, parity = 1;
#pragma unroll 1
    for (u32 s = 0; s < steps; ++s) {
        barrier_wait(free + stage * 8, parity);
        u32 barrier = full + stage * 8, to = shared + stage * STAGE, at = s * BK;
        barrier_expect(barrier, STAGE);
        copy_part(to, a, at, row, blockIdx.z, barrier);
        if (ROWS) {
#pragma unroll
            for (u32 part = 0; part < BN / 64; ++part)
                copy_part(to + A_BYTES + part * BK * ROW, b, column + part * 64, at, blockIdx.z, barrier);
        } else {
            copy_part(to + A_BYTES, b, at, column, blockIdx.z, barrier);
        }
        if (++stage == STAGES)
            stage = 0, parity ^= 1;
    }
}

template <class E, bool ROWS>
static __device__ void multiply(float (&sum)[128], u32 shared, Barriers& barriers, u32 steps)
{
    u32 full = shared_address(barriers.full), free = shared_address(barriers.free), stage = 0, parity = 0;
    u32 half = threadIdx.x / 128, last = 0;
#pragma unroll
    for (int i = 0; i < 128; ++i)
        sum[i] = 0.0f;
#pragma unroll 1
    for (u32 s = 0; s < steps; ++s) {
        barrier_wait(full + stage * 8, parity);
        u32 from = shared + stage * STAGE;
        u64 a = descriptor(from + half * 64 * ROW, 0), b = descriptor(from + A_BYTES, ROWS ? BK * ROW : 0);
        wgmma_fence();
#pragma unroll
        for (u32 step = 0; step < BK / 16; ++step)
            // 16 columns are 32 bytes of a row, or 16 rows.
            E::template product<ROWS>(sum, a + step * (32 >> 4), b + step * ((ROWS ? 16 * ROW : 32) >> 4));
        wgmma_commit();
        // The step before has ended.
        wgmma_wait<1>();
        if (s > 0 && threadIdx.x % 128 == 0)
            barrier_arrive(free + last * 8);
        last = stage;
        if (++stage == STAGES)
            stage = 0, parity ^= 1;
    }
    wgmma_wait<0>();
}

template <class E, bool ROWS>
static __device__ void product(const TensorMap& a, const TensorMap& b, u8* c, const float* bias, const DenseParams& p)
{
    extern __shared__ u8 memory[];
    __shared__ Barriers barriers;
    u32 shared = (shared_address(memory) + 1023) & ~1023u, steps = (p.k + BK - 1) / BK, tile_m, tile_n;
    place_of(blockIdx.x, (p.m + BM - 1) / BM, (p.n + BN - 1) / BN, tile_m, tile_n);
    if (threadIdx.x == 0) {
        for (u32 s = 0; s < STAGES; ++s) {
            barrier_init(shared_address(&barriers.full[s]), 1);
            barrier_init(shared_address(&barriers.free[s]), MULTIPLIERS / 128);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= MULTIPLIERS) {
        if (threadIdx.x == MULTIPLIERS)
            copy_stages<ROWS>(a, b, shared, barriers, tile_m * BM, tile_n * BN, steps);
        return;
    }
    float sum[128];
    multiply<E, ROWS>(sum, shared, barriers, steps);

    // Both warpgroups have read the last stage.
    const u32 pitch = BN + 8;
    asm volatile("bar.sync 1, 256;" ::: "memory");
    u32 first = (threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4) * pitch + threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < 128; i += 4) {
        store8(shared + (first + i * 2) * 4, sum[i], sum[i + 1]);
        store8(shared + (first + 8 * pitch + i * 2) * 4, sum[i + 2], sum[i + 3]);
    }
    asm volatile("bar.sync 1, 256;" ::: "memory");
    store_tile<MULTIPLIERS, BM, BN>(p, shared, tile_m * BM, tile_n * BN, c + blockIdx.z * p.c_batch, bias);
}

#define KERNEL(name, element, rows)                                                                                    \
    extern "C" __global__ void __launch_bounds__(MULTIPLIERS + 32, 1)                                                  \
        name(const __grid_constant__ TensorMap a, const __grid_constant__ TensorMap b, const u8*, const u8*, u8* c,    \
             const float* bias, const __grid_constant__ DenseParams p)                                                 \
    {                                                                                                                  \
        product<element, rows>(a, b, c, bias, p);                                                                      \
    }

KERNEL(wide_f16_rows, WideF16, true)
KERNEL(wide_f16_columns, WideF16, false)
KERNEL(wide_bf16_rows, WideBF16, true)
KERNEL(wide_bf16_columns, WideBF16, false)
