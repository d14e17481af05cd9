// Integers of 64 and 128 bits.
// nvrtc: --device-int128
#include "corpus.cuh"

MAP2(add_sub_u64, u64, u64, u64, 4, o[0] = a + b; o[1] = a - b; o[2] = -a; o[3] = a + 0x123456789abcull;)
MAP2(mul_u64, u64, u64, u64, 3, o[0] = a * b; o[1] = __umul64hi(a, b); o[2] = __mul64hi(a, b);)
MAP2(mul_wide, u32, u32, u64, 4, o[0] = (u64)a * b; o[1] = (s64)(s32)a * (s32)b; o[2] = (u64)a * 1000003u + b;
     o[3] = (s64)(s32)a * -5 + (s32)b;)
MAP2(divide_u64, u64, u64, u64, 2, u64 d = b ? b : 3; o[0] = a / d; o[1] = a % d;)
MAP2(divide_s64, s64, s64, s64, 2, s64 d = b == 0 || b == -1 ? 10 : b; o[0] = a / d; o[1] = a % d;)
MAP1(divide_u64_by_constants, u64, u64, 3, o[0] = a / 10; o[1] = a % 1000003ull; o[2] = (s64)a / 3600000;)
MAP2(shifts_64, u64, u32, u64, 6, u32 k = b & 63; o[0] = a << k; o[1] = a >> k; o[2] = (s64)a >> k; o[3] = a << 9;
     o[4] = (s64)a >> 37; o[5] = (a << k) | (a >> (64 - k & 63));)
MAP2(compare_u64, u64, u64, u64, 6, o[0] = min(a, b); o[1] = max((s64)a, (s64)b); o[2] = a < b; o[3] = (s64)a < (s64)b;
     o[4] = a == b; o[5] = (s64)a >= 0 ? a : b;)
MAP2(logic_u64, u64, u64, u64, 4, o[0] = a & b; o[1] = a | ~b; o[2] = a ^ b; o[3] = (a & b) ^ (a >> 1);)
MAP1(count_bits_u64, u64, u32, 4, o[0] = __popcll(a); o[1] = __clzll(a); o[2] = __ffsll(a);
     o[3] = __brevll(a) >> 32;)
MAP2(product_128, u64, u64, u64, 4, unsigned __int128 p = (unsigned __int128)a * b + (a ^ b); o[0] = p; o[1] = p >> 64;
     unsigned __int128 q = (p << 13) - ((unsigned __int128)b << 64 | a); o[2] = q; o[3] = q >> 64;)
