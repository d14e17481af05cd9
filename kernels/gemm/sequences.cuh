// Vectors that are not rows of a matrix, but each at the same place in the memory of its sequence.
#pragma once
#include "parameters.cuh"

// The address of `place` in the memory of sequence `number`.
template <class T>
static __device__ T* at(const SequenceView& sequences, u32 number, T* place)
{
    return (T*)(*(u8* const*)(sequences.first + number * sequences.stride) + (u64)place);
}
