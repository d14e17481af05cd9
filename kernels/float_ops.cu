// 32-bit float operations, element by element, in IEEE-accurate form (`f32_*`) and in the form of
// the special function unit (`f32_*_fast`).

#define BINARY(name, expression)                                                                   \
    extern "C" __global__ void name(const float* a, const float* b, float* out, unsigned n)        \
    {                                                                                              \
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                                        \
        if (i < n) {                                                                               \
            float x = a[i];                                                                        \
            float y = b[i];                                                                        \
            out[i] = (expression);                                                                 \
        }                                                                                          \
    }

#define UNARY(name, expression)                                                                    \
    extern "C" __global__ void name(const float* a, float* out, unsigned n)                        \
    {                                                                                              \
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                                        \
        if (i < n) {                                                                               \
            float x = a[i];                                                                        \
            out[i] = (expression);                                                                 \
        }                                                                                          \
    }

BINARY(f32_add, x + y)
BINARY(f32_sub, x - y)
BINARY(f32_mul, x * y)
BINARY(f32_div, x / y)
BINARY(f32_div_fast, __fdividef(x, y))
BINARY(f32_min, fminf(x, y))
BINARY(f32_max, fmaxf(x, y))
BINARY(f32_fmod, fmodf(x, y))
BINARY(f32_pow, powf(x, y))
BINARY(f32_atan2, atan2f(x, y))
BINARY(f32_copysign, copysignf(x, y))
BINARY(f32_add_down, __fadd_rd(x, y))
BINARY(f32_mul_up, __fmul_ru(x, y))
// 1 less, 2 equal, 4 greater, 8 unordered.
BINARY(f32_compare, x < y ? 1.0f : x == y ? 2.0f : x > y ? 4.0f : 8.0f)

UNARY(f32_abs, fabsf(x))
UNARY(f32_negate, -x)
UNARY(f32_rcp, 1.0f / x)
UNARY(f32_rcp_fast, __fdividef(1.0f, x))
UNARY(f32_sqrt, sqrtf(x))
UNARY(f32_rsqrt, rsqrtf(x))
UNARY(f32_sin, sinf(x))
UNARY(f32_sin_fast, __sinf(x))
UNARY(f32_cos, cosf(x))
UNARY(f32_cos_fast, __cosf(x))
UNARY(f32_tan, tanf(x))
UNARY(f32_exp, expf(x))
UNARY(f32_exp_fast, __expf(x))
UNARY(f32_exp2, exp2f(x))
UNARY(f32_log, logf(x))
UNARY(f32_log_fast, __logf(x))
UNARY(f32_log2, log2f(x))
UNARY(f32_tanh, tanhf(x))
UNARY(f32_erf, erff(x))
UNARY(f32_floor, floorf(x))
UNARY(f32_ceil, ceilf(x))
UNARY(f32_trunc, truncf(x))
UNARY(f32_round_even, rintf(x))
UNARY(f32_saturate, __saturatef(x))

// out[i] = a[i] * b[i] + c[i] with one rounding.
extern "C" __global__ void f32_fma(const float* a, const float* b, const float* c, float* out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = fmaf(a[i], b[i], c[i]);
}

// Conversions: toward zero to signed and unsigned (saturating), and back to nearest.
extern "C" __global__ void f32_convert(const float* a, int* as_signed, unsigned* as_unsigned,
                                       float* from_signed, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        as_signed[i] = __float2int_rz(a[i]);
        as_unsigned[i] = __float2uint_rz(a[i]);
        from_signed[i] = __int2float_rn(__float_as_int(a[i]));
    }
}
