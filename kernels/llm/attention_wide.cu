// As `attentions_*` of `attention.cu`, for many sequences, which have blocks enough for all SMs: smaller blocks, of which
// an SM has two, and each takes all heads of its group. Blocks of 256 threads.
#include <cuda_fp16.h>

#define ATTENTION_WARPS 8
#include "attentions.cuh"

#define KERNEL(name, cache, heads, lanes)                                                                             \
    extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 2)                                                \
        name(const __grid_constant__ BatchAttentionParams p)                                                          \
    {                                                                                                                 \
        run<cache, heads, lanes, false>(p);                                                                           \
    }

#define KERNELS(heads, lanes) KERNEL(wide_##heads##_##lanes, Halves, heads, lanes)

// Heads of at most 64 columns.
KERNELS(1, 8)
KERNELS(2, 8)
KERNELS(4, 8)
// Heads of at most 128 columns.
KERNELS(1, 16)
KERNELS(2, 16)
KERNELS(4, 16)
// Heads of at most 256 columns, in the same groups as those of `attention.cu`.
KERNELS(1, 32)
KERNELS(2, 32)
