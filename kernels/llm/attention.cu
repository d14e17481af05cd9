// Attention of one token over a cache of halves, for the decoding of language models: norms of queries and keys,
// rotation, appending to the cache, softmax and the sum of values, in one launch.
//
// The context is cut into chunks, one block each; blocks without work end at once. The last block of a group of heads
// to finish combines the chunks in their order, so results do not depend on which block was last.
#include <cuda_fp16.h>

#include "attention.cuh"

// HEADS query heads that share a key head; LANES lanes, 8 columns each, take one position. Grid (key_heads *
// ceil(heads per key head / HEADS), chunks); blocks of 512 threads.
template <int HEADS, int LANES>
static __device__ void run(const Attention& p)
{
    __shared__ Desk<HEADS> desk;
    fetch_ahead(p.ahead, p.ahead_bytes, blockIdx.y * gridDim.x + blockIdx.x, gridDim.x * gridDim.y);
    attend<HEADS, LANES>(p, desk, blockIdx.x, blockIdx.y, gridDim.y);
}

#define KERNEL(name, heads, lanes)                                                                                    \
    extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 1) name(const __grid_constant__ Attention p)      \
    {                                                                                                                 \
        run<heads, lanes>(p);                                                                                         \
    }

// Heads of at most 64 columns.
KERNEL(attention_1_8, 1, 8)
KERNEL(attention_2_8, 2, 8)
KERNEL(attention_4_8, 4, 8)
// Heads of at most 128 columns.
KERNEL(attention_1_16, 1, 16)
KERNEL(attention_2_16, 2, 16)
KERNEL(attention_4_16, 4, 16)
