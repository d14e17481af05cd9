// 64-bit floats.

#define BINARY(name, expression)                                                                   \
    extern "C" __global__ void name(const double* a, const double* b, double* out, unsigned n)     \
    {                                                                                              \
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                                        \
        if (i < n) {                                                                               \
            double x = a[i];                                                                       \
            double y = b[i];                                                                       \
            out[i] = (expression);                                                                 \
        }                                                                                          \
    }

BINARY(f64_add, x + y)
BINARY(f64_mul, x * y)
BINARY(f64_div, x / y)
BINARY(f64_min, fmin(x, y))
BINARY(f64_hypotenuse, sqrt(x * x + y * y))
BINARY(f64_compare, x < y ? -1.0 : x > y ? 1.0 : 0.0)

// out[i] = a[i] * x[i] + y[i], one rounding.
extern "C" __global__ void f64_fma(const double* a, const double* x, const double* y, double* out,
                                   unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = fma(a[i], x[i], y[i]);
}

// Polynomial with literals that live in constant bank 2: the Taylor series of exp to degree 8.
extern "C" __global__ void f64_exp_series(const double* in, double* out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    double x = in[i];
    double r = 1.0 / 40320.0;
    r = fma(r, x, 1.0 / 5040.0);
    r = fma(r, x, 1.0 / 720.0);
    r = fma(r, x, 1.0 / 120.0);
    r = fma(r, x, 1.0 / 24.0);
    r = fma(r, x, 1.0 / 6.0);
    r = fma(r, x, 0.5);
    r = fma(r, x, 1.0);
    out[i] = fma(r, x, 1.0);
}

// Conversions to float, to 32-bit and 64-bit integers (toward zero), and back.
extern "C" __global__ void f64_convert(const double* in, float* as_float, int* as_int,
                                       long long* as_long, double* back, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        as_float[i] = (float)in[i];
        as_int[i] = (int)in[i];
        as_long[i] = (long long)in[i];
        back[i] = (double)as_long[i];
    }
}
