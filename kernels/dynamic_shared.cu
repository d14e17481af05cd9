// Shared memory whose size the launch gives.

extern __shared__ float dynamic_words[];

// out[block] = sum of the block's part of `in`; needs blockDim.x * 4 bytes of dynamic shared memory
// and a block size that is a power of two.
extern "C" __global__ void dynamic_sum(const float* in, float* out)
{
    unsigned t = threadIdx.x;
    dynamic_words[t] = in[blockIdx.x * blockDim.x + t];
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s >>= 1) {
        if (t < s)
            dynamic_words[t] += dynamic_words[t + s];
        __syncthreads();
    }
    if (t == 0)
        out[blockIdx.x] = dynamic_words[0];
}

// Static and dynamic shared memory together: reverses the block's part of `in`, adding 0.5 from a
// static array to each. out[gridDim.x * blockDim.x] = bytes of dynamic shared memory.
extern "C" __global__ void dynamic_reverse(const float* in, float* out)
{
    __shared__ float fixed[32];
    unsigned t = threadIdx.x;
    unsigned base = blockIdx.x * blockDim.x;
    if (t < 32)
        fixed[t] = 0.5f;
    dynamic_words[t] = in[base + t];
    __syncthreads();
    out[base + t] = dynamic_words[blockDim.x - 1 - t] + fixed[t & 31];
    if (base + t == 0) {
        unsigned bytes;
        asm volatile("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
        out[gridDim.x * blockDim.x] = (float)bytes;
    }
}
