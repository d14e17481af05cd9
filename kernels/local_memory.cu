// Arrays indexed at run time live in local memory.

// out[i] = the element of a private table of 64 that three dependent steps lead to.
extern "C" __global__ void local_table(const unsigned* in, unsigned* out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned table[64];
#pragma unroll 1
    for (unsigned j = 0; j < 64; ++j)
        table[j] = in[j] * 7 + i;
    unsigned at = i & 63;
#pragma unroll 1
    for (unsigned step = 0; step < 3; ++step)
        at = table[at] & 63;
    out[i] = table[at];
}

// Sorts eight words of each thread by insertion, in private memory.
extern "C" __global__ void local_sort8(unsigned* data, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned v[8];
    for (unsigned j = 0; j < 8; ++j)
        v[j] = data[i * 8 + j];
#pragma unroll 1
    for (int j = 1; j < 8; ++j) {
        unsigned key = v[j];
        int k = j - 1;
        while (k >= 0 && v[k] > key) {
            v[k + 1] = v[k];
            --k;
        }
        v[k + 1] = key;
    }
    for (unsigned j = 0; j < 8; ++j)
        data[i * 8 + j] = v[j];
}

// A generic pointer that is shared, local or global by `which` (0, 1, 2): out[i] = element i & 7.
extern "C" __global__ void generic_pointer(const unsigned* in, unsigned* out, unsigned which)
{
    __shared__ unsigned shared[8];
    unsigned local[8];
    unsigned t = threadIdx.x;
    for (unsigned j = 0; j < 8; ++j)
        local[j] = in[j] + 200;
    if (t < 8)
        shared[t] = in[t] + 100;
    __syncthreads();
    const unsigned* from = which == 0 ? shared : which == 1 ? local : in;
    out[blockIdx.x * blockDim.x + t] = from[t & 7];
}
