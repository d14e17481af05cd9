// Variables that the host uses by pointers as well.

__managed__ int counter = 5;
__managed__ float halves[1000];
// An ordinary variable beside them.
__device__ int step = 3;

// Adds `step` to `counter` with each thread; halves[t] = t / 2. One block of up to 1000 threads.
extern "C" __global__ void count()
{
    atomicAdd(&counter, step);
    halves[threadIdx.x] = threadIdx.x * 0.5f;
}
