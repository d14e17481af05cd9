// The attention of one token of each of several sequences.
#pragma once
#include "attention.cuh"

template <class T>
static __device__ void move(T*& place, u8* memory)
{
    place = (T*)(memory + (u64)place);
}

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
