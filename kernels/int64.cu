// 64-bit integer arithmetic: pairs of registers, carries, and a division subroutine.

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

BINARY(i64_add, long long, x + y)
BINARY(i64_sub, long long, x - y)
BINARY(i64_mul, long long, x * y)
BINARY(i64_mul_hi, long long, __mul64hi(x, y))
BINARY(i64_div, long long, x / y)
BINARY(i64_mod, long long, x % y)
BINARY(u64_div, unsigned long long, x / y)
BINARY(u64_mod, unsigned long long, x % y)
BINARY(i64_min, long long, min(x, y))
BINARY(u64_max, unsigned long long, max(x, y))
BINARY(u64_shl, unsigned long long, x << (y & 63))
BINARY(i64_shr, long long, x >> (y & 63))
BINARY(u64_bits, unsigned long long, (x & y) ^ (x | ~y))
BINARY(i64_compare, long long, (x > y) - (x < y))

// out[i] = set bits + leading zeros of a[i].
extern "C" __global__ void u64_count(const unsigned long long* a, unsigned* out, unsigned n)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = __popcll(a[i]) + __clzll(a[i]);
}
