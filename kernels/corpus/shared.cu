// Shared memory, static and dynamic, and the barriers of a block.
#include "corpus.cuh"

// Elements of every size side by side, with one bank pattern each.
KERNEL shared_sizes(const uint4* in, uint4* out)
{
    __shared__ uint4 s16[96];
    __shared__ u64 s8[96];
    __shared__ u32 s4[96];
    __shared__ short s2[96];
    __shared__ u16 t2[96];
    __shared__ signed char s1[96];
    __shared__ u8 t1[96];
    u32 t = threadIdx.x;
    uint4 v = in[t];
    s16[t] = v;
    s8[t] = (u64)v.x << 32 | v.y;
    s4[t] = v.z;
    s2[t] = v.w;
    t2[t] = v.w >> 3;
    s1[t] = v.x;
    t1[t] = v.y;
    __syncthreads();
    uint4 r = s16[(t * 5 + 1) % 96];
    r.x += (u32)(s8[(t * 2) % 96] >> 20);
    r.y += s4[(t * 33) % 96];
    r.z += s2[95 - t] + t2[t ^ 1];
    r.w += s1[(t + 7) % 96] * t1[(t * 32 + t / 3) % 96];
    out[t] = r;
}

// A tile turned over a diagonal; the padding keeps the columns in different banks.
KERNEL transpose_padded(const u32* in, u32* out, u32 rows, u32 columns)
{
    __shared__ u32 tile[16][17];
    u32 x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x < columns && y < rows)
        tile[threadIdx.y][threadIdx.x] = in[y * columns + x];
    __syncthreads();
    x = blockIdx.y * 16 + threadIdx.x;
    y = blockIdx.x * 16 + threadIdx.y;
    if (x < rows && y < columns)
        out[y * rows + x] = tile[threadIdx.x][threadIdx.y];
}

extern __shared__ u32 dynamic[];

// The sum of a block in a tree, in dynamic shared memory.
KERNEL tree_sum(const u32* in, u32* out, u32 n)
{
    u32 t = threadIdx.x, i = INDEX;
    dynamic[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (u32 s = blockDim.x / 2; s; s >>= 1) {
        if (t < s)
            dynamic[t] += dynamic[t + s];
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = dynamic[0];
}

// An inclusive scan of a block by doubling, between two halves of dynamic shared memory.
KERNEL block_scan(const u32* in, u32* out, u32 n)
{
    u32 t = threadIdx.x, i = INDEX, width = blockDim.x;
    u32 *from = dynamic, *to = dynamic + width;
    from[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (u32 d = 1; d < width; d <<= 1) {
        to[t] = t >= d ? from[t] + from[t - d] : from[t];
        __syncthreads();
        u32* swap = from;
        from = to;
        to = swap;
    }
    if (i < n)
        out[i] = from[t];
}

// Counts of bytes: shared atomics within a block, global ones between blocks.
KERNEL byte_histogram(const u8* in, u32* out, u32 n)
{
    __shared__ u32 bins[256];
    for (u32 b = threadIdx.x; b < 256; b += blockDim.x)
        bins[b] = 0;
    __syncthreads();
    for (u32 i = INDEX; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&bins[in[i]], 1);
    __syncthreads();
    for (u32 b = threadIdx.x; b < 256; b += blockDim.x)
        atomicAdd(&out[b], bins[b]);
}

// Barriers that count and combine.
KERNEL combining_barriers(const s32* in, s32* out)
{
    u32 t = threadIdx.x, n = blockDim.x;
    s32 v = in[t];
    out[t] = __syncthreads_count(v > 0);
    out[n + t] = __syncthreads_and(v > -100);
    out[2 * n + t] = __syncthreads_or(v == 3);
    out[3 * n + t] = __syncthreads_count(v & 1);
}

// Two teams of warps that hand work to each other at named barriers.
KERNEL named_barriers(const u32* in, u32* out, u32 rounds)
{
    __shared__ u32 slot[2][64];
    u32 t = threadIdx.x;
    if (t < 64) {
        for (u32 k = 0; k < rounds; k++) {
            if (k > 1)
                asm volatile("bar.sync %0, 128;" ::"r"(3 + (k & 1)) : "memory");
            slot[k & 1][t] = in[k * 64 + t] * 3;
            asm volatile("bar.arrive %0, 128;" ::"r"(1 + (k & 1)) : "memory");
        }
    } else {
        u32 sum = 0;
        for (u32 k = 0; k < rounds; k++) {
            asm volatile("bar.sync %0, 128;" ::"r"(1 + (k & 1)) : "memory");
            sum = sum * 31 + slot[k & 1][127 - t];
            if (k + 2 < rounds)
                asm volatile("bar.arrive %0, 128;" ::"r"(3 + (k & 1)) : "memory");
        }
        out[t - 64] = sum;
    }
}

// Reductions over part of a block: barriers with numbers and thread counts of every form.
KERNEL barrier_reductions(const s32* in, u32* out, u32 id)
{
    u32 t = threadIdx.x, r;
    s32 v = in[t];
    if (t < 64) {
        asm volatile("{ .reg .pred p, q; setp.gt.s32 p, %1, 3; bar.red.and.pred q, 3, 64, p; selp.u32 %0, 1, 0, q; }"
                     : "=r"(r) : "r"(v));
        out[t] = r;
        asm volatile("{ .reg .pred p, q; setp.gt.s32 p, %1, 3; bar.red.or.pred q, %2, 64, p; selp.u32 %0, 1, 0, q; }"
                     : "=r"(r) : "r"(v), "r"(id));
        out[t] += r * 10;
    } else {
        asm volatile("{ .reg .pred p; setp.gt.s32 p, %1, 3; bar.red.popc.u32 %0, 4, 32, p; }" : "=r"(r) : "r"(v));
        out[t] = r;
    }
    asm volatile("bar.sync 6;");
    asm volatile("{ .reg .pred p; setp.lt.s32 p, %1, 0; bar.red.popc.u32 %0, %2, p; }" : "=r"(r) : "r"(v), "r"(id + 2));
    out[96 + t] = r;
    asm volatile("bar.sync %0, 96;" ::"r"(id + 1));
    asm volatile("barrier.sync 9, 96;");
}

// A producer and consumers over an mbarrier, the block's own count of arrivals.
KERNEL mbarrier_phases(const u32* in, u32* out, u32 rounds)
{
    __shared__ u64 barrier;
    __shared__ u32 slot[64];
    u32 t = threadIdx.x, address = (u32)__cvta_generic_to_shared(&barrier);
    if (t == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(address));
    __syncthreads();
    u32 sum = 0;
    for (u32 k = 0; k < rounds; k++) {
        slot[t] = in[k * 64 + t];
        u64 state;
        asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(address) : "memory");
        u32 done = 0;
        while (!done)
            asm volatile("{ .reg .pred c; mbarrier.test_wait.shared.b64 c, [%1], %2; selp.u32 %0, 1, 0, c; }"
                         : "=r"(done) : "r"(address), "l"(state) : "memory");
        sum += slot[63 - t] ^ k;
        __syncthreads();
    }
    out[t] = sum;
}
