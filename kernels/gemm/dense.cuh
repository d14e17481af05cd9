// The product of two matrices on the tensor cores: see `dense.cu`.
#pragma once
#include "parameters.cuh"

// Tiles on their way or in use.
#define STAGES 3
// Blocks that follow each other share this many tiles of rows.
#define NEIGHBOURS 8

#define OUTPUT_F32 0
#define OUTPUT_F16 1
#define OUTPUT_BF16 2

// Ends a tile, whose sums are in shared memory in rows of PITCH.
template <int THREADS, int BM, int BN, int PITCH = BN + 8>
static __device__ void store_tile(const DenseParams& p, u32 shared, u32 row, u32 column, u8* c, const float* bias)
{
    u32 to_column = column + threadIdx.x % BN;
    if (to_column >= p.n)
        return;
    float of_column = bias ? bias[to_column] : 0.0f;
    u32 line = threadIdx.x / BN, lines = p.m - row < BM ? p.m - row : BM;
#pragma unroll 4
    for (; line < lines; line += THREADS / BN) {
        float v = __uint_as_float(load4(shared + (line * PITCH + threadIdx.x % BN) * 4)) * p.scale + of_column;
        u64 at = (u64)(row + line) * p.c_row + to_column;
        if (p.output == OUTPUT_F32) {
            float* to = (float*)c + at;
            *to = p.accumulate ? *to + v : v;
        } else if (p.output == OUTPUT_F16) {
            __half* to = (__half*)c + at;
            *to = __float2half_rn(p.accumulate ? __half2float(*to) + v : v);
        } else {
            __nv_bfloat16* to = (__nv_bfloat16*)c + at;
            *to = __float2bfloat16_rn(p.accumulate ? __bfloat162float(*to) + v : v);
        }
    }
}

// A tile of `c`: WARPS_M x WARPS_N warps with M_TILES x N_TILES fragments of 16 x 8 each. With ROWS, `b` is k x n, else
// n x k. With ALIGNED, rows begin at multiples of 16 bytes.
template <class E, int WARPS_M, int WARPS_N, int M_TILES, int N_TILES, bool ROWS, bool ALIGNED>
struct Tile {
    static const int THREADS = WARPS_M * WARPS_N * 32;
    static const int BM = WARPS_M * M_TILES * 16, BN = WARPS_N * N_TILES * 8;
    // Columns of a stage, and elements of 16 bytes.
    static const int BK = ROW / E::BYTES, PIECE = 16 / E::BYTES;
    static const int A_BYTES = BM * ROW, STAGE = (BM + BN) * ROW;
    // Copies of a thread per stage, and rows between two of them.
    static const int A_STEP = THREADS / 8, A_COPIES = BM / A_STEP;
    static const int B_PIECES = ROWS ? BN / PIECE : 8, B_STEP = THREADS / B_PIECES;
    static const int B_COPIES = (ROWS ? BK : BN) / B_STEP;

    const DenseParams& p;
    const u8 *a, *b;
    u8* c;
    // One per column, or null.
    const float* bias;
    u32 shared, row, column, a_place, b_place, a_piece, b_piece, b_line;
    float sum[M_TILES][N_TILES][4];

    __device__ Tile(const DenseParams& p, u32 row, u32 column) : p(p), row(row), column(column)
    {
        extern __shared__ __align__(128) u8 memory[];
        shared = shared_address(memory);
        u32 t = threadIdx.x;
        a_piece = t % 8, b_piece = t % B_PIECES, b_line = t / B_PIECES;
        a_place = t / 8 * ROW + ((a_piece ^ (t / 8 % 8)) << 4);
        u32 turn = !ROWS || E::BYTES == 2 ? b_line % 8 : b_line % 4 * 2;
        b_place = A_BYTES + b_line * (ROWS ? BN * E::BYTES : ROW) + ((b_piece ^ turn) << 4);
#pragma unroll
        for (int i = 0; i < M_TILES; ++i)
#pragma unroll
            for (int j = 0; j < N_TILES; ++j)
#pragma unroll
                for (int e = 0; e < 4; ++e)
                    sum[i][j][e] = 0.0f;
    }

    // Copies up to 16 bytes: the elements from column `at` on that are below `end`.
    __device__ void piece(u32 to, const u8* line, u32 at, u32 end)
    {
        u32 count = at >= end ? 0 : end - at < PIECE ? end - at : PIECE;
        if (ALIGNED) {
            copy_part(to, line + (count ? (u64)at * E::BYTES : 0), count * E::BYTES);
            return;
        }
        u32 words[4] = {0, 0, 0, 0};
#pragma unroll
        for (int e = 0; e < PIECE; ++e) {
            if (e >= count)
                continue;
            const u8* from = line + (u64)(at + e) * E::BYTES;
            if (E::BYTES == 2)
                words[e / 2] |= (u32) * (const u16*)from << (e % 2 * 16);
            else
                words[e] = *(const u32*)from;
        }
        store16(to, make_uint4(words[0], words[1], words[2], words[3]));
    }

    // Starts the copy of columns `at` to `at + BK` of `a` and `b`. Rows after the last one repeat it: their results are
    // not stored.
    __device__ void fetch(u32 stage, u32 at)
    {
        u32 to_a = shared + stage + a_place, line_a = row + threadIdx.x / 8, of_a = at + a_piece * PIECE;
        u32 to_b = shared + stage + b_place, line_b = (ROWS ? at : column) + b_line;
        u32 of_b = (ROWS ? column : at) + b_piece * PIECE;
        const u32 b_pitch = B_STEP * (ROWS ? BN * E::BYTES : ROW);
        if (ALIGNED && at + BK <= p.k) {
#pragma unroll
            for (int i = 0; i < A_COPIES; ++i) {
                u32 line = line_a + i * A_STEP, valid = line < p.m ? line : p.m - 1;
                copy16(to_a + i * A_STEP * ROW, a + ((u64)valid * p.a_row + of_a) * E::BYTES);
            }
            // Columns after the last one are read as zeros.
            u32 bytes = of_b + PIECE <= p.n ? 16 : of_b < p.n ? (p.n - of_b) * E::BYTES : 0;
#pragma unroll
            for (int i = 0; i < B_COPIES; ++i) {
                u32 line = line_b + i * B_STEP;
                if (ROWS)
                    copy_part(to_b + i * b_pitch, b + ((u64)line * p.b_row + (bytes ? of_b : 0)) * E::BYTES, bytes);
                else
                    copy16(to_b + i * b_pitch, b + ((u64)(line < p.n ? line : p.n - 1) * p.b_row + of_b) * E::BYTES);
            }
            return;
        }
#pragma unroll 1
        for (int i = 0; i < A_COPIES; ++i, line_a += A_STEP)
            piece(to_a + i * A_STEP * ROW, a + (u64)(line_a < p.m ? line_a : p.m - 1) * p.a_row * E::BYTES, of_a, p.k);
#pragma unroll 1
        for (int i = 0; i < B_COPIES; ++i, line_b += B_STEP) {
            u32 lines = ROWS ? p.k : p.n, end = ROWS ? line_b < p.k ? p.n : 0 : p.k;
            piece(to_b + i * b_pitch, b + (u64)(line_b < lines ? line_b : lines - 1) * p.b_row * E::BYTES, of_b, end);
        }
    }

    struct Fragments {
        u32 a[M_TILES][4], b[N_TILES / 2][4];
    };

    // Loads step `step` (of 4) of a stage.
    __device__ void load(Fragments& f, u32 stage, u32 step)
    {
        u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        u32 first = warp / WARPS_N * M_TILES * 16 + lane % 16;
        u32 at = shared + stage + first * ROW + (((lane / 16) ^ (lane % 8) ^ (step * 2)) << 4);
#pragma unroll
        for (int i = 0; i < M_TILES; ++i)
            load_matrices(f.a[i], at + i * 16 * ROW);
        first = warp % WARPS_N * N_TILES * 8;
        at = shared + stage + A_BYTES;
        if (!ROWS) {
            first += lane / 16 * 8 + lane % 8;
            at += first * ROW + (((lane / 8 % 2) ^ (lane % 8) ^ (step * 2)) << 4);
#pragma unroll
            for (int j = 0; j < N_TILES / 2; ++j)
                load_matrices(f.b[j], at + j * 16 * ROW);
        } else if (E::BYTES == 2) {
            at += (step * 16 + lane % 16) * BN * 2;
            u32 place = first / 8 ^ lane / 16 ^ lane % 8;
#pragma unroll
            for (int j = 0; j < N_TILES / 2; ++j)
                load_turned(f.b[j], at + ((place ^ (2 * j)) << 4));
        } else {
            at += (step * 8 + lane % 4) * BN * 4 + lane / 4 % 4 * 4;
            u32 place = first / 4 ^ lane / 16 ^ (lane % 4 * 2);
#pragma unroll
            for (int j = 0; j < N_TILES; ++j) {
                u32 from = at + ((place ^ (2 * j)) << 4);
                f.b[j / 2][j % 2 * 2] = load4(from);
                f.b[j / 2][j % 2 * 2 + 1] = load4(from + 4 * BN * 4);
            }
        }
    }

    __device__ void multiply(Fragments& f);

    // The sums over all of `k`.
    __device__ void run()
    {
        u32 steps = (p.k + BK - 1) / BK;
#pragma unroll 1
        for (u32 s = 0; s < STAGES - 1; ++s) {
            if (s < steps)
                fetch(s * STAGE, s * BK);
            commit();
        }
        wait<STAGES - 2>();
        __syncthreads();
        Fragments f[2];
        u32 stage = 0, next = (STAGES - 1) * STAGE;
        load(f[0], 0, 0);
#pragma unroll 1
        for (u32 s = 0; s < steps; ++s) {
#pragma unroll
            for (int step = 0; step < 4; ++step) {
                // The next stage has arrived, and all warps have read the stage that is filled next.
                if (step == 3) {
                    next = stage;
                    stage = stage == (STAGES - 1) * STAGE ? 0 : stage + STAGE;
                    wait<STAGES - 2>();
                    __syncthreads();
                }
                load(f[(step + 1) % 2], stage, (step + 1) % 4);
                if (step == 0) {
                    if (s + STAGES - 1 < steps)
                        fetch(next, (s + STAGES - 1) * BK);
                    commit();
                }
                multiply(f[step % 2]);
            }
        }
        wait<0>();
    }

    // Stores the sums by way of shared memory, so that a warp writes consecutive elements.
    __device__ void store()
    {
        const u32 pitch = BN + 8;
        u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        u32 first = (warp / WARPS_N * M_TILES * 16 + lane / 4) * pitch + warp % WARPS_N * N_TILES * 8 + lane % 4 * 2;
        __syncthreads();
#pragma unroll
        for (int half = 0; half < 2 * M_TILES; ++half)
#pragma unroll
            for (int j = 0; j < N_TILES; ++j)
                store8(shared + (first + half * 8 * pitch + j * 8) * 4, sum[half / 2][j][half % 2 * 2],
                       sum[half / 2][j][half % 2 * 2 + 1]);
        __syncthreads();
        store_tile<THREADS, BM, BN>(p, shared, row, column, c, bias);
    }
};

template <class E, int WARPS_M, int WARPS_N, int M_TILES, int N_TILES, bool ROWS, bool ALIGNED>
__device__ void Tile<E, WARPS_M, WARPS_N, M_TILES, N_TILES, ROWS, ALIGNED>::multiply(Fragments& f)
{
    Multiply<E>::all(sum, f.a, f.b);
}

// The tile of a block: neighbouring blocks share few rows and columns, so what one reads is in the L2 cache for the
// others.
static __device__ void place_of(u32 block, u32 tiles_m, u32 tiles_n, u32& tile_m, u32& tile_n)
{
    u32 of_group = NEIGHBOURS * tiles_n, group = block / of_group, within = block - group * of_group;
    u32 first = group * NEIGHBOURS, count = tiles_m - first < NEIGHBOURS ? tiles_m - first : NEIGHBOURS;
    tile_n = within / count;
    tile_m = first + within - tile_n * count;
}
