// Attention of one token over a cache, for the decoding of language models: norms of queries and keys, rotation,
// appending to the cache, softmax and the sum of values, in one launch.
//
// What the token sees of the context is cut into chunks. A chunk has one block, or several that share its heads while
// the context is short; blocks without work end at once. The last block of a group of heads to finish combines the
// chunks in their order, so results do not depend on which block was last. Blocks of 512 threads.
#include <cuda_fp16.h>

#include "attentions.cuh"

#define KERNEL(name, parameters, heads, lanes)                                                                        \
    extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 1) name(const __grid_constant__ parameters p)     \
    {                                                                                                                 \
        run<Halves, heads, lanes>(p);                                                                                 \
    }

#define KERNELS(heads, lanes)                                                                                         \
    KERNEL(attention_##heads##_##lanes, AttentionParams, heads, lanes)                                                \
    KERNEL(attentions_##heads##_##lanes, BatchAttentionParams, heads, lanes)

FORMS(KERNELS)
