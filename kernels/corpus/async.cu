// Copies from global to shared memory that do not pass through registers.
#include "corpus.cuh"

// 16, 8 and 4 bytes, through and past the first cache, whole and cut off.
KERNEL async_copy_sizes(const uint4* in, uint4* out, u32 bytes)
{
    __shared__ __align__(16) uint4 s[4][64];
    u32 t = threadIdx.x;
    for (u32 k = 0; k < 4; k++)
        s[k][t] = make_uint4(1, 2, 3, 4);
    __syncthreads();
    u32 p = (u32)__cvta_generic_to_shared(&s[0][t]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(p), "l"(in + t));
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(p + 1024), "l"(in + 64 + t));
    asm volatile("cp.async.commit_group;");
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    out[t] = s[0][t ^ 1];
    asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(p + 2048), "l"(in + 128 + t));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(p + 2060), "l"(in + 128 + t));
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(p + 3072), "l"(in + 192 + t),
                 "r"(t & 1 ? bytes : 16));
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    out[64 + t] = s[1][63 - t];
    out[128 + t] = s[2][t];
    out[192 + t] = s[3][t];
    __syncthreads();
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(p), "l"(in + 255 - t));
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" ::"r"(p + 1024), "l"(in + t), "r"(t & 3 ? 12 : bytes));
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    out[256 + t] = s[0][t];
    out[320 + t] = s[1][t];
}

// A pipeline four stages deep.
KERNEL async_pipeline(const float* in, float* out, u32 rounds)
{
    __shared__ __align__(16) float s[4][128];
    u32 t = threadIdx.x;
    float sum = 0.0f;
    for (u32 k = 0; k < 3; k++) {
        if (t < 32)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(&s[k][4 * t])),
                         "l"(in + k * 128 + 4 * t));
        asm volatile("cp.async.commit_group;");
    }
    for (u32 k = 0; k < rounds; k++) {
        asm volatile("cp.async.wait_group 2;" ::: "memory");
        __syncthreads();
        sum = fmaf(sum, 0.75f, s[k & 3][127 - t]);
        if (t < 32 && k + 3 < rounds)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                             (u32)__cvta_generic_to_shared(&s[(k + 3) & 3][4 * t])),
                         "l"(in + (k + 3) * 128 + 4 * t));
        asm volatile("cp.async.commit_group;");
    }
    out[t] = sum;
}

// A copy whose end arrives at an mbarrier.
KERNEL async_arrival(const u32* in, u32* out)
{
    __shared__ u64 barrier;
    __shared__ u32 s[64];
    u32 t = threadIdx.x, b = (u32)__cvta_generic_to_shared(&barrier), done = 0;
    if (t == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(b));
    __syncthreads();
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((u32)__cvta_generic_to_shared(&s[t])), "l"(in + t));
    asm volatile("cp.async.mbarrier.arrive.shared.b64 [%0];" ::"r"(b));
    u64 state;
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(b) : "memory");
    while (!done)
        asm volatile("{ .reg .pred c; mbarrier.test_wait.shared.b64 c, [%1], %2; selp.u32 %0, 1, 0, c; }"
                     : "=r"(done) : "r"(b), "l"(state) : "memory");
    out[t] = s[t ^ 3];
}
