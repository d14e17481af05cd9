// Attention of one token over a cache of halves, for the decoding of language models: norms of queries and keys,
// rotation, appending to the cache, softmax and the sum of values, in one launch.
//
// The context is cut into chunks. A chunk has one block, or several that share its heads while the context is short;
// blocks without work end at once. The last block of a group of heads to finish combines the chunks in their order, so
// results do not depend on which block was last.
#include <cuda_fp16.h>

#include "attention.cuh"
#include "seats.cuh"

// HEADS query heads that share a key head; LANES lanes, 8 columns each, take one position. Grid (key_heads *
// ceil(heads per key head / HEADS), chunks); blocks of 512 threads.
template <int HEADS, int LANES>
static __device__ void run(const Attention& p)
{
    __shared__ Desk<HEADS> desk;
    fetch_ahead(p.ahead, p.ahead_bytes, blockIdx.y * gridDim.x + blockIdx.x, gridDim.x * gridDim.y);
    attend_group<HEADS, LANES>(p, desk, blockIdx.x, blockIdx.y, gridDim.y, Settled());
}

// As `run`, for several sequences: `p` has places in the memory of a sequence, and the cache's first byte is that of
// layer 0. Grid (as for one, chunks, sequences).
struct Attentions {
    Attention one;
    const Seats* seats;
    u32 layer, unused;
};

template <class T>
static __device__ void move(T*& place, u8* memory)
{
    place = (T*)(memory + (u64)place);
}

template <int HEADS, int LANES>
static __device__ void run(const Attentions& all)
{
    __shared__ Desk<HEADS> desk;
    if (blockIdx.z >= all.seats->count)
        return;
    const Seat& seat = all.seats->list[blockIdx.z];
    Attention p = all.one;
    move(p.qkv, seat.memory);
    move(p.rotation, seat.memory);
    move(p.parts, seat.memory);
    move(p.tickets, seat.memory);
    move(p.output, seat.memory);
    p.position = seat.position;
    p.context = seat.context;
    u64 layer = (u64)all.layer * p.key_heads * p.context * p.head_size;
    p.keys = (__half*)seat.keys + layer;
    p.values = (__half*)seat.values + layer;
    attend_group<HEADS, LANES>(p, desk, blockIdx.x, blockIdx.y, gridDim.y, Settled());
}

#define KERNEL(name, parameters, heads, lanes)                                                                        \
    extern "C" __global__ void __launch_bounds__(ATTENTION_THREADS, 1) name(const __grid_constant__ parameters p)     \
    {                                                                                                                 \
        run<heads, lanes>(p);                                                                                         \
    }

#define KERNELS(heads, lanes)                                                                                         \
    KERNEL(attention_##heads##_##lanes, Attention, heads, lanes)                                                      \
    KERNEL(attentions_##heads##_##lanes, Attentions, heads, lanes)

// Heads of at most 64 columns.
KERNELS(1, 8)
KERNELS(2, 8)
KERNELS(4, 8)
// Heads of at most 128 columns.
KERNELS(1, 16)
KERNELS(2, 16)
KERNELS(4, 16)
