// 32-bit integer operations, element by element: out[i] = op(a[i], b[i]) for i < n.

#define BINARY(name, type, expression)                                                             \
    extern "C" __global__ void name(const type* a, const type* b, type* out, unsigned n)           \
    {                                                                                              \
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                                        \
        if (i < n) {                                                                               \
            type x = a[i];                                                                         \
            type y = b[i];                                                                         \
            out[i] = (expression);                                                                 \
        }                                                                                          \
    }

#define UNARY(name, type, expression)                                                              \
    extern "C" __global__ void name(const type* a, type* out, unsigned n)                          \
    {                                                                                              \
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;                                        \
        if (i < n) {                                                                               \
            type x = a[i];                                                                         \
            out[i] = (expression);                                                                 \
        }                                                                                          \
    }

BINARY(i32_add, int, x + y)
BINARY(i32_sub, int, x - y)
BINARY(i32_mul, int, x * y)
BINARY(i32_mul_hi, int, __mulhi(x, y))
BINARY(u32_mul_hi, unsigned, __umulhi(x, y))
// A divisor of zero gives whatever the hardware's division sequence gives.
BINARY(i32_div, int, x / y)
BINARY(i32_mod, int, x % y)
BINARY(u32_div, unsigned, x / y)
BINARY(u32_mod, unsigned, x % y)
BINARY(i32_min, int, min(x, y))
BINARY(i32_max, int, max(x, y))
BINARY(u32_min, unsigned, min(x, y))
BINARY(u32_max, unsigned, max(x, y))
BINARY(u32_and, unsigned, x & y)
BINARY(u32_or, unsigned, x | y)
BINARY(u32_xor, unsigned, x ^ y)
BINARY(u32_and_not, unsigned, x & ~y)
// Shift counts are taken modulo 32.
BINARY(u32_shl, unsigned, x << (y & 31))
BINARY(u32_shr, unsigned, x >> (y & 31))
BINARY(i32_shr, int, x >> (y & 31))
BINARY(u32_rotate_left, unsigned, __funnelshift_l(x, x, y))
BINARY(u32_byte_permute, unsigned, __byte_perm(x, y, x ^ y))
BINARY(u32_average, unsigned, __uhadd(x, y))
BINARY(i32_compare, int, (x > y) - (x < y))

UNARY(i32_abs, int, abs(x))
UNARY(i32_negate, int, -x)
UNARY(u32_not, unsigned, ~x)
UNARY(u32_popcount, unsigned, __popc(x))
UNARY(u32_leading_zeros, unsigned, __clz(x))
UNARY(u32_find_first_set, unsigned, __ffs(x))
UNARY(u32_reverse_bits, unsigned, __brev(x))
UNARY(u32_div_by_seven, unsigned, x / 7)
UNARY(i32_mod_by_ten, int, x % 10)
UNARY(u32_bit_field, unsigned, (x >> 5) & 0x7ff)

// out[i] = a[i] * b[i] + c[i], wrapping.
extern "C" __global__ void i32_mad(const int* a, const int* b, const int* c, int* out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = a[i] * b[i] + c[i];
}

// out[i] = c[i] + sum of the products of the four signed bytes of a[i] and b[i].
extern "C" __global__ void i32_dot4(const int* a, const int* b, const int* c, int* out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        // Not `__dp4a`: the compiler's header of some versions (12.2) declares it and has no body for it.
        asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(out[i]) : "r"(a[i]), "r"(b[i]), "r"(c[i]));
}

// Bytes and halfwords, signed and unsigned, added to a word with the language's widening rules.
extern "C" __global__ void widen_add(const signed char* a, const unsigned char* b, const short* c,
                                     const unsigned short* d, int* out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = a[i] + b[i] + c[i] + d[i];
}

// The reverse: the low byte and the low halfword of a[i].
extern "C" __global__ void narrow(const int* a, signed char* bytes, short* halfwords, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        bytes[i] = (signed char)a[i];
        halfwords[i] = (short)a[i];
    }
}
