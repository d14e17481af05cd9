// Sequences that decode together: where the memory of each is. See `infer`'s module `decode::batch`.
#pragma once
#include "common.cuh"

struct Seat {
    // Vectors of the sequence; kernels get the places in it.
    u8* memory;
    // Caches of all layers.
    u8 *keys, *values;
    // Position of the newest token.
    const u32* position;
    // Positions of the caches.
    u32 context;
    u32 unused[3];
};

struct Seats {
    // Number of sequences.
    u32 count;
    u32 unused[3];
    Seat list[32];
};
