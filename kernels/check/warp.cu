// nvrtc: --std=c++17
// Races between threads of a warp, which usually runs in lockstep, each with its repaired twin. See mem.cu.

#define KERNEL extern "C" __global__ void
#define ARGS int *out, const int *in, int *raw, int *freed, int n

// RUN grid=1 block=64 n=64
KERNEL bug_exchange(ARGS)
{
    __shared__ int room[64];
    room[threadIdx.x] = in[threadIdx.x];
    out[threadIdx.x] = room[threadIdx.x ^ 1]; // BUG warp-race
}
KERNEL fix_exchange(ARGS)
{
    __shared__ int room[64];
    room[threadIdx.x] = in[threadIdx.x];
    __syncwarp();
    out[threadIdx.x] = room[threadIdx.x ^ 1];
}

// The sum of a warp, as before Volta: volatile does not order the lanes.
// RUN grid=1 block=32 n=32
KERNEL bug_volatile_sum(ARGS)
{
    __shared__ volatile int room[64];
    room[threadIdx.x] = in[threadIdx.x];
    room[threadIdx.x + 32] = 0;
    for (int step = 16; step > 0; step /= 2)
        room[threadIdx.x] += room[threadIdx.x + step]; // BUG warp-race
    if (threadIdx.x == 0)
        out[0] = room[0];
}
KERNEL fix_volatile_sum(ARGS)
{
    __shared__ int room[64];
    room[threadIdx.x] = in[threadIdx.x];
    room[threadIdx.x + 32] = 0;
    __syncwarp();
    for (int step = 16; step > 0; step /= 2) {
        int other = room[threadIdx.x + step];
        __syncwarp();
        room[threadIdx.x] += other;
        __syncwarp();
    }
    if (threadIdx.x == 0)
        out[0] = room[0];
}

// A second tile overwrites the first one, which slower lanes may still read.
// RUN grid=1 block=32 n=64
KERNEL bug_reuse(ARGS)
{
    __shared__ int room[32];
    int sum = 0;
    for (int tile = 0; tile < 2; tile++) {
        room[threadIdx.x] = in[32 * tile + threadIdx.x]; // BUG warp-race
        __syncwarp();
        sum += room[31 - threadIdx.x];
    }
    out[threadIdx.x] = sum;
}
KERNEL fix_reuse(ARGS)
{
    __shared__ int room[32];
    int sum = 0;
    for (int tile = 0; tile < 2; tile++) {
        room[threadIdx.x] = in[32 * tile + threadIdx.x];
        __syncwarp();
        sum += room[31 - threadIdx.x];
        __syncwarp();
    }
    out[threadIdx.x] = sum;
}

// The end of a branch does not order memory.
// RUN grid=1 block=32 n=32
KERNEL bug_leader(ARGS)
{
    __shared__ int total;
    int sum = in[threadIdx.x];
    if (threadIdx.x == 0)
        total = sum + 1;
    out[threadIdx.x] = total + sum; // BUG warp-race
}
KERNEL fix_leader(ARGS)
{
    __shared__ int total;
    int sum = in[threadIdx.x];
    if (threadIdx.x == 0)
        total = sum + 1;
    __syncwarp();
    out[threadIdx.x] = total + sum;
}

// Barriers of the block order lanes as well.
// RUN grid=1 block=64 n=64
KERNEL bug_counter_of_warp(ARGS)
{
    __shared__ int count;
    if (threadIdx.x == 0)
        count = 0;
    __syncthreads();
    if (threadIdx.x % 2)
        atomicAdd(&count, 1);
    if (threadIdx.x < 32)
        out[threadIdx.x] = *(volatile int *)&count >= 0; // BUG warp-race
}
KERNEL fix_counter_of_warp(ARGS)
{
    __shared__ unsigned long long count;
    if (threadIdx.x == 0)
        count = 0;
    __syncthreads();
    if (threadIdx.x % 2)
        atomicAdd(&count, 1ull);
    __syncthreads();
    if (threadIdx.x < 32)
        out[threadIdx.x] = *(volatile unsigned long long *)&count < 64;
}
