// What CUDA's BLAS needs beside the products of `gemm/dense.cu`: transposed factors, scaled sums, triangular systems. The
// matrices of a batch, one block in z each, have equal distances in bytes, or a pointer each. Distances of rows are in
// elements.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#define TILE 32

// A number: its value, or where it is.
struct Scalar {
    u64 at;
    float value;
    u32 kind;
};

#define SCALAR_VALUE 0
#define SCALAR_FLOAT 1
#define SCALAR_HALF 2

static __device__ float value_of(const Scalar& s)
{
    if (s.kind == SCALAR_VALUE)
        return s.value;
    return s.kind == SCALAR_FLOAT ? *(const float*)s.at : __half2float(*(const __half*)s.at);
}

// The matrices of a batch: address of the first and bytes from one to the next, or address of an array of pointers.
struct Matrices {
    u64 at;
    u64 batch;
    // Elements from a row to the next.
    u32 row;
    // As in `DenseParams`: float, half, bfloat16.
    u32 element;
    u32 is_array;
    u32 unused;

    __device__ u8* of_block() const
    {
        u8* matrix = is_array ? ((u8* const*)at)[blockIdx.z] : (u8*)(at + blockIdx.z * batch);
        __builtin_assume(__isGlobal(matrix));
        return matrix;
    }
};

template <class T>
static __device__ void transpose(const Matrices& from, const Matrices& to, u32 rows, u32 columns)
{
    __shared__ T tile[TILE][TILE + 1];
    u32 across = (columns + TILE - 1) / TILE, row = blockIdx.x / across * TILE, column = blockIdx.x % across * TILE;
    u32 lane = threadIdx.x % TILE, line = threadIdx.x / TILE;
    const T* source = (const T*)from.of_block();
    T* target = (T*)to.of_block();
    for (u32 i = line; i < TILE; i += 8)
        if (row + i < rows && column + lane < columns)
            tile[i][lane] = source[(u64)(row + i) * from.row + column + lane];
    __syncthreads();
    for (u32 i = line; i < TILE; i += 8)
        if (column + i < columns && row + lane < rows)
            target[(u64)(column + i) * to.row + row + lane] = tile[lane][i];
}

// to (columns x rows) = from (rows x columns), transposed. Grid (tiles of 32 x 32, 1, batch), 256 threads.
extern "C" __global__ void transpose_16(Matrices from, Matrices to, u32 rows, u32 columns)
{
    transpose<u16>(from, to, rows, columns);
}

extern "C" __global__ void transpose_32(Matrices from, Matrices to, u32 rows, u32 columns)
{
    transpose<u32>(from, to, rows, columns);
}

// c = alpha * w + beta * c. Without an address `w` is zeros; factors of 0 make zeros of any number, and with a `beta` of
// 0 `c` is not read. Grid (elements / 256, 1, batch), 256 threads.
extern "C" __global__ void combine(Matrices w, Matrices c, Scalar alpha_of, Scalar beta_of, u32 rows, u32 columns)
{
    u64 index = (u64)blockIdx.x * 256 + threadIdx.x, row = index / columns, column = index - row * columns;
    if (row >= rows)
        return;
    float alpha = w.at ? value_of(alpha_of) : 0.0f, beta = value_of(beta_of), v = 0.0f;
    if (alpha != 0.0f)
        v = alpha * ((const float*)w.of_block())[row * w.row + column];
    u8* to = c.of_block();
    u64 at = row * c.row + column;
    if (c.element == 0) {
        float* f = (float*)to + at;
        *f = beta != 0.0f ? fmaf(beta, *f, v) : v;
    } else if (c.element == 1) {
        __half* h = (__half*)to + at;
        *h = __float2half_rn(beta != 0.0f ? fmaf(beta, __half2float(*h), v) : v);
    } else {
        __nv_bfloat16* h = (__nv_bfloat16*)to + at;
        *h = __float2bfloat16_rn(beta != 0.0f ? fmaf(beta, __bfloat162float(*h), v) : v);
    }
}

// Solves a * x = alpha * b for triangular `a` with `size` unknowns, in place of `b`: column major, `a` transposed if it
// is `turned`; right sides and solutions are the rows of `b` if `is_right`. A warp per right side: once an unknown is
// known, its multiples leave the other equations. Grid (sides / 8, 1, batch), 256 threads.
extern "C" __global__ void solve(Matrices a, Matrices b, Scalar alpha_of, u32 size, u32 sides, u32 turned, u32 is_right,
                                 u32 is_lower, u32 is_unit)
{
    u32 lane = threadIdx.x % 32, side = blockIdx.x * 8 + threadIdx.x / 32;
    if (side >= sides)
        return;
    u64 equation = turned ? a.row : 1, unknown = turned ? 1 : a.row, next = is_right ? b.row : 1;
    const float* of = (const float*)a.of_block();
    float* x = (float*)b.of_block() + side * (u64)(is_right ? 1 : b.row);
    float alpha = value_of(alpha_of);
    for (u32 j = lane; j < size; j += 32)
        x[j * next] = alpha != 0.0f ? alpha * x[j * next] : 0.0f;
    __syncwarp();
    if (alpha == 0.0f)
        return;
    for (u32 step = 0; step < size; ++step) {
        u32 i = is_lower ? step : size - 1 - step;
        const float* column = of + i * unknown;
        float v = x[i * next];
        if (!is_unit)
            v /= column[i * equation];
        __syncwarp();
        if (lane == 0)
            x[i * next] = v;
        u32 end = is_lower ? size : i;
        for (u32 j = (is_lower ? i + 1 : 0) + lane; j < end; j += 32)
            x[j * next] = fmaf(-column[j * equation], v, x[j * next]);
        __syncwarp();
    }
}
