// The attention of one token of each of several sequences.
#pragma once
#include "attention.cuh"

template <class T>
static __device__ void move(T*& place, u8* memory)
{
    place = (T*)(memory + (u64)place);
}

template <int HEADS, int LANES, bool SHARES = true>
static __device__ void run(const BatchAttentionParams& all)
{
    __shared__ Desk<HEADS> desk;
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
    u64 layer = (u64)all.layer * p.key_heads * p.context * p.head_size;
    p.keys = (__half*)own.keys + layer;
    p.values = (__half*)own.values + layer;
    attend_group<HEADS, LANES, SHARES>(p, desk, blockIdx.x, blockIdx.y, gridDim.y, Settled());
}
