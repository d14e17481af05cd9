// Softmax of each row of a matrix with `columns` columns: one block per row, the block size a power
// of two up to 256.
extern "C" __global__ void softmax_rows(const float* in, float* out, unsigned columns)
{
    __shared__ float scratch[256];
    const float* x = in + (size_t)blockIdx.x * columns;
    float* y = out + (size_t)blockIdx.x * columns;
    unsigned t = threadIdx.x;

    float largest = -3.402823466e+38f;
    for (unsigned i = t; i < columns; i += blockDim.x)
        largest = fmaxf(largest, x[i]);
    scratch[t] = largest;
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s >>= 1) {
        if (t < s)
            scratch[t] = fmaxf(scratch[t], scratch[t + s]);
        __syncthreads();
    }
    largest = scratch[0];
    __syncthreads();

    float sum = 0.0f;
    for (unsigned i = t; i < columns; i += blockDim.x)
        sum += expf(x[i] - largest);
    scratch[t] = sum;
    __syncthreads();
    for (unsigned s = blockDim.x / 2; s > 0; s >>= 1) {
        if (t < s)
            scratch[t] += scratch[t + s];
        __syncthreads();
    }
    sum = scratch[0];

    for (unsigned i = t; i < columns; i += blockDim.x)
        y[i] = expf(x[i] - largest) / sum;
}
