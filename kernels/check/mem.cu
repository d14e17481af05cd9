// nvrtc: --std=c++17
// Errors of memory accesses, each with its repaired twin.
//
// A comment `RUN` gives the launch; `BUG kind` marks the line of the error. Buffers have n ints: `out` is zeroed, `in`
// holds 0, 1, 2 and so on, `raw` was never written, and `freed` was freed.

#define KERNEL extern "C" __global__ void
#define ARGS int *out, const int *in, int *raw, int *freed, int n
#define INDEX (int)(blockIdx.x * blockDim.x + threadIdx.x)

// RUN grid=5 block=64 n=256
KERNEL bug_write_past_end(ARGS)
{
    int i = INDEX;
    out[i] = i; // BUG out-of-bounds
}
KERNEL fix_write_past_end(ARGS)
{
    int i = INDEX;
    if (i < n)
        out[i] = i;
}

// RUN grid=4 block=64 n=256
KERNEL bug_read_past_end(ARGS)
{
    int i = INDEX;
    out[i] = in[i + 1]; // BUG out-of-bounds
}
KERNEL fix_read_past_end(ARGS)
{
    int i = INDEX;
    out[i] = in[min(i + 1, n - 1)];
}

// RUN grid=4 block=64 n=256
KERNEL bug_write_before_start(ARGS)
{
    int i = INDEX;
    out[i - 1] = i; // BUG out-of-bounds
}
KERNEL fix_write_before_start(ARGS)
{
    int i = INDEX;
    if (i > 0)
        out[i - 1] = i;
}

// RUN grid=1 block=64 n=64
KERNEL bug_read_before_start(ARGS)
{
    int i = INDEX;
    out[i] = in[i - 3]; // BUG out-of-bounds
}
KERNEL fix_read_before_start(ARGS)
{
    int i = INDEX;
    out[i] = in[max(i - 3, 0)];
}

// RUN grid=1 block=64 n=64
KERNEL bug_read_after_free(ARGS)
{
    int i = INDEX;
    out[i] = freed[i]; // BUG use-after-free
}
KERNEL fix_read_after_free(ARGS)
{
    int i = INDEX;
    out[i] = in[i];
}

// RUN grid=1 block=64 n=64
KERNEL bug_write_after_free(ARGS)
{
    int i = INDEX;
    freed[i] = i; // BUG use-after-free
}
KERNEL fix_write_after_free(ARGS)
{
    int i = INDEX;
    out[i] = i;
}

// RUN grid=1 block=32 n=64
KERNEL bug_misaligned(ARGS)
{
    *(int *)((char *)out + 2 + 4 * threadIdx.x) = n; // BUG misaligned
}
KERNEL fix_misaligned(ARGS)
{
    *(int *)((char *)out + 4 + 4 * threadIdx.x) = n;
}

// RUN grid=1 block=65 n=256
KERNEL bug_wide_past_end(ARGS)
{
    int4 four = ((const int4 *)in)[threadIdx.x]; // BUG out-of-bounds
    out[threadIdx.x] = four.x + four.y + four.z + four.w;
}
KERNEL fix_wide_past_end(ARGS)
{
    int4 four = ((const int4 *)in)[min(threadIdx.x, n / 4 - 1)];
    out[threadIdx.x] = four.x + four.y + four.z + four.w;
}

// RUN grid=1 block=64 n=254
KERNEL bug_wide_over_end(ARGS)
{
    int4 four = ((const int4 *)in)[threadIdx.x]; // BUG out-of-bounds
    out[threadIdx.x] = four.x + four.y + four.z + four.w;
}
KERNEL fix_wide_over_end(ARGS)
{
    int4 four = {0, 0, 0, 0};
    if (threadIdx.x < n / 4)
        four = ((const int4 *)in)[threadIdx.x];
    out[threadIdx.x] = four.x + four.y + four.z + four.w;
}

// RUN grid=1 block=32 n=32
KERNEL bug_null_pointer(ARGS)
{
    int *target = (int *)(long long)in[0];
    target[threadIdx.x] = n; // BUG unmapped
}
KERNEL fix_null_pointer(ARGS)
{
    int *target = out + in[0];
    target[threadIdx.x] = n;
}

// RUN grid=1 block=32 n=32
KERNEL bug_wild_pointer(ARGS)
{
    out[threadIdx.x + (1u << 28)] = n; // BUG unmapped
}
KERNEL fix_wild_pointer(ARGS)
{
    out[threadIdx.x] = n;
}

// RUN grid=2 block=40 n=64
KERNEL bug_atomic_past_end(ARGS)
{
    atomicAdd(&out[INDEX], 1); // BUG out-of-bounds
}
KERNEL fix_atomic_past_end(ARGS)
{
    atomicAdd(&out[INDEX % n], 1);
}

// RUN grid=1 block=33 n=8
KERNEL bug_byte_past_end(ARGS)
{
    ((char *)out)[threadIdx.x] = 1; // BUG out-of-bounds
}
KERNEL fix_byte_past_end(ARGS)
{
    if (threadIdx.x < 4 * n)
        ((char *)out)[threadIdx.x] = 1;
}

// RUN grid=1 block=64 n=64 shared=252
KERNEL bug_dynamic_shared(ARGS)
{
    extern __shared__ int room[];
    room[threadIdx.x] = in[threadIdx.x]; // BUG beyond-shared
    __syncthreads();
    out[threadIdx.x] = room[threadIdx.x ^ 1];
}
KERNEL fix_dynamic_shared(ARGS)
{
    extern __shared__ int room[];
    if (threadIdx.x < 62)
        room[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 62)
        out[threadIdx.x] = room[threadIdx.x ^ 1];
}

// RUN grid=1 block=64 n=64
KERNEL bug_static_shared(ARGS)
{
    __shared__ int room[64];
    room[in[threadIdx.x] + 1] = n; // BUG beyond-shared
    __syncthreads();
    out[threadIdx.x] = room[63 - threadIdx.x];
}
KERNEL fix_static_shared(ARGS)
{
    __shared__ int room[64];
    room[in[threadIdx.x]] = n;
    __syncthreads();
    out[threadIdx.x] = room[63 - threadIdx.x];
}

__device__ int table[10];

// RUN grid=1 block=32 n=32
KERNEL bug_variable(ARGS)
{
    out[threadIdx.x] = table[threadIdx.x]; // BUG out-of-bounds
}
KERNEL fix_variable(ARGS)
{
    out[threadIdx.x] = table[threadIdx.x % 10];
}

// RUN grid=1 block=32 n=100
KERNEL bug_last_row(ARGS)
{
    for (int row = 0; row <= 10; row++)
        if (threadIdx.x < 10)
            out[10 * row + threadIdx.x] = row; // BUG out-of-bounds
}
KERNEL fix_last_row(ARGS)
{
    for (int row = 0; row < 10; row++)
        if (threadIdx.x < 10)
            out[10 * row + threadIdx.x] = row;
}

__constant__ int weights[4] = {1, 2, 3, 4};

// RUN grid=1 block=32 n=32
KERNEL bug_constant(ARGS)
{
    out[threadIdx.x] = weights[in[threadIdx.x] * 1000]; // BUG beyond-constant
}
KERNEL fix_constant(ARGS)
{
    out[threadIdx.x] = weights[in[threadIdx.x] % 4];
}

// The last of the copies hangs over the end, unless it has a smaller source.
template <bool CUT> __device__ void copy_tail(int *out, const int *in, int n)
{
    __shared__ __align__(16) int room[64];
    int i = 4 * threadIdx.x, bytes = CUT ? max(0, min(16, 4 * (n - i))) : 16;
    unsigned to = (unsigned)__cvta_generic_to_shared(room + i);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 ::"r"(to), "l"(in + i), "r"(bytes) : "memory"); // BUG out-of-bounds
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    for (int k = i; k < min(n, i + 4); k++)
        out[k] = room[k] + 1;
}
// RUN grid=1 block=16 n=61
KERNEL bug_copy_tail(ARGS) { copy_tail<false>(out, in, n); }
KERNEL fix_copy_tail(ARGS) { copy_tail<true>(out, in, n); }

// The compiler joins the loads of two and of one int, and those in shared memory.
// RUN grid=1 block=1 n=7
KERNEL bug_seven_ints(ARGS)
{
    int4 first = *(const int4 *)in;
    int4 rest = *(const int4 *)(in + 4); // BUG out-of-bounds
    out[0] = first.x + first.y + first.z + first.w + rest.x + rest.y + rest.z + rest.w;
}
KERNEL fix_seven_ints(ARGS)
{
    __shared__ __align__(16) int room[7];
    int4 first = *(const int4 *)in;
    int2 rest = *(const int2 *)(in + 4);
    for (int i = 0; i < 7; i++)
        room[i] = in[i];
    __syncthreads();
    int2 shared = *(int2 *)(room + 4);
    out[0] = first.x + first.y + first.z + first.w + rest.x + rest.y + in[6];
    out[1] = shared.x + shared.y + room[6];
}

// A stack in local memory that grows beyond the frame of the kernel.
__device__ __forceinline__ void walk(int *out, const int *in, int depth)
{
    int stack[16], top = 0, sum = 0;
    stack[top++] = threadIdx.x;
    for (int step = 1; step < depth; step++) {
        int node = in[(stack[top - 1] + 1) % 32];
        stack[top++] = node; // BUG beyond-frame
    }
    while (top)
        sum ^= stack[--top];
    out[threadIdx.x] = sum;
}
// RUN grid=1 block=32 n=32
KERNEL bug_deep_stack(ARGS) { walk(out, in, n); }
KERNEL fix_deep_stack(ARGS) { walk(out, in, n / 2); }

__constant__ int taps[9] = {1, 2, 3, 4, 5, 4, 3, 2, 1};
__constant__ int gains[4] = {1, 10, 100, 1000};
// A filter of 9 taps, called with 11: the loads reach the table behind it.
// RUN grid=1 block=32 n=44
KERNEL bug_too_many_taps(ARGS)
{
    int sum = 0;
    for (int k = 0; k < n / 4; k++)
        sum += taps[k] * in[threadIdx.x + k]; // BUG beyond-constant
    out[threadIdx.x] = sum * gains[threadIdx.x & 3];
}
KERNEL fix_too_many_taps(ARGS)
{
    int sum = 0;
    const int *table = blockIdx.x ? taps : gains;
    for (int k = 0; k < (n - 8) / 4; k++)
        sum += taps[k] * in[threadIdx.x + k];
    // One loop reads both tables, which lie next to each other.
#pragma unroll 1
    for (int both = 0; both < 2; both++) {
        const int *values = both ? gains : taps;
        const int count = both ? 4 : 9;
#pragma unroll 1
        for (int k = 0; k < count; k++)
            sum += values[k];
    }
    out[threadIdx.x] = sum * gains[threadIdx.x & 3] + table[threadIdx.x & 3];
}
