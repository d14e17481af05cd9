// nvrtc: --std=c++17
// Data races, each with its repaired twin. See mem.cu.

#define KERNEL extern "C" __global__ void
#define ARGS int *out, const int *in, int *raw, int *freed, int n
#define INDEX (int)(blockIdx.x * blockDim.x + threadIdx.x)

// RUN grid=1 block=64 n=64
KERNEL bug_neighbour(ARGS)
{
    __shared__ int room[64];
    room[threadIdx.x] = in[threadIdx.x];
    out[threadIdx.x] = room[63 - threadIdx.x]; // BUG shared-race
}
KERNEL fix_neighbour(ARGS)
{
    __shared__ int room[64];
    room[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = room[63 - threadIdx.x];
}

// RUN grid=1 block=64 n=64
KERNEL bug_overwrite(ARGS)
{
    __shared__ int room[64];
    int sum = 0;
    for (int turn = 0; turn < 3; turn++) {
        room[threadIdx.x] = in[threadIdx.x] + turn; // BUG shared-race
        __syncthreads();
        sum += room[63 - threadIdx.x];
    }
    out[threadIdx.x] = sum;
}
KERNEL fix_overwrite(ARGS)
{
    __shared__ int room[64];
    int sum = 0;
    for (int turn = 0; turn < 3; turn++) {
        room[threadIdx.x] = in[threadIdx.x] + turn;
        __syncthreads();
        sum += room[63 - threadIdx.x];
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}

// RUN grid=1 block=128 n=128
KERNEL bug_reduction(ARGS)
{
    __shared__ int room[128];
    room[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    for (int step = 64; step > 0; step /= 2)
        if (threadIdx.x < step)
            room[threadIdx.x] += room[threadIdx.x + step]; // BUG shared-race
    if (threadIdx.x == 0)
        out[0] = room[0];
}
KERNEL fix_reduction(ARGS)
{
    __shared__ int room[128];
    room[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    for (int step = 64; step > 0; step /= 2) {
        if (threadIdx.x < step)
            room[threadIdx.x] += room[threadIdx.x + step];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        out[0] = room[0];
}

// RUN grid=1 block=64 n=64
KERNEL bug_same_word(ARGS)
{
    __shared__ int last;
    if (threadIdx.x % 32 == 0)
        last = threadIdx.x; // BUG shared-race
    __syncthreads();
    out[threadIdx.x] = last;
}
KERNEL fix_same_word(ARGS)
{
    __shared__ int last;
    if (threadIdx.x == 0)
        last = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = last;
}

// RUN grid=1 block=128 n=128
KERNEL bug_histogram(ARGS)
{
    __shared__ int bins[8];
    if (threadIdx.x < 8)
        bins[threadIdx.x] = 0;
    __syncthreads();
    bins[in[threadIdx.x] % 8] += 1; // BUG shared-race
    __syncthreads();
    if (threadIdx.x < 8)
        out[threadIdx.x] = bins[threadIdx.x];
}
KERNEL fix_histogram(ARGS)
{
    __shared__ int bins[8];
    if (threadIdx.x < 8)
        bins[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&bins[in[threadIdx.x] % 8], 1);
    __syncthreads();
    if (threadIdx.x < 8)
        out[threadIdx.x] = bins[threadIdx.x];
}

// RUN grid=4 block=64 n=256
KERNEL bug_other_block(ARGS)
{
    int i = INDEX;
    out[i] = i;
    __syncthreads();
    raw[i] = out[(i + 64) % n]; // BUG global-race
}
KERNEL fix_other_block(ARGS)
{
    int i = INDEX;
    out[i] = i;
    __syncthreads();
    raw[i] = out[i ^ 63];
}

// RUN grid=2 block=64 n=64
KERNEL bug_counter(ARGS)
{
    out[0] += in[threadIdx.x]; // BUG global-race
}
KERNEL fix_counter(ARGS)
{
    atomicAdd(&out[0], in[threadIdx.x]);
}

// RUN grid=2 block=32 n=64
KERNEL bug_flag(ARGS)
{
    volatile int *flag = &out[63];
    if (blockIdx.x == 0) {
        out[threadIdx.x] = in[threadIdx.x];
        if (threadIdx.x == 0)
            *flag = 1;
    } else {
        while (*flag == 0)
            ;
        out[32 + threadIdx.x % 8] = out[threadIdx.x % 8]; // BUG global-race
    }
}
KERNEL fix_flag(ARGS)
{
    volatile int *flag = &out[63];
    if (blockIdx.x == 0) {
        out[threadIdx.x] = in[threadIdx.x];
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0)
            *flag = 1;
    } else {
        while (*flag == 0)
            ;
        __threadfence();
        out[32 + threadIdx.x % 8] = out[threadIdx.x % 8];
    }
}

// RUN grid=1 block=64 n=64
KERNEL bug_bytes(ARGS)
{
    ((char *)out)[threadIdx.x / 2 + threadIdx.x / 32] = threadIdx.x; // BUG global-race
    ((char *)out)[threadIdx.x % 32 + 1] = 1;
}
KERNEL fix_bytes(ARGS)
{
    ((char *)out)[2 * (threadIdx.x % 32) + threadIdx.x / 32] = threadIdx.x;
}

// RUN grid=1 block=64 n=64
KERNEL bug_double_buffer(ARGS)
{
    __shared__ int room[2][64];
    int sum = 0;
    room[0][threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    for (int turn = 0; turn < 4; turn++) {
        room[1 - turn % 2][threadIdx.x] = turn;
        sum += room[1 - turn % 2][63 - threadIdx.x]; // BUG shared-race
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}
KERNEL fix_double_buffer(ARGS)
{
    __shared__ int room[2][64];
    int sum = 0;
    room[0][threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    for (int turn = 0; turn < 4; turn++) {
        room[1 - turn % 2][threadIdx.x] = turn;
        sum += room[turn % 2][63 - threadIdx.x];
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}

// RUN grid=1 block=256 n=256
KERNEL bug_transpose(ARGS)
{
    __shared__ int tile[16][17];
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    tile[y][x] = in[threadIdx.x];
    out[threadIdx.x] = tile[x][y]; // BUG shared-race
}
KERNEL fix_transpose(ARGS)
{
    __shared__ int tile[16][17];
    int x = threadIdx.x % 16, y = threadIdx.x / 16;
    tile[y][x] = in[threadIdx.x];
    __syncthreads();
    out[threadIdx.x] = tile[x][y];
}

// RUN grid=1 block=128 n=128
KERNEL bug_scan(ARGS)
{
    __shared__ int room[128];
    int i = threadIdx.x;
    room[i] = in[i];
    __syncthreads();
    for (int step = 1; step < 128; step *= 2) {
        int other = i >= step ? room[i - step] : 0;
        room[i] += other; // BUG shared-race
        __syncthreads();
    }
    out[i] = room[i];
}
KERNEL fix_scan(ARGS)
{
    __shared__ int room[128];
    int i = threadIdx.x;
    room[i] = in[i];
    __syncthreads();
    for (int step = 1; step < 128; step *= 2) {
        int other = i >= step ? room[i - step] : 0;
        __syncthreads();
        room[i] += other;
        __syncthreads();
    }
    out[i] = room[i];
}

// RUN grid=1 block=96 n=96
KERNEL bug_named_barrier(ARGS)
{
    __shared__ int room[32];
    if (threadIdx.x < 32) {
        room[threadIdx.x] = in[threadIdx.x];
        asm volatile("bar.arrive 1, 64;" ::: "memory");
    } else if (threadIdx.x < 64) {
        asm volatile("bar.sync 1, 64;" ::: "memory");
        out[threadIdx.x] = room[threadIdx.x - 32];
    } else {
        out[threadIdx.x] = room[threadIdx.x - 64]; // BUG shared-race
    }
}
KERNEL fix_named_barrier(ARGS)
{
    __shared__ int room[32];
    if (threadIdx.x < 32) {
        room[threadIdx.x] = in[threadIdx.x];
        asm volatile("bar.arrive 1, 96;" ::: "memory");
    } else if (threadIdx.x < 64) {
        asm volatile("bar.sync 1, 96;" ::: "memory");
        out[threadIdx.x] = room[threadIdx.x - 32];
    } else {
        asm volatile("bar.sync 1, 96;" ::: "memory");
        out[threadIdx.x] = room[threadIdx.x - 64];
    }
}

// RUN grid=1 block=64 n=64
KERNEL bug_atomic_then_read(ARGS)
{
    __shared__ int total;
    if (threadIdx.x == 0)
        total = 0;
    __syncthreads();
    if (threadIdx.x < 32)
        atomicAdd(&total, in[threadIdx.x]);
    else
        out[threadIdx.x] = total; // BUG shared-race
}
KERNEL fix_atomic_then_read(ARGS)
{
    __shared__ int total;
    if (threadIdx.x == 0)
        total = 0;
    __syncthreads();
    if (threadIdx.x < 32)
        atomicAdd(&total, in[threadIdx.x]);
    __syncthreads();
    if (threadIdx.x >= 32)
        out[threadIdx.x] = total;
}

// RUN grid=4 block=32 n=64
KERNEL bug_last_block(ARGS)
{
    if (threadIdx.x == 0) {
        raw[blockIdx.x] = in[blockIdx.x];
        if (atomicAdd(&out[0], 1) == 3)
            out[1] = raw[0] + raw[1] + raw[2] + raw[3]; // BUG global-race
    }
}
KERNEL fix_last_block(ARGS)
{
    if (threadIdx.x == 0) {
        raw[blockIdx.x] = in[blockIdx.x];
        __threadfence();
        if (atomicAdd(&out[0], 1) == 3) {
            __threadfence();
            out[1] = raw[0] + raw[1] + raw[2] + raw[3];
        }
    }
}

// RUN grid=1 block=64 n=64
KERNEL bug_broadcast(ARGS)
{
    __shared__ int value;
    if (threadIdx.x == 0)
        value = in[3];
    out[threadIdx.x] = value; // BUG shared-race
}
KERNEL fix_broadcast(ARGS)
{
    __shared__ int value;
    if (threadIdx.x == 0)
        value = in[3];
    __syncthreads();
    out[threadIdx.x] = value;
}
