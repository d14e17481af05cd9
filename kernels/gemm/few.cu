// Products of at most 32 vectors with packed weights on the tensor cores: output (m x rows) = input (m x columns) *
// transpose of the weights, followed by what a layer does with it. Every weight is read once.
//
// A block keeps a part of the columns of all vectors in shared memory, as halves, and takes several rounds of rows. A
// warp takes 16 rows; its threads read their weights to registers, round them to halves there, and multiply them. Several
// warps share the columns of the same rows and add their sums in shared memory. For F32 and BF16 weights, whose
// exponents halves do not have, vectors are floats, and floats are split into two TF32.
//
// If a vector's columns have several parts, each block stores its sums; the last one to arrive adds the sums of all.
// All sums have a fixed order, which does not depend on the number of vectors.
//
// Names: few_FORMAT_VECTORS. Grid: parts of columns times tiles of rows, parts first. Blocks of 512 threads.
// Dynamic shared memory: the sums, 1 KiB for each vector of VECTORS; then the vectors, 256 bytes for each step of a part.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "after.cuh"
#include "formats.cuh"
#include "sequences.cuh"

#define THREADS 512
#define WARPS (THREADS / 32)
// Rows of a warp.
#define GROUP 16
// Bytes of a vector's elements in a step: a segment of 64 bytes for each of the four threads with the same row.
#define STEP 256
// Steps of a warp whose weights are on their way or in use.
#define DEPTH 2
// Rows of a thread whose sums are on their way together.
#define ACROSS 2
// Most vectors.
#define MOST 32

static __device__ uint4 load16(u32 from)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(from) : "memory");
    return v;
}

// What the threads of a block share about the vectors.
struct Table {
    // What is added to the address of a place to have a vector's.
    u64 places[MOST];
    float factors[MOST];
    u32 arrived;
};

template <class F, int N_TILES>
struct Work {
    // The first factor is the weights.
    typedef typename Exchanged<typename Elements<F>::Type>::Type E;
    // Vectors of each warp at the end.
    static const int OWN = N_TILES * 8 / WARPS;
    static const int VECTORS = 8 * N_TILES, COLUMNS = 4 * F::COLUMNS, PIECE = 16 / E::BYTES;

    const FewParams& p;
    const Rows<F> weights;
    Table& table;
    u32 lane, warp, tile, part;
    // Vectors that exist.
    u32 count;
    // First step of the block's part, and their number.
    u32 first, steps;
    // Those of the warp in each round: from `from` on, relative to the part.
    u32 from, own;
    // Groups of rows of a round, and the warp's.
    u32 groups, group;
    // Sums and vectors in shared memory, and bytes from one vector to the next.
    u32 sums_at, vectors_at, stride;
    // The thread's rows of the round that is read.
    Line lines[2];
    typename F::Raw raw[DEPTH][2];
    float sum[1][N_TILES][4];

    __device__ Work(const FewParams& p, const u8* tiles, Table& table)
        : p(p), weights(tiles, p.product.columns), table(table)
    {
        extern __shared__ __align__(128) u8 memory[];
        lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        tile = blockIdx.x / p.parts, part = blockIdx.x % p.parts;
        u32 all = (p.product.columns + COLUMNS - 1) / COLUMNS;
        first = part * p.steps;
        steps = all - first < p.steps ? all - first : p.steps;
        u32 slice = warp % p.split;
        from = steps * slice / p.split;
        own = steps * (slice + 1) / p.split - from;
        groups = WARPS / p.split;
        group = warp / p.split;
        sums_at = shared_address(memory);
        vectors_at = sums_at + WARPS * VECTORS * GROUP * 4;
        stride = p.steps * STEP;
        count = p.sequences.count ? *p.sequences.count : p.product.m;
    }

    __device__ u32 round_rows() const
    {
        return groups * GROUP;
    }

    __device__ u32 first_row(u32 round) const
    {
        return (tile * p.rounds + round) * round_rows();
    }

    // Starts the copies of the block's part of the vectors. What does not exist becomes 0.
    __device__ void fetch(const u8* input)
    {
        u32 start = first * COLUMNS;
        for (u32 n = warp; n < VECTORS; n += WARPS) {
            const u8* vector = input + (u64)(n < count ? n : 0) * p.product.input_row * E::BYTES;
            u32 to = vectors_at + n * stride;
            for (u32 i = lane; i < steps * (STEP / 16); i += 32) {
                u32 at = start + i * PIECE, segment = i / 4;
                u32 bytes = n >= count || at >= p.product.columns ? 0
                            : at + PIECE <= p.product.columns     ? 16
                                                                  : (p.product.columns - at) * E::BYTES;
                u32 place = (i ^ (segment / 2 % 2) ^ (n % 2 * 2)) % 4;
                copy_part(to + segment * 64 + place * 16, vector + (bytes ? at : 0) * E::BYTES, bytes);
            }
        }
        commit();
    }

    // Finds the rows of a round, and reads their first weights. After the last row, it is repeated.
    __device__ void enter(u32 round)
    {
        u32 row = first_row(round) + group * GROUP + lane / 4;
        lines[0] = weights.line(row < p.product.rows ? row : p.product.rows - 1);
        lines[1] = weights.line(row + 8 < p.product.rows ? row + 8 : p.product.rows - 1);
#pragma unroll
        for (u32 i = 0; i < DEPTH; ++i)
            if (i < own)
                read(raw[i], i);
    }

    // Reads the weights of a step of the warp.
    __device__ void read(typename F::Raw (&to)[2], u32 step)
    {
        u32 column = (first + from + step) * COLUMNS + lane % 4 * F::COLUMNS;
        // Vectors are 0 after the last column.
        column = column < p.product.columns ? column : 0;
#pragma unroll
        for (int j = 0; j < 2; ++j)
            F::load(to[j], weights.segment(lines[j], column));
    }

    __device__ void multiply(const typename F::Raw (&of)[2], u32 step)
    {
        uint4 w[2][4];
#pragma unroll
        for (int j = 0; j < 2; ++j)
            Elements<F>::pieces(of[j], w[j]);
        u32 at = vectors_at + lane / 4 * stride + (from + step) * STEP + lane % 4 * 64;
        u32 turn = (lane / 2 % 2 ^ lane / 4 % 2 * 2) << 4;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            u32 b[2][N_TILES / 2][4];
#pragma unroll
            for (int j = 0; j < N_TILES; ++j) {
                uint4 v = load16(at + j * 8 * stride + ((i << 4) ^ turn));
                b[0][j / 2][j % 2 * 2] = v.x, b[0][j / 2][j % 2 * 2 + 1] = v.y;
                b[1][j / 2][j % 2 * 2] = v.z, b[1][j / 2][j % 2 * 2 + 1] = v.w;
            }
            u32 low[1][4] = {{w[0][i].x, w[1][i].x, w[0][i].y, w[1][i].y}};
            u32 high[1][4] = {{w[0][i].z, w[1][i].z, w[0][i].w, w[1][i].w}};
            Multiply<E>::all(sum, low, b[0]);
            Multiply<E>::all(sum, high, b[1]);
        }
    }

    // Where the sum of a vector and a row is that a warp has stored. The four vectors and eight rows that a warp stores
    // together use all banks.
    __device__ u32 place(u32 of, u32 vector, u32 row) const
    {
        return sums_at + ((of * VECTORS + (vector ^ (vector / 2 % 2))) * GROUP + (row ^ (vector / 4 % 2 * 8))) * 4;
    }

    __device__ void store_sums()
    {
#pragma unroll
        for (int j = 0; j < N_TILES; ++j)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                store4(place(warp, j * 8 + lane % 4 * 2 + e % 2, lane / 4 + e / 2 * 8), sum[0][j][e]);
                sum[0][j][e] = 0.0f;
            }
    }

    // The sum of a row of the round, from `slices` warps.
    __device__ float sum_of(u32 vector, u32 row, u32 slices) const
    {
        u32 at = row / GROUP * p.split;
        float sum = 0.0f;
#pragma unroll 4
        for (u32 s = 0; s < slices; ++s)
            sum += __uint_as_float(load4(place(at + s, vector, row % GROUP)));
        return sum;
    }

    // Ends a round. A warp takes a vector, and neighbouring threads neighbouring rows.
    __device__ void finish(u32 round, u32 slices, const float* bias, const float* gate, float* output)
    {
        bool pairs = p.product.after == AFTER_PAIR;
        bool has_others = p.product.after == AFTER_ADD || p.product.after == AFTER_GATE;
        u32 row = first_row(round), width = p.product.rows - row < round_rows() ? p.product.rows - row : round_rows();
        u32 to = pairs ? row / 2 : row, outputs = pairs ? width / 2 : width;
        const float* others = p.product.after == AFTER_GATE ? gate : output;
#pragma unroll 1
        for (u32 at = lane; at < outputs; at += 32) {
            u32 of = pairs ? 2 * at : at;
            float first_bias = bias ? bias[row + of] : 0.0f, next_bias = bias && pairs ? bias[row + of + 1] : 0.0f;
            float* place[OWN];
            float value[OWN];
            // All loads before the stores: the compiler does not know that they are of other memory.
#pragma unroll
            for (int i = 0; i < OWN; ++i) {
                u32 vector = i * WARPS + warp;
                u64 memory = table.places[vector];
                place[i] = (float*)(memory + (u64)(output + to + at));
                value[i] = has_others && vector < count ? *(const float*)(memory + (u64)(others + to + at)) : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < OWN; ++i) {
                u32 vector = i * WARPS + warp;
                float factor = table.factors[vector], next = 0.0f;
                if (pairs)
                    next = fmaf(sum_of(vector, of + 1, slices), factor, next_bias);
                value[i] = result(p.product.after, p.product.activation,
                                  fmaf(sum_of(vector, of, slices), factor, first_bias), next,
                                  value[i]);
            }
#pragma unroll
            for (int i = 0; i < OWN; ++i)
                if (i * WARPS + warp < count)
                    *place[i] = value[i];
        }
    }

    // Where part `part` of the tile has its sum of a vector and a row: rows of a vector follow each other.
    __device__ float* stored(u32 part, u32 vector, u32 row) const
    {
        return p.sums + ((u64)(tile * p.parts + part) * MOST + vector) * p.rounds * round_rows() + row;
    }

    // Stores the sums of a round for the block that ends the tile.
    __device__ void keep(u32 round)
    {
#pragma unroll 1
        for (u32 vector = warp; vector < count; vector += WARPS)
#pragma unroll 1
            for (u32 row = lane; row < round_rows(); row += 32)
                *stored(part, vector, round * round_rows() + row) = sum_of(vector, row, p.split);
    }

    // Whether all other blocks of the tile have stored their sums.
    __device__ bool is_last()
    {
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0)
            table.arrived = atomicAdd(p.tickets + tile, 1) + 1;
        __syncthreads();
        if (table.arrived < p.parts)
            return false;
        __threadfence();
        if (threadIdx.x == 0)
            p.tickets[tile] = 0;
        return true;
    }

    // Adds the sums of all parts, as if they were those of a warp.
    __device__ void gather(u32 round)
    {
        u64 distance = (u64)MOST * p.rounds * round_rows();
#pragma unroll 1
        for (u32 row = lane; row < round_rows(); row += 32 * ACROSS) {
            const float* from[OWN][ACROSS];
            float sum[OWN][ACROSS];
#pragma unroll
            for (int i = 0; i < OWN; ++i)
#pragma unroll
                for (int k = 0; k < ACROSS; ++k) {
                    from[i][k] = stored(0, i * WARPS + warp, round * round_rows() + row + k * 32);
                    sum[i][k] = 0.0f;
                }
#pragma unroll 4
            for (u32 part = 0; part < p.parts; ++part)
#pragma unroll
                for (int i = 0; i < OWN; ++i)
#pragma unroll
                    for (int k = 0; k < ACROSS; ++k)
                        if (i * WARPS + warp < count && row + k * 32 < round_rows())
                            sum[i][k] += __ldcg(from[i][k] + part * distance);
#pragma unroll
            for (int i = 0; i < OWN; ++i)
#pragma unroll
                for (int k = 0; k < ACROSS; ++k) {
                    u32 of = row + k * 32;
                    if (of < round_rows())
                        store4(place(of / GROUP * p.split, i * WARPS + warp, of % GROUP), sum[i][k]);
                }
        }
    }

    // The warp's part of a round.
    __device__ void products()
    {
#pragma unroll 1
        for (u32 s = 0; s < own; s += DEPTH) {
#pragma unroll
            for (u32 i = 0; i < DEPTH; ++i) {
                if (s + i >= own)
                    break;
                multiply(raw[i], s + i);
                if (s + i + DEPTH < own)
                    read(raw[i], s + i + DEPTH);
            }
        }
    }

    __device__ void run(const u8* input, const float* factors, const float* bias, const float* gate, float* output)
    {
        let_next_begin();
        enter(0);
        wait_for_previous();
        fetch(input);
        if (threadIdx.x < VECTORS) {
            u32 n = threadIdx.x;
            bool exists = n < count;
            table.places[n] = !exists               ? 0
                              : p.sequences.count ? (u64)at(p.sequences, n, (u8*)0)
                                                  : (u64)n * p.product.output_row * 4;
            table.factors[n] = exists && factors ? factors[n] : 1.0f;
        }
#pragma unroll
        for (int j = 0; j < N_TILES; ++j)
            sum[0][j][0] = sum[0][j][1] = sum[0][j][2] = sum[0][j][3] = 0.0f;
        wait<0>();
        __syncthreads();
        // If there are several parts, the last block of a tile goes over its rounds again.
#pragma unroll 1
        for (bool ends = p.parts == 1, again = false;; ends = again = true) {
#pragma unroll 1
            for (u32 round = 0; round < p.rounds && first_row(round) < p.product.rows; ++round) {
                if (again) {
                    gather(round);
                } else {
                    products();
                    if (round + 1 < p.rounds)
                        enter(round + 1);
                    store_sums();
                }
                __syncthreads();
                if (ends)
                    finish(round, again ? 1 : p.split, bias, gate, output);
                else
                    keep(round);
                __syncthreads();
            }
            if (ends || !is_last())
                return;
        }
    }
};

#define KERNEL(name, format, n_tiles)                                                                                  \
    extern "C" __global__ void __launch_bounds__(THREADS, 1)                                                           \
        name(const u8* tiles, const u8* input, const float* factors, const float* bias, const float* gate,             \
             float* output, const __grid_constant__ FewParams p)                                                       \
    {                                                                                                                  \
        __shared__ Table table;                                                                                        \
        Work<format, n_tiles> work(p, tiles, table);                                                                   \
        work.run(input, factors, bias, gate, output);                                                                  \
    }

#define SIZES(name, format, number)                                                                                    \
    KERNEL(few_##name##_32, format, 4)                                                                                 \
    KERNEL(few_##name##_16, format, 2)

SIZES(f32, WeightsF32, 0)
SIZES(f16, WeightsF16, 1)
SIZES(bf16, WeightsBF16, 30)
QUANTISED(SIZES)
