// What becomes of the sums of a product with packed weights.
#pragma once
#include "parameters.cuh"

// Outputs of a thread that are on their way together.
#define OUTPUTS 8

// GELU is 0.5 x (1 + tanh(z / 2)) = x / (1 + exp(-z)): both have the same form.
static __device__ float activate(float x, u32 activation)
{
    float z = activation == ACTIVATION_SILU ? x : 1.5957691216057308f * (x + 0.044715f * x * x * x);
    return __fdividef(x, 1.0f + expf(-z));
}

// The result from a row's sum, with AFTER_PAIR also that of the next row. `other` is the element to add or the gate.
static __device__ float result(u32 after, u32 activation, float sum, float next, float other)
{
    if (after < AFTER_PAIR)
        return after == AFTER_ADD ? sum + other : sum;
    float with = after == AFTER_PAIR ? next : after == AFTER_GATE ? sum : 1.0f;
    return activate(after == AFTER_GATE ? other : sum, activation) * with;
}

// As AFTER below: the parameters say it.
#define AFTER_ANY 0xffffffffu

// Ends a tile of VECTORS vectors and ROWS rows of weights, whose sums are in shared memory: each vector's PITCH floats
// after those of the one before. A warp writes consecutive elements.
template <u32 AFTER, int THREADS, int ROWS, int VECTORS, int PITCH>
static __device__ void store_results(const PackedParams& p, u32 shared, u32 vector, u32 row, const float* factors,
                                     const float* bias, const float* gate, float* output)
{
    u32 after = AFTER == AFTER_ANY ? p.after : AFTER;
    bool pairs = after == AFTER_PAIR;
    u32 width = pairs ? ROWS / 2 : ROWS, column = threadIdx.x % width, to = (pairs ? row / 2 : row) + column;
    u32 from = pairs ? 2 * column : column, end = p.m - vector < VECTORS ? p.m - vector : VECTORS;
    if (to >= (pairs ? p.rows / 2 : p.rows))
        return;
    float first_bias = bias ? bias[row + from] : 0.0f, second_bias = bias && pairs ? bias[row + from + 1] : 0.0f;
    // All loads before the stores: the compiler does not know that they are of other memory. Shared memory has sums of
    // as many vectors as the last round has.
    const u32 step = THREADS / width;
#pragma unroll 1
    for (u32 start = threadIdx.x / width; start < end; start += OUTPUTS * step) {
        u64 element[OUTPUTS];
        float factor[OUTPUTS], other[OUTPUTS];
#pragma unroll
        for (int n = 0; n < OUTPUTS; ++n) {
            u32 i = start + n * step, valid = vector + (i < end ? i : start);
            element[n] = (u64)valid * p.output_row + to;
            factor[n] = factors ? factors[valid] : 1.0f;
            other[n] = after == AFTER_ADD ? output[element[n]] : after == AFTER_GATE ? gate[element[n]] : 0.0f;
        }
#pragma unroll
        for (int n = 0; n < OUTPUTS; ++n) {
            u32 i = start + n * step, place = shared + (i * PITCH + from) * 4;
            float v = fmaf(__uint_as_float(load4(place)), factor[n], first_bias), next = 0.0f;
            if (pairs)
                next = fmaf(__uint_as_float(load4(place + 4)), factor[n], second_bias);
            float of_row = result(after, p.activation, v, next, other[n]);
            if (i < end)
                output[element[n]] = of_row;
        }
    }
}

// The same with code of its own for each kind, which has no branches.
template <int THREADS, int ROWS, int VECTORS, int PITCH>
static __device__ void store_each(const PackedParams& p, u32 shared, u32 vector, u32 row, const float* factors,
                                  const float* bias, const float* gate, float* output)
{
#define STORE(after)                                                                                                   \
    case after:                                                                                                        \
        store_results<after, THREADS, ROWS, VECTORS, PITCH>(p, shared, vector, row, factors, bias, gate, output);      \
        break;
    switch (p.after) {
        STORE(AFTER_STORE)
        STORE(AFTER_ADD)
        STORE(AFTER_PAIR)
        STORE(AFTER_ACTIVATE)
        STORE(AFTER_GATE)
    default:
        __trap();
    }
#undef STORE
}
