// What the 32 lanes of a warp do together.
#include "corpus.cuh"

// Every mode of the shuffle, with widths that divide the warp. 8 results of 32 lanes.
KERNEL shuffles(const u32* in, u32* out, u32 distance, u32 lane)
{
    u32 t = threadIdx.x, v = in[t];
    out[t] = __shfl_sync(~0u, v, lane);
    out[t + 32] = __shfl_sync(~0u, v, t * 7 + 3);
    out[t + 64] = __shfl_up_sync(~0u, v, distance);
    out[t + 96] = __shfl_down_sync(~0u, v, distance, 16);
    out[t + 128] = __shfl_xor_sync(~0u, v, 5);
    out[t + 160] = __shfl_sync(~0u, v, lane, 8);
    out[t + 192] = __shfl_up_sync(~0u, v, 2, 4);
    out[t + 224] = __shfl_xor_sync(~0u, v, distance, 8);
}

// Shuffles that also say whether the source lane was in range.
KERNEL shuffle_predicates(const u32* in, u32* out, u32 distance, u32 clamp)
{
    u32 t = threadIdx.x, v = in[t], r, p;
#define SHUFFLE(mode, at)                                                                                       \
    asm volatile("{ .reg .pred q; shfl.sync." mode ".b32 %0|q, %2, %3, %4, -1; selp.u32 %1, 1, 0, q; }"          \
                 : "=r"(r), "=r"(p)                                                                             \
                 : "r"(v), "r"(distance), "r"(clamp));                                                          \
    out[t + 64 * at] = r;                                                                                       \
    out[t + 64 * at + 32] = p;
    SHUFFLE("up", 0)
    SHUFFLE("down", 1)
    SHUFFLE("bfly", 2)
    SHUFFLE("idx", 3)
}

// A shuffle of 64 bits and one among half of the lanes in divergent code.
KERNEL shuffle_wide(const double* in, double* out)
{
    u32 t = threadIdx.x;
    double v = in[t];
    out[t] = __shfl_down_sync(~0u, v, 3);
    if (t & 1)
        v = __shfl_xor_sync(0xaaaaaaaa, v, 2) + 1.0;
    else
        v = __shfl_sync(0x55555555, v, (t + 4) & 31);
    out[t + 32] = v;
}

KERNEL votes(const s32* in, u32* out)
{
    u32 t = threadIdx.x;
    s32 v = in[t];
    out[t] = __all_sync(~0u, v > -1000);
    out[t + 32] = __any_sync(~0u, v == 7);
    out[t + 64] = __ballot_sync(~0u, v < 0);
    out[t + 96] = __uni_sync(~0u, v & 1);
    if (v > 5)
        out[t + 128] = __ballot_sync(__activemask(), v & 2);
    else
        out[t + 128] = __activemask();
    out[t + 160] = __popc(__ballot_sync(~0u, v & 4) & ((1u << t) - 1));
}

KERNEL matches(const u32* in, const u64* wide, u32* out)
{
    u32 t = threadIdx.x;
    int p, q;
    out[t] = __match_any_sync(~0u, in[t]);
    out[t + 32] = __match_any_sync(~0u, wide[t]);
    out[t + 64] = __match_all_sync(~0u, in[t], &p);
    out[t + 96] = p;
    out[t + 128] = __match_all_sync(~0u, wide[t] >> 32, &q);
    out[t + 160] = q;
}

KERNEL reductions(const u32* in, u32* out)
{
    u32 t = threadIdx.x;
    s32 s = in[t];
    u32 u = in[t];
    out[t] = __reduce_add_sync(~0u, u);
    out[t + 32] = __reduce_min_sync(~0u, u);
    out[t + 64] = __reduce_max_sync(~0u, u);
    out[t + 96] = __reduce_min_sync(~0u, s);
    out[t + 128] = __reduce_max_sync(~0u, s);
    out[t + 160] = __reduce_and_sync(~0u, u);
    out[t + 192] = __reduce_or_sync(~0u, u);
    out[t + 224] = __reduce_xor_sync(~0u, u);
    out[t + 256] = __reduce_add_sync(~0u, s);
}

// Reductions among the lanes that took the same way.
KERNEL divergent_reductions(const u32* in, u32* out)
{
    u32 t = threadIdx.x, v = in[t];
    u32 group = __match_any_sync(~0u, v & 3);
    if ((v & 3) == 0)
        out[t] = __reduce_add_sync(group, v);
    else if ((v & 3) == 1)
        out[t] = __reduce_max_sync(group, v);
    else
        out[t] = __shfl_sync(group, v, __ffs(group) - 1);
}

// An inclusive sum over the warp.
KERNEL warp_scan(const s32* in, s32* out)
{
    u32 t = INDEX, lane = threadIdx.x & 31;
    s32 v = in[t];
    for (u32 d = 1; d < 32; d <<= 1) {
        s32 u = __shfl_up_sync(~0u, v, d);
        if (lane >= d)
            v += u;
    }
    out[t] = v;
}

// Lanes exchange values through shared memory, with a rendezvous of the warp in between.
KERNEL warp_rendezvous(const u32* in, u32* out, u32 mask)
{
    __shared__ u32 s[64];
    u32 t = threadIdx.x;
    s[t] = in[t];
    __syncwarp();
    u32 v = s[t ^ 1];
    __syncwarp();
    if (t < 16) {
        s[t] = v + 3;
        __syncwarp(0xffff);
        v += s[t ^ 2];
    } else {
        s[t + 16] = v * 5;
        __syncwarp(0xffff0000);
        v ^= s[(t ^ 3) + 16];
    }
    __syncwarp(mask);
    out[t] = v;
}

// One lane of those that meet counts for all of them.
KERNEL aggregated_counter(const s32* in, u32* counter, u32* flags, u32 n)
{
    u32 i = INDEX;
    if (i >= n)
        return;
    if (in[i] > 0) {
        u32 active = __activemask();
        u32 leader = __ffs(active) - 1, lane = threadIdx.x & 31, base;
        if (lane == leader)
            base = atomicAdd(counter, __popc(active));
        base = __shfl_sync(active, base, leader);
        // Every place is taken by exactly one thread, in whatever order.
        atomicAdd(flags + base + __popc(active & ((1u << lane) - 1)), 1);
    }
}

// The lanes' own masks and numbers.
KERNEL lane_registers(u32* out)
{
    u32 t = threadIdx.x, r;
#define LANE(name, at)                                                                                          \
    asm volatile("mov.u32 %0, %%" name ";" : "=r"(r));                                                           \
    out[t + 32 * at] = r;
    LANE("laneid", 0)
    LANE("lanemask_eq", 1)
    LANE("lanemask_lt", 2)
    LANE("lanemask_le", 3)
    LANE("lanemask_gt", 4)
    LANE("lanemask_ge", 5)
}
