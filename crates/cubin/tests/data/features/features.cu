// Everything that a loader has to see to, in as few instructions as possible. The tests know each number.

// Bank 3: initialised and zeroed constants, one of them a pointer.
__constant__ float taps[5] = {0.0625f, 0.25f, 0.375f, 0.25f, 0.0625f};
__constant__ int palette[16];

// Global memory: initialised, zeroed, and pointers into both, with addends and into constant memory's place.
__device__ int primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
__device__ unsigned launches = 41;
__device__ float zeroed[64];
__device__ int* middle = &primes[3];
__device__ float* ends[2] = {&zeroed[5], &zeroed[63]};
__constant__ int* into_primes = &primes[5];

// A pointer that is not aligned: its eight bytes are relocated one by one.
struct __attribute__((packed)) Packed { char tag; int* pointer; };
__device__ Packed packed = {0x5a, &primes[6]};

// Functions through pointers: one table in constant memory, one in global memory.
typedef int (*Operation)(int, int);
__device__ __noinline__ int add(int a, int b) { return a + b; }
__device__ __noinline__ int subtract(int a, int b) { return a - b; }
__device__ __noinline__ int multiply(int a, int b) { return a * b; }
__device__ Operation operations[3] = {add, subtract, multiply};
__constant__ Operation constant_operations[2] = {multiply, add};

struct Pair { char tag; double value; };

// Parameters of every alignment; a literal in bank 2; static shared memory; barriers; launch bounds.
extern "C" __global__ void __launch_bounds__(96, 2)
bounded(unsigned char scale, Pair pair, float3 offset, double* out, short last)
{
    __shared__ double tile[33];
    unsigned i = threadIdx.x;
    if (i < 33) tile[i] = scale * pair.value + 0.12345678901234;
    asm volatile("bar.sync 4;" ::: "memory");
    __syncthreads();
    out[i] = tile[i % 33] + offset.x + last;
}

// Dynamic shared memory behind static.
extern "C" __global__ void dynamic(int* out, int n)
{
    extern __shared__ int scratch[];
    __shared__ int fixed[3];
    fixed[threadIdx.x % 3] = n;
    scratch[threadIdx.x] = threadIdx.x + n;
    __syncthreads();
    out[threadIdx.x] = scratch[threadIdx.x ^ 1] + fixed[0];
}

// Local memory with a known size.
extern "C" __global__ void local(int* out, int n)
{
    int values[100];
    for (int i = 0; i < 100; ++i) values[i] = i * n;
    int sum = 0;
    for (int i = 0; i < n; ++i) sum += values[(i * 37 + n) % 100];
    out[threadIdx.x] = sum;
}

// Variables of every kind.
extern "C" __global__ void variables(float* out, int n)
{
    unsigned i = threadIdx.x;
    float sum = taps[i % 5] + palette[i % 16] + primes[i % 8] + launches + *middle + *into_primes;
    zeroed[i % 64] = sum;
    *ends[i % 2] += n;
    out[i] = sum + *packed.pointer;
}

// Calls through pointers.
extern "C" __global__ void pointers(int* out, int which, int a, int b)
{
    out[threadIdx.x] = operations[which % 3](a, b) * 1000 + constant_operations[which % 2](a, b);
}

__device__ __noinline__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

// Recursion: the need of stack is not known.
extern "C" __global__ void recursive(int* out, int n) { out[threadIdx.x] = fibonacci(n + threadIdx.x % 2); }

// A direct call of a function that is not inlined.
extern "C" __global__ void direct(int* out, int a, int b)
{
    out[threadIdx.x] = add(a, b) + subtract(b, threadIdx.x);
}

// A jump table.
extern "C" __global__ void jump(int* out, int n)
{
    int v = threadIdx.x;
    switch (n) {
    case 0: v = v * 7 + 1; break;
    case 1: v = v ^ 0x55; break;
    case 2: v = out[v] << 2; break;
    case 3: v = v - out[v + 1]; break;
    case 4: v = __popc(v); break;
    case 5: v = __brev(v); break;
    case 6: v = __clz(v); break;
    case 7: v = v * v * out[v + 2]; break;
    }
    out[threadIdx.x] = v;
}

#if __CUDA_ARCH__ >= 900
// A cluster of CTAs.
extern "C" __global__ void __cluster_dims__(2, 1, 1) clustered(int* out)
{
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    out[blockIdx.x * blockDim.x + threadIdx.x] = rank;
}
#endif

// Nothing at all.
extern "C" __global__ void nothing() {}

// A C++ name.
template <typename T> __global__ void mangled(T* out) { *out = T(1); }
template __global__ void mangled<float>(float*);
