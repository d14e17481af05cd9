// Compiled with -G: calls and addresses are relocated inside of instructions.

__device__ unsigned words[64] = {1, 2, 3};
__device__ unsigned scratch[16];
// Pointers with an addend, in initialised data.
__device__ unsigned* middle = &words[7];
__device__ unsigned* const ends[2] = {&scratch[5], &words[63]};

__device__ __noinline__ unsigned twice(unsigned x)
{
    return x * 2;
}

__device__ __noinline__ unsigned countdown(unsigned n)
{
    return n == 0 ? 0 : 1 + countdown(n - 1);
}

extern "C" __global__ void direct(unsigned* out, unsigned i)
{
    out[0] = twice(words[i]) + *middle + *ends[i & 1];
}

extern "C" __global__ void recursive(unsigned* out, unsigned n)
{
    out[0] = countdown(n);
}
