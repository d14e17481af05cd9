// The attention of one token of each of several sequences.
#pragma once
#include "attention.cuh"
#include "seats.cuh"

// The attention of several sequences: `one` has places in the memory of a sequence, and the cache's first byte is that of
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

template <int HEADS, int LANES, bool SHARES = true>
static __device__ void run(const Attentions& all)
{
    __shared__ Desk<HEADS> desk;
    let_next_begin();
    wait_for_previous();
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
    attend_group<HEADS, LANES, SHARES>(p, desk, blockIdx.x, blockIdx.y, gridDim.y, Settled());
}
