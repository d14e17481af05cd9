// Attention of one token over a cache, for the decoding of language models: norms of queries and keys,
// rotation, appending to the cache, softmax and the sum of values, in one launch.
//
// What the token sees of the context is cut into chunks. A chunk has one block, or several that share its heads while the context is short;
// blocks without work end at once. The last block of a group of heads to finish combines the chunks in their order, so
// results do not depend on which block was last.
#include <cuda_fp16.h>

#include "attentions.cuh"

// HEADS query heads that share a key head; LANES lanes, 8 columns each, take one position. Grid (key_heads *
// ceil(heads per key head / HEADS), chunks); blocks of 512 threads.
template <class Cache, int HEADS, int LANES>
static __device__ void run(const AttentionParams& p)
{
    __shared__ Desk<HEADS, LANES> desk;
    let_next_begin();
    wait_for_previous();
    fetch_ahead(p.ahead, p.ahead_bytes, blockIdx.y * gridDim.x + blockIdx.x, gridDim.x * gridDim.y);
    attend_group<Cache, HEADS, LANES>(p, desk, blockIdx.x, blockIdx.y, gridDim.y, Settled());
}

#define KERNEL(name, parameters, cache, heads, lanes)                                                                 \
    extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 1) name(const __grid_constant__ parameters p)     \
    {                                                                                                                 \
        run<cache, heads, lanes>(p);                                                                                  \
    }

#define KERNELS(heads, lanes)                                                                                         \
    KERNEL(attention_##heads##_##lanes, AttentionParams, Halves, heads, lanes)                                        \
    KERNEL(attentions_##heads##_##lanes, BatchAttentionParams, Halves, heads, lanes)

// Heads of at most 64 columns.
KERNELS(1, 8)
KERNELS(2, 8)
KERNELS(4, 8)
// Heads of at most 128 columns.
KERNELS(1, 16)
KERNELS(2, 16)
KERNELS(4, 16)
// Heads of at most 256 columns: a block has shared memory for two.
KERNELS(1, 32)
KERNELS(2, 32)
