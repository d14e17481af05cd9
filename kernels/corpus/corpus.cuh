// What the kernels of the corpus share: names of types and the elementwise kernels.
#pragma once

typedef unsigned char u8;
typedef signed char s8;
typedef unsigned short u16;
typedef short s16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
typedef long long s64;

#define KERNEL extern "C" __global__ void

// This thread's index in a grid of one dimension.
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)

// Elementwise kernels: thread i computes the `count` elements o[0] to o[count - 1] from a, b and c.
#define MAP1(name, A, O, count, ...)                                                                            \
    KERNEL name(const A* in_a, O* out, u32 n)                                                                   \
    {                                                                                                           \
        u32 i = INDEX;                                                                                          \
        if (i >= n)                                                                                             \
            return;                                                                                             \
        A a = in_a[i];                                                                                          \
        O* o = out + i * count;                                                                                 \
        __VA_ARGS__                                                                                             \
    }
#define MAP2(name, A, B, O, count, ...)                                                                         \
    KERNEL name(const A* in_a, const B* in_b, O* out, u32 n)                                                    \
    {                                                                                                           \
        u32 i = INDEX;                                                                                          \
        if (i >= n)                                                                                             \
            return;                                                                                             \
        A a = in_a[i];                                                                                          \
        B b = in_b[i];                                                                                          \
        O* o = out + i * count;                                                                                 \
        __VA_ARGS__                                                                                             \
    }
#define MAP3(name, A, O, count, ...)                                                                            \
    KERNEL name(const A* in_a, const A* in_b, const A* in_c, O* out, u32 n)                                     \
    {                                                                                                           \
        u32 i = INDEX;                                                                                          \
        if (i >= n)                                                                                             \
            return;                                                                                             \
        A a = in_a[i], b = in_b[i], c = in_c[i];                                                                \
        O* o = out + i * count;                                                                                 \
        __VA_ARGS__                                                                                             \
    }

// One PTX instruction with two or three sources of 32 bits.
#define PTX2(text, d, x, y) asm(text " %0, %1, %2;" : "=r"(d) : "r"(x), "r"(y))
#define PTX3(text, d, x, y, z) asm(text " %0, %1, %2, %3;" : "=r"(d) : "r"(x), "r"(y), "r"(z))
