// Small kernels of the device suites: one operation each, so that a wrong result names its cause.
#include <cuda_fp16.h>

#include "early.cuh"

// out[i] = in[i] + 1 for i < n, in the type of the name.
extern "C" __global__ void plus_one_f32(float* out, const float* in, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[i] + 1.0f;
}

extern "C" __global__ void plus_one_f16(__half* out, const __half* in, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = __hadd(in[i], __float2half(1.0f));
}

extern "C" __global__ void plus_one_i32(int* out, const int* in, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[i] + 1;
}

extern "C" __global__ void plus_one_i8(signed char* out, const signed char* in, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[i] + 1;
}

// out[i] = in[i] ? 0 : 1.
extern "C" __global__ void not_bool(unsigned char* out, const unsigned char* in, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = !in[i];
}

// out[i] = e to the in[i].
extern "C" __global__ void exp_f32(float* out, const float* in, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = expf(in[i]);
}

// data[i] += value for i < n.
extern "C" __global__ void add_f32(float* data, float value, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        data[i] += value;
}

// out[r][c] = max(0, sum over k of a[r][k] * b[k][c] + bias[c]); one thread an element.
extern "C" __global__ void linear_relu(float* out, const float* a, const float* b, const float* bias,
                                       unsigned rows, unsigned inner, unsigned columns)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * columns)
        return;
    unsigned r = i / columns, c = i % columns;
    float sum = bias[c];
    for (unsigned k = 0; k < inner; ++k)
        sum = fmaf(a[r * inner + k], b[k * columns + c], sum);
    out[i] = fmaxf(sum, 0.0f);
}

// Each thread of one block marks its place in a cube of 3 x 3 x 3.
extern "C" __global__ void mark_threads(unsigned* cube)
{
    cube[(threadIdx.z * 3 + threadIdx.y) * 3 + threadIdx.x] = 1;
}

// out[i] = in[(i + shift) % n] + 1: with a shift of several blocks each block reads what others have written.
extern "C" __global__ void pass_on(unsigned* out, const unsigned* in, unsigned shift, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[(i + shift) % n] + 1;
}

// Nanoseconds of the GPU's clock.
static __device__ unsigned long long now()
{
    unsigned long long time;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
    return time;
}

// Takes some time, and then adds 1 to a number.
extern "C" __global__ void spend(unsigned* count, unsigned nanoseconds)
{
    for (unsigned long long start = now(); now() - start < nanoseconds;)
        ;
    if (threadIdx.x == 0)
        atomicAdd(count, 1);
}

// As `pass_on`, launch `step` of a chain whose launches begin early. `marks[0]` counts the blocks that have begun,
// `marks[1]` the launches that saw the next one begin before they ended; they wait 100 us for it.
extern "C" __global__ void pass_on_early(unsigned* out, const unsigned* in, unsigned shift, unsigned n, unsigned* marks,
                                         unsigned step)
{
    let_next_begin();
    if (BEGINS_EARLY && threadIdx.x == 0)
        atomicAdd(&marks[0], 1);
    wait_for_previous();
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = in[(i + shift) % n] + 1;
    if (!BEGINS_EARLY || i > 0)
        return;
    for (unsigned long long start = now(); now() - start < 100000;)
        if (*(volatile unsigned*)&marks[0] > (step + 1) * gridDim.x) {
            atomicAdd(&marks[1], 1);
            return;
        }
}
