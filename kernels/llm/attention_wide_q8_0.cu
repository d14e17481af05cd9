// As `attention_wide.cu`, over a cache of scaled integers.
#include <cuda_fp16.h>

#define ATTENTION_WARPS 8
#include "attentions.cuh"

#define KERNELS(heads, lanes)                                                                                         \
    extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 2)                                                \
        wide_##heads##_##lanes(const __grid_constant__ BatchAttentionParams p)                                        \
    {                                                                                                                 \
        run<Integers, heads, lanes, false>(p);                                                                        \
    }

FORMS(KERNELS)
