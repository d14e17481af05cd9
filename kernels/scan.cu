// Inclusive prefix sum of each block's part of `in`: shuffles inside a warp, then over the warps'
// totals. sums[block] = total of the block. The block size is a multiple of 32, at most 1024.
extern "C" __global__ void scan_blocks(const unsigned* in, unsigned* out, unsigned* sums, unsigned n)
{
    __shared__ unsigned totals[32];

    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned lane = threadIdx.x & 31;
    unsigned warp = threadIdx.x >> 5;
    unsigned value = i < n ? in[i] : 0;

    for (unsigned offset = 1; offset < 32; offset <<= 1) {
        unsigned below = __shfl_up_sync(0xffffffffu, value, offset);
        if (lane >= offset)
            value += below;
    }
    if (lane == 31)
        totals[warp] = value;
    __syncthreads();
    if (warp == 0) {
        unsigned total = lane < (blockDim.x >> 5) ? totals[lane] : 0;
        for (unsigned offset = 1; offset < 32; offset <<= 1) {
            unsigned below = __shfl_up_sync(0xffffffffu, total, offset);
            if (lane >= offset)
                total += below;
        }
        totals[lane] = total;
    }
    __syncthreads();
    if (warp > 0)
        value += totals[warp - 1];
    if (i < n)
        out[i] = value;
    if (threadIdx.x == blockDim.x - 1)
        sums[blockIdx.x] = value;
}

// out[i] += sums of all blocks before the one of i: the second pass of a long scan.
extern "C" __global__ void scan_add_offsets(unsigned* out, const unsigned* scanned_sums, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && blockIdx.x > 0)
        out[i] += scanned_sums[blockIdx.x - 1];
}
