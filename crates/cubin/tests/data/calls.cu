// Calls that are not inlined, recursion, and function pointers.

__device__ __noinline__ unsigned mix(unsigned a, unsigned b)
{
    a ^= b * 0x9e3779b9u;
    a = (a << 13) | (a >> 19);
    return a * 5 + 0xe6546b64u;
}

// out[i] = mix(mix(in[i], i), seed).
extern "C" __global__ void call_mix(const unsigned* in, unsigned* out, unsigned seed, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = mix(mix(in[i], i), seed);
}

__device__ __noinline__ unsigned fibonacci(unsigned n)
{
    return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
}

// out[i] = Fibonacci number in[i], by double recursion: divergent depth, local stack.
extern "C" __global__ void call_fibonacci(const unsigned* in, unsigned* out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = fibonacci(in[i]);
}

typedef unsigned (*Operation)(unsigned, unsigned);
__device__ __noinline__ unsigned op_add(unsigned a, unsigned b) { return a + b; }
__device__ __noinline__ unsigned op_multiply(unsigned a, unsigned b) { return a * b; }
__device__ __noinline__ unsigned op_xor(unsigned a, unsigned b) { return a ^ b; }

// out[i] = operation op[i] (0 add, 1 multiply, 2 xor) of a[i] and b[i], through a function pointer.
extern "C" __global__ void call_pointer(const unsigned* op, const unsigned* a, const unsigned* b,
                                        unsigned* out, unsigned n)
{
    Operation operations[3] = {op_add, op_multiply, op_xor};
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = operations[op[i] % 3](a[i], b[i]);
}
