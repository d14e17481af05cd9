// Threads that wait for each other through memory.

// Every thread takes the lock words[0] once and adds one to words[1] while it holds it. Lanes of one
// warp compete too.
extern "C" __global__ void lock_each(unsigned* words)
{
    while (atomicCAS(&words[0], 0u, 1u) != 0u) {
    }
    __threadfence();
    volatile unsigned* count = &words[1];
    *count = *count + 1;
    __threadfence();
    atomicExch(&words[0], 0u);
}

// The same with the critical section inside of the loop, as programs for older devices had to.
extern "C" __global__ void lock_inside(unsigned* words)
{
    bool done = false;
    while (!done) {
        if (atomicCAS(&words[0], 0u, 1u) == 0u) {
            volatile unsigned* count = &words[1];
            *count = *count + 1;
            __threadfence();
            atomicExch(&words[0], 0u);
            done = true;
        }
    }
}

// The blocks of the grid wait for each other: out[i] = number of blocks that had arrived when block i
// went on. All blocks must be resident.
extern "C" __global__ void grid_barrier(unsigned* arrived, unsigned* out)
{
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1u);
        while (*(volatile unsigned*)arrived < gridDim.x) {
        }
    }
    __syncthreads();
    if (threadIdx.x == 0)
        out[blockIdx.x] = *(volatile unsigned*)arrived;
}
