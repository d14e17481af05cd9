// Products of vectors with packed weights on the tensor cores: output (m x rows) = input (m x columns) * transpose of
// the weights, followed by what a layer does with it.
//
// A block computes a tile of 128, 64 or 32 vectors and 128 rows of weights. The vectors are halves with a factor each; a
// block copies them to shared memory two stages ahead. A thread reads the weights of two half rows of the next stage
// while the tensor cores work, and writes them to shared memory, rounded to halves. For F32 and BF16 weights, whose
// exponents halves do not have, vectors are floats, and floats are split into two TF32. All sums have a fixed order.
//
// Names: packed_FORMAT_VECTORS. Grid: tiles of vectors times tiles of rows, vectors first. Blocks of 128 threads.
// Dynamic shared memory: 128 bytes for each vector and stage, and for each of 128 rows and 2 stages; at least the sums,
// 544 bytes per vector.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "after.cuh"
#include "formats.cuh"

#define THREADS 128
#define WARPS_M 2
#define WARPS_N 2
#define N_TILES 8
// Rows of weights of a tile.
#define BN (WARPS_N * N_TILES * 8)
// Stages of vectors, on their way or in use.
#define STAGES 3
// Distance between rows of sums, in floats.
#define PITCH (BN + 8)
// Half rows of weights of a thread, and rows between them.
#define READS (2 * BN / THREADS)
#define READ_STEP (THREADS / 2)

template <class F, int M_TILES>
struct Work {
    typedef typename Elements<F>::Type E;
    static const int BM = WARPS_M * M_TILES * 16, BK = ROW / E::BYTES, PIECE = 16 / E::BYTES;
    static const int A_STAGE = BM * ROW, B_STAGE = BN * ROW, A_STEP = THREADS / 8;

    const PackedParams& p;
    const Rows<F> weights;
    const u8* input;
    // First vector and first row of the tile.
    u32 vector, row;
    // Steps of columns.
    u32 steps;
    u32 shared, rows_at;
    typename F::Raw raw[READS];
    float sum[M_TILES][N_TILES][4];

    __device__ Work(const PackedParams& p, const u8* tiles, const u8* input)
        : p(p), weights(tiles, p.columns), input(input)
    {
        extern __shared__ __align__(128) u8 memory[];
        shared = shared_address(memory);
        rows_at = shared + STAGES * A_STAGE;
        u32 tiles_m = (p.m + BM - 1) / BM;
        vector = blockIdx.x % tiles_m * BM;
        row = blockIdx.x / tiles_m * BN;
        steps = (p.columns + BK - 1) / BK;
#pragma unroll
        for (int i = 0; i < M_TILES; ++i)
#pragma unroll
            for (int j = 0; j < N_TILES; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    sum[i][j][e] = 0.0f;
    }

    // Starts the copy of columns `at` to `at + BK` of the vectors. After the last vector, it is repeated.
    __device__ void fetch(u32 stage, u32 at)
    {
        u32 line = threadIdx.x / 8, piece = threadIdx.x % 8, of = at + piece * PIECE;
        u32 to = shared + stage * A_STAGE + line * ROW + ((piece ^ (line % 8)) << 4);
        u32 bytes = of + PIECE <= p.columns ? 16 : of < p.columns ? (p.columns - of) * E::BYTES : 0;
        line += vector;
#pragma unroll
        for (int i = 0; i < BM / A_STEP; ++i, line += A_STEP) {
            u32 valid = line < p.m ? line : p.m - 1;
            copy_part(to + i * A_STEP * ROW, input + ((u64)valid * p.input_row + (bytes ? of : 0)) * E::BYTES, bytes);
        }
    }

    // Reads this thread's weights of the stage from column `at` on.
    __device__ void read(u32 at)
    {
        u32 column = at + threadIdx.x % 2 * F::COLUMNS;
#pragma unroll
        for (int r = 0; r < READS; ++r) {
            u32 line = row + threadIdx.x / 2 + r * READ_STEP;
            Segment s = weights.segment(line < p.rows ? line : p.rows - 1, column);
            if (s.columns)
                F::load(raw[r], s);
        }
    }

    // Writes them to shared memory.
    __device__ void write(u32 parity, u32 at)
    {
        u32 line = threadIdx.x / 2, half = threadIdx.x % 2;
        u32 to = rows_at + parity * B_STAGE + line * ROW;
        bool exists = at + half * F::COLUMNS < p.columns;
#pragma unroll
        for (int r = 0; r < READS; ++r) {
            uint4 w[4];
            Elements<F>::pieces(raw[r], w);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                u32 place = ((half * 4 + i) ^ (line % 8)) << 4;
                store16(to + r * READ_STEP * ROW + place, exists ? w[i] : make_uint4(0, 0, 0, 0));
            }
        }
    }

    // Multiplies a stage.
    __device__ void multiply(u32 stage, u32 parity)
    {
        u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        u32 a = shared + stage * A_STAGE + (warp / WARPS_N * M_TILES * 16 + lane % 16) * ROW;
        u32 b = rows_at + parity * B_STAGE + (warp % WARPS_N * N_TILES * 8 + lane / 16 * 8 + lane % 8) * ROW;
        u32 turn_a = (lane / 16 ^ lane % 8) << 4, turn_b = (lane / 8 % 2 ^ lane % 8) << 4;
#pragma unroll
        for (int step = 0; step < 4; ++step) {
            u32 of_a[M_TILES][4], of_b[N_TILES / 2][4];
#pragma unroll
            for (int i = 0; i < M_TILES; ++i)
                load_matrices(of_a[i], a + i * 16 * ROW + (turn_a ^ (step << 5)));
#pragma unroll
            for (int j = 0; j < N_TILES / 2; ++j)
                load_matrices(of_b[j], b + j * 16 * ROW + (turn_b ^ (step << 5)));
            Multiply<E>::all(sum, of_a, of_b);
        }
    }

    __device__ void run()
    {
        u32 at = 0;
        read(at);
        fetch(0, at);
        commit();
        if (steps > 1)
            fetch(1, at + BK);
        commit();
        write(0, at);
        if (steps > 1)
            read(at + BK);
        wait<1>();
        __syncthreads();
        u32 stage = 0, filled = 2;
#pragma unroll 1
        for (u32 s = 0; s < steps; ++s, at += BK) {
            if (s + 2 < steps)
                fetch(filled, at + 2 * BK);
            commit();
            multiply(stage, s % 2);
            if (s + 1 < steps)
                write((s + 1) % 2, at + BK);
            if (s + 2 < steps)
                read(at + 2 * BK);
            filled = stage;
            stage = stage == STAGES - 1 ? 0 : stage + 1;
            wait<1>();
            __syncthreads();
        }
        wait<0>();
    }

    // Stores the results by way of shared memory, so that a warp writes consecutive elements.
    __device__ void store(const float* factors, const float* bias, const float* gate, float* output)
    {
        u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        u32 first = (warp / WARPS_N * M_TILES * 16 + lane / 4) * PITCH + warp % WARPS_N * N_TILES * 8 + lane % 4 * 2;
        __syncthreads();
#pragma unroll
        for (int half = 0; half < 2 * M_TILES; ++half)
#pragma unroll
            for (int j = 0; j < N_TILES; ++j)
                store8(shared + (first + half * 8 * PITCH + j * 8) * 4, sum[half / 2][j][half % 2 * 2],
                       sum[half / 2][j][half % 2 * 2 + 1]);
        __syncthreads();
        store_results<AFTER_ANY, THREADS, BN, BM, PITCH>(p, shared, vector, row, factors, bias, gate, output);
    }
};

#define KERNEL(name, format, m_tiles, blocks)                                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS, blocks)                                                      \
        name(const u8* tiles, const u8* input, const float* factors, const float* bias, const float* gate,             \
             float* output, const __grid_constant__ PackedParams p)                                                    \
    {                                                                                                                  \
        Work<format, m_tiles> work(p, tiles, input);                                                                   \
        work.run();                                                                                                    \
        work.store(factors, bias, gate, output);                                                                       \
    }

#define SIZES(name, format, number)                                                                                    \
    KERNEL(packed_##name##_128, format, 4, 2)                                                                          \
    KERNEL(packed_##name##_64, format, 2, 3)                                                                           \
    KERNEL(packed_##name##_32, format, 1, 4)

SIZES(f32, WeightsF32, 0)
SIZES(f16, WeightsF16, 1)
SIZES(bf16, WeightsBF16, 30)
QUANTISED(SIZES)
