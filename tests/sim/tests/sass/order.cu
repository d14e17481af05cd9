// Kernels whose results depend on the order in which the blocks of a grid reach memory.

// One sum in single precision, of numbers of very different size.
extern "C" __global__ void sum_atomic(const float* in, float* sum)
{
    atomicAdd(sum, in[blockIdx.x * blockDim.x + threadIdx.x]);
}

// The block that arrives last adds up what all have left; it also says who it was.
extern "C" __global__ void last_block(const float* in, float* partial, unsigned* arrived, float* sum,
                                      unsigned* who)
{
    __shared__ bool last;
    if (threadIdx.x == 0) {
        float own = 0;
        for (unsigned at = 0; at < 64; at++)
            own += in[64 * blockIdx.x + at];
        partial[blockIdx.x] = own;
        __threadfence();
        last = atomicInc(arrived, gridDim.x) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float all = 0;
        for (unsigned block = 0; block < gridDim.x; block++)
            all += partial[block];
        *sum = all;
        *who = blockIdx.x;
    }
}

// Blocks fetch pieces of work from a queue: owner[i] = block that did piece i, with its result beside.
extern "C" __global__ void work_queue(unsigned* next, unsigned pieces, unsigned* owner, unsigned* result)
{
    __shared__ unsigned piece;
    for (;;) {
        if (threadIdx.x == 0)
            piece = atomicAdd(next, 1u);
        __syncthreads();
        if (piece >= pieces)
            return;
        unsigned x = piece * blockDim.x + threadIdx.x;
        for (unsigned round = 0; round < 10 + piece % 7 * 20; round++)
            x = x * 1664525u + 1013904223u;
        result[piece * blockDim.x + threadIdx.x] = x;
        if (threadIdx.x == 0)
            owner[piece] = blockIdx.x;
        __syncthreads();
    }
}

// Each block waits for the one before it and passes a number on; all must be resident.
extern "C" __global__ void chain(volatile unsigned* flags, volatile unsigned* values)
{
    if (threadIdx.x == 0) {
        unsigned carried = 1;
        if (blockIdx.x > 0) {
            while (flags[blockIdx.x - 1] == 0) {
            }
            __threadfence();
            carried = values[blockIdx.x - 1];
        }
        values[blockIdx.x] = carried * 3 + blockIdx.x;
        __threadfence();
        flags[blockIdx.x] = 1;
    }
}

// Reductions that commute: order does not matter.
extern "C" __global__ void commuting(const unsigned* in, unsigned* out)
{
    unsigned value = in[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(&out[0], value);
    atomicMin(&out[1], value);
    atomicMax(&out[2], value);
    atomicAnd(&out[3], value | 0xff);
    atomicOr(&out[4], value & 0x0f0f0f0f);
    atomicXor(&out[5], value);
    atomicMin((int*)&out[6], (int)value);
    atomicMax((int*)&out[7], (int)value);
}

// Whoever comes last wins.
extern "C" __global__ void last_writer(unsigned* word, volatile unsigned* cell)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicExch(word, i);
    cell[0] = i * 7;
    atomicInc(&word[1], 1000u);
}
