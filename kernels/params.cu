// Parameters of every size, so that offsets need padding.

// Writes each parameter, widened to 64 bits (floats by their bits), to out[0..8].
extern "C" __global__ void mixed_params(signed char a, short b, int c, long long d, float e, double f,
                                        unsigned char g, unsigned long long* out, unsigned short h)
{
    if (threadIdx.x != 0)
        return;
    out[0] = (unsigned long long)(long long)a;
    out[1] = (unsigned long long)(long long)b;
    out[2] = (unsigned long long)(long long)c;
    out[3] = (unsigned long long)d;
    out[4] = __float_as_uint(e);
    out[5] = __double_as_longlong(f);
    out[6] = g;
    out[7] = h;
}

struct Inner {
    float scale;
    signed char shift;
};

struct Parameters {
    unsigned count;
    double bias;
    Inner inner[3];
    short steps[5];
    const float* in;
};

// out[i] = in[i] * inner[i % 3].scale + shift + bias + steps[i % 5], for i < count.
extern "C" __global__ void struct_param(Parameters p, float* out)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < p.count) {
        const Inner& inner = p.inner[i % 3];
        out[i] = p.in[i] * inner.scale + (float)inner.shift + (float)p.bias + (float)p.steps[i % 5];
    }
}

// Three pointers to elements of 1, 2 and 8 bytes: b[i] = a[i], c[i] = a[i] squared.
extern "C" __global__ void __launch_bounds__(128) pointer_params(const signed char* a, short* b,
                                                                 double* c, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        b[i] = a[i];
        c[i] = (double)a[i] * (double)a[i];
    }
}

// One pointer to each basic type; adds one to element i < n of each.
extern "C" __global__ void typed_pointers(signed char* a, short* b, int* c, long long* d, float* e,
                                          double* f, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        a[i] += 1;
        b[i] += 1;
        c[i] += 1;
        d[i] += 1;
        e[i] += 1.0f;
        f[i] += 1.0;
    }
}

// A parameter block near the limit of 4 KiB: out[0] = sum of the words.
struct Large {
    unsigned words[960];
};

extern "C" __global__ void large_param(unsigned* out, Large large)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < 960; ++i)
        sum += large.words[i];
    *out = sum;
}

struct Table {
    int values[8];
    int* out;
};

// The parameter's address is used: a function gets it.
static __device__ __noinline__ int pick(const Table& table, unsigned at)
{
    return table.values[at % 8] - table.values[(at + 1) % 8];
}

// out[i] = values[i % 8] - values[(i + 1) % 8]. `before` moves the table away from the first parameter.
extern "C" __global__ void param_by_reference(int before, const __grid_constant__ Table table)
{
    table.out[threadIdx.x] = pick(table, threadIdx.x) + before;
}
