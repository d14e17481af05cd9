// The smallest programs: launch overhead, ordering of launches, and which thread runs where.

// Nothing at all.
extern "C" __global__ void empty()
{
}

// out[i] = value for i < n.
extern "C" __global__ void fill_u32(unsigned* out, unsigned value, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = value;
}

// out[i] = i * i + 1 for i < n.
extern "C" __global__ void square_plus_one(unsigned* out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = i * i + 1;
}

// data[i] += 1 for i < n: launches that overlap or get lost show in the sum.
extern "C" __global__ void increment(unsigned* data, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        data[i] += 1;
}

// Busy for about `rounds` dependent steps, then stores the last value: a launch of chosen length.
extern "C" __global__ void spin(unsigned* out, unsigned rounds)
{
    unsigned x = threadIdx.x + 1;
    for (unsigned r = 0; r < rounds; ++r)
        x = x * 1664525u + 1013904223u;
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}

// For every thread of a 3D grid of 3D blocks, eight words: block x, y, z, thread x, y, z, the
// linear block size and the linear grid size.
extern "C" __global__ void thread_ids(unsigned* out)
{
    unsigned threads = blockDim.x * blockDim.y * blockDim.z;
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned* o = out + (block * threads + thread) * 8;
    o[0] = blockIdx.x;
    o[1] = blockIdx.y;
    o[2] = blockIdx.z;
    o[3] = threadIdx.x;
    o[4] = threadIdx.y;
    o[5] = threadIdx.z;
    o[6] = threads;
    o[7] = gridDim.x * gridDim.y * gridDim.z;
}
