// 16-bit floats.
#include <cuda_fp16.h>

// out[i] = a[i] * b[i] + c[i], one rounding.
extern "C" __global__ void half_fma(const __half* a, const __half* b, const __half* c, __half* out,
                                    unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = __hfma(a[i], b[i], c[i]);
}

// out[i] = a[i] + b[i], two at a time; n counts pairs.
extern "C" __global__ void half2_add(const __half2* a, const __half2* b, __half2* out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = __hadd2(a[i], b[i]);
}

// out[i] = max(a[i], b[i]), two at a time; n counts pairs.
extern "C" __global__ void half2_max(const __half2* a, const __half2* b, __half2* out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = __hmax2(a[i], b[i]);
}

// To half (nearest even) and back.
extern "C" __global__ void half_round_trip(const float* in, __half* as_half, float* back, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        __half h = __float2half_rn(in[i]);
        as_half[i] = h;
        back[i] = __half2float(h);
    }
}

// out[row] = sum over columns of matrix[row][column] * x[column], accumulated in 32 bits; one warp
// per row.
extern "C" __global__ void half_matvec(const __half* matrix, const __half* x, float* out,
                                       unsigned columns)
{
    const __half* row = matrix + (size_t)blockIdx.x * columns;
    float sum = 0.0f;
    for (unsigned i = threadIdx.x; i < columns; i += 32)
        sum += __half2float(row[i]) * __half2float(x[i]);
    for (int offset = 16; offset > 0; offset >>= 1)
        sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum;
}
