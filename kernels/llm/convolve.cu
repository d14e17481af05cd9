// Short convolutions of language models, which take the place of the attention in some layers: for each component, the
// products of two vectors at the newest positions times the weights, then times a third vector.
//
// A ring keeps those products of the newest positions. All sums have a fixed order.
#include <cuda_fp16.h>

#include "parameters.cuh"

#define THREADS 256
// Positions that a convolution sees.
#define TAPS 3

// The parts of a row: factors of the input, factors of the output, the input.
static __device__ float product_of(const float* row, u32 width, u32 component)
{
    return row[component] * row[2 * width + component];
}

// Grid (components / THREADS, rows or sequences). Row y has position start + y. With sequences, or a position in
// memory, there is one row, whose product goes to the ring at once.
extern "C" __global__ void __launch_bounds__(THREADS) convolve(const __grid_constant__ ConvolveParams p)
{
    let_next_begin();
    u32 component = blockIdx.x * THREADS + threadIdx.x, row = blockIdx.y;
    u8* memory = 0;
    const u32* at_position = p.position;
    if (p.sequences) {
        if (row >= p.sequences->count)
            return;
        memory = p.sequences->list[row].vectors;
        at_position = p.sequences->list[row].position;
        row = 0;
    }
    if (component >= p.width)
        return;
    float taps[TAPS];
#pragma unroll
    for (int i = 0; i < TAPS; ++i)
        taps[i] = p.taps[i * p.width + component];
    wait_for_previous();
    const float* first = (const float*)(memory + (u64)p.parts);
    float *ring = (float*)(memory + (u64)p.ring), *output = (float*)(memory + (u64)p.output);
    u32 position = at_position ? *at_position : p.start + row;
    const float* own = first + (u64)row * 3 * p.width;
    float newest = product_of(own, p.width, component), sum = 0.0f;
#pragma unroll
    for (u32 back = TAPS - 1; back > 0; --back) {
        float before = 0.0f;
        if (back <= row)
            before = product_of(own - (u64)back * 3 * p.width, p.width, component);
        else if (back <= position)
            before = ring[(u64)((position - back) % p.kept) * p.width + component];
        sum = fmaf(before, taps[TAPS - 1 - back], sum);
    }
    output[(u64)row * p.width + component] = fmaf(newest, taps[TAPS - 1], sum) * own[p.width + component];
    if (at_position)
        ring[(u64)(position % p.kept) * p.width + component] = newest;
}

// Stores the products of rows in the ring, after `convolve` has read it. Grid (components / THREADS, rows), of which
// there are no more than the ring has places; row y has position start + y.
extern "C" __global__ void __launch_bounds__(THREADS) keep(const __grid_constant__ ConvolveParams p)
{
    u32 component = blockIdx.x * THREADS + threadIdx.x;
    if (component >= p.width)
        return;
    const float* own = p.parts + (u64)blockIdx.y * 3 * p.width;
    p.ring[(u64)((p.start + blockIdx.y) % p.kept) * p.width + component] = product_of(own, p.width, component);
}
