// What a network does to each row of a matrix. One warp per row; blocks of a multiple of 32 threads, as
// many that every row has its warp.

static __device__ float warp_sum(float value)
{
    for (int offset = 16; offset > 0; offset >>= 1)
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

static __device__ float warp_max(float value)
{
    for (int offset = 16; offset > 0; offset >>= 1)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
}

// The row of this thread's warp.
static __device__ unsigned warp_row()
{
    return (blockIdx.x * blockDim.x + threadIdx.x) / 32;
}

// out[row] = softmax(in[row]). in and out may be the same.
extern "C" __global__ void softmax(const float* in, float* out, unsigned rows, unsigned columns)
{
    unsigned row = warp_row(), lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    const float* x = in + (size_t)row * columns;
    float* y = out + (size_t)row * columns;

    float largest = __int_as_float(0xff800000);
    for (unsigned i = lane; i < columns; i += 32)
        largest = fmaxf(largest, x[i]);
    largest = warp_max(largest);
    float sum = 0.0f;
    for (unsigned i = lane; i < columns; i += 32)
        sum += expf(x[i] - largest);
    sum = warp_sum(sum);
    for (unsigned i = lane; i < columns; i += 32)
        y[i] = expf(x[i] - largest) / sum;
}

// out[row] = (in[row] - mean) / sqrt(variance + epsilon) * gain + bias, with the mean and variance of the
// row; gain and bias have an element per column.
extern "C" __global__ void layer_norm(const float* in, const float* gain, const float* bias, float* out,
                                      unsigned rows, unsigned columns, float epsilon)
{
    unsigned row = warp_row(), lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    const float* x = in + (size_t)row * columns;
    float* y = out + (size_t)row * columns;

    float sum = 0.0f;
    for (unsigned i = lane; i < columns; i += 32)
        sum += x[i];
    float mean = warp_sum(sum) / (float)columns;
    float squares = 0.0f;
    for (unsigned i = lane; i < columns; i += 32)
        squares += (x[i] - mean) * (x[i] - mean);
    float scale = 1.0f / sqrtf(warp_sum(squares) / (float)columns + epsilon);
    for (unsigned i = lane; i < columns; i += 32)
        y[i] = (x[i] - mean) * scale * gain[i] + bias[i];
}

// out[row] = sum of in[row], times `scale`: 1 for the sum, 1 / columns for the mean.
extern "C" __global__ void row_sums(const float* in, float* out, unsigned rows, unsigned columns,
                                    float scale)
{
    unsigned row = warp_row(), lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    float sum = 0.0f;
    for (unsigned i = lane; i < columns; i += 32)
        sum += in[(size_t)row * columns + i];
    sum = warp_sum(sum);
    if (lane == 0)
        out[row] = sum * scale;
}
