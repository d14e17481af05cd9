// Programs that go wrong in one chosen way each.

// Reads wherever it is told to; an unmapped address is an MMU read fault.
extern "C" __global__ void fault_read(const unsigned* address, unsigned* out)
{
    *out = *address;
}

// Writes wherever it is told to; an unmapped or read-only address is an MMU write fault.
extern "C" __global__ void fault_write(unsigned* address, unsigned value)
{
    *address = value;
}

// Adds atomically wherever it is told to.
extern "C" __global__ void fault_atomic(unsigned* address, unsigned value)
{
    atomicAdd(address, value);
}

// A 32-bit load from base + offset bytes: misaligned unless both are multiples of four.
extern "C" __global__ void fault_misaligned(const unsigned char* base, unsigned offset, unsigned* out)
{
    *out = *(const unsigned*)(base + offset);
}

// out[i] = in[i] without a bound: more threads than elements run past the end.
extern "C" __global__ void fault_no_bound(const unsigned* in, unsigned* out)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i];
}

// Stores to the shared array at a word index of the caller's choice; the array has 32.
extern "C" __global__ void fault_shared_bounds(unsigned index, unsigned* out)
{
    __shared__ unsigned words[32];
    volatile unsigned* w = words;
    w[index] = 1;
    __syncthreads();
    *out = w[index & 31];
}

// Runs until *stop is not zero: for ever when nobody writes it.
extern "C" __global__ void fault_endless(const volatile unsigned* stop, unsigned* out)
{
    unsigned turns = 0;
    while (*stop == 0)
        ++turns;
    *out = turns;
}

// Traps in the thread with this index in its block; the others store and end.
extern "C" __global__ void fault_trap(unsigned thread, unsigned* out)
{
    if (threadIdx.x == thread)
        __trap();
    out[blockIdx.x * blockDim.x + threadIdx.x] = 1;
}

// The first warp waits for the second by spinning on a flag that the second writes only after a
// barrier which the first never reaches. Blocks of 64 threads.
extern "C" __global__ void fault_deadlock(volatile unsigned* flag)
{
    if (threadIdx.x < 32) {
        while (*flag == 0) {
        }
        __syncthreads();
    } else {
        __syncthreads();
        *flag = 1;
    }
}

// Half of the block waits at named barrier 1 for a count that never comes: nobody moves.
// Blocks of 64 threads.
extern "C" __global__ void fault_barrier(unsigned* out)
{
    if (threadIdx.x < 32)
        asm volatile("bar.sync 1, 96;");
    out[threadIdx.x] = 1;
}
