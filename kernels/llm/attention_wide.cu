// As `attentions_*` of `attention.cu`, for many sequences, which have blocks enough for all SMs: smaller blocks, of which
// an SM has two, and each takes all heads of its group. Blocks of 256 threads.
#include <cuda_fp16.h>

#define ATTENTION_WARPS 8
#include "attentions.cuh"

#define KERNELS(heads, lanes)                                                                                         \
    extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 2)                                                \
        wide_##heads##_##lanes(const __grid_constant__ BatchAttentionParams p)                                        \
    {                                                                                                                 \
        run<Halves, heads, lanes, false>(p);                                                                          \
    }

FORMS(KERNELS)
