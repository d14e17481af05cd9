// Operations of a warp whose member masks differ from lane to lane: each group of lanes gets its own result.
#include "corpus.cuh"

// Each block is one warp with its own division: lane t belongs to the group masks[t]. The lanes of `dead` have returned
// before; their groups live on without them.
#define GROUPS(name, T, count, ...)                                                                             \
    static __device__ __forceinline__ void name##_of(u32 t, u32 m, u32 dead, T v, u32* o)                       \
    {                                                                                                           \
        u32 alive = m & ~dead;                                                                                  \
        (void)alive;                                                                                            \
        __VA_ARGS__                                                                                             \
    }                                                                                                           \
    KERNEL name(const T* in, const u32* masks, u32* out, const u32* all_dead)                                   \
    {                                                                                                           \
        u32 t = threadIdx.x, i = INDEX, dead = all_dead[blockIdx.x];                                            \
        if (dead >> t & 1)                                                                                      \
            return;                                                                                             \
        name##_of(t, masks[i], dead, in[i], out + count * i);                                                   \
    }
// The same in two branches: the lanes of `part`, and all others.
#define APART(name, of, T, count)                                                                               \
    KERNEL name(const T* in, const u32* masks, u32* out, const u32* all_dead, const u32* parts)                 \
    {                                                                                                           \
        u32 t = threadIdx.x, i = INDEX, dead = all_dead[blockIdx.x], part = parts[blockIdx.x];                  \
        if (dead >> t & 1)                                                                                      \
            return;                                                                                             \
        if (part >> t & 1)                                                                                      \
            of(t, masks[i] & part, dead, in[i], out + count * i);                                               \
        else                                                                                                    \
            of(t, masks[i] & ~part, dead, in[i] ^ 1, out + count * i);                                          \
    }

GROUPS(group_votes, u32, 5, {
    o[0] = __ballot_sync(m, v & 1);
    o[1] = __any_sync(m, (v & 6) == 0);
    o[2] = __all_sync(m, v & 3);
    o[3] = __uni_sync(m, v & 1);
    __syncwarp(m);
    o[4] = alive;
})
APART(group_votes_apart, group_votes_of, u32, 5)

GROUPS(group_matches, u32, 4, {
    int p;
    o[0] = __match_any_sync(m, v & 3);
    o[1] = __match_all_sync(m, v & 1, &p);
    o[2] = p;
    o[3] = __match_any_sync(m, (int)v >> 30);
})
APART(group_matches_apart, group_matches_of, u32, 4)

GROUPS(group_wide_matches, u64, 3, {
    int p;
    o[0] = __match_any_sync(m, v & 0x300000001ull);
    o[1] = __match_all_sync(m, v & 0x100000000ull, &p);
    o[2] = p;
})
APART(group_wide_matches_apart, group_wide_matches_of, u64, 3)

GROUPS(group_shuffles, u32, 4, {
    o[0] = __shfl_sync(m, v, __ffs(alive) - 1);
    o[1] = __shfl_sync(m, v, 31 - __clz(alive));
    // The next lane of the group, around its end.
    u32 after = t == 31 ? 0 : alive >> (t + 1) << (t + 1);
    o[2] = __shfl_sync(m, v, __ffs(after ? after : alive) - 1);
    u32 below = __popc(alive & ((1u << t) - 1));
    o[3] = __shfl_xor_sync(m, v, 1) * (alive >> (t ^ 1) & 1) + below;
})
APART(group_shuffles_apart, group_shuffles_of, u32, 4)

GROUPS(group_reductions, u32, 7, {
    o[0] = __reduce_add_sync(m, v);
    o[1] = __reduce_min_sync(m, v);
    o[2] = __reduce_max_sync(m, v);
    o[3] = __reduce_min_sync(m, (s32)v);
    o[4] = __reduce_and_sync(m, v);
    o[5] = __reduce_or_sync(m, v);
    o[6] = __reduce_xor_sync(m, v);
})
APART(group_reductions_apart, group_reductions_of, u32, 7)

// Groups leave a loop after different numbers of rounds. The sum of a group takes all of its lanes.
KERNEL group_rounds(const u32* in, const u32* masks, u32* out, const u32* all_dead)
{
    u32 t = threadIdx.x, at = INDEX, dead = all_dead[blockIdx.x], v = in[at], m = masks[at], result = 0;
    if (dead >> t & 1)
        return;
    for (u32 i = 0; i <= (u32)__ffs(m) % 4; i++) {
        result = result * 31 + __ballot_sync(m, v >> i & 1);
        if (__any_sync(m, (v >> i & 7) == 0))
            result += __popc(__match_any_sync(m, v >> i & 1));
        else
            result ^= __reduce_add_sync(m, v >> i);
    }
    out[at] = result;
}

// Groups are found by matching their key, and each finds its leader, its size, its sum and the rank of each lane.
KERNEL labelled(const u32* in, u32* out, u32 n)
{
    u32 t = INDEX, lane = threadIdx.x & 31;
    if (t >= n)
        return;
    u32 v = in[t], m = __match_any_sync(__activemask(), v % 3);
    u32 odd = __ballot_sync(m, v & 1), leader = __ffs(m) - 1;
    u32 sum = __reduce_add_sync(m, v & 0xff);
    u32 all = __all_sync(m, v & 2) ? 1u << 31 : 0;
    out[t] = sum | __popc(m & ((1u << lane) - 1)) << 16 | __popc(odd) << 21 | leader << 26 | all;
}
