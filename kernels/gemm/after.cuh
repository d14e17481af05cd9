// What becomes of the sums of a product with packed weights.
#pragma once
#include "parameters.cuh"

static __device__ float activate(float x, u32 activation)
{
    if (activation == ACTIVATION_SILU)
        return x / (1.0f + expf(-x));
    return 0.5f * x * (1.0f + tanhf(0.7978845608028654f * (x + 0.044715f * x * x * x)));
}

// The result from a row's sum, with AFTER_PAIR also that of the next row. `other` is the element to add or the gate.
static __device__ float result(u32 after, u32 activation, float sum, float next, float other)
{
    if (after < AFTER_PAIR)
        return after == AFTER_ADD ? sum + other : sum;
    float with = after == AFTER_PAIR ? next : after == AFTER_GATE ? sum : 1.0f;
    return activate(after == AFTER_GATE ? other : sum, activation) * with;
}
