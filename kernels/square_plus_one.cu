// out[i] = i * i + 1 for i < n.
extern "C" __global__ void square_plus_one(float* out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = (float)i * (float)i + 1.0f;
}
