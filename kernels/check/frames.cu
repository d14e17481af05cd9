// nvrtc: --std=c++17
// Errors in local memory and in called functions, each with its repaired twin; also compiled for debugging. See mem.cu.

#define KERNEL extern "C" __global__ void
#define ARGS int *out, const int *in, int *raw, int *freed, int n

// RUN grid=1 block=32 n=32
KERNEL bug_below_frame(ARGS)
{
    int values[16];
    for (int i = 0; i < 16; i++)
        values[i] = in[i];
    values[in[threadIdx.x] - 4] = n; // BUG beyond-frame
    for (int i = 0; i < 16; i++)
        out[threadIdx.x] += values[(i + threadIdx.x) % 16];
}
KERNEL fix_below_frame(ARGS)
{
    int values[16];
    for (int i = 0; i < 16; i++)
        values[i] = in[i];
    values[in[threadIdx.x] / 2] = n;
    for (int i = 0; i < 16; i++)
        out[threadIdx.x] += values[(i + threadIdx.x) % 16];
}

__device__ __noinline__ int at(const int *from, int index)
{
    return from[index]; // BUG out-of-bounds
}
// RUN grid=1 block=32 n=32
KERNEL bug_in_callee(ARGS)
{
    out[threadIdx.x] = at(in, threadIdx.x + 2);
}
KERNEL fix_in_callee(ARGS)
{
    out[threadIdx.x] = at(in, threadIdx.x / 2);
}
