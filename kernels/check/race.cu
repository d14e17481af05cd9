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

// A message to another block: the fence must concern both.
// RUN grid=2 block=32 n=64
KERNEL bug_fence_of_block(ARGS)
{
    volatile int *flag = out + 63;
    if (blockIdx.x == 0) {
        raw[threadIdx.x] = in[threadIdx.x];
        __threadfence_block();
        __syncwarp();
        if (threadIdx.x == 0)
            *flag = 1;
    } else {
        while (*flag == 0)
            ;
        __threadfence_block();
        out[threadIdx.x] = raw[threadIdx.x]; // BUG global-race
    }
}
KERNEL fix_fence_of_block(ARGS)
{
    volatile int *flag = out + 63;
    if (blockIdx.x == 0) {
        raw[threadIdx.x] = in[threadIdx.x];
        __threadfence();
        __syncwarp();
        if (threadIdx.x == 0)
            *flag = 1;
    } else {
        while (*flag == 0)
            ;
        __threadfence();
        out[threadIdx.x] = raw[threadIdx.x];
    }
}

// As above, within a block: here the smaller fence is enough.
// RUN grid=1 block=64 n=64
KERNEL bug_acquire_in_block(ARGS)
{
    int *flag = out + 63, seen;
    if (threadIdx.x < 32) {
        raw[threadIdx.x] = in[threadIdx.x];
        __syncwarp();
        if (threadIdx.x == 0)
            asm volatile("st.relaxed.cta.global.s32 [%0], 1;" ::"l"(flag) : "memory");
    } else {
        do
            asm volatile("ld.acquire.cta.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        while (seen == 0);
        out[threadIdx.x - 32] = raw[63 - threadIdx.x]; // BUG global-race
    }
}
KERNEL fix_acquire_in_block(ARGS)
{
    int *flag = out + 63, seen;
    if (threadIdx.x < 32) {
        raw[threadIdx.x] = in[threadIdx.x];
        __syncwarp();
        __threadfence_block();
        if (threadIdx.x == 0)
            asm volatile("st.relaxed.cta.global.s32 [%0], 1;" ::"l"(flag) : "memory");
    } else {
        do
            asm volatile("ld.acquire.cta.global.s32 %0, [%1];" : "=r"(seen) : "l"(flag) : "memory");
        while (seen == 0);
        out[threadIdx.x - 32] = raw[63 - threadIdx.x];
    }
}

// The last block adds the parts of all blocks. One thread takes the ticket, without a fence of its own.
template <bool WAITS, bool ALL> __device__ void last_block(int *out, const int *in, int *raw)
{
    __shared__ bool last;
    int *ticket = out + 255;
    raw[INDEX] = in[INDEX] * 3;
    __threadfence();
    if (WAITS)
        __syncthreads();
    if (threadIdx.x == 0)
        last = (ALL ? atomicAdd(ticket, 1) : atomicAdd_block(ticket, 1)) == gridDim.x - 1;
    __syncthreads();
    if (last) {
        __threadfence();
        int sum = 0;
        for (int block = 0; block < gridDim.x; block++)
            sum += raw[block * blockDim.x + threadIdx.x]; // BUG global-race
        out[threadIdx.x] = sum;
    }
}
// RUN grid=4 block=64 n=256
KERNEL bug_ticket_of_block(ARGS) { last_block<true, false>(out, in, raw); }
KERNEL fix_ticket_of_block(ARGS) { last_block<true, true>(out, in, raw); }

// RUN grid=4 block=64 n=256
KERNEL bug_early_ticket(ARGS)
{
    __shared__ bool last;
    raw[INDEX] = in[INDEX] * 3;
    __threadfence();
    if (threadIdx.x == 0)
        last = atomicAdd(out + 255, 1) == gridDim.x - 1;
    __syncthreads();
    if (last) {
        __threadfence();
        out[threadIdx.x] = raw[threadIdx.x] + raw[192 + threadIdx.x]; // BUG global-race
    }
}
KERNEL fix_early_ticket(ARGS) { last_block<true, true>(out, in, raw); }

template <int PENDING> __device__ void copy(int *out, const int *in)
{
    __shared__ int room[64];
    unsigned to = (unsigned)__cvta_generic_to_shared(room + threadIdx.x);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(in + threadIdx.x) : "memory");
    asm volatile("cp.async.commit_group; cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
    __syncthreads();
    out[threadIdx.x] = room[63 - threadIdx.x]; // BUG shared-race
}
// RUN grid=1 block=64 n=64
KERNEL bug_copy_in_flight(ARGS) { copy<1>(out, in); }
KERNEL fix_copy_in_flight(ARGS) { copy<0>(out, in); }

// Two stages: while one is copied, the other is read.
template <int PENDING> __device__ void stages(int *out, const int *in)
{
    __shared__ int room[2][64];
    int sum = 0;
    for (int turn = 0; turn <= 4; turn++) {
        unsigned to = (unsigned)__cvta_generic_to_shared(&room[turn & 1][threadIdx.x]);
        if (turn < 4)
            asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                         ::"r"(to), "l"(in + 64 * turn + threadIdx.x) : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
        if (turn == 0)
            continue;
        asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
        __syncthreads();
        sum += room[(turn - 1) & 1][63 - threadIdx.x]; // BUG shared-race
        __syncthreads();
    }
    out[threadIdx.x] = sum;
}
// RUN grid=1 block=64 n=256
KERNEL bug_stages(ARGS) { stages<2>(out, in); }
KERNEL fix_stages(ARGS) { stages<1>(out, in); }

// The consumers poll the barrier before the first producer arrives. Producers must arrive after their copies.
template <bool AFTER> __device__ void consume(int *out, const int *in)
{
    __shared__ long long full;
    long long state;
    __shared__ int room[64];
    unsigned barrier = (unsigned)__cvta_generic_to_shared(&full);
    int place = threadIdx.x % 64, done;
    if (threadIdx.x == 0)
        asm volatile("mbarrier.init.shared.b64 [%0], 64;" ::"r"(barrier) : "memory");
    __syncthreads();
    if (threadIdx.x < 64) {
        do
            asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p; }"
                         : "=r"(done)
                         : "r"(barrier), "r"(0)
                         : "memory");
        while (!done);
        out[place] = room[63 - place]; // BUG shared-race
    } else {
        unsigned to = (unsigned)__cvta_generic_to_shared(room + place);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(in + place) : "memory");
        if (AFTER)
            asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
        else
            asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(barrier) : "memory");
    }
}
// RUN grid=1 block=128 n=64
KERNEL bug_arrival_before_copy(ARGS) { consume<false>(out, in); }
KERNEL fix_arrival_before_copy(ARGS) { consume<true>(out, in); }

// Compilers let warps that hold the same values store all of them.
// RUN grid=1 block=64 n=64
KERNEL bug_twice(ARGS)
{
    __shared__ int room[32];
    room[threadIdx.x % 32] = in[threadIdx.x]; // BUG shared-race
    __syncthreads();
    out[threadIdx.x] = room[threadIdx.x % 32];
}
KERNEL fix_twice(ARGS)
{
    __shared__ int room[32];
    room[threadIdx.x % 32] = in[threadIdx.x % 32];
    __syncthreads();
    out[threadIdx.x] = room[threadIdx.x % 32];
}
