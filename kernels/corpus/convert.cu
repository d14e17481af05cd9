// Conversions between all types, with every rounding mode.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "corpus.cuh"

MAP1(f32_to_s32, float, s32, 5, o[0] = __float2int_rn(a); o[1] = __float2int_rz(a); o[2] = __float2int_rd(a);
     o[3] = __float2int_ru(a); asm("cvt.rzi.ftz.s32.f32 %0, %1;" : "=r"(o[4]) : "f"(a));)
MAP1(f32_to_u32, float, u32, 4, o[0] = __float2uint_rn(a); o[1] = __float2uint_rz(a); o[2] = __float2uint_rd(a);
     o[3] = __float2uint_ru(a);)
MAP1(f32_to_s64, float, s64, 4, o[0] = __float2ll_rn(a); o[1] = __float2ll_rz(a); o[2] = __float2ll_rd(a);
     o[3] = __float2ll_ru(a);)
MAP1(f32_to_u64, float, u64, 4, o[0] = __float2ull_rn(a); o[1] = __float2ull_rz(a); o[2] = __float2ull_rd(a);
     o[3] = __float2ull_ru(a);)
#define TO_SHORT(text, d) asm("{ .reg .b16 t; " text " t, %1; cvt.u32.u16 %0, t; }" : "=r"(d) : "f"(a))
MAP1(f32_to_narrow, float, u32, 4, TO_SHORT("cvt.rzi.s16.f32", o[0]); TO_SHORT("cvt.rni.u16.f32", o[1]);
     asm("{ .reg .b32 t; cvt.rzi.s8.f32 t, %1; and.b32 %0, t, 255; }" : "=r"(o[2]) : "f"(a));
     asm("{ .reg .b32 t; cvt.rzi.u8.f32 t, %1; and.b32 %0, t, 255; }" : "=r"(o[3]) : "f"(a));)
MAP1(f64_to_s32, double, s32, 4, o[0] = __double2int_rn(a); o[1] = __double2int_rz(a); o[2] = __double2int_rd(a);
     o[3] = __double2int_ru(a);)
MAP1(f64_to_u32, double, u32, 4, o[0] = __double2uint_rn(a); o[1] = __double2uint_rz(a); o[2] = __double2uint_rd(a);
     o[3] = __double2uint_ru(a);)
MAP1(f64_to_s64, double, s64, 4, o[0] = __double2ll_rn(a); o[1] = __double2ll_rz(a); o[2] = __double2ll_rd(a);
     o[3] = __double2ll_ru(a);)
MAP1(f64_to_u64, double, u64, 2, o[0] = __double2ull_rn(a); o[1] = __double2ull_rz(a);)
MAP1(f64_to_f32, double, float, 4, o[0] = __double2float_rn(a); o[1] = __double2float_rz(a);
     o[2] = __double2float_rd(a); o[3] = __double2float_ru(a);)
MAP1(f32_to_f64, float, double, 1, o[0] = a;)
MAP1(s32_to_f32, s32, float, 4, o[0] = __int2float_rn(a); o[1] = __int2float_rz(a); o[2] = __int2float_rd(a);
     o[3] = __int2float_ru(a);)
MAP1(u32_to_f32, u32, float, 4, o[0] = __uint2float_rn(a); o[1] = __uint2float_rz(a); o[2] = __uint2float_rd(a);
     o[3] = __uint2float_ru(a);)
MAP1(s64_to_f32, s64, float, 4, o[0] = __ll2float_rn(a); o[1] = __ll2float_rz(a); o[2] = __ll2float_rd(a);
     o[3] = __ll2float_ru(a);)
MAP1(u64_to_f32, u64, float, 2, o[0] = __ull2float_rn(a); o[1] = __ull2float_ru(a);)
MAP1(u32_to_f64, u32, double, 2, o[0] = a; o[1] = (s32)a;)
MAP1(u64_to_f64, u64, double, 4, o[0] = __ull2double_rn(a); o[1] = __ull2double_rz(a); o[2] = __ll2double_rd(a);
     o[3] = __ll2double_ru(a);)
MAP1(narrow_to_f32, u32, float, 4, o[0] = (float)(u8)a; o[1] = (float)(s8)a; o[2] = (float)(u16)(a >> 7);
     o[3] = (float)(s16)(a >> 9);)
MAP1(f32_to_f16, float, __half, 4, o[0] = __float2half_rn(a); o[1] = __float2half_rz(a); o[2] = __float2half_rd(a);
     o[3] = __float2half_ru(a);)
MAP1(f64_to_f16, double, __half, 1, o[0] = __double2half(a);)
MAP1(f16_to_floats, __half, double, 2, o[0] = __half2float(a);
     double d; asm("cvt.f64.f16 %0, %1;" : "=d"(d) : "h"(__half_as_ushort(a))); o[1] = d;)
MAP1(f32_to_bf16, float, __nv_bfloat16, 2, o[0] = __float2bfloat16_rn(a); o[1] = __float2bfloat16_rz(a);)
MAP1(bf16_to_f32, __nv_bfloat16, float, 1, o[0] = __bfloat162float(a);)
MAP2(f32_pair_to_f16x2, float, float, __half2, 2, o[0] = __floats2half2_rn(a, b);
     asm("cvt.rn.relu.f16x2.f32 %0, %1, %2;" : "=r"(*(u32*)(o + 1)) : "f"(b), "f"(a));)
MAP2(f32_pair_to_bf16x2, float, float, __nv_bfloat162, 3, o[0] = __floats2bfloat162_rn(a, b);
     asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(*(u32*)(o + 1)) : "f"(b), "f"(a));
     asm("cvt.rz.bf16x2.f32 %0, %1, %2;" : "=r"(*(u32*)(o + 2)) : "f"(b), "f"(a));)
MAP1(f16_to_integers, __half, s32, 5, o[0] = __half2int_rn(a); o[1] = __half2int_rz(a); o[2] = __half2int_rd(a);
     o[3] = __half2uint_ru(a); o[4] = __half2short_rn(a);)
MAP1(integers_to_f16, s32, __half, 4, o[0] = __int2half_rn(a); o[1] = __int2half_rz(a); o[2] = __uint2half_ru(a);
     o[3] = __short2half_rn((short)a);)
MAP1(f16_integral, __half, __half, 4, o[0] = hfloor(a); o[1] = hceil(a); o[2] = htrunc(a); o[3] = hrint(a);)
MAP1(f32_to_tf32, float, float, 1, asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(*(u32*)o) : "f"(a));)
#define TO_S32(text, d) asm(text " %0, %1;" : "=r"(d) : "r"(a))
MAP1(integer_saturation, s32, s32, 4, TO_S32("cvt.sat.s8.s32", o[0]); TO_S32("cvt.sat.u8.s32", o[1]);
     asm("{ .reg .b16 t; cvt.sat.s16.s32 t, %1; cvt.s32.s16 %0, t; }" : "=r"(o[2]) : "r"(a));
     asm("{ .reg .b16 t; cvt.sat.u16.s32 t, %1; cvt.u32.u16 %0, t; }" : "=r"(o[3]) : "r"(a));)
// Four floats as four bytes, as a quantised network stores them.
KERNEL f32_to_bytes(const float4* in, uchar4* out, u32 n)
{
    u32 i = INDEX;
    if (i < n) {
        float4 v = in[i];
        out[i] = make_uchar4(v.x, v.y, v.z, v.w);
    }
}
