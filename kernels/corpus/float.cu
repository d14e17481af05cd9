// Single precision: what IEEE 754 defines to the last bit, in every rounding mode.
#include "corpus.cuh"

MAP2(f32_add, float, float, float, 5, o[0] = __fadd_rn(a, b); o[1] = __fadd_rz(a, b); o[2] = __fadd_rd(a, b);
     o[3] = __fadd_ru(a, b); o[4] = __fsub_rn(a, fabsf(b));)
MAP2(f32_mul, float, float, float, 4, o[0] = __fmul_rn(a, b); o[1] = __fmul_rz(a, b); o[2] = __fmul_rd(a, b);
     o[3] = __fmul_ru(a, b);)
MAP3(f32_fma, float, float, 6, o[0] = __fmaf_rn(a, b, c); o[1] = __fmaf_rz(a, b, c); o[2] = __fmaf_rd(a, b, c);
     o[3] = __fmaf_ru(a, b, c); o[4] = __fmaf_rn(-a, b, -c); o[5] = __fmaf_rn(a, 1.5f, -0.25f);)
#define F2(text, d) asm(text " %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b))
#define F3(text, d) asm(text " %0, %1, %2, %3;" : "=f"(d) : "f"(a), "f"(b), "f"(c))
MAP3(f32_flush, float, float, 9, F2("add.ftz.f32", o[0]); F2("mul.ftz.f32", o[1]); F3("fma.rn.ftz.f32", o[2]);
     F2("sub.rz.ftz.f32", o[3]); F2("min.ftz.f32", o[4]); F2("mul.rz.ftz.f32", o[5]); F2("mul.rp.ftz.f32", o[6]);
     F2("min.ftz.NaN.f32", o[7]); float d = a; asm("{ .reg .pred p; setp.gt.ftz.f32 p, %1, %2; selp.f32 %0, %1, %2, p; }" : "=f"(d) : "f"(a), "f"(b)); o[8] = d;)
MAP3(f32_saturate, float, float, 5, F2("add.sat.f32", o[0]); F2("mul.sat.f32", o[1]); F3("fma.rn.sat.f32", o[2]);
     o[3] = __saturatef(a); F2("add.ftz.sat.f32", o[4]);)
MAP2(f32_divide, float, float, float, 4, o[0] = __fdiv_rn(a, b); o[1] = __fdiv_rz(a, b); o[2] = __fdiv_rd(a, b);
     o[3] = __fdiv_ru(a, b);)
MAP1(f32_square_root, float, float, 4, o[0] = __fsqrt_rn(a); o[1] = __fsqrt_rz(a); o[2] = __fsqrt_rd(a);
     o[3] = __fsqrt_ru(a);)
MAP1(f32_reciprocal, float, float, 4, o[0] = __frcp_rn(a); o[1] = __frcp_rz(a); o[2] = __frcp_rd(a);
     o[3] = __frcp_ru(a);)
MAP2(f32_extremes, float, float, float, 4, o[0] = fminf(a, b); o[1] = fmaxf(a, b);
     asm("min.NaN.f32 %0, %1, %2;" : "=f"(o[2]) : "f"(a), "f"(b));
     asm("max.NaN.f32 %0, %1, %2;" : "=f"(o[3]) : "f"(a), "f"(b));)
// sm_80 has no instruction for it.
#if __CUDA_ARCH__ >= 860
#define OF_MAGNITUDE(op, d) asm(op ".xorsign.abs.f32 %0, %1, %2;" : "=f"(d) : "f"(a), "f"(b))
#else
#define OF_MAGNITUDE(op, d)                                                                                     \
    asm(op ".f32 %0, %1, %2;" : "=f"(d) : "f"(fabsf(a)), "f"(fabsf(b)));                                        \
    d = copysignf(d, __uint_as_float(__float_as_uint(a) ^ __float_as_uint(b)))
#endif
MAP2(f32_extremes_of_magnitude, float, float, float, 2, OF_MAGNITUDE("min", o[0]); OF_MAGNITUDE("max", o[1]);)
MAP2(f32_compare, float, float, u32, 1, u32 r = 0; r |= (a < b) << 0; r |= (a <= b) << 1; r |= (a == b) << 2;
     r |= (a != b) << 3; r |= (a >= b) << 4; r |= (a > b) << 5; r |= !(a < b) << 6; r |= !(a >= b) << 7;
     r |= isnan(a) << 8; r |= isinf(b) << 9; r |= (fabsf(a) < fabsf(b)) << 10; r |= (signbit(a) != 0) << 11;
     o[0] = r;)
MAP2(f32_set, float, float, u32, 6,
     asm("set.gt.f32.f32 %0, %1, %2;" : "=r"(o[0]) : "f"(a), "f"(b));
     asm("set.leu.u32.f32 %0, %1, %2;" : "=r"(o[1]) : "f"(a), "f"(b));
     asm("set.num.u32.f32 %0, %1, %2;" : "=r"(o[2]) : "f"(a), "f"(b));
     asm("set.ge.f32.f32 %0, %1, %2;" : "=r"(o[3]) : "f"(a), "f"(b));
     asm("set.gtu.f32.f32 %0, %1, %2;" : "=r"(o[4]) : "f"(a), "f"(b));
     asm("set.gt.ftz.f32.f32 %0, %1, %2;" : "=r"(o[5]) : "f"(a), "f"(b));)
MAP2(f32_signs, float, float, float, 4, o[0] = copysignf(a, b); o[1] = -a; o[2] = fabsf(b);
     o[3] = a > b ? -a : fabsf(b);)
MAP1(f32_integral, float, float, 5, o[0] = floorf(a); o[1] = ceilf(a); o[2] = truncf(a); o[3] = rintf(a);
     o[4] = roundf(a);)
MAP1(f32_split, float, float, 3, int e; o[0] = frexpf(a, &e); o[1] = e; o[2] = a - truncf(a);)
MAP2(f32_scale, float, s32, float, 2, o[0] = ldexpf(a, b); o[1] = scalbnf(1.0f, b);)
MAP2(f32_remainder, float, float, float, 1, o[0] = fmodf(a, b);)
MAP1(f32_polynomial, float, float, 1, float p = 0.1f; for (int k = 1; k < 9; k++) p = fmaf(p, a, 1.0f / k); o[0] = p;)

// Four elements per thread, read and written as one vector.
KERNEL f32_axpy_vectors(float alpha, const float4* x, float4* y, u32 n)
{
    u32 i = INDEX;
    if (i < n) {
        float4 p = x[i], q = y[i];
        q.x = fmaf(alpha, p.x, q.x);
        q.y = fmaf(alpha, p.y, q.y);
        q.z = fmaf(alpha, p.z, q.z);
        q.w = fmaf(alpha, p.w, q.w);
        y[i] = q;
    }
}
