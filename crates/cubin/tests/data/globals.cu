// Variables of the module: __constant__ (bank 3) and __device__ (reached through bank 4).

__constant__ float taps[5] = {0.0625f, 0.25f, 0.375f, 0.25f, 0.0625f};
__constant__ unsigned palette[16] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3};
__device__ unsigned launches = 41;
__device__ unsigned zeroed[64];
__device__ const unsigned primes[8] = {2, 3, 5, 7, 11, 13, 17, 19};
// A pointer that the loader must relocate inside the initialised data.
__device__ unsigned* counter = &launches;

// out[i] = five-tap filter of in, with zeros outside of 0..n.
extern "C" __global__ void filter5(const float* in, float* out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float sum = 0.0f;
    for (int k = -2; k <= 2; ++k)
        if (i + k >= 0 && i + k < n)
            sum += taps[k + 2] * in[i + k];
    out[i] = sum;
}

// out[i] = palette[in[i] & 15] + primes[i & 7].
extern "C" __global__ void look_up(const unsigned* in, unsigned* out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = palette[in[i] & 15] + primes[i & 7];
}

// Adds one to `launches` and writes the new value to out[0]; zeroed[t] += t, written to out[1 + t].
// One block of 64 threads.
extern "C" __global__ void remember(unsigned* out)
{
    unsigned t = threadIdx.x;
    zeroed[t] += t;
    out[1 + t] = zeroed[t];
    if (t == 0) {
        launches += 1;
        out[0] = launches;
    }
}

// The same counter, through the pointer variable.
extern "C" __global__ void remember_by_pointer(unsigned* out)
{
    if (threadIdx.x == 0) {
        *counter += 1;
        out[0] = *counter;
    }
}
