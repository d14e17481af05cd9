// The kernels of the attention: of one token, and of one token of each of several sequences.
#pragma once
#include "attention.cuh"

// HEADS query heads that share a key head; LANES lanes, 8 columns each, take one position. Grid (key_heads *
// ceil(heads per key head / HEADS), chunks).
template <class Cache, int HEADS, int LANES, bool SHARES = LANES <= 16>
static __device__ void run(const AttentionParams& p)
{
    __shared__ Desk<HEADS, LANES> desk;
    let_next_begin();
    wait_for_previous();
    fetch_ahead(p.ahead, p.ahead_bytes, blockIdx.y * gridDim.x + blockIdx.x, gridDim.x * gridDim.y);
    attend_group<Cache, HEADS, LANES, SHARES>(p, desk, blockIdx.x, blockIdx.y, gridDim.y, Settled());
}

template <class T>
static __device__ void move(T*& place, u8* memory)
{
    place = (T*)(memory + (u64)place);
}

// As above for each sequence. Grid (as above, chunks, sequences).
template <class Cache, int HEADS, int LANES, bool SHARES = LANES <= 16>
static __device__ void run(const BatchAttentionParams& all)
{
    __shared__ Desk<HEADS, LANES> desk;
    let_next_begin();
    wait_for_previous();
    if (blockIdx.z >= all.sequences->count)
        return;
    const SequenceMemory& own = all.sequences->list[blockIdx.z];
    AttentionParams p = all.attention;
    move(p.qkv, own.vectors);
    move(p.rotation, own.vectors);
    move(p.parts, own.vectors);
    move(p.tickets, own.vectors);
    move(p.output, own.vectors);
    p.position = own.position;
    p.context = own.context;
    u64 rows = (u64)all.layer * p.key_heads * p.context, layer = rows * p.head_size;
    p.keys = (typename Cache::Element*)own.keys + layer;
    p.values = (typename Cache::Element*)own.values + layer;
    if (Cache::SCALED)
        p.scales = own.scales + rows * ((p.head_size + SCALE_COLUMNS - 1) / SCALE_COLUMNS);
    attend_group<Cache, HEADS, LANES, SHARES>(p, desk, blockIdx.x, blockIdx.y, gridDim.y, Settled());
}

// Calls a macro for each number of heads and lanes: those of heads of at most 64, 128 and 256 columns. A block has
// registers and shared memory for two heads of 256 columns.
#define FORMS(kernels)                                                                                                \
    kernels(1, 8) kernels(2, 8) kernels(4, 8)                                                                         \
    kernels(1, 16) kernels(2, 16) kernels(4, 16)                                                                      \
    kernels(1, 32) kernels(2, 32)
