// Sums over clusters of blocks, by reading the shared memory of the other blocks. Before SM 9.0 each block is alone.

// Waits for all threads of the cluster.
__device__ void cluster_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive;\n\tbarrier.cluster.wait;" ::: "memory");
#endif
}

// out[2 * b] is the sum of in[c] over the blocks c of the cluster of block b, out[2 * b + 1] the rank of b in it.
extern "C" __global__ void cluster_sum(const unsigned *in, unsigned *out)
{
    __shared__ unsigned own;
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    if (threadIdx.x == 0) {
        own = in[block];
    }
    cluster_wait();
    if (threadIdx.x == 0) {
        unsigned sum = own;
        unsigned rank = 0;
#if __CUDA_ARCH__ >= 900
        unsigned count;
        asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
        asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
        const unsigned address = (unsigned)__cvta_generic_to_shared(&own);
        sum = 0;
        for (unsigned other = 0; other < count; other++) {
            unsigned remote, value;
            asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(other));
            asm volatile("ld.shared::cluster.u32 %0, [%1];" : "=r"(value) : "r"(remote) : "memory");
            sum += value;
        }
#endif
        out[2 * block] = sum;
        out[2 * block + 1] = rank;
    }
    // The shared memory of a block lives until the others have read it.
    cluster_wait();
}
