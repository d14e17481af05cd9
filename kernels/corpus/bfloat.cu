// bfloat16, alone and in pairs.
#include <cuda_bf16.h>
#include "corpus.cuh"

typedef __nv_bfloat16 bf16;
typedef __nv_bfloat162 bf162;

MAP3(bf16_arithmetic, bf16, bf16, 6, o[0] = __hadd_rn(a, b); o[1] = __hsub_rn(a, b); o[2] = __hmul_rn(a, b);
     o[3] = __hfma(a, b, c); o[4] = __hneg(a); o[5] = __habs(b);)
MAP3(bf16_saturate, bf16, bf16, 3, o[0] = __hadd_sat(a, b); o[1] = __hmul_sat(a, b); o[2] = __hfma_sat(a, b, c);)
MAP3(bf16_pairs, bf162, bf162, 5, o[0] = __hadd2_rn(a, b); o[1] = __hsub2_rn(a, b); o[2] = __hmul2_rn(a, b);
     o[3] = __hfma2(a, b, c); o[4] = __hneg2(a);)
MAP3(bf16_fma_relu, bf162, bf162, 2, o[0] = __hfma2_relu(a, b, c); o[1] = __hfma2_sat(a, b, c);)
MAP2(bf16_extremes, bf162, bf162, bf162, 4, o[0] = __hmin2(a, b); o[1] = __hmax2(a, b); o[2] = __hmin2_nan(a, b);
     o[3] = __hmax2_nan(a, b);)
MAP2(bf16_compare, bf16, bf16, u32, 1, u32 r = 0; r |= __hlt(a, b) << 0; r |= __hle(a, b) << 1; r |= __heq(a, b) << 2;
     r |= __hne(a, b) << 3; r |= __hge(a, b) << 4; r |= __hgt(a, b) << 5; r |= __hltu(a, b) << 6;
     r |= __hgeu(a, b) << 7; r |= __hisnan(a) << 8; o[0] = r;)
// A weighted sum of two rows, as an optimiser does it.
KERNEL bf16_blend(const bf162* x, const bf162* y, bf162* out, float weight, u32 n)
{
    u32 i = INDEX;
    if (i < n) {
        float2 p = __bfloat1622float2(x[i]), q = __bfloat1622float2(y[i]);
        out[i] = __floats2bfloat162_rn(fmaf(weight, p.x - q.x, q.x), fmaf(weight, p.y - q.y, q.y));
    }
}
