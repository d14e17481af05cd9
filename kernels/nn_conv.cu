// Convolution and pooling of images in the order NCHW: batch, channel, row, column. One thread per element
// of the output, in blocks and grids of one dimension that cover them all.

// out (batch x channels_out x rows_out x columns_out) = bias + in * w, with zeros around the image. w is
// channels_out x channels_in x size x size; rows_out = (rows + 2 * padding - size) / stride + 1, and
// columns_out likewise. `relu` not zero: what is negative becomes zero.
extern "C" __global__ void conv2d(const float* in, const float* w, const float* bias, float* out,
                                  unsigned batch, unsigned channels_in, unsigned rows, unsigned columns,
                                  unsigned channels_out, unsigned size, unsigned stride, unsigned padding,
                                  unsigned relu)
{
    unsigned rows_out = (rows + 2 * padding - size) / stride + 1;
    unsigned columns_out = (columns + 2 * padding - size) / stride + 1;
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * channels_out * rows_out * columns_out)
        return;
    unsigned x = i % columns_out, y = i / columns_out % rows_out;
    unsigned channel = i / (columns_out * rows_out) % channels_out;
    unsigned image = i / (columns_out * rows_out * channels_out);

    const float* weights = w + (size_t)channel * channels_in * size * size;
    float sum = bias[channel];
    for (unsigned c = 0; c < channels_in; ++c) {
        const float* plane = in + ((size_t)image * channels_in + c) * rows * columns;
        for (unsigned dy = 0; dy < size; ++dy) {
            // Above the image the difference wraps to a large number.
            unsigned from_y = y * stride + dy - padding;
            for (unsigned dx = 0; dx < size; ++dx) {
                unsigned from_x = x * stride + dx - padding;
                if (from_y < rows && from_x < columns)
                    sum += plane[from_y * columns + from_x] * weights[(c * size + dy) * size + dx];
            }
        }
    }
    out[i] = relu != 0 ? fmaxf(sum, 0.0f) : sum;
}

// Pools windows of size x size that lie side by side; what does not fill a window at the right and lower
// edge is left out. in is planes x rows x columns, out planes x (rows / size) x (columns / size).
// `average` not zero: the mean of a window, else its maximum.
extern "C" __global__ void pool2d(const float* in, float* out, unsigned planes, unsigned rows,
                                  unsigned columns, unsigned size, unsigned average)
{
    unsigned rows_out = rows / size, columns_out = columns / size;
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= planes * rows_out * columns_out)
        return;
    unsigned x = i % columns_out, y = i / columns_out % rows_out, plane = i / (columns_out * rows_out);
    const float* window = in + ((size_t)plane * rows + y * size) * columns + x * size;
    float sum = 0.0f, largest = window[0];
    for (unsigned dy = 0; dy < size; ++dy)
        for (unsigned dx = 0; dx < size; ++dx) {
            float value = window[dy * columns + dx];
            sum += value;
            largest = fmaxf(largest, value);
        }
    out[i] = average != 0 ? sum / (float)(size * size) : largest;
}
