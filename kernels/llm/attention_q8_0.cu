// As `attention.cu`, over a cache of scaled integers.
#include <cuda_fp16.h>

#include "attentions.cuh"

#define KERNEL(name, parameters, heads, lanes)                                                                        \
    extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 1) name(const __grid_constant__ parameters p)     \
    {                                                                                                                 \
        run<Integers, heads, lanes>(p);                                                                               \
    }

#define KERNELS(heads, lanes)                                                                                         \
    KERNEL(attention_##heads##_##lanes, AttentionParams, heads, lanes)                                                \
    KERNEL(attentions_##heads##_##lanes, BatchAttentionParams, heads, lanes)

FORMS(KERNELS)
