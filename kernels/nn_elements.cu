// What a network does to each element. One thread per element of the output, in blocks and grids of one
// dimension that cover all n.

static __device__ unsigned element()
{
    return blockIdx.x * blockDim.x + threadIdx.x;
}

// out[i] = a[i] + b[i]. out may be a or b.
extern "C" __global__ void add(const float* a, const float* b, float* out, unsigned n)
{
    unsigned i = element();
    if (i < n)
        out[i] = a[i] + b[i];
}

// out[i] = a[i] * b[i]. out may be a or b.
extern "C" __global__ void multiply(const float* a, const float* b, float* out, unsigned n)
{
    unsigned i = element();
    if (i < n)
        out[i] = a[i] * b[i];
}

// out[i] = max(in[i], 0).
extern "C" __global__ void relu(const float* in, float* out, unsigned n)
{
    unsigned i = element();
    if (i < n)
        out[i] = fmaxf(in[i], 0.0f);
}

// out[i] = GELU of in[i], in the form with the hyperbolic tangent.
extern "C" __global__ void gelu(const float* in, float* out, unsigned n)
{
    unsigned i = element();
    if (i < n) {
        float x = in[i];
        out[i] = 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    }
}

// out[i] = e to the power of in[i].
extern "C" __global__ void exponential(const float* in, float* out, unsigned n)
{
    unsigned i = element();
    if (i < n)
        out[i] = expf(in[i]);
}

// Reorders the axes of an array: out has the extents d0 to d3 (n in all), and the element out[i][j][k][l]
// is in[i * s0 + j * s1 + k * s2 + l * s3].
extern "C" __global__ void permute(const float* in, float* out, unsigned d0, unsigned d1, unsigned d2,
                                   unsigned d3, unsigned s0, unsigned s1, unsigned s2, unsigned s3)
{
    unsigned at = element();
    if (at >= d0 * d1 * d2 * d3)
        return;
    unsigned l = at % d3, k = at / d3 % d2, j = at / (d3 * d2) % d1, i = at / (d3 * d2 * d1);
    out[at] = in[(size_t)i * s0 + (size_t)j * s1 + (size_t)k * s2 + (size_t)l * s3];
}
