// Half precision, alone and in pairs.
#include <cuda_fp16.h>
#include "corpus.cuh"

MAP3(f16_arithmetic, __half, __half, 6, o[0] = __hadd_rn(a, b); o[1] = __hsub_rn(a, b); o[2] = __hmul_rn(a, b);
     o[3] = __hfma(a, b, c); o[4] = __hneg(a); o[5] = __habs(b);)
MAP3(f16_saturate, __half, __half, 3, o[0] = __hadd_sat(a, b); o[1] = __hmul_sat(a, b); o[2] = __hfma_sat(a, b, c);)
MAP3(f16_pairs, __half2, __half2, 5, o[0] = __hadd2_rn(a, b); o[1] = __hsub2_rn(a, b); o[2] = __hmul2_rn(a, b);
     o[3] = __hfma2(a, b, c); o[4] = __hneg2(a);)
MAP3(f16_pairs_swizzled, __half2, __half2, 3, o[0] = __hfma2(__low2half2(a), b, __high2half2(c));
     o[1] = __hmul2_rn(__lowhigh2highlow(a), __high2half2(b)); o[2] = __hadd2_rn(__lows2half2(a, b), __highs2half2(b, c));)
MAP3(f16_fma_relu, __half2, __half2, 2, o[0] = __hfma2_relu(a, b, c); o[1] = __hfma2_sat(a, b, c);)
MAP2(f16_extremes, __half2, __half2, __half2, 4, o[0] = __hmin2(a, b); o[1] = __hmax2(a, b); o[2] = __hmin2_nan(a, b);
     o[3] = __hmax2_nan(a, b);)
MAP2(f16_compare, __half, __half, u32, 1, u32 r = 0; r |= __hlt(a, b) << 0; r |= __hle(a, b) << 1; r |= __heq(a, b) << 2;
     r |= __hne(a, b) << 3; r |= __hge(a, b) << 4; r |= __hgt(a, b) << 5; r |= __hltu(a, b) << 6;
     r |= __hgeu(a, b) << 7;
     u32 q; asm("{ .reg .pred p; setp.eq.f16 p, %1, %2; selp.u32 %0, 1, 0, p; }" : "=r"(q) : "h"(*(u16*)&a), "h"(*(u16*)&b)); r |= q << 10; r |= __hisnan(a) << 8; r |= (__hisinf(b) != 0) << 9; o[0] = r;)
MAP2(f16_set_pairs, __half2, __half2, __half2, 4, o[0] = __heq2(a, b); o[1] = __hlt2(a, b); o[2] = __hgeu2(a, b);
     o[3] = __hne2(a, b);)
MAP2(f16_masks, __half2, __half2, u32, 4, o[0] = __hlt2_mask(a, b); o[1] = __hgeu2_mask(a, b); o[2] = __hbeq2(a, b);
     o[3] = __hbltu2(a, b);)
MAP1(f16_reciprocal, __half, __half, 2, o[0] = hrcp(a); o[1] = hrsqrt(a);)
MAP1(f16_exponential, __half, __half, 2, o[0] = hexp2(a); asm("tanh.approx.f16 %0, %1;" : "=h"(*(u16*)(o + 1)) : "h"(*(u16*)&a));)
MAP2(f16_divide, __half, __half, __half, 1, o[0] = __hdiv(a, b);)

// out = a row of the matrix times the vector: products in pairs, sums in single precision.
KERNEL f16_dot_rows(const __half2* matrix, const __half2* vector, float* out, u32 rows, u32 pairs)
{
    u32 row = INDEX;
    if (row >= rows)
        return;
    float sum = 0.0f;
    for (u32 k = 0; k < pairs; k++) {
        float2 m = __half22float2(matrix[row * pairs + k]), v = __half22float2(vector[k]);
        sum = fmaf(m.x, v.x, sum);
        sum = fmaf(m.y, v.y, sum);
    }
    out[row] = sum;
}

// The same with sums in half precision.
KERNEL f16_accumulate(const __half2* a, const __half2* b, __half2* out, u32 rows, u32 pairs)
{
    u32 row = INDEX;
    if (row >= rows)
        return;
    __half2 sum = __floats2half2_rn(0.5f, -2.0f);
    for (u32 k = 0; k < pairs; k++)
        sum = __hfma2(a[row * pairs + k], b[k], sum);
    out[row] = sum;
}
