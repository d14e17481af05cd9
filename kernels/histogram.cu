// bins[v] += number of bytes of data[0..n] equal to v: shared-memory atomics inside a block, then
// global atomics. Any block size.
extern "C" __global__ void histogram_u8(const unsigned char* data, unsigned* bins, unsigned n)
{
    __shared__ unsigned local[256];

    for (unsigned b = threadIdx.x; b < 256; b += blockDim.x)
        local[b] = 0;
    __syncthreads();
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&local[data[i]], 1u);
    __syncthreads();
    for (unsigned b = threadIdx.x; b < 256; b += blockDim.x)
        if (local[b] != 0)
            atomicAdd(&bins[b], local[b]);
}
