// Matrix products of neural networks. No size need be a multiple of anything.
#include <cuda_fp16.h>

#define TILE 16

// The activation of a layer, as the host passes it.
#define IDENTITY 0
#define RELU 1
#define GELU 2

// GELU in the form with the hyperbolic tangent.
static __device__ float gelu(float x)
{
    return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

static __device__ float activate(float x, unsigned activation)
{
    if (activation == RELU)
        return fmaxf(x, 0.0f);
    return activation == GELU ? gelu(x) : x;
}

// One element per thread of a (m x k) times b, through shared memory. b is n x k if `b_transposed`, else
// k x n. Blocks of 16 x 16 threads; all of them come here together.
static __device__ float tile_product(const float* a, const float* b, unsigned m, unsigned n, unsigned k,
                                     bool b_transposed)
{
    __shared__ float tile_a[TILE][TILE];
    // One column more than needed: a transposed tile is written column by column.
    __shared__ float tile_b[TILE][TILE + 1];

    unsigned x = threadIdx.x, y = threadIdx.y;
    unsigned row = blockIdx.y * TILE + y;
    unsigned column = blockIdx.x * TILE + x;
    float sum = 0.0f;

    for (unsigned base = 0; base < k; base += TILE) {
        tile_a[y][x] = row < m && base + x < k ? a[(size_t)row * k + base + x] : 0.0f;
        if (b_transposed) {
            unsigned of_b = blockIdx.x * TILE + y;
            tile_b[x][y] = of_b < n && base + x < k ? b[(size_t)of_b * k + base + x] : 0.0f;
        } else {
            tile_b[y][x] = base + y < k && column < n ? b[(size_t)(base + y) * n + column] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (unsigned j = 0; j < TILE; ++j)
            sum += tile_a[y][j] * tile_b[j][x];
        __syncthreads();
    }
    return sum;
}

// A fully connected layer: out (m x n) = activation(x (m x k) * transpose(w (n x k)) + bias (n)), row major.
// Blocks of 16 x 16 threads, grid (ceil(n / 16), ceil(m / 16)).
extern "C" __global__ void linear_f32(const float* x, const float* w, const float* bias, float* out,
                                      unsigned m, unsigned n, unsigned k, unsigned activation)
{
    float sum = tile_product(x, w, m, n, k, true);
    unsigned row = blockIdx.y * TILE + threadIdx.y;
    unsigned column = blockIdx.x * TILE + threadIdx.x;
    if (row < m && column < n)
        out[(size_t)row * n + column] = activate(sum + bias[column], activation);
}

// The same layer for a single row: out (n) = activation(w (n x k) * x (k) + bias (n)). One warp per output;
// blocks of a multiple of 32 threads, as many that every output has its warp.
extern "C" __global__ void linear_row_f32(const float* x, const float* w, const float* bias, float* out,
                                          unsigned n, unsigned k, unsigned activation)
{
    unsigned lane = threadIdx.x % 32;
    unsigned row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (row >= n)
        return;
    const float* weights = w + (size_t)row * k;
    float sum = 0.0f;
    for (unsigned i = lane; i < k; i += 32)
        sum += weights[i] * x[i];
    for (int offset = 16; offset > 0; offset >>= 1)
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (lane == 0)
        out[row] = activate(sum + bias[row], activation);
}

// For each z: out[z] (m x n) = scale * a[z] (m x k) * b[z], where b[z] is n x k and transposed if
// `b_transposed` is not zero, else k x n. Matrices of a batch lie one behind the other. Blocks of 16 x 16
// threads, grid (ceil(n / 16), ceil(m / 16), batch).
extern "C" __global__ void matmul_batched_f32(const float* a, const float* b, float* out, unsigned m,
                                              unsigned n, unsigned k, unsigned b_transposed, float scale)
{
    size_t z = blockIdx.z;
    float sum = tile_product(a + z * m * k, b + z * n * k, m, n, k, b_transposed != 0);
    unsigned row = blockIdx.y * TILE + threadIdx.y;
    unsigned column = blockIdx.x * TILE + threadIdx.x;
    if (row < m && column < n)
        out[z * m * n + (size_t)row * n + column] = scale * sum;
}

// Elements [row][column] and [row][column + 1] of a rows x columns matrix of halves in one register; zeros
// outside of the matrix.
static __device__ unsigned pair(const __half* matrix, unsigned row, unsigned column, unsigned rows,
                                unsigned columns)
{
    __half low = __ushort_as_half(0), high = low;
    if (row < rows) {
        const __half* at = matrix + (size_t)row * columns + column;
        if (column < columns)
            low = at[0];
        if (column + 1 < columns)
            high = at[1];
    }
    return (unsigned)__half_as_ushort(high) << 16 | __half_as_ushort(low);
}

// A fully connected layer on the tensor cores, x and w in halves, sums in 32 bits:
// out (m x n) = activation(x (m x k) * transpose(w (n x k)) + bias (n)). One warp per 16 x 8 elements of
// out: blocks of 32 threads, grid (ceil(n / 8), ceil(m / 16)).
extern "C" __global__ void linear_f16(const __half* x, const __half* w, const float* bias, float* out,
                                      unsigned m, unsigned n, unsigned k, unsigned activation)
{
    // The fragments of mma.m16n8k16: a thread holds columns 2 * (lane % 4) and one more of row lane / 4.
    unsigned group = threadIdx.x / 4, column = threadIdx.x % 4 * 2;
    unsigned row = blockIdx.y * 16 + group, of_w = blockIdx.x * 8 + group;
    float c[4] = {0.0f, 0.0f, 0.0f, 0.0f};

    for (unsigned base = column; base < k + column; base += 16) {
        unsigned a0 = pair(x, row, base, m, k), a1 = pair(x, row + 8, base, m, k);
        unsigned a2 = pair(x, row, base + 8, m, k), a3 = pair(x, row + 8, base + 8, m, k);
        unsigned b0 = pair(w, of_w, base, n, k), b1 = pair(w, of_w, base + 8, n, k);
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
    for (unsigned i = 0; i < 4; ++i) {
        unsigned to_row = row + i / 2 * 8, to_column = blockIdx.x * 8 + column + i % 2;
        if (to_row < m && to_column < n)
            out[(size_t)to_row * n + to_column] = activate(c[i] + bias[to_column], activation);
    }
}

// out[i] = in[i] as a half, to nearest even.
extern "C" __global__ void to_f16(const float* in, __half* out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = __float2half_rn(in[i]);
}
