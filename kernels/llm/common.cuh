// Types and helpers of all kernels for language models. Include <cuda_fp16.h> first.
#pragma once
#include "../early.cuh"
#include "../unpack.cuh"

#define ALL 0xffffffffu

// The lane. The compiler does not read it again where it is used, which takes longer than a product.
static __device__ u32 fixed_lane()
{
    return __shfl_sync(ALL, threadIdx.x % 32, threadIdx.x % 32);
}

static __device__ float warp_sum(float v)
{
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1)
        v += __shfl_xor_sync(ALL, v, offset);
    return v;
}

// Bits that compare as unsigned integers as the numbers compare, and back.
static __device__ u32 ordered(float x)
{
    u32 bits = __float_as_uint(x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static __device__ float from_ordered(u32 bits)
{
    return __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
}

// How vectors pass between phases. `load` reads a part of a vector that an earlier phase writes, `complete` reads it
// again until it is there, `store` writes.
//
// Between launches, all is there.
struct Settled {
    // Whether vectors may be late.
    static const bool WAITS = false;

    template <class T>
    __device__ T load(const T* at) const { return *at; }
    template <class T>
    __device__ void complete(T&, const T*) const {}
    __device__ void store(float* at, float v, long long) const { *at = v; }
};

// Starts the transfer of block `block`'s share of the next launches' weights to the L2 cache.
static __device__ void fetch_ahead(const u8* ahead, u64 ahead_bytes, u32 block, u32 blocks)
{
    u64 share = (ahead_bytes / blocks + 127) & ~127ull;
    u64 start = share * block;
    if (start >= ahead_bytes)
        return;
    u64 bytes = ahead_bytes - start < share ? ahead_bytes - start : share;
#if __CUDA_ARCH__ >= 900
    if (threadIdx.x == 0)
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(ahead + start), "r"((u32)bytes));
#else
    for (u64 at = threadIdx.x * 128; at < bytes; at += blockDim.x * 128)
        asm volatile("prefetch.global.L2 [%0];" ::"l"(ahead + start + at));
#endif
}

// The quotient of numbers below 2^24, if it is below 2^20.
static __device__ u32 divide(u32 n, u32 d)
{
    u32 q = (u32)__fdividef((float)n, (float)d);
    int rest = (int)(n - q * d);
    return rest < 0 ? q - 1 : rest >= (int)d ? q + 1 : q;
}
