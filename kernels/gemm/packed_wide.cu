// As `packed.cu`, on the tensor cores of SM 9.0, which read both factors from shared memory: for weights that become
// halves.
//
// A block computes a tile of 128 rows of weights and 256 vectors, 128 and 128, or 64 and 128. Sets of threads expand the weights
// to halves in shared memory, each those of its own stage: every fourth step of 64 columns. A set waits long for the
// weights that it reads, so the others work meanwhile; one of its threads also copies the vectors. Each of the other
// warpgroups multiplies 64 rows. All sums have a fixed order.
//
// only: sm_90a
//
// The map says where the vectors are. Their address is a parameter too, by which the driver knows what a launch reads.
//
// Names: wide_FORMAT_SUM, the sum of rows and vectors of a tile. Grid: tiles of vectors times tiles of rows, vectors
// first. Blocks of 384 threads, for 128 x 128 of 512. Dynamic shared memory: STAGES * 128 bytes for each row and vector, and 1,024 bytes more to
// align it.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "after.cuh"
#include "formats.cuh"
#include "wgmma.cuh"

#define STAGES 4
// Columns of a step.
#define BK 64

struct Barriers {
    // A stage is full, and free again.
    u64 full[STAGES], free[STAGES];
};

// GROUPS warpgroups multiply, with SUMS sums per thread: 64 rows by 2 * SUMS vectors each. SET threads expand the weights
// of a stage.
template <class F, int GROUPS, int SUMS, int SET>
struct Wide {
    static const u32 ROWS = 64 * GROUPS, VECTORS = 2 * SUMS, MULTIPLIERS = 128 * GROUPS;
    static const u32 STAGE = (ROWS + VECTORS) * ROW, OF_VECTORS = ROWS * ROW;
    // Half rows of a step that a thread expands, and arrivals that fill a stage.
    static const u32 READS = 2 * ROWS / SET, FILLS = SET / 32 + 1;
    // Distance between the sums of vectors.
    static const u32 PITCH = ROWS + 4;
    const PackedParams& p;
    u32 shared, full, free;
    // First vector and first row of the tile.
    u32 vector, row, steps;

    // Expands the weights of every step of a stage.
    __device__ void expand(const TensorMap& vectors, const u8* tiles)
    {
        const Rows<F> weights(tiles, p.columns);
        u32 thread = threadIdx.x % SET, stage = (threadIdx.x - MULTIPLIERS) / SET, half = thread % 2, line = thread / 2;
        u32 filled = full + stage * 8, emptied = free + stage * 8, to = shared + stage * STAGE, parity = 1;
        typename F::Raw raw[READS];
        read(raw, weights, line, stage * BK + half * 32);
#pragma unroll 1
        for (u32 s = stage; s < steps; s += STAGES, parity ^= 1) {
            barrier_wait(emptied, parity);
            if (thread == 0) {
                barrier_expect(filled, VECTORS * ROW);
                copy_part(to + OF_VECTORS, vectors, s * BK, vector, 0, filled);
            }
#pragma unroll
            for (u32 r = 0; r < READS; ++r) {
                uint4 w[4];
                Elements<F>::pieces(raw[r], w);
#pragma unroll
                for (u32 i = 0; i < 4; ++i)
                    store16(to + (line + r * (SET / 2)) * ROW + (((half * 4 + i) ^ (line % 8)) << 4), w[i]);
            }
            // The tensor cores see the stores of the warp.
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            __syncwarp();
            if (thread % 32 == 0)
                barrier_arrive(filled);
            read(raw, weights, line, (s + STAGES) * BK + half * 32);
        }
    }

    // Reads this thread's weights of the step with column `column`. After the last rows and columns, they are repeated:
    // those results are not stored, and vectors are zeros there.
    __device__ void read(typename F::Raw (&raw)[READS], const Rows<F>& weights, u32 line, u32 column)
    {
        u32 last = (p.columns - 1) / 32 * 32;
#pragma unroll
        for (u32 r = 0; r < READS; ++r) {
            u32 of = row + line + r * (SET / 2);
            F::load(raw[r], weights.segment(of < p.rows ? of : p.rows - 1, column < last ? column : last));
        }
    }

    __device__ void multiply(float (&sum)[SUMS])
    {
        u32 group = threadIdx.x / 128, stage = 0, last = 0, parity = 0;
#pragma unroll
        for (int i = 0; i < SUMS; ++i)
            sum[i] = 0.0f;
#pragma unroll 1
        for (u32 s = 0; s < steps; ++s) {
            barrier_wait(full + stage * 8, parity);
            u32 from = shared + stage * STAGE;
            u64 a = descriptor(from + group * 64 * ROW, 0), b = descriptor(from + OF_VECTORS, 0);
            wgmma_fence();
#pragma unroll
            for (u32 step = 0; step < 4; ++step)
                WideF16::product<0>(sum, a + step * (32 >> 4), b + step * (32 >> 4));
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

    // Stores the sums in shared memory, vectors one after the other.
    __device__ void gather(const float (&sum)[SUMS])
    {
        u32 lane = threadIdx.x % 32, first = lane % 4 * 2 * PITCH + threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
        for (int i = 0; i < SUMS; ++i)
            // Sums 0 and 1 belong to neighbouring vectors, 2 and 3 to the row 8 further.
            store4(shared + (first + (i / 4 * 8 + i % 2) * PITCH + i % 4 / 2 * 8) * 4, sum[i]);
    }
};

// Waits for all threads that multiply.
template <int THREADS>
static __device__ void wait_for_multipliers()
{
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

template <class W, int SUMS>
static __device__ void run(const TensorMap& vectors, const u8* tiles, const float* factors, const float* bias,
                           const float* gate, float* output, const PackedParams& p)
{
    extern __shared__ u8 memory[];
    __shared__ Barriers barriers;
    u32 tiles_m = (p.m + W::VECTORS - 1) / W::VECTORS;
    W work = {p, (shared_address(memory) + 1023) & ~1023u, shared_address(barriers.full), shared_address(barriers.free)};
    work.vector = blockIdx.x % tiles_m * W::VECTORS;
    work.row = blockIdx.x / tiles_m * W::ROWS;
    work.steps = (p.columns + BK - 1) / BK;
    if (threadIdx.x == 0) {
        for (u32 s = 0; s < STAGES; ++s) {
            barrier_init(work.full + s * 8, W::FILLS);
            barrier_init(work.free + s * 8, W::MULTIPLIERS / 128);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    if (threadIdx.x >= W::MULTIPLIERS) {
        work.expand(vectors, tiles);
        return;
    }
    float sum[SUMS];
    work.multiply(sum);
    // All have read the last stage.
    wait_for_multipliers<W::MULTIPLIERS>();
    work.gather(sum);
    wait_for_multipliers<W::MULTIPLIERS>();
    store_each<W::MULTIPLIERS, W::ROWS, W::VECTORS, W::PITCH>(p, work.shared, work.vector, work.row, factors, bias, gate,
                                                              output);
}

#define KERNEL(name, format, groups, sums, set)                                                                        \
    extern "C" __global__ void __launch_bounds__(128 * (groups) + STAGES * (set), 1)                                   \
        name(const __grid_constant__ TensorMap vectors, const u8* tiles, const u8*, const float* factors,              \
             const float* bias, const float* gate, float* output, const __grid_constant__ PackedParams p)              \
    {                                                                                                                  \
        run<Wide<format, groups, sums, set>, sums>(vectors, tiles, factors, bias, gate, output, p);                    \
    }

#define SIZES(name, format, number)                                                                                    \
    KERNEL(wide_##name##_384, format, 2, 128, 32)                                                                      \
    KERNEL(wide_##name##_256, format, 2, 64, 64)                                                                       \
    KERNEL(wide_##name##_192, format, 1, 64, 64)

SIZES(f16, WeightsF16, 1)
QUANTISED(SIZES)
