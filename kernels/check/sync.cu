// nvrtc: --std=c++17
// Misuse of barriers, each with its repaired twin. See mem.cu. The compiler gives the code of __syncwarp the last
// line of its function.

#define KERNEL extern "C" __global__ void
#define ARGS int *out, const int *in, int *raw, int *freed, int n
#define INDEX (int)(blockIdx.x * blockDim.x + threadIdx.x)

// RUN grid=1 block=64 n=64
KERNEL bug_both_branches(ARGS)
{
    if (threadIdx.x % 32 < 16) {
        out[threadIdx.x] = 1;
        __syncthreads(); // BUG divergent-barrier
        out[threadIdx.x] += in[threadIdx.x];
    } else {
        out[threadIdx.x] = 2;
        __syncthreads();
        out[threadIdx.x] *= in[threadIdx.x];
    }
}
KERNEL fix_both_branches(ARGS)
{
    out[threadIdx.x] = threadIdx.x % 32 < 16 ? 1 : 2;
    __syncthreads();
    if (threadIdx.x % 32 < 16)
        out[threadIdx.x] += in[threadIdx.x];
    else
        out[threadIdx.x] *= in[threadIdx.x];
}

// RUN grid=1 block=64 n=64
KERNEL bug_one_warp(ARGS)
{
    __shared__ int room[64];
    room[threadIdx.x] = in[threadIdx.x];
    if (threadIdx.x < 32) {
        __syncthreads(); // BUG exited-threads
        out[threadIdx.x] = room[threadIdx.x + 32];
    }
}
KERNEL fix_one_warp(ARGS)
{
    __shared__ int room[64];
    room[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 32)
        out[threadIdx.x] = room[threadIdx.x + 32];
}

// RUN grid=2 block=64 n=100
KERNEL bug_early_return(ARGS)
{
    __shared__ int room[64];
    if (INDEX >= n)
        return;
    room[threadIdx.x] = in[INDEX];
    __syncthreads(); // BUG exited-threads
    out[INDEX] = room[threadIdx.x];
}
KERNEL fix_early_return(ARGS)
{
    __shared__ int room[64];
    if (INDEX < n)
        room[threadIdx.x] = in[INDEX];
    __syncthreads();
    if (INDEX < n)
        out[INDEX] = room[threadIdx.x];
}

// RUN grid=1 block=64 n=64
KERNEL bug_loop(ARGS)
{
    for (int i = 0; i < 1 + (int)threadIdx.x / 32; i++) {
        out[threadIdx.x] += in[i];
        __syncthreads(); // BUG exited-threads
    }
}
KERNEL fix_loop(ARGS)
{
    for (int i = 0; i < 2; i++) {
        out[threadIdx.x] += in[i];
        __syncthreads();
    }
}

// RUN grid=1 block=64 n=48
KERNEL bug_odd_count(ARGS)
{
    asm volatile("bar.sync 1, %0;" ::"r"(n) : "memory"); // BUG barrier-count
    if (threadIdx.x < n)
        out[threadIdx.x] = 1;
}
KERNEL fix_odd_count(ARGS)
{
    asm volatile("bar.sync 1, %0;" ::"r"(n + 16) : "memory");
    if (threadIdx.x < n)
        out[threadIdx.x] = 1;
}

// RUN grid=1 block=64 n=96
KERNEL bug_large_count(ARGS)
{
    asm volatile("bar.sync 1, %0;" ::"r"(n) : "memory"); // BUG barrier-count
    out[threadIdx.x] = 1;
}
KERNEL fix_large_count(ARGS)
{
    asm volatile("bar.sync 1, %0;" ::"r"(n - 32) : "memory");
    out[threadIdx.x] = 1;
}

// RUN grid=1 block=96 n=96
KERNEL bug_different_counts(ARGS)
{
    int count = threadIdx.x < 32 ? n : n - 32;
    asm volatile("bar.sync 1, %0;" ::"r"(count) : "memory"); // BUG barrier-count
    out[threadIdx.x] = 1;
}
KERNEL fix_different_counts(ARGS)
{
    int count = n;
    asm volatile("bar.sync 1, %0;" ::"r"(count) : "memory");
    out[threadIdx.x] = 1;
}

// RUN grid=1 block=64 n=64
KERNEL bug_only_arrivals(ARGS)
{
    out[threadIdx.x] = 1;
    if (threadIdx.x < 32)
        asm volatile("bar.arrive 2, 64;" ::: "memory"); // BUG unfinished-barrier
}
KERNEL fix_only_arrivals(ARGS)
{
    out[threadIdx.x] = 1;
    if (threadIdx.x < 32)
        asm volatile("bar.arrive 2, 64;" ::: "memory");
    else
        asm volatile("bar.sync 2, 64;" ::: "memory");
}

// RUN grid=1 block=32 n=64
KERNEL bug_mask_without_caller(ARGS)
{
    out[threadIdx.x] = 1;
    __syncwarp(1u << in[threadIdx.x ^ 1]);
    out[threadIdx.x + 32] = out[threadIdx.x];
} // BUG warp-mask
KERNEL fix_mask_without_caller(ARGS)
{
    out[threadIdx.x] = 1;
    __syncwarp(1u << in[threadIdx.x]);
    out[threadIdx.x + 32] = out[threadIdx.x];
}

// RUN grid=1 block=32 n=64
KERNEL bug_different_masks(ARGS)
{
    out[threadIdx.x] = 1;
    __syncwarp(threadIdx.x < 8 ? 0xffff : 0xffffffff);
    out[threadIdx.x + 32] = out[threadIdx.x ^ 1];
} // BUG warp-mask
KERNEL fix_different_masks(ARGS)
{
    out[threadIdx.x] = 1;
    __syncwarp(threadIdx.x < 16 ? 0xffff : 0xffff0000);
    out[threadIdx.x + 32] = out[threadIdx.x ^ 1];
}

// RUN grid=1 block=32 n=64
KERNEL bug_mask_of_others(ARGS)
{
    if (threadIdx.x < 2) {
        out[threadIdx.x] = 1;
        __syncwarp();
        out[threadIdx.x + 2] = out[threadIdx.x ^ 1];
    }
    out[threadIdx.x + 32] = 2;
} // BUG warp-mask
KERNEL fix_mask_of_others(ARGS)
{
    if (threadIdx.x < 2) {
        out[threadIdx.x] = 1;
        __syncwarp(3);
        out[threadIdx.x + 2] = out[threadIdx.x ^ 1];
    }
    out[threadIdx.x + 32] = 2;
}

// RUN grid=1 block=64 n=64
KERNEL bug_two_barriers(ARGS)
{
    out[threadIdx.x] = 1;
    if (threadIdx.x < 32)
        asm volatile("bar.sync 1, 64;" ::: "memory"); // BUG deadlock
    else
        asm volatile("bar.sync 2, 64;" ::: "memory");
    out[threadIdx.x] = 2;
}
KERNEL fix_two_barriers(ARGS)
{
    out[threadIdx.x] = 1;
    if (threadIdx.x < 32)
        asm volatile("bar.sync 1, 64;" ::: "memory");
    else
        asm volatile("bar.sync 1, 64;" ::: "memory");
    out[threadIdx.x] = 2;
}

__device__ __noinline__ int vote(int value)
{
    return __syncthreads_count(value); // BUG exited-threads
}
// RUN grid=1 block=64 n=64
KERNEL bug_in_function(ARGS)
{
    if (in[threadIdx.x] < 32)
        out[threadIdx.x] = vote(in[threadIdx.x] & 1);
}
__device__ __noinline__ int whole_vote(int value)
{
    return __syncthreads_count(value);
}
KERNEL fix_in_function(ARGS)
{
    out[threadIdx.x] = whole_vote(in[threadIdx.x] < 32 && in[threadIdx.x] & 1);
}

// RUN grid=1 block=64 n=64
KERNEL bug_half_a_warp_leaves(ARGS)
{
    if (in[threadIdx.x] % 32 >= 16)
        return;
    out[threadIdx.x] = __syncthreads_or(in[threadIdx.x] == 5); // BUG exited-threads
}
KERNEL fix_half_a_warp_leaves(ARGS)
{
    int any = __syncthreads_or(in[threadIdx.x] == 5);
    if (in[threadIdx.x] % 32 < 16)
        out[threadIdx.x] = any;
}

// Warps of two roles meet at two barriers: undefined in CUDA C++, although PTX permits it.
// RUN grid=1 block=64 n=64
KERNEL bug_barrier_of_each_role(ARGS)
{
    __shared__ int room[64];
    if (threadIdx.x < 32) {
        room[threadIdx.x] = in[threadIdx.x] * 2;
        __syncthreads();
        out[threadIdx.x] = room[threadIdx.x + 32];
    } else {
        room[threadIdx.x] = in[threadIdx.x] + 1;
        __syncthreads(); // BUG divergent-barrier
        out[threadIdx.x] = room[threadIdx.x - 32];
    }
}
KERNEL fix_barrier_of_each_role(ARGS)
{
    __shared__ int room[64];
    if (threadIdx.x < 32)
        room[threadIdx.x] = in[threadIdx.x] * 2;
    else
        room[threadIdx.x] = in[threadIdx.x] + 1;
    __syncthreads();
    out[threadIdx.x] = room[threadIdx.x ^ 32];
}

// The sum of 20 values: without lanes 20 to 31, lanes 0 to 19 add undefined values.
// RUN grid=1 block=32 n=20
KERNEL bug_sum_without_lanes(ARGS)
{
    if (threadIdx.x >= n)
        return;
    int sum = in[threadIdx.x];
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_down_sync(~0u, sum, step); // BUG inactive-lane
    out[threadIdx.x] = sum;
}
// Values of lanes that are not there may be read, but not used. The first 2^n lanes need no others.
KERNEL fix_sum_without_lanes(ARGS)
{
    int sum = threadIdx.x < n ? in[threadIdx.x] : 0;
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_down_sync(~0u, sum, step);
    if (threadIdx.x >= n)
        return;
    unsigned mask = __activemask();
    int own = in[threadIdx.x], next = __shfl_down_sync(mask, own, 1);
    int both = threadIdx.x + 1 < n && next - own > 0 ? 2 * (next - own) + n : own;
    if (threadIdx.x + 1 < n)
        out[threadIdx.x] = sum + both + next - own;
    if (threadIdx.x >= 16)
        return;
    for (int step = 8; step > 0; step /= 2)
        own += __shfl_down_sync(0xffffu, own, step);
    if (threadIdx.x == 0)
        out[n - 1] = own;
}
