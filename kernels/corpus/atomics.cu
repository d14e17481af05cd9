// Atomics of every operation and type, in global and in shared memory.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "corpus.cuh"

// 32 bits, with the old value unused: 12 words.
KERNEL global_reductions(const u32* in, u32* words, u32 n)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    u32 v = in[i];
    atomicAdd(words, v);
    atomicSub(words + 1, v);
    atomicMin(words + 2, v);
    atomicMax(words + 3, v);
    atomicMin((s32*)words + 4, (s32)v);
    atomicMax((s32*)words + 5, (s32)v);
    atomicAnd(words + 6, v | 0x10101);
    atomicOr(words + 7, v & 0xff0ff0);
    atomicXor(words + 8, v);
    atomicInc(words + 9, 100);
    atomicDec(words + 10, 100);
}

// 64 bits: 8 words.
KERNEL global_reductions_64(const u64* in, u64* words, u32 n)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    u64 v = in[i];
    atomicAdd(words, v);
    atomicMin(words + 1, v);
    atomicMax(words + 2, v);
    atomicMin((s64*)words + 3, (s64)v);
    atomicMax((s64*)words + 4, (s64)v);
    atomicAnd(words + 5, v | 0x8001);
    atomicOr(words + 6, v & 0xff00ff00ff00);
    atomicXor(words + 7, v);
}

// One thread in order, so that every old value is known.
KERNEL global_old_values(const u32* in, u32* words, u32* old, u64* wide, u64* wide_old, u32 n)
{
    for (u32 i = 0; i < n; i++) {
        u32 v = in[i];
        u32* o = old + 13 * i;
        o[0] = atomicAdd(words, v);
        o[1] = atomicSub(words + 1, v);
        o[2] = atomicMin(words + 2, v);
        o[3] = atomicMax(words + 3, v);
        o[4] = atomicMin((s32*)words + 4, (s32)v);
        o[5] = atomicMax((s32*)words + 5, (s32)v);
        o[6] = atomicAnd(words + 6, v | 0x10101);
        o[7] = atomicOr(words + 7, v & 0xff0ff0);
        o[8] = atomicXor(words + 8, v);
        o[9] = atomicInc(words + 9, 3);
        o[10] = atomicDec(words + 10, 3);
        o[11] = atomicExch(words + 11, v);
        o[12] = atomicCAS(words + 12, i & 1 ? v : words[12], v + 1);
        u64 w = (u64)v << 29;
        wide_old[5 * i] = atomicAdd(wide, w);
        wide_old[5 * i + 1] = atomicMax(wide + 1, w);
        wide_old[5 * i + 2] = atomicExch(wide + 2, w);
        wide_old[5 * i + 3] = atomicCAS(wide + 3, i & 1 ? 0 : wide[3], w);
        wide_old[5 * i + 4] = atomicMin((s64*)wide + 4, (s64)w);
    }
}

// Tickets: every thread draws a number of its own.
KERNEL tickets(u32* counter, u32* drawn, u32 n)
{
    u32 i = INDEX;
    if (i < n)
        drawn[atomicAdd(counter, 1)] = 1;
}

// Sums of small integers, which every order gives alike.
KERNEL float_sums(const float* in, float* f, double* d, u32 n)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    atomicAdd(f, in[i]);
    atomicAdd(f + 1 + i % 5, in[i]);
    atomicAdd(d, (double)in[i] * 0.5);
    float old = atomicExch(f + 6 + i, in[i]);
    d[1 + i] = old;
}

KERNEL half_sums(const float* in, __half2* h, __nv_bfloat162* b, __half* single, u32 n)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    float x = in[i];
    atomicAdd(h, __floats2half2_rn(x, 1.0f));
    atomicAdd(b + i % 7, __floats2bfloat162_rn(1.0f, -x));
    h[1 + i] = atomicAdd(h + n + 1 + i, __floats2half2_rn(x, -x));
    atomicAdd(single + i % 3, __float2half(1.0f));
}

// Shared memory: 16 words of results.
KERNEL shared_atomics(const u32* in, u32* out, u64* wide)
{
    __shared__ u32 s[16];
    __shared__ u64 w[4];
    __shared__ float f[2];
    u32 t = threadIdx.x, v = in[t];
    if (t < 16)
        s[t] = t == 2 || t == 4 || t == 6 ? ~0u : 0;
    if (t < 4)
        w[t] = t == 1 ? ~0ull : 0;
    if (t < 2)
        f[t] = 0.0f;
    __syncthreads();
    atomicAdd(&s[0], v);
    atomicSub(&s[1], v);
    atomicMin(&s[2], v);
    atomicMax(&s[3], v);
    atomicMin((s32*)&s[4], (s32)v);
    atomicMax((s32*)&s[5], (s32)v);
    atomicAnd(&s[6], v | 0x404);
    atomicOr(&s[7], v & 0xffff);
    atomicXor(&s[8], v);
    atomicInc(&s[9], 20);
    atomicDec(&s[10], 20);
    u32 ticket = atomicAdd(&s[11], 1);
    atomicAdd(&s[12], ticket);
    atomicAdd(&w[0], (u64)v << 20);
    atomicMin(&w[1], (u64)v << 13);
    atomicXor(&w[2], (u64)v * v);
    atomicAdd(&f[0], (float)(v & 15));
    // The last of the threads in the exchange's order stays: take the largest instead.
    u32 old = s[13];
    while (true) {
        u32 seen = atomicCAS(&s[13], old, max(old, v));
        if (seen == old)
            break;
        old = seen;
    }
    if (atomicExch(&s[14], 1) == 0)
        atomicAdd(&s[15], 1);
    __syncthreads();
    if (t < 16)
        out[t] = t == 14 ? s[t] + (u32)f[0] : s[t];
    if (t < 3)
        wide[t] = w[t];
}

// A lock: the counter is a plain variable.
KERNEL spin_lock(u32* lock, volatile u32* counter, u32 times)
{
    if (threadIdx.x == 0)
        for (u32 k = 0; k < times; k++) {
            __nanosleep(1);
            while (atomicCAS(lock, 0, 1) != 0)
                __nanosleep(20);
            __threadfence();
            *counter = *counter + 1;
            __threadfence();
            atomicExch(lock, 0);
        }
}

// A lock that the lanes of one warp fight for.
KERNEL spin_lock_in_a_warp(u32* lock, volatile u32* counter)
{
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            *counter = *counter * 3 + 1;
            __threadfence();
            atomicExch(lock, 0);
            done = true;
        }
    }
}

// Every scope and order of the memory model, on words of the thread's own.
KERNEL atomic_scopes(u32* words, u32* old, u32 n)
{
    u32 i = INDEX, r;
    if (i >= n)
        return;
    u32 *w = words + 6 * i, *o = old + 7 * i;
    o[0] = atomicAdd_system(w, i);
    o[1] = atomicAdd_block(w + 1, 2 * i);
    asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;" : "=r"(r) : "l"(w + 2), "r"(i + 5) : "memory");
    o[2] = r;
    asm volatile("atom.acquire.cta.global.cas.b32 %0, [%1], %2, %3;" : "=r"(r) : "l"(w + 3), "r"(w[3]), "r"(i) : "memory");
    o[3] = r;
    asm volatile("atom.release.sys.global.exch.b32 %0, [%1], %2;" : "=r"(r) : "l"(w + 4), "r"(i) : "memory");
    o[4] = r;
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(w + 5), "r"(i) : "memory");
    // A generic address: shared or global only at run time.
    asm volatile("atom.add.u32 %0, [%1], 7;" : "=r"(r) : "l"(w + 5) : "memory");
    o[5] = r;
    // Signed words have forms of their own.
    asm volatile("atom.global.add.s32 %0, [%1], -3;" : "=r"(r) : "l"(w + 4) : "memory");
    o[4] += r;
    asm volatile("red.global.add.s32 [%0], 5;" ::"l"(w + 4) : "memory");
    asm volatile("atom.add.s32 %0, [%1], 11;" : "=r"(r) : "l"(w + 4) : "memory");
    o[4] += r;
    asm volatile("atom.global.cas.b16 %0, [%1], %2, %3;" : "=h"(*(u16*)(o + 6)) : "l"((u16*)w), "h"((u16)w[0]), "h"((u16)77) : "memory");
}

// Generic addresses that are shared for some lanes and global for others.
KERNEL generic_atomics(const u32* in, u32* words, u32* out)
{
    __shared__ u32 s[4];
    u32 t = threadIdx.x;
    if (t < 4)
        s[t] = 0;
    __syncthreads();
    u32* where = in[t] & 1 ? s + (t & 3) : words + (t & 3);
    u32 r;
    asm volatile("red.add.u32 [%0], %1;" ::"l"(where), "r"(in[t]) : "memory");
    asm volatile("atom.cas.b32 %0, [%1], %2, %3;" : "=r"(r) : "l"(where), "r"(~0u), "r"(1u) : "memory");
    // Nobody has stored the value that would be exchanged.
    u32 never = r == ~0u;
    asm volatile("atom.max.u32 %0, [%1], %2;" : "=r"(r) : "l"(where), "r"(0u) : "memory");
    __syncthreads();
    out[4 + t] = never + (r == ~0u);
    if (t < 4)
        out[t] = s[t];
}
