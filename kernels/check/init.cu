// nvrtc: --std=c++17
// Loads of memory that was never written, each with its repaired twin. See mem.cu.

#define KERNEL extern "C" __global__ void
#define ARGS int *out, const int *in, int *raw, int *freed, int n
#define INDEX (int)(blockIdx.x * blockDim.x + threadIdx.x)

// RUN grid=1 block=64 n=64
KERNEL bug_plain(ARGS)
{
    out[threadIdx.x] = raw[threadIdx.x]; // BUG uninitialised
}
KERNEL fix_plain(ARGS)
{
    out[threadIdx.x] = in[threadIdx.x];
}

// RUN grid=1 block=64 n=64
KERNEL bug_half_written(ARGS)
{
    if (threadIdx.x < 32)
        raw[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = raw[63 - threadIdx.x]; // BUG uninitialised
}
KERNEL fix_half_written(ARGS)
{
    raw[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = raw[63 - threadIdx.x];
}

// RUN grid=1 block=64 n=64
KERNEL bug_fourth_byte(ARGS)
{
    for (int byte = 0; byte < 3; byte++)
        ((volatile char *)raw)[4 * threadIdx.x + byte] = byte;
    out[threadIdx.x] = ((volatile int *)raw)[threadIdx.x]; // BUG uninitialised
}
KERNEL fix_fourth_byte(ARGS)
{
    for (int byte = 0; byte < 4; byte++)
        ((volatile char *)raw)[4 * threadIdx.x + byte] = byte;
    out[threadIdx.x] = ((volatile int *)raw)[threadIdx.x];
}

// RUN grid=1 block=64 n=64
KERNEL bug_atomic(ARGS)
{
    atomicAdd(&raw[threadIdx.x % 4], in[threadIdx.x]); // BUG uninitialised
}
KERNEL fix_atomic(ARGS)
{
    atomicAdd(&out[threadIdx.x % 4], in[threadIdx.x]);
}

// RUN grid=1 block=16 n=64
KERNEL bug_half_of_four(ARGS)
{
    raw[4 * threadIdx.x] = 1;
    raw[4 * threadIdx.x + 1] = 2;
    __threadfence();
    int4 four = ((int4 *)raw)[threadIdx.x]; // BUG uninitialised
    out[threadIdx.x] = four.x + four.y + four.z + four.w;
}
KERNEL fix_half_of_four(ARGS)
{
    for (int i = 0; i < 4; i++)
        raw[4 * threadIdx.x + i] = i;
    __threadfence();
    int4 four = ((int4 *)raw)[threadIdx.x];
    out[threadIdx.x] = four.x + four.y + four.z + four.w;
}

// RUN grid=1 block=64 n=64
KERNEL bug_condition(ARGS)
{
    if (in[threadIdx.x] % 2 == 0)
        raw[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = raw[threadIdx.x ^ 2]; // BUG uninitialised
}
KERNEL fix_condition(ARGS)
{
    raw[threadIdx.x] = in[threadIdx.x] % 2 == 0;
    __syncthreads();
    out[threadIdx.x] = raw[threadIdx.x ^ 2];
}

// RUN grid=1 block=64 n=64
KERNEL bug_last_element(ARGS)
{
    if (threadIdx.x < n - 1)
        raw[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int i = 0; i < n; i++)
            out[0] += raw[i]; // BUG uninitialised
}
KERNEL fix_last_element(ARGS)
{
    if (threadIdx.x < n)
        raw[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int i = 0; i < n; i++)
            out[0] += raw[i];
}

// RUN grid=1 block=64 n=64
KERNEL bug_border(ARGS)
{
    if (threadIdx.x > 0 && threadIdx.x < 63)
        raw[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 63)
        out[threadIdx.x] = raw[threadIdx.x + 1]; // BUG uninitialised
}
KERNEL fix_border(ARGS)
{
    raw[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 63)
        out[threadIdx.x] = raw[threadIdx.x + 1];
}

// RUN grid=1 block=64 n=64
KERNEL bug_generic(ARGS)
{
    __shared__ int room[64];
    room[threadIdx.x] = threadIdx.x;
    __syncthreads();
    const volatile int *source = in[threadIdx.x] < 8 ? room : raw;
    out[threadIdx.x] = source[threadIdx.x]; // BUG uninitialised
}
KERNEL fix_generic(ARGS)
{
    __shared__ int room[64];
    room[threadIdx.x] = threadIdx.x;
    __syncthreads();
    const volatile int *source = in[threadIdx.x] < 8 ? room : in;
    out[threadIdx.x] = source[threadIdx.x];
}

// RUN grid=1 block=64 n=72
KERNEL bug_columns(ARGS)
{
    int x = threadIdx.x % 9, y = threadIdx.x / 9;
    if (x < 8 && y < 7)
        raw[9 * y + x] = x;
    __syncthreads();
    if (y < 7)
        out[threadIdx.x] = raw[9 * y + 8 - x]; // BUG uninitialised
}
KERNEL fix_columns(ARGS)
{
    int x = threadIdx.x % 9, y = threadIdx.x / 9;
    if (y < 7)
        raw[9 * y + x] = x;
    __syncthreads();
    if (y < 7)
        out[threadIdx.x] = raw[9 * y + 8 - x];
}

// RUN grid=1 block=64 n=64
KERNEL bug_short(ARGS)
{
    ((volatile short *)raw)[2 * threadIdx.x] = 7;
    out[threadIdx.x] = ((volatile unsigned char *)raw)[4 * threadIdx.x + 2]; // BUG uninitialised
}
KERNEL fix_short(ARGS)
{
    ((volatile short *)raw)[2 * threadIdx.x] = 7;
    out[threadIdx.x] = ((volatile unsigned char *)raw)[4 * threadIdx.x + 1];
}

// RUN grid=1 block=32 n=64
KERNEL bug_async_copy(ARGS)
{
    __shared__ int room[32];
    unsigned to = (unsigned)__cvta_generic_to_shared(&room[threadIdx.x]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(raw + threadIdx.x)); // BUG uninitialised
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    out[threadIdx.x] = room[31 - threadIdx.x];
}
KERNEL fix_async_copy(ARGS)
{
    __shared__ int room[32];
    unsigned to = (unsigned)__cvta_generic_to_shared(&room[threadIdx.x]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(in + threadIdx.x));
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    out[threadIdx.x] = room[31 - threadIdx.x];
}

// RUN grid=1 block=32 n=64
KERNEL bug_double_word(ARGS)
{
    ((volatile int *)raw)[2 * threadIdx.x] = 1;
    out[threadIdx.x] = (int)(((volatile long long *)raw)[threadIdx.x] >> 8); // BUG uninitialised
}
KERNEL fix_double_word(ARGS)
{
    ((volatile int *)raw)[2 * threadIdx.x] = 1;
    ((volatile int *)raw)[2 * threadIdx.x + 1] = 1;
    out[threadIdx.x] = (int)(((volatile long long *)raw)[threadIdx.x] >> 8);
}

struct Entry {
    char tag;
    int value;
    double weight;
};
// Nothing writes the padding of a struct. It is copied with it.
// RUN grid=1 block=16 n=64
KERNEL bug_field(ARGS)
{
    Entry *entries = (Entry *)raw;
    entries[threadIdx.x].tag = 1;
    entries[threadIdx.x].weight = 2;
    __syncthreads();
    out[threadIdx.x] = entries[15 - threadIdx.x].value; // BUG uninitialised
}
KERNEL fix_field(ARGS)
{
    Entry *entries = (Entry *)raw;
    entries[threadIdx.x].tag = 1;
    entries[threadIdx.x].value = in[threadIdx.x];
    entries[threadIdx.x].weight = 2;
    __syncthreads();
    ((Entry *)out)[threadIdx.x] = entries[15 - threadIdx.x];
}

struct Sample {
    char tag;
    double value;
};
// The words of a struct, copied one by one. The second one is padding.
// RUN grid=1 block=8 n=64
KERNEL bug_words(ARGS)
{
    raw[4 * threadIdx.x] = 1;
    __syncthreads();
    out[4 * threadIdx.x] = raw[28 - 4 * threadIdx.x];
    out[4 * threadIdx.x + 1] = raw[28 - 4 * threadIdx.x + 1]; // BUG uninitialised
}
KERNEL fix_words(ARGS)
{
    Sample *samples = (Sample *)raw, *copies = (Sample *)out;
    samples[threadIdx.x].tag = 1;
    samples[threadIdx.x].value = 2;
    __syncthreads();
    Sample sample = samples[7 - threadIdx.x];
    sample.value += in[threadIdx.x];
    copies[threadIdx.x] = sample;
    __syncthreads();
    copies[threadIdx.x] = samples[threadIdx.x];
}
