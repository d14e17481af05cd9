// Reductions: shuffles inside a warp, shared memory between warps, one atomic per block.
// Block sizes are multiples of 32, at most 1024.

__device__ __forceinline__ float warp_sum(float value)
{
    for (int offset = 16; offset > 0; offset >>= 1)
        value += __shfl_down_sync(0xffffffffu, value, offset);
    return value;
}

// *out += sum of in[0..n].
extern "C" __global__ void reduce_sum_f32(const float* in, float* out, unsigned n)
{
    __shared__ float partial[32];

    float value = 0.0f;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        value += in[i];

    unsigned lane = threadIdx.x & 31;
    unsigned warp = threadIdx.x >> 5;
    value = warp_sum(value);
    if (lane == 0)
        partial[warp] = value;
    __syncthreads();
    if (warp == 0) {
        value = lane < (blockDim.x >> 5) ? partial[lane] : 0.0f;
        value = warp_sum(value);
        if (lane == 0)
            atomicAdd(out, value);
    }
}

// *out = max(*out, in[0..n]), by the warp-wide integer reduction of sm_80.
extern "C" __global__ void reduce_max_u32(const unsigned* in, unsigned* out, unsigned n)
{
    unsigned value = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        value = max(value, in[i]);
    value = __reduce_max_sync(0xffffffffu, value);
    if ((threadIdx.x & 31) == 0)
        atomicMax(out, value);
}

// out[0] = number of i < n with in[i] != 0, out[1] = number of warps in which all are.
// The block covers n exactly or beyond.
extern "C" __global__ void count_votes(const unsigned* in, unsigned* out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    bool set = i < n && in[i] != 0;
    unsigned votes = __ballot_sync(0xffffffffu, set);
    bool all = __all_sync(0xffffffffu, set);
    if ((threadIdx.x & 31) == 0) {
        atomicAdd(&out[0], __popc(votes));
        if (all)
            atomicAdd(&out[1], 1u);
    }
}
