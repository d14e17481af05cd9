// Operations in which the threads of a warp or of a block act together.

// For each thread sixteen words: shuffles by index, up, down and by exclusive or in segments of 32 and
// of 8, votes, and matches.
extern "C" __global__ void exchange(const unsigned* in, unsigned* out)
{
    unsigned t = threadIdx.x;
    unsigned x = in[t];
    unsigned* o = out + 16 * t;
    o[0] = __shfl_sync(~0u, x, (t * 7 + 3) & 31);
    o[1] = __shfl_up_sync(~0u, x, 5);
    o[2] = __shfl_down_sync(~0u, x, 9);
    o[3] = __shfl_xor_sync(~0u, x, 21);
    o[4] = __shfl_sync(~0u, x, t + 1, 8);
    o[5] = __shfl_up_sync(~0u, x, 3, 8);
    o[6] = __shfl_down_sync(~0u, x, x & 7, 8);
    o[7] = __shfl_xor_sync(~0u, x, 6, 8);
    o[8] = __ballot_sync(~0u, x & 1);
    o[9] = __all_sync(~0u, x < 1000000);
    o[10] = __any_sync(~0u, x == in[17]);
    o[11] = __match_any_sync(~0u, x & 3);
    int same;
    o[12] = __match_all_sync(~0u, t >> 5, &same);
    o[13] = same;
    o[14] = __reduce_min_sync(~0u, (int)x - 50);
    o[15] = __reduce_xor_sync(~0u, x);
}

// Reductions at the barrier of the block: count, all and any of in[t] being odd.
extern "C" __global__ void barrier_votes(const unsigned* in, int* out)
{
    int odd = in[threadIdx.x] & 1;
    out[3 * threadIdx.x] = __syncthreads_count(odd);
    out[3 * threadIdx.x + 1] = __syncthreads_and(odd);
    out[3 * threadIdx.x + 2] = __syncthreads_or(odd);
}

// The first warp makes numbers, the others add them up: two named barriers, arrive and wait. Blocks of
// 128 threads; out[t] = sum over the rounds.
extern "C" __global__ void producer(unsigned* out, unsigned rounds)
{
    __shared__ unsigned box[32];
    unsigned t = threadIdx.x;
    unsigned sum = 0;
    for (unsigned r = 0; r < rounds; ++r) {
        if (t < 32) {
            box[t] = r * 100 + t;
            asm volatile("bar.arrive 1, 128;" ::: "memory");
            asm volatile("bar.sync 2, 128;" ::: "memory");
        } else {
            asm volatile("bar.sync 1, 128;" ::: "memory");
            sum += box[t & 31];
            asm volatile("bar.sync 2, 128;" ::: "memory");
        }
    }
    out[t] = sum;
}

// Copies through shared memory by cp.async in two stages, with 16-byte pieces and zero fill from `valid`
// bytes on: out[i] = in[i] or 0. Blocks of 64 threads, 4 words each.
extern "C" __global__ void async_copy(const unsigned* in, unsigned* out, unsigned valid)
{
    __shared__ __align__(16) unsigned stage[2][256];
    unsigned t = threadIdx.x;
    for (unsigned s = 0; s < 2; ++s) {
        unsigned to = (unsigned)__cvta_generic_to_shared(&stage[s][4 * t]);
        const unsigned* from = in + s * 256 + 4 * t;
        unsigned bytes = (s * 256 + 4 * t) * 4 < valid ? 16 : 0;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes));
        asm volatile("cp.async.commit_group;");
    }
    asm volatile("cp.async.wait_group 0;");
    __syncthreads();
    for (unsigned s = 0; s < 2; ++s)
        for (unsigned j = 0; j < 4; ++j)
            out[s * 256 + 64 * j + t] = stage[s][64 * j + t];
}

// Every block leaves its SM number, its warps' numbers and whether its clocks run: four words a thread.
extern "C" __global__ void places(unsigned* out)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned sm, warp, below;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    asm volatile("mov.u32 %0, %%warpid;" : "=r"(warp));
    asm volatile("mov.u32 %0, %%lanemask_lt;" : "=r"(below));
    long long before = clock64();
    unsigned long long nanoseconds, later;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(later));
    } while (later - nanoseconds < 1000);
    out[4 * i] = sm;
    out[4 * i + 1] = warp;
    out[4 * i + 2] = below;
    out[4 * i + 3] = clock64() > before;
}

// Atomics on shared memory that the compiler builds from compare-and-swap, and 64-bit ones.
extern "C" __global__ void shared_atomics(float* sum, unsigned long long* largest, unsigned* wrapped)
{
    __shared__ float a;
    __shared__ unsigned long long b;
    __shared__ unsigned c;
    if (threadIdx.x == 0) {
        a = 0.0f;
        b = 0;
        c = 0;
    }
    __syncthreads();
    atomicAdd(&a, 0.25f);
    atomicMax(&b, 0x300000000ull + (threadIdx.x ^ 0x2a));
    atomicInc(&c, 6);
    __syncthreads();
    if (threadIdx.x == 0) {
        *sum = a;
        *largest = b;
        *wrapped = c;
    }
}
