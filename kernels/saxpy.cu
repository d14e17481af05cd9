// y[i] = a * x[i] + y[i] for i < n, with a grid-stride loop: any grid size is correct.
extern "C" __global__ void saxpy(float a, const float* x, float* y, unsigned n)
{
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = a * x[i] + y[i];
}
