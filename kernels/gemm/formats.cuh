// Packed weights for the tensor cores.
#pragma once
#include "../weights.cuh"
#include "mma.cuh"

// What the tensor cores multiply weights as: halves, or floats where halves have too few exponents. `pieces` has a
// segment's, 16 bytes each.
template <class F>
struct Elements {
    typedef F16 Type;

    static __device__ void pieces(const typename F::Raw& raw, uint4 (&to)[4])
    {
        float v[F::COLUMNS];
        F::expand(raw, v);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            u32 w[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                __half2 pair = __floats2half2_rn(v[8 * i + 2 * j], v[8 * i + 2 * j + 1]);
                w[j] = *(u32*)&pair;
            }
            to[i] = make_uint4(w[0], w[1], w[2], w[3]);
        }
    }
};

template <>
struct Elements<WeightsF16> {
    typedef F16 Type;

    static __device__ void pieces(const WeightsF16::Raw& raw, uint4 (&to)[4])
    {
#pragma unroll
        for (int i = 0; i < 4; ++i)
            to[i] = raw.q[i];
    }
};

template <class F, class E>
struct FloatElements {
    typedef E Type;

    static __device__ void pieces(const typename F::Raw& raw, uint4 (&to)[4])
    {
        float v[F::COLUMNS];
        F::expand(raw, v);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            to[i] = make_uint4(__float_as_uint(v[4 * i]), __float_as_uint(v[4 * i + 1]),
                               __float_as_uint(v[4 * i + 2]), __float_as_uint(v[4 * i + 3]));
    }
};

template <>
struct Elements<WeightsBF16> : FloatElements<WeightsBF16, F32OnTF32> {};
template <>
struct Elements<WeightsF32> : FloatElements<WeightsF32, F32> {};
