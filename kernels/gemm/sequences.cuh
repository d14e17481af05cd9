// Vectors that are not rows of a matrix, but each at the same place in the memory of its sequence.
#pragma once
#include "mma.cuh"

struct Sequences {
    // Number of sequences; null if vectors are rows of a matrix.
    const u32* count;
    // The address of a sequence's memory is at `first` plus `step` bytes times its number.
    const u8* first;
    u64 step;

    // What is at `place` in the memory of sequence `number`.
    template <class T>
    __device__ T* at(u32 number, T* place) const
    {
        return (T*)(*(u8* const*)(first + number * step) + (u64)place);
    }
};
