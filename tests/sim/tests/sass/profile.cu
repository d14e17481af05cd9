// Kernels whose profiles are known. Compiled with --generate-line-info; the tests name lines by their comments.

// Each thread loads a word `stride` words from the last thread's.
extern "C" __global__ void strided(unsigned* out, const unsigned* in, unsigned stride)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned x = in[i * stride]; // LOAD
    out[i] = x; // STORE
}

// The lanes of a warp store words of shared memory that are `stride` words apart.
extern "C" __global__ void banks(unsigned* out, unsigned stride)
{
    __shared__ unsigned room[1024];
    room[threadIdx.x * stride & 1023] = threadIdx.x; // SHARED
    __syncthreads();
    out[threadIdx.x] = room[threadIdx.x]; // BACK
}

// Accesses of 8 and of 16 bytes to shared memory, without conflicts.
extern "C" __global__ void wide(uint4* out, const uint4* in)
{
    __shared__ uint4 room[32];
    __shared__ uint2 half[32];
    unsigned t = threadIdx.x;
    room[t] = in[t]; // FOUR
    half[t] = make_uint2(t, t); // TWO
    __syncthreads();
    uint4 x = room[t ^ 1];
    uint2 y = half[t ^ 1];
    out[t] = make_uint4(x.x, x.y, y.x, y.y);
}

// Lane t of a warp goes t % 4 times through the loop.
extern "C" __global__ void rounds(unsigned* out)
{
    unsigned x = threadIdx.x;
#pragma unroll 1
    for (unsigned left = threadIdx.x % 4; left; left--) // LOOP
        x = x * 5 ^ x >> 3;
    out[threadIdx.x] = x;
}

// Threads from n on do not store.
extern "C" __global__ void guarded(unsigned* out, unsigned n)
{
    if (threadIdx.x < n)
        out[threadIdx.x] = threadIdx.x; // GUARDED
}

// Eight lanes share each word.
extern "C" __global__ void counters(unsigned* out)
{
    __shared__ unsigned room[4];
    if (threadIdx.x < 4)
        room[threadIdx.x] = 0;
    __syncthreads();
    atomicMax(&room[threadIdx.x % 4], threadIdx.x); // MEET
    __syncthreads();
    atomicAdd(&out[threadIdx.x % 8], room[threadIdx.x % 4]); // SUM
}

// An array that is not in registers.
extern "C" __global__ void frame(unsigned* out, unsigned at)
{
    unsigned room[1024], x;
    unsigned long long to;
    asm volatile("cvta.to.local.u64 %0, %1;" : "=l"(to) : "l"(room));
    asm volatile("st.local.u32 [%0 + 4], %1;" ::"l"(to), "r"(at) : "memory"); // SAME
    asm volatile("ld.local.u32 %0, [%1];" : "=r"(x) : "l"(to + (threadIdx.x & 1) * 4 + at) : "memory"); // OTHER
    out[threadIdx.x] = x;
}

// An asynchronous copy of 16 bytes per thread.
extern "C" __global__ void copied(uint4* out, const uint4* in)
{
    __shared__ uint4 room[32];
    unsigned to = (unsigned)__cvta_generic_to_shared(&room[threadIdx.x]);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(in + threadIdx.x)); // ASYNC
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    out[threadIdx.x] = room[threadIdx.x ^ 1];
}
