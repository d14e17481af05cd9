// Every global atomic, as all threads of the grid apply it to one word each of `words`:
// 0 add, 1 sub, 2 min, 3 max, 4 and, 5 or, 6 xor, 7 exch, 8 cas loop (add 3), 9 inc modulo 1000.
extern "C" __global__ void atomics_u32(unsigned* words)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&words[0], i);
    atomicSub(&words[1], 1u);
    atomicMin(&words[2], i ^ 0x55);
    atomicMax(&words[3], i ^ 0x55);
    atomicAnd(&words[4], ~(1u << (i & 31)));
    atomicOr(&words[5], 1u << (i & 31));
    atomicXor(&words[6], i);
    atomicExch(&words[7], i);
    unsigned seen = words[8];
    for (;;) {
        unsigned before = atomicCAS(&words[8], seen, seen + 3);
        if (before == seen)
            break;
        seen = before;
    }
    atomicInc(&words[9], 999u);
}

// order[ticket] = thread index: the old values that atomicAdd returns are a permutation.
extern "C" __global__ void atomic_tickets(unsigned* counter, unsigned* order)
{
    unsigned ticket = atomicAdd(counter, 1u);
    order[ticket] = blockIdx.x * blockDim.x + threadIdx.x;
}

// 64-bit, float and double additions.
extern "C" __global__ void atomics_wide(unsigned long long* a, float* b, double* c)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(a, 0x100000001ull * i);
    atomicAdd(b, 0.5f);
    atomicAdd(c, 0.25);
}
