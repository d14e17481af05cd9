// Launches that begin before the one before them has ended: graphs of GPUs from SM 9.0 on, see
// `GraphBuilder::begin_early`. Elsewhere, and in other launches, both functions do nothing.
#pragma once

#if __CUDA_ARCH__ >= 900
#define BEGINS_EARLY true
#else
#define BEGINS_EARLY false
#endif

// Lets the next launch begin when all blocks have come here.
static __device__ void let_next_begin()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Waits until the launch before has ended and its stores are visible. Comes before all accesses to memory that launches
// write.
static __device__ void wait_for_previous()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
